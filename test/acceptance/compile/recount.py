# Copyright The moonloop authors
# SPDX-License-Identifier: Apache-2.0
"""recount.py TRACE PARQUET: writes a trace as Parquet, and counts in that, by SQL, what moonloop inspect counts in the trace: rows, tokens, and
what an infinite prefix cache has of them, in blocks of 512 tokens. Prints JSON."""

import json
import sys

import duckdb

trace, parquet = sys.argv[1:3]
db = duckdb.connect()
db.execute(f"SET temp_directory='{parquet}.tmp'")
db.execute(f"""
  COPY (SELECT row_number() OVER () - 1 AS n, input_length, output_length, hash_ids, coalesce(model, '') AS model
        FROM read_json(?, format='newline_delimited', columns={{input_length: 'BIGINT', output_length: 'BIGINT', hash_ids: 'BIGINT[]', model: 'VARCHAR'}}))
  TO '{parquet}' (FORMAT parquet)""", [trace])
rows, prompt, output = db.execute(f"SELECT count(*), sum(input_length), sum(output_length) FROM '{parquet}'").fetchone()
# A block is known if its model had it before; of a row, those up to the first that is not.
hit, = db.execute(f"""
  WITH block AS (SELECT n, model, input_length, unnest(hash_ids) AS id, unnest(range(len(hash_ids))) AS place FROM '{parquet}' WHERE hash_ids IS NOT NULL),
       seen AS (SELECT *, min(n) OVER (PARTITION BY model, id) < n AS known FROM block),
       row_hit AS (SELECT n, any_value(input_length) AS tokens, coalesce(min(place) FILTER (WHERE NOT known), count(*)) AS blocks FROM seen GROUP BY n)
  SELECT sum(least(blocks * 512, tokens)) FROM row_hit""").fetchone()
print(json.dumps({"rows": rows, "prompt": int(prompt), "output": int(output), "hit": int(hit)}))
