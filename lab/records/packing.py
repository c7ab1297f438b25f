"""A run's folder copied for a repository: `python -m lab.records.packing data/runs/<run> data/reference/<name>`.

The same run to every reader, a fifth smaller: verbatim output by xz where that is smaller than zstd at its best, a log of requests
as differences (and its digest in sample.json with it), that file without indents, tables by zstd at its best, manifests by xz.
Refuses to overwrite, and to write a file that does not read back as it was.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from lab.records.tables import RAW, SMALL_LOG, SMALL_RAW, join_raw, pack_log, pack_raw, pack_small, raw_path, read_raw

BEST = 22
"""Level of zstd: the slowest."""


def packed(run: Path, into: Path) -> None:
    """Copy a run's folder; what was there before stays as it is. FileExistsError where something lies at `into`."""
    if into.exists():
        raise FileExistsError(f"{into} exists: name a folder that is not there yet")
    partial = into.with_name(f".{into.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    into.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(run, partial)
    for path in filter(Path.is_file, map(raw_path, sorted(partial.glob("samples/*")))):
        _output(path)
    for path in sorted(partial.glob("samples/*/*.parquet")):
        _table(path)
    for path in sorted(partial.glob("manifests/*.yaml")):
        _manifests(path)
    partial.rename(into)


def _output(path: Path) -> None:
    raw, was = join_raw(*read_raw(path)), path.read_bytes()
    path.unlink()
    forms = (SMALL_RAW, pack_small(raw)), (SMALL_LOG, pack_log(raw)), (RAW, pack_raw(raw, BEST))
    name, content = min(forms, key=lambda form: len(form[1]))
    smallest = path.with_name(name)
    smallest.write_bytes(content)
    if join_raw(*read_raw(smallest)) != raw:
        raise ValueError(f"{smallest} does not read back as it was")
    record = path.with_name("sample.json")
    digests = hashlib.sha256(was).hexdigest(), hashlib.sha256(content).hexdigest()
    told = json.loads(record.read_text("utf-8").replace(*digests))
    record.write_text(json.dumps(told, ensure_ascii=False, separators=(",", ":")) + "\n", "utf-8")


def _table(path: Path) -> None:
    table, tight = pl.read_parquet(path), io.BytesIO()
    table.write_parquet(tight, compression="zstd", compression_level=BEST, statistics=False)
    if not pl.read_parquet(tight).equals(table):
        raise ValueError(f"{path} does not read back as it was")
    if len(tight.getvalue()) < path.stat().st_size:
        path.write_bytes(tight.getvalue())


def _manifests(path: Path) -> None:
    path.with_name(f"{path.name}.xz").write_bytes(pack_small(path.read_text("utf-8")))
    path.unlink()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("lab.records.packing", description="copy a run's folder for a repository, smaller")
    parser.add_argument("run", type=Path)
    parser.add_argument("into", type=Path)
    asked = parser.parse_args(arguments)
    if not (asked.run / "run.json").is_file():
        parser.error(f"{asked.run} is no run: it has no run.json")
    try:
        packed(asked.run, asked.into)
    except FileExistsError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
