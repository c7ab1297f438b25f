"""The only module that knows `data/`: runs, samples, read-backs, in both forms of a run's folder.

A run is written as a folder per sample (`folders`): a sample appears whole or not at all. A finished one may have been packed into a
few files (`packed`, by `packing`), and reads the same. `run.json` is there in both: schema version, plan, seed, facts, versions,
digests, git commit; as is `knee.json` (what a search for the knee found, derived from the samples). `roundtrip.json` is of the bare network.

Refuses to overwrite a sample, to read a damaged one as if it were whole, and to write into a packed run.
"""

from __future__ import annotations

import fcntl
import os
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from operator import methodcaller
from pathlib import Path
from typing import Any, Literal, TypeVar

import polars as pl
import yaml
from pydantic import BaseModel

from lab import disturbances
from lab.base.errors import UsageError, did_you_mean
from lab.base.files import json_bytes, read_record, reference_folder, replace, runs_folder, writing
from lab.base.validation import refuse
from lab.generators import generator, load_of
from lab.model import facts
from lab.model.disturbance import known
from lab.model.endpoint import Endpoint
from lab.model.events import EVENTS_SCHEMA
from lab.model.load import Load, OutputError, Result
from lab.model.plan import Arm
from lab.model.requests import shifted
from lab.model.run import RoundTrip, RunRecord, VariantRecord, now
from lab.model.samples import Reason, Sample
from lab.model.steadiness import Steadiness
from lab.model.sweeps import Point
from lab.records import tables
from lab.records.folders import RECORD, Folders
from lab.records.outcomes import outcome
from lab.records.packed import BRINGUPS, Packed, is_packed
from lab.records.renamed import Names, names_in, renamed_run, renamed_sample
from lab.records.steadiness import judge_again
from lab.records.tables import DEPLOYED, EVENTS, HISTOGRAMS, READBACK, ROUNDTRIP, RUN, USAGE, has, unreadable
from lab.stats.histogram import Histogram

Told = TypeVar("Told")
Form = Folders | Packed
"""Both have the same methods. What they read raises OSError, or ValueError for bytes that are not what they should be."""
Series = Literal["latency", "service"]

READ_AGAIN = 256
"""So many samples' histograms that were read off verbatim output are kept in memory, 15 MB."""
NOWHERE = Endpoint("http://192.0.2.1", "")
"""Where a load went does not matter to a parser."""
ABLATION = "ablation.json"
"""Makes a folder beside the runs an ablation, which is none."""
UNTIMED: Mapping[str, Any] = dict.fromkeys(("achieved_rps", "duration_s", "recorded_s", "histogram"))
"""What a generator cannot know that was stopped in between."""


def new_id(label: str) -> str:
    """A folder's name that no other has, and that needs no quotes: the time (UTC) first, so that names sort by age."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    label = re.sub(r"[^A-Za-z0-9._-]+", "-", label)[:120]
    return f"{stamp}-{label}-{random.SystemRandom().randrange(16**4):04x}"


def new_record(
    label: str,
    sweep: str,
    target: str,
    command: Sequence[str],
    arms: tuple[Arm, ...],
    points: tuple[Point, ...],
    variants: Mapping[str, VariantRecord],
    found_facts: Mapping[str, str],
) -> RunRecord:
    """What every run's record has, with an id of its own; neither generators nor slots yet."""
    return RunRecord(
        id=new_id(f"{label.replace('+', '-')[:40]}-{sweep}"),
        created_at=now(),
        command=tuple(command),
        target=target,
        sweep=sweep,
        seed=0,
        blocks=0,
        arms=arms,
        points=points,
        slots=(),
        variants=dict(variants),
        generators={},
        facts=dict(found_facts),
        git_commit=facts.git_commit(),
    )


def run_names(folder: Path | None = None) -> list[str]:
    """Names of the runs there are, the oldest first, without folders that are closed to us. UsageError when none can be listed."""
    folder = folder or runs_folder()
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise unreadable(folder, error, "make it readable, or set LAB_RUNS to a folder that is") from None
    return [name for name in names if has(folder / name, RUN)]


def _refuse_name(name: str, folder: Path, ablation: bool) -> UsageError:
    """What is no run: an ablation, another folder (the runs in it are named), or nothing (the nearest run is; or a committed one, by its folder)."""
    if ablation:
        remedy = f"`just table {folder.name}` names its runs; go on with `just ablate --resume {folder.name}`"
        return UsageError(str(folder), "is an ablation, not a run", remedy)
    if folder.is_dir():
        runs = [each if folder == runs_folder() else f"{folder.absolute()}/{each}" for each in run_names(folder)]
        remedy = f"name one of the runs in it: {', '.join(runs[-3:])}" if runs else "name another run"
        return UsageError(str(folder), "has no run.json, so it is not a run", remedy)
    top = reference_folder()
    own, committed = run_names(), run_names(top)
    remedy = did_you_mean(name, own)
    if committed and not own:
        place = top.relative_to(Path.cwd()) if top.is_relative_to(Path.cwd()) else top
        remedy = f"none of yours is known; a committed one is named {place}/RUN: {did_you_mean(name, committed)}"
    return UsageError("run", f"unknown run '{name}'", remedy)


class RunStore:
    """One run's folder, in either form. What it gives and takes has the present names of variants, what lies there those of its day."""

    def __init__(self, folder: Path, record: RunRecord, names: Names | None = None) -> None:
        self.folder, self.record = folder, record
        self._folders = Folders(folder, record.id)
        self._packed: Packed | None = None
        self._read_again: dict[str, Mapping[str, Histogram]] = {}
        self._steadiness: dict[str, Steadiness | None] = {}
        self.names = names or Names()

    @property
    def _form(self) -> Form:
        """Looked for anew as long as it is a folder per sample: somebody may pack it meanwhile."""
        if self._packed is None and is_packed(self.folder):
            self._packed = Packed(self.folder)
        return self._packed or self._folders

    def _told(self, read: Callable[[Form], Told], place: Callable[[Form], object], more: str = "") -> Told:
        """What is read of its form; UsageError with the place where it cannot be, and after the remedy `more`."""
        form = self._form
        try:
            return read(form)
        except (OSError, ValueError, yaml.YAMLError) as error:
            fault = f"cannot be read: {tables.in_a_line(error)}"
            raise UsageError(str(place(form)), fault, f"restore it from a copy{more}") from None

    # -- making and finding runs ------------------------------------------------------------------------

    @classmethod
    def create(cls, record: RunRecord, manifests: Mapping[str, Sequence[Mapping[str, Any]]]) -> RunStore:
        """A new run's folder with `run.json` and the rendered manifests in it."""
        store = cls(runs_folder() / record.id, record)
        with writing(store.folder):
            store._folders.create(manifests)
            replace(store.folder / RUN, json_bytes(record))
        return store

    @classmethod
    def open(cls, name: str) -> RunStore:
        """A run by its name or folder; UsageError when it is not there or damaged."""
        folder = Path(name) if "/" in name else runs_folder() / name
        try:  # a folder may be closed to us, or the name no name
            recorded, ablation = ((folder / file).is_file() for file in (RUN, ABLATION))
        except OSError as error:
            raise unreadable(folder, error, "make it readable for you, or name another run") from None
        if not recorded:
            raise _refuse_name(name, folder, ablation)
        remedy = "restore it from a copy; the samples beside it are untouched"
        record = read_record(folder / RUN, RunRecord, remedy, known(disturbances.DISTURBANCES))
        names = names_in(record)
        return cls(folder, renamed_run(record, names), names)

    @property
    def packed(self) -> bool:
        """Whether it is finished and lies in few files."""
        return self._form is not self._folders

    def refuse_packed(self) -> None:
        """UsageError where there is nothing to go on with."""
        if self.packed:
            remedy = f"`just table {self.folder}` shows it; start a new run to measure more"
            raise UsageError(self.record.id, "is packed, so it is finished", remedy)

    def note_resumed(self, facts: Mapping[str, str]) -> None:
        """Record that the run goes on now, and which facts differ from those it began with."""
        changed = {key: value for key, value in facts.items() if self.record.facts.get(key) != value}
        self._rewrite(resumed=(*self.record.resumed, {"at": now(), **changed}))

    def extend(self, point: Point, slot: tuple[int, str, str], generator: Mapping[str, str | None]) -> None:
        """One more slot (block, arm, point) at the plan's end, before it is measured. ValueError for one that does not fit."""
        record = self.record
        points = {planned.name: planned for planned in record.points} | {point.name: point}
        known = any(arm.name == slot[1] for arm in record.arms)
        refuse(
            (
                point not in record.points and len(points) == len(record.points),
                f"another load is called {point.name!r}",
            ),
            (
                slot[2] != point.name or slot in record.slots or not known,
                f"no slot for {point.name!r} in this run: {slot}",
            ),
        )
        self._rewrite(
            points=tuple(points.values()),
            slots=(*record.slots, slot),
            blocks=max(record.blocks, slot[0]),
            generators={point.name: dict(generator), **record.generators},
        )

    def _rewrite(self, **changes: object) -> None:
        """The run's record with these fields, here and in its file."""
        self.record = self.record.model_copy(update=changes)
        self.write(RUN, renamed_run(self.record, self.names.inverse))

    def write(self, name: str, record: BaseModel) -> None:
        """A record of the run as a whole: its own, ROUNDTRIP (the bare network's, measured once), or KNEE (what a search found, for others to
        read: nothing in the lab does, since the samples tell).
        """
        with writing(self.folder):
            replace(self.folder / name, json_bytes(record))

    # -- samples ----------------------------------------------------------------------------------------

    def stored_samples(self) -> list[Sample]:
        """Return every sample's record as it was written, in plan order. UsageError names the first damaged one."""
        stored = (renamed_sample(sample, self.names) for sample in self._form.samples())
        return sorted(stored, key=lambda sample: (sample.order, sample.id))

    def samples(self, wanted: Callable[[Sample], bool] = lambda _: True) -> list[Sample]:
        """Every sample's record, in plan order; those of earlier labs, which judged no steadiness, judged now. UsageError as `stored_samples`.

        `wanted`: of which samples; none of a pair without its other side, by which it is judged too.
        """

        def looks(samples: Sequence[str]) -> pl.DataFrame:
            return self._told(lambda form: form.looks(samples), lambda form: form.path(USAGE, samples[0]))

        return judge_again([each for each in self.stored_samples() if wanted(each)], looks, self._steadiness)

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
        stored = renamed_sample(sample, self.names.inverse)
        self._folders.write_sample(stored, raw, histograms, usage, events, left or {})

    def mark_interrupted(self, samples: Sequence[Sample]) -> None:
        """Take samples out of count because their block is measured again whole; what they were stays in `detail`."""
        for sample in samples:
            was = sample.verdict if sample.reason is None else f"{sample.verdict}: {sample.reason}"
            detail = f"block interrupted and measured again (was {was}) {sample.detail}".strip()
            changes = {"verdict": "invalid", "reason": Reason.BLOCK_INTERRUPTED, "detail": detail}
            marked = renamed_sample(sample.model_copy(update=changes), self.names.inverse)
            with writing(self.folder):
                replace(self._folders.path(RECORD, sample.id), json_bytes(marked))

    # -- verbatim output --------------------------------------------------------------------------------

    def raw(self, sample: Sample) -> tuple[str, str]:
        """(stdout, stderr) of the generator, verbatim."""
        more = f"; without --from-raw, `just table {self.record.id}` does not read it"
        return self._told(lambda form: tables.read_raw(form.raw(sample.id)), lambda _: self.raw_place(sample), more)

    def result(self, sample: Sample) -> Result:
        """What the generator reported, parsed anew from its verbatim output. UsageError when that is damaged."""
        stdout, stderr = self.raw(sample)
        try:
            return generator(sample.generator).parse(stdout, stderr, 0, _load_of(sample))
        except OutputError as error:
            fault = f"cannot be parsed any more: {error}"
            raise UsageError(self.raw_place(sample), fault, "restore it from a copy") from None

    def requests(self, sample: Sample) -> pl.DataFrame:
        """Every request of a logged load by the lab's clock, from the verbatim output: the columns of `lab.model.requests.REQUESTS_SCHEMA`."""
        stdout, stderr = self.raw(sample)
        try:
            found = generator(sample.generator).requests(stdout, stderr, _load_of(sample))
        except OutputError as error:
            fault = f"holds no log of requests: {error}"
            raise UsageError(self.raw_place(sample), fault, "name a valid sample of a disturbance") from None
        return shifted(found, sample.clock_offset_s or 0.0)

    def raw_place(self, sample: Sample) -> str:
        """What messages call its verbatim output."""
        try:
            return str(self._form.raw(sample.id))
        except (OSError, ValueError):
            return str(self.folder)

    def raw_held(self, sample: Sample) -> bool:
        """Whether its verbatim output is what its record has the digest of. OSError, or FrameError where it cannot be read."""
        return self._form.holds(sample)

    def left(self, sample: Sample, name: str) -> bytes | None:
        """A file that the generator itself wrote beside a sample, as it is; None where it left none."""
        return self._told(lambda form: form.left(sample.id, name), lambda _: f"{self.folder}: {name} of {sample.id}")

    # -- tables -----------------------------------------------------------------------------------------

    def histogram(self, sample: Sample, series: Series = "latency") -> Histogram | None:
        """A sample's histogram, as stored or else from its verbatim output; None where it recorded none."""
        if sample.histogram is None:
            return None
        more = f"; `just table {self.record.id} --from-raw` reads the verbatim output instead"
        kept = self._told(lambda form: form.histograms(sample), lambda form: form.path(HISTOGRAMS, sample.id), more)
        return (self._histograms_again(sample) if kept is None else kept).get(series)

    def ready(self) -> None:
        """Read the histograms of its steady loads off the verbatim output where no cache has them yet. UsageError as `histogram`."""
        steady = (each for each in self.samples() if each.valid and each.point.disturbance is None)
        if first := next((each for each in steady if each.histogram is not None), None):
            self.histogram(first)

    def _histograms_again(self, sample: Sample) -> Mapping[str, Histogram]:
        form = self._form
        if isinstance(form, Packed) and form.cache.begin():
            form.cache.write(self._all_histograms(form))
            if (kept := form.histograms(sample)) is not None:
                return kept
        if sample.id not in self._read_again:
            if len(self._read_again) >= READ_AGAIN:
                self._read_again.clear()
            self._read_again[sample.id] = self.result(sample).histograms
        return self._read_again[sample.id]

    def _all_histograms(self, form: Packed) -> Iterator[tuple[str, str, Mapping[str, Histogram]]]:
        """(sample, state of its output, series → histogram) of every output that can be read."""
        for sample in form.samples():
            if sample.histogram is not None:
                with suppress(UsageError):
                    yield sample.id, form.state(sample.id), self.result(sample).histograms

    def manifests(self, variant: str) -> list[dict[str, Any]]:
        """The rendered objects of a variant of this run, as they were applied. UsageError when they cannot be read."""
        stored = self.names.inverse.of(variant)

        def read(form: Form) -> list[dict[str, Any]]:
            loaded = yaml.load_all(form.manifests(stored), yaml.CSafeLoader)
            return [found for found in loaded if isinstance(found, dict)]

        return self._told(read, methodcaller("manifests_path", stored))

    def manifests_path(self, variant: str) -> Path:
        """The file with a variant's rendered objects: YAML, in a packed run every variant's, by xz."""
        return self._form.manifests_path(self.names.inverse.of(variant))

    def usage(self, sample: Sample) -> pl.DataFrame:
        """What the processes of a sample used, second by second: the columns of `lab.model.usage.USAGE_SCHEMA`."""
        return self._table(USAGE, sample, lambda form: form.usage(sample.id))

    def events(self, sample: Sample) -> pl.DataFrame:
        """What happened to the system meanwhile: the columns of `lab.model.events.EVENTS_SCHEMA`. Of a steady load, no rows."""
        if sample.point.disturbance is None:
            return pl.DataFrame(schema=EVENTS_SCHEMA)
        return self._table(EVENTS, sample, lambda form: form.events(sample.id, needed=bool(sample.outcome)))

    def _table(self, part: str, sample: Sample, read: Callable[[Form], pl.DataFrame]) -> pl.DataFrame:
        more = f"; `just table {self.record.id}` does not read it"
        return self._told(read, lambda form: form.path(part, sample.id), more)

    # -- what was brought up, and the lock --------------------------------------------------------------

    def _brought_up(self, block: int, arm: str, generation: int, point: str, fresh: int = 0) -> str:
        """The name, without its ending, of what is kept of a bring-up; `point`: where it was for one alone.

        `arm`: or two with `-beside-` between them. `fresh`: how often the system had been brought up anew in its block.
        """
        stored = "-beside-".join(map(self.names.inverse.of, arm.split("-beside-")))
        more = [f"g{generation}" if generation else "", f"fresh{fresh}" if fresh else ""]
        return "-".join(filter(None, [f"b{block:02d}", stored, point, *more]))

    def write_readback(
        self,
        block: int,
        arm: str,
        generation: int,
        readings: Sequence[Mapping[str, Any]],
        point: str = "",
        fresh: int = 0,
        deployed: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """What was read back after a bring-up, `point`: for this one alone; and what came up, where there are pods to speak of (a cluster).

        A resumed block adds files, it replaces none.
        """
        stem = self._brought_up(block, arm, generation, point, fresh)
        self._folders.write_brought_up(READBACK, stem, readings)
        if deployed:
            self._folders.write_brought_up(DEPLOYED, stem, deployed)

    def readings(self, sample: Sample) -> list[dict[str, Any]]:
        """What was read back of the system that a sample measured (`Reading.as_json`); empty where nothing was to be.

        UsageError when it is missing or damaged.
        """
        point = sample.point.name if sample.point.disturbance is not None else ""
        arm = f"{sample.arm}-beside-{sample.pair.against}" if sample.pair else sample.arm
        stem = self._brought_up(sample.block, arm, sample.generation, point, sample.fresh_bring_ups)
        place = methodcaller("brought_up_path", READBACK, stem)
        found = self._told(lambda form: form.brought_up(READBACK, stem), place)
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise UsageError(str(place(self._form)), "damaged: no list of readings", "restore it from a copy")
        return found

    def roundtrip(self) -> RoundTrip | None:
        """None as long as it was not tried. UsageError when it is damaged."""
        more = "" if self.packed else f", or move it away and `--resume {self.record.id}` measures it again"
        place = self.folder / (BRINGUPS if self.packed else ROUNDTRIP)
        return self._told(lambda form: form.roundtrip(), lambda _: place, more)

    def clear_partial(self) -> None:
        """Remove what an interrupted lab left half written."""
        self._folders.clear_partial()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Only one lab writes into a run."""
        try:
            handle = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise unreadable(self.folder, error, "make it readable for you") from None
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(self.record.id, "another lab is measuring this run", "wait for it to end") from None
            except OSError as error:
                fault, remedy = f"cannot be locked: {error.strerror}", "set LAB_RUNS to a folder on a local file system"
                raise UsageError(str(self.folder), fault, remedy) from None
            yield
        finally:
            os.close(handle)


def _load_of(sample: Sample) -> Load:
    return load_of(sample.point, NOWHERE, timed=not sample.untimed)


# -- numbers again, from the verbatim output ---------------------------------------------------------------


class Reparsed(RunStore):
    """A run of which what the generators reported comes from their verbatim output through today's parsers.

    Verdicts stay: they rest on what was seen while measuring, which the output cannot tell.
    """

    @classmethod
    def of(cls, store: RunStore) -> Reparsed:
        return cls(store.folder, store.record, store.names)

    def samples(self, wanted: Callable[[Sample], bool] = lambda _: True) -> list[Sample]:
        return [self._again(sample) for sample in super().samples(wanted)]

    def histogram(self, sample: Sample, series: Series = "latency") -> Histogram | None:
        return self._read_again.get(sample.id, {}).get(series)

    def _again(self, sample: Sample) -> Sample:
        if sample.requests is None:
            return sample  # nothing was reported then either
        if sample.outcome:
            # events and usage are as they were stored: nobody but the system could tell them again
            requests, events, usage = self.requests(sample), self.events(sample), self.usage(sample)
            error_s = sample.outcome.get("clock_error_s") or 0.0
            again = outcome(sample.point, requests, events, usage, 0.0, error_s)
            sample = sample.model_copy(update={"outcome": again})
        result = self.result(sample)
        self._read_again[sample.id] = {} if sample.untimed else result.histograms
        return sample.model_copy(update={**reported(result), **(UNTIMED if sample.untimed else {})})


def reported(result: Result | None) -> dict[str, Any]:
    """A sample's columns of what its generator reported; none where it reported nothing."""
    if result is None:
        return {}
    return {
        "achieved_rps": result.achieved_rps,
        "requests": result.requests,
        "duration_s": result.duration_s,
        "recorded_s": result.recorded_s,
        "errors": {str(kind): count for kind, count in result.errors.items() if count},
        "dropped": result.dropped,
        "size_bytes": result.size_bytes,
        "histogram": result.latency.kind,
    }
