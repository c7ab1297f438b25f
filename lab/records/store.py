"""The store of runs, their samples and read-backs, which reads both forms of a run's folder.

Other packages read and write runs only through this module. A run is written as a folder per sample (`folders`), where a sample appears
completely or not at all. A finished run may have been packed into a few files (`packed`, by `packing`), and reads the same. `run.json` is
there in both forms: schema version, plan, seed, facts, versions, digests, git commit. So is `knee.json`, which has what a search for the
knee found, derived from the samples. `roundtrip.json` has the round trip of the bare network.

Refuses to overwrite a sample, to read a damaged sample as if it were complete, and to write into a packed run.
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
from lab.base.errors import UsageError, did_you_mean, refuse_if
from lab.base.files import json_bytes, read_record, reference_folder, replace_file, runs_folder, writing
from lab.generators import get_generator, make_load
from lab.model import facts
from lab.model.disturbance import make_validation_context
from lab.model.endpoint import Endpoint
from lab.model.events import EVENTS_SCHEMA
from lab.model.load import GeneratorLoad, GeneratorResult, OutputError
from lab.model.plan import Arm
from lab.model.requests import shifted
from lab.model.run import RoundTrip, RunRecord, VariantRecord, format_now
from lab.model.samples import Reason, Sample
from lab.model.steadiness import Steadiness
from lab.model.sweeps import LoadPoint
from lab.records import tables
from lab.records.folders import SAMPLE_RECORD, FolderForm
from lab.records.outcomes import choose_stream_outcome, compute_outcome
from lab.records.packed import BRINGUPS, PackedForm, is_packed
from lab.records.renamed import RenamedNames, find_renamed, rename_run, rename_sample
from lab.records.steadiness import judge_unjudged
from lab.records.tables import (
    DEPLOYED,
    EVENTS,
    HISTOGRAMS,
    READBACK,
    ROUNDTRIP,
    RUN,
    USAGE,
    has_file,
    make_unreadable_error,
)
from lab.stats.histogram import Histogram

Told = TypeVar("Told")
Form = FolderForm | PackedForm
"""The two forms of a run's folder, which have the same methods.

Their reading methods raise OSError, or ValueError for bytes that are not what they should be.
"""
Series = Literal["latency", "service"]

HISTOGRAMS_KEPT = 256
"""The number of samples whose histograms are kept in memory after they were read from verbatim output: 15 MB."""
ANY_ENDPOINT = Endpoint("http://192.0.2.1", "")
"""The endpoint that parsers get, since it does not matter to them where a load went."""
ABLATION = "ablation.json"
"""The name of the file that makes a folder next to the runs an ablation, which is not a run."""
UNTIMED: Mapping[str, Any] = dict.fromkeys(("achieved_rps", "duration_s", "recorded_s", "histogram"))
"""The values that a generator cannot know when it was stopped in between: all None."""


def new_id(label: str) -> str:
    """Return a new unique name for a run's folder, such as `20261124-093000-keepalive-1a2b`.

    It begins with the time (UTC), so that names sort by age, and needs no quotes in a shell.

    Args:
        label: The text in the middle of the name.

    """
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    label = re.sub(r"[^A-Za-z0-9._-]+", "-", label)[:120]
    return f"{stamp}-{label}-{random.SystemRandom().randrange(16**4):04x}"


def new_record(
    label: str,
    sweep: str,
    target: str,
    command: Sequence[str],
    arms: tuple[Arm, ...],
    points: tuple[LoadPoint, ...],
    variants: Mapping[str, VariantRecord],
    recorded_facts: Mapping[str, str],
) -> RunRecord:
    """Return the record of a new run with a new id; its plan and its generators are added later.

    Args:
        label: The text in the run's id that names what is measured.
        sweep: The name of the sweep (list of loads).
        target: The name of the target (where systems run), such as "local".
        command: The command line that starts the run.
        arms: The variants under the names that they have in the run.
        points: The load points.
        variants: The record of each variant, by its name.
        recorded_facts: The facts of machine and target, name → value.

    """
    return RunRecord(
        id=new_id(f"{label.replace('+', '-')[:40]}-{sweep}"),
        created_at=format_now(),
        command=tuple(command),
        target=target,
        sweep=sweep,
        seed=0,
        blocks=0,
        arms=arms,
        points=points,
        traffic=next((point.traffic for point in points if point.traffic is not None), None),
        slots=(),
        variants=dict(variants),
        generators={},
        facts=dict(recorded_facts),
        git_commit=facts.read_git_commit(),
    )


def run_names(folder: Path | None = None) -> list[str]:
    """Return the names of all runs in a folder, the oldest first; runs that cannot be read are left out.

    Args:
        folder: The folder of the runs; None = `runs_folder()`.

    Raises:
        UsageError: The folder itself cannot be listed.

    """
    folder = folder or runs_folder()
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise make_unreadable_error(folder, error, "make it readable, or set LAB_RUNS to a folder that is") from None
    return [name for name in names if has_file(folder / name, RUN)]


def _find_committed(run_id: str) -> Path | None:
    """Return the folder of a committed run by the id in its `run.json`, which is not the folder's name; None if none has it."""
    beginning = f'"id": "{run_id}"'.encode()
    for file in sorted(reference_folder().rglob(RUN)):
        with file.open("rb") as text:
            if beginning in text.read(512):
                return file.parent
    return None


def _explain_bad_name(name: str, folder: Path, ablation: bool) -> UsageError:
    """Return the error that a name is not the name of a run, with a remedy.

    For an ablation (a series of runs) the remedy is the command that shows its runs. For another folder it names the
    runs in the folder. For an unknown name it suggests the most similar run.

    Args:
        name: The name that the user gave.
        folder: The folder that the name refers to, which may not exist.
        ablation: Whether the folder is that of an ablation.

    """
    if ablation:
        return UsageError(
            str(folder),
            "is an ablation, not a run",
            f"`just table {folder.name}` names its runs; go on with `just ablate --resume {folder.name}`",
        )
    if folder.is_dir():
        runs = [run if folder == runs_folder() else f"{folder.absolute()}/{run}" for run in run_names(folder)]
        remedy = f"name one of the runs in it: {', '.join(runs[-3:])}" if runs else "name another run"
        return UsageError(str(folder), "has no run.json, so it is not a run", remedy)
    top = reference_folder()
    local, committed = run_names(), run_names(top)
    remedy = did_you_mean(name, local)
    if committed and not local:
        place = top.relative_to(Path.cwd()) if top.is_relative_to(Path.cwd()) else top
        remedy = f"none of yours is known; a committed one is named {place}/RUN: {did_you_mean(name, committed)}"
    return UsageError("run", f"unknown run '{name}'", remedy)


class RunStore:
    """The folder of one run, in the form with a folder per sample or in the packed form (few files).

    The arguments and results of all methods have the present names of variants. The files have the names that were
    valid when the run was measured.
    """

    def __init__(self, folder: Path, record: RunRecord, names: RenamedNames | None = None) -> None:
        self.folder, self.record = folder, record
        self._folders = FolderForm(folder, record.id)
        self._packed: PackedForm | None = None
        self._read_again: dict[str, Mapping[str, Histogram]] = {}
        self._steadiness: dict[str, Steadiness | None] = {}
        self.names = names or RenamedNames()

    @property
    def _form(self) -> Form:
        """The reader of the run's folder: `PackedForm` if the run is packed, else `FolderForm` (a folder per sample).

        It is determined anew until the folder is packed, because another process may pack it in the meantime.
        """
        if self._packed is None and is_packed(self.folder):
            self._packed = PackedForm(self.folder)
        return self._packed or self._folders

    def _read_form(self, read: Callable[[Form], Told], place: Callable[[Form], object], advice: str = "") -> Told:
        """Read a part of the run's folder, and raise a UsageError if it cannot be read.

        Args:
            read: A function that reads the part. Its argument is the reader for the folder's form (packed, or a folder
                per sample).
            place: A function that returns the file for the error message. It has the same argument.
            advice: More text for the error's remedy, after "restore it from a copy"; empty = none.

        Returns:
            What `read` returns.

        """
        form = self._form
        try:
            return read(form)
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise UsageError(
                str(place(form)),
                f"cannot be read: {tables.join_lines(error)}",
                f"restore it from a copy{advice}",
            ) from None

    # -- making and finding runs ------------------------------------------------------------------------

    @classmethod
    def create(cls, record: RunRecord, manifests: Mapping[str, Sequence[Mapping[str, Any]]]) -> RunStore:
        """Create the folder of a new run, with `run.json` and the manifests of each variant in it.

        Args:
            record: The record of the run.
            manifests: The rendered Kubernetes objects of each variant, by the variant's name.

        """
        store = cls(runs_folder() / record.id, record)
        with writing(store.folder):
            store._folders.create(manifests)
            replace_file(store.folder / RUN, json_bytes(record))
        return store

    @classmethod
    def open(cls, name: str) -> RunStore:
        """Open a run by its name, or by the path of its folder (a text with a slash).

        The name is that of a folder in `runs_folder()`, or the id of a committed run.

        Raises:
            UsageError: There is no such run, or it is damaged.

        """
        folder = Path(name) if "/" in name else runs_folder() / name
        try:  # the folder may be closed to us, or the name may be no possible name
            recorded, ablation = ((folder / file).is_file() for file in (RUN, ABLATION))
        except OSError as error:
            raise make_unreadable_error(folder, error, "make it readable for you, or name another run") from None
        if not recorded and not ablation and (committed := _find_committed(name)):
            folder, recorded = committed, True
        if not recorded:
            raise _explain_bad_name(name, folder, ablation)
        remedy = "restore it from a copy; the samples next to it are untouched"
        record = read_record(folder / RUN, RunRecord, remedy, make_validation_context(disturbances.DISTURBANCES))
        names = find_renamed(record)
        return cls(folder, rename_run(record, names), names)

    @property
    def packed(self) -> bool:
        """True if the run's folder is in the packed form (few files), which only finished runs have."""
        return self._form is not self._folders

    def refuse_packed(self) -> None:
        """Raise an error if the run is packed; a packed run is finished and cannot be resumed.

        Raises:
            UsageError: The run is packed.

        """
        refuse_if(
            self.packed,
            self.record.id,
            "is packed, so it is finished",
            f"`just table {self.folder}` shows it; start a new run to measure more",
        )

    def note_resumed(self, facts: Mapping[str, str]) -> None:
        """Record in `run.json` that the run is resumed now, and which facts of the machine have changed since it began.

        Args:
            facts: The facts of machine and target as they are now: name → value.

        """
        changed = {key: value for key, value in facts.items() if self.record.facts.get(key) != value}
        self._rewrite_record(resumed=(*self.record.resumed, {"at": format_now(), **changed}))

    def extend(self, point: LoadPoint, slot: tuple[int, str, str], generator: Mapping[str, str | None]) -> None:
        """Add a planned measurement at the end of the run's plan, and store it before it is measured.

        Args:
            point: The load point, which may be new to the run.
            slot: The number of the block (repetition), the name of the arm (a variant in the run), and the name of the
                point.
            generator: The record of the load generator for this point, such as its name and version.

        """
        record = self.record
        points = {planned.name: planned for planned in record.points} | {point.name: point}
        self._rewrite_record(
            points=tuple(points.values()),
            slots=(*record.slots, slot),
            blocks=max(record.blocks, slot[0]),
            generators={point.name: dict(generator), **record.generators},
        )

    def _rewrite_record(self, **changes: object) -> None:
        """Change fields of the run's record, in memory and in `run.json`."""
        self.record = self.record.model_copy(update=changes)
        self.write(RUN, rename_run(self.record, self.names.inverse))

    def write(self, name: str, record: BaseModel) -> None:
        """Write a file about the run as a whole into its folder.

        Args:
            name: The name of the file: RUN (the run's record), ROUNDTRIP (the round-trip times without a proxy), or
                KNEE (the result of a search for the highest rate, for other programs to read).
            record: The content.

        """
        with writing(self.folder):
            replace_file(self.folder / name, json_bytes(record))

    # -- samples ----------------------------------------------------------------------------------------

    def stored_samples(self) -> list[Sample]:
        """Return the records of all samples as they were written, in the order of the plan.

        Raises:
            UsageError: A sample is damaged; the message names the first one.

        """
        stored = (rename_sample(sample, self.names) for sample in self._form.samples())
        return sorted(stored, key=lambda sample: (sample.order, sample.id))

    def samples(self, wanted: Callable[[Sample], bool] = lambda _: True) -> list[Sample]:
        """Return the records of the selected samples in the plan's order, each with a judgement whether it was steady.

        Samples of older versions of the lab have no stored judgement. They are judged now, and may become invalid. Some
        kinds of load, such as one with a disruption, are not judged.

        Args:
            wanted: A function that selects samples. It must select both sides of a pair or neither, because a pair is
                judged as a whole.

        Raises:
            UsageError: A sample is damaged.

        """

        def looks(samples: Sequence[str]) -> pl.DataFrame:
            return self._read_form(lambda form: form.looks(samples), lambda form: form.path(USAGE, samples[0]))

        return judge_unjudged([sample for sample in self.stored_samples() if wanted(sample)], looks, self._steadiness)

    def write_sample(
        self,
        sample: Sample,
        raw: str,
        histograms: Mapping[str, Histogram],
        usage: pl.DataFrame,
        events: pl.DataFrame | None = None,
        left: Mapping[str, bytes] | None = None,
    ) -> None:
        """Write the folder of one sample in such a way that it appears complete or not at all.

        Args:
            sample: The record; the digest of `raw` is added to it.
            raw: The output of the generator, unchanged.
            histograms: The latency histograms, by series ("latency", "service").
            usage: The CPU and memory of each process, second by second (`USAGE_SCHEMA`).
            events: The events (`EVENTS_SCHEMA`); None for a load without a disruption.
            left: Further files that the generator wrote: name → content.

        """
        stored = rename_sample(sample, self.names.inverse)
        self._folders.write_sample(stored, raw, histograms, usage, events, left or {})

    def mark_interrupted(self, samples: Sequence[Sample]) -> None:
        """Mark samples as invalid because their block (repetition) was interrupted and is measured again as a whole.

        The old verdict is kept in the text `detail` of each sample.
        """
        for sample in samples:
            was = sample.verdict if sample.reason is None else f"{sample.verdict}: {sample.reason}"
            detail = f"block interrupted and measured again (was {was}) {sample.detail}".strip()
            changes = {"verdict": "invalid", "reason": Reason.BLOCK_INTERRUPTED, "detail": detail}
            marked = rename_sample(sample.model_copy(update=changes), self.names.inverse)
            with writing(self.folder):
                replace_file(self._folders.path(SAMPLE_RECORD, sample.id), json_bytes(marked))

    # -- verbatim output --------------------------------------------------------------------------------

    def raw(self, sample: Sample) -> tuple[str, str]:
        """Return the generator's stdout and stderr of a sample, unchanged."""
        return self._read_form(
            lambda form: tables.read_raw(form.raw(sample.id)),
            lambda _: self.raw_place(sample),
            f"; without --from-raw, `just table {self.record.id}` does not read it",
        )

    def result(self, sample: Sample) -> GeneratorResult:
        """Return the generator's report of a sample, parsed again from its stored output.

        Raises:
            UsageError: The output is damaged.

        """
        stdout, stderr = self.raw(sample)
        try:
            return get_generator(sample.generator).parse(stdout, stderr, 0, _make_load(sample))
        except OutputError as error:
            raise UsageError(
                self.raw_place(sample), f"cannot be parsed any more: {error}", "restore it from a copy"
            ) from None

    def requests(self, sample: Sample) -> pl.DataFrame:
        """Return every request of a sample as a table (`REQUESTS_SCHEMA`), with times by the lab's clock.

        The table is read from the generator's output. Only loads with a disruption have it.

        Raises:
            UsageError: The output is damaged, or has no log of requests.

        """
        stdout, stderr = self.raw(sample)
        try:
            log = get_generator(sample.generator).requests(stdout, stderr, _make_load(sample))
        except OutputError as error:
            raise UsageError(
                self.raw_place(sample), f"holds no log of requests: {error}", "name a valid sample of a disturbance"
            ) from None
        return shifted(log, sample.clock_offset_s or 0.0)

    def raw_place(self, sample: Sample) -> str:
        """Return the path of a sample's stored generator output, for messages; the run's folder if the output cannot be found."""
        try:
            return str(self._form.raw(sample.id))
        except (OSError, ValueError):
            return str(self.folder)

    def raw_held(self, sample: Sample) -> bool:
        """Return whether the stored output of the generator has the digest that is in the sample's record.

        Raises:
            OSError: The output cannot be read.
            DamagedError: The archive of outputs is damaged.

        """
        return self._form.holds(sample)

    def left(self, sample: Sample, name: str) -> bytes | None:
        """Return the content of a file that the generator wrote in addition to its output; None if there is no such file.

        Args:
            sample: The sample.
            name: The name of the file, such as `k6-summary.json`.

        """
        return self._read_form(
            lambda form: form.left(sample.id, name), lambda _: f"{self.folder}: {name} of {sample.id}"
        )

    # -- tables -----------------------------------------------------------------------------------------

    def histogram(self, sample: Sample, series: Series = "latency") -> Histogram | None:
        """Return a latency histogram of a sample, as stored or else parsed from the generator's output.

        Args:
            sample: The sample.
            series: "latency", or "service" (counted from when a request was sent, not from when it was due).

        Returns:
            None if the sample has no such histogram.

        Raises:
            UsageError: The histogram or the output is damaged.

        """
        if sample.histogram is None:
            return None
        stored = self._read_form(
            lambda form: form.histograms(sample),
            lambda form: form.path(HISTOGRAMS, sample.id),
            f"; `just table {self.record.id} --from-raw` reads the verbatim output instead",
        )
        return (self._read_histograms_again(sample) if stored is None else stored).get(series)

    def ready(self) -> None:
        """Fill the cache of latency histograms of a packed run now, if the cache is missing, so that later reads are fast.

        Of the samples without a disruption, only the first valid one must be undamaged. Damaged outputs of others are left out.

        Raises:
            UsageError: A sample's record is damaged, or the output of that first valid sample.

        """
        steady = (sample for sample in self.samples() if sample.valid and sample.point.disturbance is None)
        if first := next((sample for sample in steady if sample.histogram is not None), None):
            self.histogram(first)

    def _read_histograms_again(self, sample: Sample) -> Mapping[str, Histogram]:
        form = self._form
        if isinstance(form, PackedForm) and form.cache.begin():
            form.cache.write(self._yield_all_histograms(form))
            if (stored := form.histograms(sample)) is not None:
                return stored
        if sample.id not in self._read_again:
            if len(self._read_again) >= HISTOGRAMS_KEPT:
                self._read_again.clear()
            self._read_again[sample.id] = self.result(sample).histograms
        return self._read_again[sample.id]

    def _yield_all_histograms(self, form: PackedForm) -> Iterator[tuple[str, str, Mapping[str, Histogram]]]:
        """Yield the histograms of every sample whose generator output can be parsed.

        Yields:
            The sample's id, the text that identifies its output (`PackedForm.state`), and the histograms by series.

        """
        for sample in form.samples():
            if sample.histogram is not None:
                with suppress(UsageError):
                    yield sample.id, form.state(sample.id), self.result(sample).histograms

    def manifests(self, variant: str) -> list[dict[str, Any]]:
        """Return the Kubernetes objects of a variant as they were applied in this run.

        Raises:
            UsageError: They cannot be read.

        """
        stored = self.names.inverse.of(variant)
        documents = self._read_form(
            lambda form: list(yaml.load_all(form.manifests(stored), yaml.CSafeLoader)),
            methodcaller("manifests_path", stored),
        )
        return [document for document in documents if isinstance(document, dict)]

    def manifests_path(self, variant: str) -> Path:
        """Return the path of the file with a variant's manifests: YAML, or in a packed run an xz file for all variants."""
        return self._form.manifests_path(self.names.inverse.of(variant))

    def usage(self, sample: Sample) -> pl.DataFrame:
        """Return the CPU and memory of each process during a sample, second by second, as a table (`USAGE_SCHEMA`)."""
        return self._read_table(USAGE, sample, lambda form: form.usage(sample.id))

    def events(self, sample: Sample) -> pl.DataFrame:
        """Return the events that happened to the system during a sample, as a table (`EVENTS_SCHEMA`).

        The table is empty for a load without a disruption.
        """
        if sample.point.disturbance is None:
            return pl.DataFrame(schema=EVENTS_SCHEMA)
        return self._read_table(EVENTS, sample, lambda form: form.events(sample.id, needed=sample.logged))

    def _read_table(self, part: str, sample: Sample, read: Callable[[Form], pl.DataFrame]) -> pl.DataFrame:
        return self._read_form(
            read, lambda form: form.path(part, sample.id), f"; `just table {self.record.id}` does not read it"
        )

    # -- what was brought up, and the lock --------------------------------------------------------------

    def _name_bring_up(self, block: int, arm: str, generation: int, point: str, fresh: int = 0) -> str:
        """Return the file name, without its ending, for the records of one start of a system, such as `b01-keepalive`.

        Args:
            block: The number of the block (repetition of all measurements).
            arm: The name of the arm (a variant in the run), or the names of a pair's arms with `-beside-` between them.
            generation: How many times the block was started again after an interruption.
            point: The load point, if the system was started for a single one; else empty.
            fresh: How many times the system had been started again in its block, because of what earlier loads left.

        """
        stored = "-beside-".join(map(self.names.inverse.of, arm.split("-beside-")))
        suffixes = [f"g{generation}" if generation else "", f"fresh{fresh}" if fresh else ""]
        return "-".join(filter(None, [f"b{block:02d}", stored, point, *suffixes]))

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
        """Write the results of the checks that a system's settings took effect after its start, and a list of its pods.

        A file of an earlier start is never replaced.

        Args:
            block: The number of the block (repetition of all measurements).
            arm: The name of the arm (a variant in the run), or the names of a pair's arms with `-beside-` between them.
            generation: How many times the block was started again after an interruption.
            readings: The results of these checks, the read-backs (`Reading.as_json`).
            point: The load point, if the system was started for a single one; else empty.
            fresh: How many times the system had been started again in its block, because of what earlier loads left.
            deployed: The pods; empty on a target that has none. Then nothing is written of them.

        """
        stem = self._name_bring_up(block, arm, generation, point, fresh)
        self._folders.write_brought_up(READBACK, stem, readings)
        if deployed:
            self._folders.write_brought_up(DEPLOYED, stem, deployed)

    def readings(self, sample: Sample) -> list[dict[str, Any]]:
        """Return the results of the read-backs (checks that settings took effect) of the system that a sample measured.

        Each result has the form of `Reading.as_json`. The list is empty if the variant has no checks.

        Raises:
            UsageError: The file is missing or damaged.

        """
        point = sample.point.name if sample.point.has_outcome else ""
        arm = f"{sample.arm}-beside-{sample.pair.against}" if sample.pair else sample.arm
        stem = self._name_bring_up(sample.block, arm, sample.generation, point, sample.fresh_bring_ups)
        place = methodcaller("brought_up_path", READBACK, stem)
        readings = self._read_form(lambda form: form.brought_up(READBACK, stem), place)
        if not isinstance(readings, list) or not all(isinstance(reading, dict) for reading in readings):
            raise UsageError(str(place(self._form)), "damaged: no list of readings", "restore it from a copy")
        return readings

    def roundtrip(self) -> RoundTrip | None:
        """Return the round-trip times between client and backend without a proxy; None if they were not measured yet.

        Raises:
            UsageError: The file is damaged.

        """
        advice = "" if self.packed else f", or move it away and `--resume {self.record.id}` measures it again"
        place = self.folder / (BRINGUPS if self.packed else ROUNDTRIP)
        return self._read_form(lambda form: form.roundtrip(), lambda _: place, advice)

    def clear_partial(self) -> None:
        """Remove the incomplete folders of samples that an interrupted process has left."""
        self._folders.clear_partial()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the run's folder inside the `with` block, so that only one process writes into the run.

        Raises:
            UsageError: Another process has locked the folder, or the folder cannot be read or locked.

        """
        try:
            handle = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise make_unreadable_error(self.folder, error, "make it readable for you") from None
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(self.record.id, "another lab is measuring this run", "wait for it to end") from None
            except OSError as error:
                raise UsageError(
                    str(self.folder),
                    f"cannot be locked: {error.strerror}",
                    "set LAB_RUNS to a folder on a local file system",
                ) from None
            yield
        finally:
            os.close(handle)


def _make_load(sample: Sample) -> GeneratorLoad:
    return make_load(sample.point, ANY_ENDPOINT, timed=not sample.untimed)


# -- numbers again, from the verbatim output ---------------------------------------------------------------


class Reparsed(RunStore):
    """A stored run whose numbers are parsed again, by the present parsers, from the outputs of the load generators.

    The verdicts (valid or invalid) stay as they were stored, because they depend on observations that the outputs do
    not contain.
    """

    @classmethod
    def of(cls, store: RunStore) -> Reparsed:
        """Return a `Reparsed` for a stored run: it reads the same folder, and parses the numbers again from the outputs."""
        return cls(store.folder, store.record, store.names)

    def samples(self, wanted: Callable[[Sample], bool] = lambda _: True) -> list[Sample]:
        """Return the samples as `RunStore.samples` does, with the numbers parsed again from the generators' outputs."""
        return [self._reparse(sample) for sample in super().samples(wanted)]

    def histogram(self, sample: Sample, series: Series = "latency") -> Histogram | None:
        """Return a latency histogram of a sample, parsed again from the generator's output.

        The method `samples` parses it and must be called first. The result is None if it found no such histogram.

        Args:
            sample: The sample.
            series: "latency", or "service" (counted from when a request was sent, not from when it was due).

        """
        return self._read_again.get(sample.id, {}).get(series)

    def _reparse(self, sample: Sample) -> Sample:
        if sample.requests is None:
            return sample  # nothing was reported then either
        result, outcome = self.result(sample), sample.outcome
        if result.streams is not None and outcome:
            before = sample.leftovers.get("before")
            outcome = choose_stream_outcome(sample.point)(result.streams, result.latency, sample.usage, before)
        elif outcome:
            # events and usage are as they were stored: only the running system could show them
            requests, events, usage = self.requests(sample), self.events(sample), self.usage(sample)
            error_s = outcome.get("clock_error_s") or 0.0
            outcome = compute_outcome(sample.point, requests, events, usage, 0.0, error_s)
        self._read_again[sample.id] = {} if sample.untimed else result.histograms
        untimed = UNTIMED if sample.untimed else {}
        return sample.model_copy(update={"outcome": outcome, **reported_fields(result), **untimed})


def reported_fields(result: GeneratorResult) -> dict[str, Any]:
    """Return the fields of a sample's record that come from the generator's report, by name."""
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
