#!/usr/bin/env bash
# Copyright The moonloop authors
# SPDX-License-Identifier: Apache-2.0
#
# install.sh DIR: AIPerf with a tokenizer, as the bench has them, and kvcache-simulator, in DIR: some 0.7 GB, two minutes. Needs
# Python 3.12 ($PYTHON, else python3.12). Done once; a second call does nothing.
set -euo pipefail

dir=${1:?usage: install.sh DIR}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PYTHON=${PYTHON:-python3.12}

command -v "$PYTHON" >/dev/null || {
	echo "error: no $PYTHON: install it, or name it: PYTHON=/path/to/python3.12" >&2
	exit 2
}
PEERS=aiperf "$here/../../../bench/peers/peers.sh" "$dir"
[ -x "$dir/bin/aiperf" ] || {
	echo "error: AIPerf is not installed: $(cat "$dir/aiperf.skipped"); see $dir/aiperf.log" >&2
	exit 1
}
done="$dir/kvcache-simulator/installed-1"
[ -e "$done" ] && exit 0
"$PYTHON" -m venv --clear "$dir/kvcache-simulator"
"$dir/kvcache-simulator/bin/pip" install --quiet kvcache-simulator==0.1.3
touch "$done"
