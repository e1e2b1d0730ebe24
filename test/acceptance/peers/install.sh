#!/usr/bin/env bash
# Copyright The moonloop authors
# SPDX-License-Identifier: Apache-2.0
#
# install.sh DIR: installs AIPerf and GuideLLM with a tokenizer each, as the bench has them, and kvcache-simulator, in DIR: 5 GB, a few
# minutes. Needs Python 3.12 ($PYTHON, else python3.12). Done once; a second call does nothing.
set -euo pipefail

dir=${1:?usage: install.sh DIR}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PYTHON=${PYTHON:-python3.12}

command -v "$PYTHON" >/dev/null || {
	echo "error: no $PYTHON: install it, or name it: PYTHON=/path/to/python3.12" >&2
	exit 2
}
done="$dir/installed-2"
[ -e "$done" ] && exit 0

# GuideLLM needs torch only for a data loader: the ordinary torch, without what only a GPU needs, as in ../vllm/install.sh.
mkdir -p "$dir"
"$PYTHON" -m venv "$dir/tools"
"$dir/tools/bin/pip" install --quiet uv==0.9.11
[ -x "$dir/guidellm/bin/python" ] || "$PYTHON" -m venv "$dir/guidellm"
echo "triton==3.7.1; sys_platform == 'never'" >"$dir/override.txt"
"$dir/tools/bin/uv" pip install --quiet --python "$dir/guidellm/bin/python" torch==2.13.0 --override "$dir/override.txt"

PEERS='aiperf guidellm' "$here/../../../bench/peers/peers.sh" "$dir"
for peer in aiperf guidellm; do
	[ -x "$dir/bin/$peer" ] || {
		echo "error: $peer is not installed: $(cat "$dir/$peer.skipped"); see $dir/$peer.log" >&2
		exit 1
	}
done
"$dir/guidellm/bin/python" "$here/lorem.py" "$dir/lorem"

"$PYTHON" -m venv --clear "$dir/kvcache-simulator"
"$dir/kvcache-simulator/bin/pip" install --quiet kvcache-simulator==0.1.3
touch "$done"
