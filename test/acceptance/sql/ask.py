# Copyright The moonloop authors
# SPDX-License-Identifier: Apache-2.0

# ask.py: runs the SQL of standard input with DuckDB in the working directory, and prints the columns and rows as JSON.
import json
import sys

import duckdb

answer = duckdb.sql(sys.stdin.read())
print(json.dumps({"columns": answer.columns, "rows": answer.fetchall()}, default=float))
