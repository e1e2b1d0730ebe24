# Copyright The moonloop authors
# SPDX-License-Identifier: Apache-2.0
"""recount.py TRACE PARQUET WAY: writes a trace as Parquet, and counts in that, by SQL, what moonloop inspect counts in the trace: rows, tokens, and
what an infinite prefix cache has of them, in blocks of 512 tokens. Prints JSON. A block is known if a row of its model had it before ("by id"),
or if it is not above all ids before, since ids are numbered as they appear ("by order", for one model): in one pass, however many rows there are."""

import json
import sys

import duckdb

trace, parquet, way = sys.argv[1:4]
db = duckdb.connect()
db.execute(f"SET temp_directory='{parquet}.tmp'")
db.execute(f"""
  COPY (SELECT row_number() OVER () - 1 AS n, input_length, output_length, hash_ids, coalesce(model, '') AS model
        FROM read_json(?, format='newline_delimited', columns={{input_length: 'BIGINT', output_length: 'BIGINT', hash_ids: 'BIGINT[]', model: 'VARCHAR'}}))
  TO '{parquet}' (FORMAT parquet)""", [trace])
rows, prompt, output = db.execute(f"SELECT count(*), sum(input_length), sum(output_length) FROM '{parquet}'").fetchone()
# Of a row, an engine has the blocks up to the first that is not known.
if way == "by id":
    query = f"""
  WITH block AS (SELECT n, model, input_length, unnest(hash_ids) AS id, unnest(range(len(hash_ids))) AS place FROM '{parquet}' WHERE hash_ids IS NOT NULL),
       seen AS (SELECT *, min(n) OVER (PARTITION BY model, id) < n AS known FROM block),
       row_hit AS (SELECT n, any_value(input_length) AS tokens, coalesce(min(place) FILTER (WHERE NOT known), count(*)) AS blocks FROM seen GROUP BY n)
  SELECT sum(least(blocks * 512, tokens)) FROM row_hit"""
else:
    assert db.execute(f"SELECT count(DISTINCT model) FROM '{parquet}'").fetchone() == (1,)
    query = f"""
  WITH highest AS (SELECT *, max(list_max(hash_ids)) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS top FROM '{parquet}'),
       row_hit AS (SELECT input_length AS tokens, hash_ids, coalesce(lag(top) OVER (), -1) AS top FROM highest)
  SELECT sum(least(coalesce(list_position(list_transform(hash_ids, lambda id: id > top), true) - 1, len(hash_ids)) * 512, tokens)) FROM row_hit"""
hit, = db.execute(query).fetchone()
print(json.dumps({"rows": rows, "prompt": int(prompt), "output": int(output), "hit": int(hit)}))
