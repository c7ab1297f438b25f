"""The only module that knows `data/`: runs, samples, read-backs. A sample appears whole or not at all.

    data/runs/<run>/run.json            schema version, plan, seed, facts, versions, digests, git commit
                    manifests/<variant>.yaml (in data/reference .yaml.xz)
                    readback/b01-<arm>.json
                    deployed/b01-<arm>.json  the pods, on a cluster
                    roundtrip.json           of the bare network
                    knee.json                of a search for the knee: what it found, derived from the samples
                    samples/<id>/sample.json raw.zst (in data/reference raw.xz, raw.log.xz) hist.parquet usage.parquet
                                 events.parquet where something was done to the system, or a control run of it
                                 k6-summary.json, k6.csv.gz, k6.json.gz where k6's own were asked for

`hist.parquet` is derived: where it is missing, its histograms are read off the verbatim output again.

Refuses to overwrite a sample, and to read a damaged one as if it were whole.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import lzma
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

import polars as pl
import yaml
from pydantic import BaseModel

from lab import disturbances
from lab.base.errors import UsageError, did_you_mean
from lab.base.files import json_bytes, read_record, replace, runs_folder, sync, write_frame, write_synced, writing
from lab.generators import generator
from lab.generators.loads import load_of
from lab.generators.streaming import Output, Reduced
from lab.model.disturbance import known
from lab.model.endpoint import Endpoint
from lab.model.events import EVENTS_SCHEMA
from lab.model.load import OutputError, Result
from lab.model.requests import shifted
from lab.model.run import RoundTrip, RunRecord, now
from lab.model.samples import Reason, Sample
from lab.model.sweeps import Point
from lab.records import tables as frames
from lab.stats.histogram import Histogram

Told = TypeVar("Told")

HISTOGRAMS, USAGE = "hist.parquet", "usage.parquet"
"""What lies beside sample.json and the verbatim output."""
EVENTS = "events.parquet"
"""Lies there too where the load was logged."""
READ_AGAIN = 256
"""So many samples' histograms that were read off verbatim output are kept in memory, 15 MB."""
NOWHERE = Endpoint("http://192.0.2.1", "")
"""Where a load went does not matter to a parser."""
ROUNDTRIP = "roundtrip.json"
KNEE = "knee.json"
ABLATION = "ablation.json"
"""Makes a folder beside the runs an ablation, which is none."""


def new_id(label: str) -> str:
    """A folder's name that no other has, and that needs no quotes: the time (UTC) first, so that names sort by age."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    label = re.sub(r"[^A-Za-z0-9._-]+", "-", label)[:120]
    return f"{stamp}-{label}-{random.SystemRandom().randrange(16**4):04x}"


def run_names(folder: Path | None = None) -> list[str]:
    """Names of the runs there are, the oldest first, without folders that are closed to us. UsageError when none can be listed."""
    folder = folder or runs_folder()
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unreadable(folder, error, "make it readable, or set LAB_RUNS to a folder that is") from None
    return [name for name in names if _is_run(folder / name)]


def _is_run(folder: Path) -> bool:
    try:
        return (folder / "run.json").is_file()
    except OSError:
        return False


def _unreadable(path: Path, error: OSError, remedy: str) -> UsageError:
    return UsageError(str(error.filename or path), f"cannot be read: {error.strerror}", remedy)


def _brought_up(block: int, arm: str, generation: int, point: str) -> str:
    """The name, without its ending, of what is kept of a bring-up; `point`: where it was for one alone."""
    return "-".join(filter(None, [f"b{block:02d}", arm, point, f"g{generation}" if generation else ""]))


def _output(sample: Sample, path: Path) -> Output:
    tool, load = generator(sample.generator), load_of(sample.point, NOWHERE)
    return Output(tool, load, lambda stream: frames.raw_pieces(path, stream))


class RunStore:
    """One run's folder."""

    def __init__(self, folder: Path, record: RunRecord) -> None:
        self.folder, self.record = folder, record
        self._read_again: dict[str, Mapping[str, Histogram]] = {}

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
            replace(folder / "run.json", json_bytes(record))
        return cls(folder, record)

    @classmethod
    def open(cls, name: str) -> RunStore:
        """A run by its name or folder; UsageError when it is not there or damaged."""
        folder = Path(name) if "/" in name else runs_folder() / name
        try:  # a folder may be closed to us, or the name no name
            recorded, exists = (folder / "run.json").is_file(), folder.is_dir()
            ablation = (folder / ABLATION).is_file()
        except OSError as error:
            raise _unreadable(folder, error, "make it readable for you, or name another run") from None
        if not recorded:
            if ablation:
                remedy = f"`just table {folder.name}` names its runs; go on with `just ablate --resume {folder.name}`"
                raise UsageError(str(folder), "is an ablation, not a run", remedy)
            if exists:
                runs = [
                    each if folder == runs_folder() else f"{folder.absolute()}/{each}" for each in run_names(folder)
                ]
                remedy = f"name one of the runs in it: {', '.join(runs[-3:])}" if runs else "name another run"
                raise UsageError(str(folder), "has no run.json, so it is not a run", remedy)
            raise UsageError("run", f"unknown run '{name}'", did_you_mean(name, run_names()))
        remedy = "restore it from a copy; the samples beside it are untouched"
        return cls(folder, read_record(folder / "run.json", RunRecord, remedy, known(disturbances.kinds())))

    def note_resumed(self, facts: Mapping[str, str]) -> None:
        """Record that the run goes on now, and which facts differ from those it began with."""
        changed = {key: value for key, value in facts.items() if self.record.facts.get(key) != value}
        entry = {"at": now(), **changed}
        self.record = self.record.model_copy(update={"resumed": (*self.record.resumed, entry)})
        with writing(self.folder):
            replace(self.folder / "run.json", json_bytes(self.record))

    def extend(self, point: Point, slot: tuple[int, str, str], generator: Mapping[str, str | None]) -> None:
        """One more slot (block, arm, point) at the plan's end, before it is measured. ValueError for one that does not fit."""
        record = self.record
        points = {planned.name: planned for planned in record.points} | {point.name: point}
        if point not in record.points and len(points) == len(record.points):
            raise ValueError(f"another load is called {point.name!r}")
        if slot[2] != point.name or slot in record.slots or all(arm.name != slot[1] for arm in record.arms):
            raise ValueError(f"no slot for {point.name!r} in this run: {slot}")
        grown = {
            "points": tuple(points.values()),
            "slots": (*record.slots, slot),
            "blocks": max(record.blocks, slot[0]),
            "generators": {point.name: dict(generator), **record.generators},
        }
        self.record = record.model_copy(update=grown)
        with writing(self.folder):
            replace(self.folder / "run.json", json_bytes(self.record))

    # -- samples ----------------------------------------------------------------------------------------

    def samples(self) -> list[Sample]:
        """Every sample's record, in plan order. UsageError names the first damaged one."""
        found = []
        for folder in sorted(self._sample_folders()):
            remedy = f"move {folder} away and `--resume {self.record.id}` measures it again"
            try:
                parts = frames.raw_path(folder), folder / USAGE
                missing = [path.name for path in parts if not path.is_file()]
                told = (folder / EVENTS).is_file()
            except OSError as error:
                raise _unreadable(folder, error, "make it readable for you") from None
            if not missing:
                found.append(read_record(folder / "sample.json", Sample, remedy, known(disturbances.kinds())))
                missing = [EVENTS] if found[-1].outcome and not told else []
            if missing:
                raise UsageError(str(folder), f"{', '.join(missing)} is missing", remedy)
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
        events: pl.DataFrame | None = None,
        left: Mapping[str, bytes] | None = None,
    ) -> None:
        """One folder with the record, which notes the verbatim output's digest, that output, the histograms, the usage and the events;
        whole or not at all.

        `left`: files of the generator's own, name → content, kept as they are.
        """
        final = self.folder / "samples" / sample.id
        partial = final.with_name(f".{sample.id}.partial")
        with writing(final):
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            packed = frames.pack_raw(raw)
            write_synced(partial / frames.RAW, packed)
            write_frame(partial / HISTOGRAMS, frames.histogram_frame(histograms))
            write_frame(partial / USAGE, usage)
            if events is not None:
                write_frame(partial / EVENTS, events)
            for name, content in (left or {}).items():
                write_synced(partial / name, content)
            noted = sample.model_copy(update={"raw_sha256": hashlib.sha256(packed).hexdigest()})
            write_synced(partial / "sample.json", json_bytes(noted))
            sync(partial)
            if final.exists():
                raise FileExistsError(errno.EEXIST, "a sample of that name exists", str(final))
            partial.rename(final)
            sync(final.parent)

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
                replace(self.folder / "samples" / sample.id / "sample.json", json_bytes(marked))

    def raw(self, sample: Sample) -> tuple[str, str]:
        """(stdout, stderr) of the generator, verbatim."""
        return self._of_raw(sample, frames.read_raw)

    def result(self, sample: Sample) -> Result:
        """What the generator reported, parsed anew from its verbatim output. UsageError when that is damaged."""
        try:
            return self._of_raw(sample, lambda path: _output(sample, path).result())
        except OutputError as error:
            fault = f"cannot be parsed any more: {error}"
            raise UsageError(str(self._raw_path(sample)), fault, "restore it from a copy") from None

    def reduced(self, sample: Sample) -> Reduced:
        """Its request rows (a k6 log, oha's CSV) as counts, read in pieces: memory does not grow with them. UsageError where it has none."""
        try:
            return self._of_raw(sample, lambda path: _output(sample, path).reduced())
        except OutputError as error:
            fault = f"holds no whole rows of requests: {error}"
            remedy = "name a valid sample of a disturbance, or of oha at a rate"
            raise UsageError(str(self._raw_path(sample)), fault, remedy) from None

    def _raw_path(self, sample: Sample) -> Path:
        return frames.raw_path(self.folder / "samples" / sample.id)

    def _of_raw(self, sample: Sample, read: Callable[[Path], Told]) -> Told:
        path = self.folder / "samples" / sample.id
        try:
            path = self._raw_path(sample)
            return read(path)
        except (OSError, frames.FrameError) as error:
            remedy = f"restore it from a copy; without --from-raw, `just table {self.record.id}` does not read it"
            raise UsageError(str(path), f"cannot be read: {error}", remedy) from None

    def left(self, sample: Sample, name: str) -> bytes | None:
        """A file that the generator itself wrote beside a sample, as it is; None where it left none."""
        path = self.folder / "samples" / sample.id / name
        try:
            return path.read_bytes() if path.is_file() else None
        except OSError as error:
            raise _unreadable(path, error, "make it readable for you") from None

    def histogram(self, sample: Sample, series: Literal["latency", "service"] = "latency") -> Histogram | None:
        """A sample's histogram, as stored or else from its verbatim output; None where it recorded none."""
        if sample.histogram is None:
            return None
        path = self.folder / "samples" / sample.id / HISTOGRAMS
        try:
            if not path.exists():
                return self._histograms_again(sample).get(series)
            return frames.read_histogram(path, series, sample.histogram)
        except (OSError, frames.FrameError) as error:
            remedy = (
                f"restore it from a copy; `just table {self.record.id} --from-raw` reads the verbatim output instead"
            )
            raise UsageError(str(path), f"cannot be read: {error}", remedy) from None

    def _histograms_again(self, sample: Sample) -> Mapping[str, Histogram]:
        if sample.id not in self._read_again:
            if len(self._read_again) >= READ_AGAIN:
                self._read_again.clear()
            result = self.result(sample)
            named = {"latency": result.latency, "service": result.service}
            self._read_again[sample.id] = {name: each for name, each in named.items() if each is not None}
        return self._read_again[sample.id]

    def manifests(self, variant: str) -> list[dict[str, Any]]:
        """The rendered objects of a variant of this run, as they were applied. UsageError when they cannot be read."""
        path = self.manifests_path(variant)
        try:
            content = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
            loaded = yaml.load_all(content.decode("utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
            return [found for found in loaded if isinstance(found, dict)]
        except (OSError, lzma.LZMAError, UnicodeDecodeError, yaml.YAMLError) as error:
            first = " ".join(str(error).split())
            raise UsageError(str(path), f"cannot be read: {first}", "restore it from a copy") from None

    def manifests_path(self, variant: str) -> Path:
        """Where a variant's rendered objects lie, or should lie: YAML, in data/reference packed by xz."""
        plain = self.folder / "manifests" / f"{variant}.yaml"
        packed = plain.with_name(f"{plain.name}.xz")
        return packed if packed.is_file() and not plain.is_file() else plain

    def usage(self, sample: Sample) -> pl.DataFrame:
        """What the processes of a sample used, second by second: the columns of `lab.model.usage.USAGE_SCHEMA`."""
        return self._table(self.folder / "samples" / sample.id / USAGE, frames.read_usage)

    def events(self, sample: Sample) -> pl.DataFrame:
        """What happened to the system meanwhile: the columns of `lab.model.events.EVENTS_SCHEMA`. Of a steady load, no rows."""
        path = self.folder / "samples" / sample.id / EVENTS
        if sample.point.disturbance is None or not (sample.outcome or path.is_file()):
            return pl.DataFrame(schema=EVENTS_SCHEMA)
        return self._table(path, frames.read_events)

    def _table(self, path: Path, read: Callable[[Path], pl.DataFrame]) -> pl.DataFrame:
        try:
            return read(path)
        except (OSError, frames.FrameError) as error:
            remedy = f"restore it from a copy; `just table {self.record.id}` does not read it"
            raise UsageError(str(path), f"cannot be read: {error}", remedy) from None

    def requests(self, sample: Sample) -> pl.DataFrame:
        """Every request of a logged load by the lab's clock, from the verbatim output: the columns of `lab.model.requests.REQUESTS_SCHEMA`."""
        try:
            found = self._of_raw(sample, lambda path: _output(sample, path).requests())
        except OutputError as error:
            fault = f"holds no log of requests: {error}"
            raise UsageError(str(self._raw_path(sample)), fault, "name a valid sample of a disturbance") from None
        return shifted(found, sample.clock_offset_s or 0.0)

    # -- read-backs and the lock ------------------------------------------------------------------------

    def write_readback(
        self,
        block: int,
        arm: str,
        generation: int,
        readings: Sequence[Mapping[str, Any]],
        point: str = "",
    ) -> None:
        """What was read back after a bring-up, `point`: for this one alone. A resumed block adds a file, it replaces none."""
        self._write_brought_up("readback", block, arm, generation, readings, point)

    def readings(self, sample: Sample) -> list[dict[str, Any]]:
        """What was read back of the system that a sample measured (`Reading.as_json`); empty where nothing was to be.

        UsageError when it is missing or damaged.
        """
        point = sample.point.name if sample.point.disturbance is not None else ""
        path = self.folder / "readback" / f"{_brought_up(sample.block, sample.arm, sample.generation, point)}.json"
        try:
            found: Any = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise UsageError(str(path), f"cannot be read: {error}", "restore it from a copy") from None
        readings = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else None
        if readings is None or len(readings) != len(found):
            raise UsageError(str(path), "damaged: no list of readings", "restore it from a copy")
        return readings

    def write_deployed(
        self, block: int, arm: str, generation: int, pods: Sequence[Mapping[str, Any]], point: str = ""
    ) -> None:
        """What came up, where there are pods to speak of (a cluster)."""
        if pods:
            self._write_brought_up("deployed", block, arm, generation, pods, point)

    def _write_brought_up(
        self, kind: str, block: int, arm: str, generation: int, found: Sequence[Mapping[str, Any]], point: str
    ) -> None:
        stem = _brought_up(block, arm, generation, point)
        names = (f"{stem}{suffix}.json" for suffix in ("", *(f".{n}" for n in range(2, 1000))))
        with writing(self.folder):
            (self.folder / kind).mkdir(exist_ok=True)
            path = next(path for name in names if not (path := self.folder / kind / name).exists())
            replace(path, json.dumps(list(found), indent=1).encode())

    def write_roundtrip(self, found: RoundTrip) -> None:
        """The bare network's round trip, measured once per run."""
        with writing(self.folder):
            replace(self.folder / ROUNDTRIP, json_bytes(found))

    def roundtrip(self) -> RoundTrip | None:
        """None as long as it was not tried. UsageError when it is damaged."""
        path = self.folder / ROUNDTRIP
        remedy = f"move it away and `--resume {self.record.id}` measures it again"
        return read_record(path, RoundTrip, remedy) if path.is_file() else None

    def write_knee(self, found: BaseModel) -> None:
        """What a search found, for others to read: nothing in the lab does, since the samples tell."""
        with writing(self.folder):
            replace(self.folder / KNEE, json_bytes(found))

    def clear_partial(self) -> None:
        """Remove what an interrupted lab left half written."""
        for partial in (self.folder / "samples").glob(".*.partial"):
            shutil.rmtree(partial, ignore_errors=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Only one lab writes into a run."""
        try:
            handle = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise _unreadable(self.folder, error, "make it readable for you") from None
        try:
            self._lock(handle)
            yield
        finally:
            os.close(handle)

    def _lock(self, handle: int) -> None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(self.record.id, "another lab is measuring this run", "wait for it to end") from None
        except OSError as error:
            fault, remedy = f"cannot be locked: {error.strerror}", "set LAB_RUNS to a folder on a local file system"
            raise UsageError(str(self.folder), fault, remedy) from None
