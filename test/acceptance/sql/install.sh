#!/usr/bin/env bash
# Copyright The moonloop authors
# SPDX-License-Identifier: Apache-2.0
#
# install.sh DIR: installs DuckDB, ClickHouse (chdb) and Spark, as Python packages, in DIR (1.5 GB). Needs Python 3.10 or later (PYTHON);
# Spark needs Java 17.
set -euo pipefail

dir=${1:?usage: install.sh DIR}
[ -x "$dir/bin/python" ] || "${PYTHON:-python3}" -m venv "$dir"
"$dir/bin/python" -c 'import duckdb, chdb, pyspark' 2>/dev/null || "$dir/bin/python" -m pip install --quiet duckdb==1.5.4 chdb==4.4.0 pyspark==4.3.0
