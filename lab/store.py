"""The only module that knows `data/`: runs, samples, read-backs. A sample appears whole or not at all.

    data/runs/<run>/run.json            schema version, plan, seed, facts, versions, digests, git commit
                    manifests/<variant>.yaml
                    readback/b01-<arm>.json
                    samples/<id>/sample.json raw.zst hist.parquet usage.parquet

Refuses to overwrite a sample, and to read a damaged one as if it were whole.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

import polars as pl
import yaml
import zstandard
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lab.errors import LabError, MeasuringError, UsageError, did_you_mean
from lab.histogram import BUCKETS, Histogram, bucket_edges_s
from lab.plan import Arm, Plan, Slot
from lab.samples import Reason, Sample
from lab.sweeps import Point

SCHEMA = 1
Model = TypeVar("Model", bound=BaseModel)
USAGE_SCHEMA = {
    "t_s": pl.Float64,  # since the sample began
    "role": pl.String,
    "pid": pl.Int32,
    "title": pl.String,
    "threads": pl.Int32,
    "user_s": pl.Float64,  # cumulative since the process began, as are the next four
    "system_s": pl.Float64,
    "cpu_s": pl.Float64,  # from the scheduler's nanoseconds where the kernel has them
    "minflt": pl.Int64,
    "majflt": pl.Int64,
    "vsz_bytes": pl.Int64,
    "rss_bytes": pl.Int64,
}
"""Columns of usage.parquet: one row per process and second."""

STDERR_MARK = "\n#lab stderr\n"


class StoreError(MeasuringError):
    """Something could not be recorded; the run stops, since what cannot be recorded must not be measured."""


class VariantRecord(BaseModel):
    """What a run keeps of each variant beside its manifests."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    title: str
    baseline: str | None
    knobs: tuple[str, ...]
    own_knobs: tuple[str, ...]
    primary_metric: str | None
    hypothesis_sweep: str | None
    manifests_sha256: str
    snippet: str = Field(default="", description="what to apply on a real cluster for its own knobs")


class RunRecord(BaseModel):
    """`run.json`: everything about a run that is known before the first sample, and how it was resumed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: int = SCHEMA
    id: str
    created_at: str
    command: tuple[str, ...]
    target: str
    sweep: str
    seed: int
    blocks: int
    arms: tuple[Arm, ...]
    points: tuple[Point, ...]
    slots: tuple[tuple[int, str, str], ...] = Field(description="the plan in order: (block, arm, point)")
    variants: dict[str, VariantRecord]
    generators: dict[str, dict[str, str | None]] = Field(
        description="point → name, version and stand_in_for of its generator"
    )
    facts: dict[str, str]
    git_commit: str | None
    resumed: tuple[dict[str, str], ...] = Field(default=(), description="when, and which facts had changed")

    def plan(self) -> Plan:
        arms = {arm.name: arm for arm in self.arms}
        points = {point.name: point for point in self.points}
        slots = tuple(
            Slot(order, block, arms[arm], points[point])
            for order, (block, arm, point) in enumerate(self.slots, start=1)
        )
        return Plan(self.arms, self.points, self.blocks, self.seed, slots)


def runs_folder() -> Path:
    """`data/runs` of this checkout, or where LAB_RUNS says."""
    return Path(os.environ.get("LAB_RUNS") or Path(__file__).parent.parent / "data" / "runs").absolute()


def run_names() -> list[str]:
    try:
        return sorted(path.parent.name for path in runs_folder().glob("*/run.json"))
    except OSError:
        return []


class RunStore:
    """One run's folder."""

    def __init__(self, folder: Path, record: RunRecord) -> None:
        self.folder, self.record = folder, record

    # -- making and finding runs ------------------------------------------------------------------------

    @classmethod
    def create(cls, record: RunRecord, manifests: Mapping[str, Sequence[Mapping[str, Any]]]) -> RunStore:
        """A new run's folder with `run.json` and the rendered manifests in it."""
        folder = runs_folder() / record.id
        with writing(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir()
            for part in ("manifests", "readback", "samples"):
                (folder / part).mkdir()
            for variant, objects in manifests.items():
                text = yaml.safe_dump_all(objects, sort_keys=False)
                write_synced(folder / "manifests" / f"{variant}.yaml", text.encode())
            _replace(folder / "run.json", _json(record))
        return cls(folder, record)

    @classmethod
    def open(cls, name: str) -> RunStore:
        """A run by its name or folder; UsageError when it is not there or damaged."""
        folder = Path(name) if "/" in name else runs_folder() / name
        if not (folder / "run.json").is_file():
            if folder.is_dir():
                raise UsageError(
                    str(folder),
                    "has no run.json, so it is not a run",
                    "name another run, or remove the folder",
                )
            raise UsageError("run", f"unknown run '{name}'", did_you_mean(name, run_names()))
        return cls(
            folder,
            _read(
                folder / "run.json",
                RunRecord,
                "restore it from a copy; the samples beside it are untouched",
            ),
        )

    def note_resumed(self, facts: Mapping[str, str]) -> None:
        """Record that the run goes on now, and which facts differ from those it began with."""
        changed = {key: value for key, value in facts.items() if self.record.facts.get(key) != value}
        entry = {"at": now(), **changed}
        self.record = self.record.model_copy(update={"resumed": (*self.record.resumed, entry)})
        with writing(self.folder):
            _replace(self.folder / "run.json", _json(self.record))

    # -- samples ----------------------------------------------------------------------------------------

    def samples(self) -> list[Sample]:
        """Every sample's record, in plan order. UsageError names the first damaged one."""
        found = []
        for folder in sorted(self._sample_folders()):
            remedy = f"move {folder} away and `--resume {self.record.id}` measures it again"
            missing = [name for name in ("raw.zst", "hist.parquet", "usage.parquet") if not (folder / name).is_file()]
            if missing:
                raise UsageError(str(folder), f"{', '.join(missing)} is missing", remedy)
            found.append(_read(folder / "sample.json", Sample, remedy))
        return sorted(found, key=lambda sample: (sample.order, sample.id))

    def _sample_folders(self) -> Iterator[Path]:
        try:
            yield from (path for path in (self.folder / "samples").iterdir() if not path.name.startswith("."))
        except OSError as error:
            raise UsageError(
                f"{self.folder}/samples",
                f"cannot be read: {error.strerror}",
                "restore the folder",
            ) from None

    def write_sample(
        self,
        sample: Sample,
        raw: str,
        histograms: Mapping[str, Histogram],
        usage: pl.DataFrame,
    ) -> None:
        """One folder with the record, the verbatim output, the histograms and the usage; whole or not at all."""
        final = self.folder / "samples" / sample.id
        partial = final.with_name(f".{sample.id}.partial")
        with writing(final):
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            write_synced(
                partial / "raw.zst",
                zstandard.compress(raw.encode("utf-8", "surrogateescape")),
            )
            _write_frame(partial / "hist.parquet", _histogram_frame(histograms))
            _write_frame(partial / "usage.parquet", usage)
            write_synced(partial / "sample.json", _json(sample))
            _sync(partial)
            if final.exists():
                raise FileExistsError(errno.EEXIST, "a sample of that name exists", str(final))
            partial.rename(final)
            _sync(final.parent)

    def mark_interrupted(self, samples: Sequence[Sample]) -> None:
        """Take samples out of count because their block is measured again whole; what they were stays in `detail`."""
        for sample in samples:
            was = sample.verdict if sample.reason is None else f"{sample.verdict}: {sample.reason}"
            marked = sample.model_copy(
                update={
                    "verdict": "invalid",
                    "reason": Reason.BLOCK_INTERRUPTED,
                    "detail": f"block interrupted and measured again (was {was}) {sample.detail}".strip(),
                }
            )
            with writing(self.folder):
                _replace(self.folder / "samples" / sample.id / "sample.json", _json(marked))

    def raw(self, sample: Sample) -> tuple[str, str]:
        """(stdout, stderr) of the generator, verbatim."""
        path = self.folder / "samples" / sample.id / "raw.zst"
        try:
            text = zstandard.decompress(path.read_bytes()).decode("utf-8", "surrogateescape")
        except (OSError, zstandard.ZstdError) as error:
            raise UsageError(
                str(path),
                f"cannot be read: {error}",
                "restore it, or resume the run without this sample",
            ) from None
        stdout, _, stderr = text.partition(STDERR_MARK)
        return stdout, stderr

    def histogram(self, sample: Sample, series: Literal["latency", "service"] = "latency") -> Histogram | None:
        """A sample's stored histogram, None where it recorded none."""
        if sample.histogram is None:
            return None
        path = self.folder / "samples" / sample.id / "hist.parquet"
        try:
            frame = pl.scan_parquet(path).filter(pl.col("series") == series).collect()
        except (OSError, pl.exceptions.PolarsError) as error:
            raise UsageError(
                str(path),
                f"cannot be read: {error}",
                f"`lab table {self.record.id} --from-raw` rebuilds it",
            ) from None
        if frame.is_empty():
            return None
        counts = Histogram.empty().counts
        counts[frame["bucket"].to_numpy()] = frame["count"].to_numpy()
        assert counts.shape == (BUCKETS,)
        return Histogram(counts, sample.histogram)

    # -- read-backs and the lock ------------------------------------------------------------------------

    def write_readback(
        self,
        block: int,
        arm: str,
        generation: int,
        readings: Sequence[Mapping[str, Any]],
    ) -> None:
        """What was read back after a bring-up. A resumed block adds a file, it replaces none."""
        stem = f"b{block:02d}-{arm}" + (f"-g{generation}" if generation else "")
        names = (f"{stem}{suffix}.json" for suffix in ("", *(f".{n}" for n in range(2, 1000))))
        with writing(self.folder):
            path = next(path for name in names if not (path := self.folder / "readback" / name).exists())
            _replace(path, json.dumps(list(readings), indent=1).encode())

    def clear_partial(self) -> None:
        """Remove what an interrupted lab left half written."""
        for partial in (self.folder / "samples").glob(".*.partial"):
            shutil.rmtree(partial, ignore_errors=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Only one lab writes into a run."""
        handle = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise UsageError(
                self.record.id,
                "another lab is measuring this run",
                "wait for it to end",
            ) from None
        finally:
            os.close(handle)


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """Turn a failed write into an error with its place and a remedy; what is recorded stays as it is."""
    try:
        yield
    except LabError:
        raise
    except OSError as error:
        remedies = {
            errno.ENOSPC: "free some disk space, then go on with --resume",
            errno.EDQUOT: "free some of your quota, then go on with --resume",
            errno.EACCES: "make it writable for you, or point LAB_RUNS at a folder that is",
            errno.EROFS: "point LAB_RUNS at a folder on a writable file system",
        }
        remedy = remedies.get(error.errno or 0, "mend it, then go on with --resume")
        raise StoreError(
            str(error.filename or place),
            f"cannot be written: {error.strerror or error}",
            remedy,
        ) from None


def check_writable(folder: Path, need_bytes: int) -> None:
    """UsageError unless a run can be written below `folder` and there is room for it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}"
        probe.mkdir()
        probe.rmdir()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise UsageError(
            str(folder),
            f"cannot be written: {error.strerror}",
            "make it writable, or set LAB_RUNS to a folder that is",
        ) from None
    if free < need_bytes:
        have, need = f"{free / 1e6:.0f} MB", f"{need_bytes / 1e6:.0f} MB"
        raise UsageError(
            str(folder),
            f"{have} free, this run may need {need}",
            "free some space, or set LAB_RUNS to a folder with more",
        )


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def join_raw(stdout: str, stderr: str) -> str:
    """The generator's verbatim output as `raw.zst` holds it."""
    return stdout + (STDERR_MARK + stderr if stderr else "")


def _histogram_frame(histograms: Mapping[str, Histogram]) -> pl.DataFrame:
    frames = []
    for series, histogram in histograms.items():
        filled = histogram.counts.nonzero()[0]
        low, high = bucket_edges_s(filled)
        frames.append(
            pl.DataFrame(
                {
                    "series": [series] * len(filled),
                    "bucket": filled,
                    "low_s": low,
                    "high_s": high,
                    "count": histogram.counts[filled],
                }
            )
        )
    schema = {
        "series": pl.String,
        "bucket": pl.Int64,
        "low_s": pl.Float64,
        "high_s": pl.Float64,
        "count": pl.Int64,
    }
    return pl.concat([pl.DataFrame(schema=schema), *(frame.cast(schema) for frame in frames)])  # type: ignore[arg-type]


def _json(record: BaseModel) -> bytes:
    return record.model_dump_json(indent=1).encode() + b"\n"


def _read(path: Path, model: type[Model], remedy: str) -> Model:
    try:
        return model.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UsageError(str(path), f"cannot be read: {error.strerror}", remedy) from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(str(path), f"damaged: {where + ': ' if where else ''}{first['msg']}", remedy) from None


def write_synced(path: Path, content: bytes) -> None:
    with open(path, "wb") as handle:
        handle.write(content)
        handle.flush()
        os.fsync(handle.fileno())


def _write_frame(path: Path, frame: pl.DataFrame) -> None:
    with open(path, "wb") as handle:
        frame.write_parquet(handle)
        handle.flush()
        os.fsync(handle.fileno())


def _replace(path: Path, content: bytes) -> None:
    """Write beside, then rename: a reader sees the old text or the new one."""
    partial = path.with_name(f".{path.name}.partial")
    write_synced(partial, content)
    partial.rename(path)
    _sync(path.parent)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
