# Copyright The moonloop authors
# SPDX-License-Identifier: Apache-2.0

# ask.py ENGINE: runs the SQL queries of standard input, a JSON array, with duckdb, clickhouse or spark in the working directory, and prints a
# JSON array of their columns and rows. ClickHouse and Spark are the packages chdb and pyspark: the same engines within this process.
import json
import sys


def duckdb(query):
    import duckdb as engine

    answer = engine.sql(query)
    return answer.columns, answer.fetchall()


def clickhouse(query):
    import chdb

    answer = json.loads(str(chdb.query(query, "JSONCompact")))
    return [column["name"] for column in answer["meta"]], answer["data"]


def spark(query):
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    answer = session.sql(query)
    return answer.columns, [list(row) for row in answer.collect()]


ask = {"duckdb": duckdb, "clickhouse": clickhouse, "spark": spark}[sys.argv[1]]
answers = []
for query in json.load(sys.stdin):
    columns, rows = ask(query.strip().removesuffix(";"))
    answers.append({"columns": columns, "rows": rows})
print(json.dumps(answers, default=float))
