#!/usr/bin/env bash
# Copyright The moonloop authors
# SPDX-License-Identifier: Apache-2.0
#
# install.sh DIR: installs DuckDB in DIR: 60 MB, a few seconds. Needs Python 3.9 or later ($PYTHON, else python3). Done once; a second call
# does nothing.
set -euo pipefail

dir=${1:?usage: install.sh DIR}
python=${PYTHON:-python3}
done="$dir/installed-1"
[ -e "$done" ] && exit 0

command -v "$python" >/dev/null || {
	echo "error: no $python: install it, or name it: PYTHON=/path/to/python3" >&2
	exit 2
}
"$python" -m venv --clear "$dir"
"$dir/bin/pip" install --quiet duckdb==1.4.2
touch "$done"
