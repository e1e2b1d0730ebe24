#!/usr/bin/env bash
# Copyright The moonloop authors
# SPDX-License-Identifier: Apache-2.0
#
# install.sh DIR: DuckDB, as a Python package, in DIR. Needs Python 3.10 or later (PYTHON).
set -euo pipefail

dir=${1:?usage: install.sh DIR}
[ -x "$dir/bin/python" ] || "${PYTHON:-python3}" -m venv "$dir"
"$dir/bin/python" -c 'import duckdb' 2>/dev/null || "$dir/bin/python" -m pip install --quiet duckdb==1.5.4
