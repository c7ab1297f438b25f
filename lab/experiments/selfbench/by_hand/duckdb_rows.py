"""By hand: one generator's request rows with DuckDB. Usage: duckdb_rows.py k6|oha FILE RATE. Prints a line of JSON."""

import json
import sys
from math import ceil
from time import monotonic

import duckdb

kind, path, rate = sys.argv[1], sys.argv[2], float(sys.argv[3])
began = monotonic()
db = duckdb.connect()
if kind == "oha":
    db.execute(
        f"""CREATE TABLE rows AS SELECT "request-duration" AS taken, "request-start" / 0.1::DOUBLE AS since, status, true AS ok
        FROM read_csv('{path}', types = {{'request-start': 'DOUBLE', 'request-duration': 'DOUBLE'}})"""
    )
else:
    names = [
        "word",
        "number",
        "start",
        "wall",
        "sent",
        "done",
        "service",
        "status",
        "kind",
        "backend",
        "port",
        "worker",
    ]
    kinds = ["VARCHAR", "BIGINT", *["DOUBLE"] * 5, "INT", *["VARCHAR"] * 4]
    columns = dict(zip(names, kinds, strict=True))
    db.execute(
        f"""CREATE TABLE log AS SELECT *, number * 1000 / {rate}::DOUBLE AS due
        FROM read_csv('{path}', delim = ' ', quote = '', header = false, auto_detect = false, null_padding = true, columns = {columns})"""
    )
    began_ms, soonest, start = db.execute(
        "SELECT max(wall - sent), min(sent - due), arg_min(start, number) FROM log"
    ).fetchone() or (0, 0, 0)
    schedule = start - began_ms
    schedule += min(1, max(0, soonest - schedule))
    db.execute(
        f"""CREATE TABLE rows AS SELECT (done - due - {schedule}::DOUBLE) / 1000 AS taken, due / 100::DOUBLE AS since, status,
        kind = '-' AS ok FROM log"""
    )
ordered = db.execute("SELECT taken FROM rows WHERE ok ORDER BY taken").fetchnumpy()["taken"]
quantiles = {str(p): float(ordered[ceil(p * len(ordered) - 1e-9) - 1]) for p in (0.5, 0.9, 0.99, 0.999)}
begun = dict(db.execute("SELECT floor(since)::INT, count(*) FROM rows GROUP BY 1").fetchall())
requests, not_2xx = db.execute(
    "SELECT count(*), count(*) FILTER (ok AND status NOT BETWEEN 200 AND 299) FROM rows"
).fetchone() or (0, 0)
result = {
    "requests": requests,
    "answered": len(ordered),
    "not_2xx": not_2xx,
    "quantiles_s": quantiles,
    "begun": [begun.get(step, 0) for step in range(max(begun) + 1)],
    "seconds": monotonic() - began,
}
sys.stdout.write(json.dumps(result) + "\n")
