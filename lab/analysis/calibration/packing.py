"""A calibration's measurements → two files in their place: raw.zip and histograms.parquet (`just maintain pack RUN` of one).

    raw.zip               <measurement>/raw.xz, stored, as in a packed run
    histograms.parquet    series, bucket, count, with the measurement in front as `sample`; the truth among them is read off no output

Refuses to put anything away before it was read again and is equal.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl

from lab.base.errors import UsageError
from lab.base.files import sync, write_synced
from lab.records import packed, tables
from lab.records.forms import HISTOGRAMS
from lab.records.packing import PARTIAL, Size, write_zip

MEASUREMENTS, COUNTED = "measurements", "histograms.parquet"
RAW = packed.RAW


def pack(folder: Path) -> tuple[Size, Size]:
    """What it was, and what it is now. UsageError where it cannot be packed: it is then as it was."""
    was, new = Size.of(folder), folder / PARTIAL
    if not (folder / MEASUREMENTS).is_dir():
        raise UsageError(str(folder), "is packed already", "name another one")
    try:
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        _write(sorted((folder / MEASUREMENTS).iterdir()), new)
        for name in (COUNTED, RAW):
            (new / name).rename(folder / name)
        sync(folder)
        shutil.rmtree(folder / MEASUREMENTS)
    except (OSError, tables.FrameError) as error:
        raise UsageError(str(folder / MEASUREMENTS), f"cannot be packed: {error}", packed.RESTORE) from None
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return was, Size.of(folder)


def _write(measured: list[Path], new: Path) -> None:
    raws = {path.name: tables.unpacked(tables.raw_path(path)) for path in measured}
    counted = {path.name: tables.read_counts(path / HISTOGRAMS) for path in measured}
    members = [(f"{name}/{tables.SMALL_RAW}", tables.compressed(raw), tables.digest(raw)) for name, raw in raws.items()]
    write_zip(new / RAW, members)
    write_synced(new / COUNTED, tables.parquet_bytes(tables.joined(counted, tables.HISTOGRAM_SCHEMA)))
    again = tables.read_joined(new / COUNTED, tables.HISTOGRAM_SCHEMA)
    form, nothing = packed.Packed(new), pl.DataFrame(schema=tables.HISTOGRAM_SCHEMA)
    for name, raw in raws.items():
        if form.raw_bytes(name) != raw or not again.get(name, nothing).equals(counted[name]):
            raise UsageError(str(new.parent / MEASUREMENTS / name), "would not read back as it was", "keep it as it is")
