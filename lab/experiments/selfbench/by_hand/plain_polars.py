"""By hand: k6's log of requests with polars, whole. Usage: plain_polars.py FILE RATE. Prints a line of JSON."""

import json
import sys
from math import ceil
from pathlib import Path
from time import monotonic

import polars as pl

path, rate = sys.argv[1], float(sys.argv[2])
began = monotonic()
names = ["word", "number", "start", "wall", "sent", "done", "service", "status", "kind", "backend", "port", "worker"]
rows = pl.read_csv(path, separator=" ", has_header=False, new_columns=names, quote_char=None)
rows = rows.with_columns(due=pl.col("number") * 1000 / rate)
began_ms = (rows["wall"] - rows["sent"]).max()
schedule = rows.filter(pl.col("number") == 0)["start"].item() - began_ms
schedule += min(1, max(0, (rows["sent"] - rows["due"]).min() - schedule))
taken = (pl.col("done") - pl.col("due") - schedule) / 1000
rows = rows.select(taken=taken, since=pl.col("due") / 100, status="status", ok=pl.col("kind") == "-")
answered = rows.filter("ok")
ordered = answered["taken"].sort()
quantiles = {str(p): ordered[ceil(p * len(ordered) - 1e-9) - 1] for p in (0.5, 0.9, 0.99, 0.999)}
steps = rows.group_by(pl.col("since").floor().cast(pl.Int64)).len().sort("since")
begun = dict(zip(steps["since"].to_list(), steps["len"].to_list(), strict=True))
result = {
    "requests": len(rows),
    "answered": len(answered),
    "not_2xx": answered.filter(~pl.col("status").is_between(200, 299)).height,
    "quantiles_s": quantiles,
    "begun": [begun.get(step, 0) for step in range(max(begun) + 1)],
    "seconds": monotonic() - began,
    "memory": Path("/proc/self/status").read_text(),
}
sys.stdout.write(json.dumps(result) + "\n")
