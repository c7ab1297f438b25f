"""The measuring of one sample: a checked request (canary), a warm-up, the load, and a record with the verdict.

The procedure is the same for all kinds of load. Their differences are in the implementations of `Regime`.

The traces of earlier loads, such as sockets in TIME_WAIT, are examined before the warm-up, at the start of the load, and after
it. The module `loop` decides what happens next: whether a measurement is repeated, a system is started again, or a sample is
stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from lab.generators import Generator, build_command, make_load
from lab.measure import cpu
from lab.measure.canary import Canary, send_canary
from lab.measure.validity import Fault
from lab.model.disturbance import Manifests
from lab.model.endpoint import Endpoint
from lab.model.leftovers import Leftovers, Moment, find_taken_ports, ports_are_taken
from lab.model.load import GeneratorLoad, GeneratorResult, OutputError
from lab.model.pairs import PairSide, Renewed
from lab.model.plan import Slot
from lab.model.run import format_now
from lab.model.samples import Reason, Sample
from lab.model.usage import USAGE_SCHEMA, Observation, Usage
from lab.records.steadiness import add_cause
from lab.records.store import reported_fields
from lab.records.tables import join_raw
from lab.stats.histogram import Histogram
from lab.systems.workers import GAUGE, count_configured
from lab.targets.base import System, Target
from lab.targets.common.process import (
    GRACE_S,
    GeneratorJob,
    GeneratorOutcome,
    prepare_generators,
    run_generators,
    take_files,
)
from lab.targets.common.scratch import make_scratch_folder
from lab.targets.readback import Reading

NOTE_OTHERS_HIDDEN = "what else ran there could not be seen, and is not judged"
"""The note of a sample where other processes were not visible."""
WARM_UP_LEFT_OUT = "there was no warm-up: it alone takes too many of the proxy's local ports"
"""The note of a sample whose warm-up was left out."""


@dataclass(frozen=True, slots=True)
class ChosenGenerator:
    """The load generator for one load point, and where it is installed.

    `stand_in_for` names the generator that the load point requests, if another one replaces it.
    """

    generator: Generator
    path: str
    version: str | None
    stand_in_for: str | None
    notes: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    """The files that it leaves in its scratch folder and that are stored with the sample."""


@dataclass(frozen=True, slots=True)
class LoadFindings:
    """The judgement of a load: all faults, and further fields of its sample.

    A fault is a reason and a sentence. `columns` has the further fields: name → value.
    """

    faults: Sequence[Fault]
    notes: Sequence[str] = ()
    columns: Mapping[str, Any] = field(default_factory=dict[str, Any])
    events: pl.DataFrame | None = None
    """The events of a disrupted load (EVENTS_SCHEMA)."""


class Regime(Protocol):
    """The interface of the ways to make and judge a load: steady, disrupted, with streams of events or with WebSockets.

    An object belongs to one sample. Its methods are called once each, in the order in which they are defined. By
    default, nothing is prepared, and the load is sent to the address of the canary (a checked request).
    """

    def prepare(self, lasting: ExitStack) -> tuple[Mapping[str, Any], Sequence[Fault]]:
        """Prepare the load, before any request to the system.

        Args:
            lasting: Holds resources that must be released when the load is judged.

        Returns:
            Fields of the sample: name → value; and the faults because of which the load is impossible, each as a reason
            and a sentence.

        """
        return {}, []

    def asked(self, endpoint: Endpoint) -> Endpoint:
        """Return the address that the load is sent to.

        Args:
            endpoint: The address of the canary (a checked request before and after the load).

        """
        return endpoint

    def run(
        self, warm_up: Callable[[], object], load: Callable[[], GeneratorOutcome], folder: Path
    ) -> tuple[GeneratorOutcome, Observation]:
        """Warm up, then load the system while it is observed.

        Args:
            warm_up: A function that makes the warm-up.
            load: A function that makes the load, and returns the generator's process when it has ended.
            folder: The folder of the generator's output.

        Returns:
            The generator's process, and what was observed of the system.

        """
        ...

    def findings(self, run: LoadRun) -> LoadFindings:
        """Judge a load that has ended: return its faults, notes and further values for its sample, and its events.

        A fault makes the sample invalid. For example, a steady load has a fault if a process of the proxy ended.

        Args:
            run: The load, with the generator's report and what was observed of the system.

        """
        ...


@dataclass(frozen=True, slots=True)
class Measurement:
    """The result of one attempt to carry out a planned measurement: a sample, and the data that are stored with it.

    Attributes:
        sample: The record of the sample, valid or with the reason why not.
        raw: The generator's output, unchanged; empty if there is none.
        histograms: The latency histograms, by series ("latency", "service").
        usage: The CPU and memory of each process, second by second (`USAGE_SCHEMA`).
        events: The events of a load with a disruption (`EVENTS_SCHEMA`); None for other loads.
        left: The files that the generator itself wrote: name → content.

    """

    sample: Sample
    raw: str = ""
    histograms: Mapping[str, Histogram] = field(default_factory=dict[str, Histogram])
    usage: pl.DataFrame = field(default_factory=partial(pl.DataFrame, schema=USAGE_SCHEMA))
    events: pl.DataFrame | None = None
    """The events of a disrupted sample, with the columns of `lab.model.events.EVENTS_SCHEMA`."""
    left: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """File name → content of what the generator itself wrote (`ChosenGenerator.keep`)."""


class UndrainedStartError(Exception):
    """The error that is raised after the warm-up if too many local ports of a system are taken, so that no load may begin.

    Attributes:
        reasons: A sentence for each system whose ports are taken.
        by_warm_up: Whether the warm-up alone has taken them, so that the next attempt must leave it out.
        rate_rps: For a pair: the requests per second that were answered on both sides during the warm-up; otherwise 0.

    """

    def __init__(self, reasons: Sequence[str], by_warm_up: bool, rate_rps: float) -> None:
        super().__init__("; ".join(reasons))
        self.reasons, self.by_warm_up, self.rate_rps = reasons, by_warm_up, rate_rps


@dataclass(slots=True)
class LoadStart:
    """The carry-over around one load: what earlier loads left behind in the system, such as sockets in TIME_WAIT.

    It is examined before the warm-up, at the start of the load, and at its end.

    Attributes:
        before: The state before the warm-up; None = it was not examined, and the load is made in any case.
        fresh_bring_ups: How many times the system was stopped and started again because of earlier loads.
        warms_up: Whether the load has a warm-up.
        rate_rps: For a pair (two variants at once) without warm-up: the requests per second that an earlier warm-up
            answered; 0 = unknown.
        seen: The states at the "start" and at the "end" of the load.

    """

    before: Leftovers | None = None
    fresh_bring_ups: int = 0
    warms_up: bool = True
    rate_rps: float = 0.0
    seen: dict[Moment, Leftovers] = field(default_factory=dict[Moment, Leftovers])

    def columns(self) -> dict[str, Any]:
        """Return the sample's fields about carry-over (what earlier loads left behind, such as sockets in TIME_WAIT).

        Returns:
            Name of the field → value. States of the system that were not examined are left out.

        """
        before: dict[Moment, Leftovers] = {"before": self.before} if self.before is not None else {}
        return {"leftovers": before | self.seen, "fresh_bring_ups": self.fresh_bring_ups}


def refuse_undrained(starts: Sequence[LoadStart], rate_rps: float = 0.0) -> None:
    """Raise an error if the local ports of a system are largely taken at the start of its load.

    Args:
        starts: The states of each system. A system that was not examined before its warm-up is not judged.
        rate_rps: For a pair (two variants at once): the requests per second that were answered during the warm-up.

    Raises:
        UndrainedStartError: Too many ports are taken.

    """
    taken = [start for start in starts if start.before is not None and ports_are_taken(start.seen["start"])]
    by_warm_up = [start.warms_up and ports_are_taken(start.seen["start"], start.before) for start in taken]
    if taken:
        reasons = [
            f"{find_taken_ports(start.seen['start'])}{' after the warm-up' if warm_up_alone else ''}"
            for start, warm_up_alone in zip(taken, by_warm_up, strict=True)
        ]
        raise UndrainedStartError(reasons, any(by_warm_up), rate_rps)


@dataclass(frozen=True, slots=True)
class BegunSample:
    """A measurement just before its load: the sample's record so far, its canary, and the generator's job.

    The canary is a checked request.
    """

    blank: Sample
    endpoint: Endpoint
    first: Canary
    job: GeneratorJob
    warmup_s: float

    def warm_up(self, lasting: ExitStack) -> list[GeneratorJob]:
        """Return the generator's job for the warm-up: the measured load, but for a shorter time and without a log.

        The load lasts at least one second, because not every generator accepts less. A generator that can be
        interrupted is interrupted after `warmup_s`.

        Args:
            lasting: Holds the folders for the output.

        Returns:
            One job, or none if there is no warm-up.

        """
        if not self.warmup_s:
            return []
        load = replace(self.job.load, duration_s=max(1.0, self.warmup_s), requests=None, generators=1, logged=False)
        cut = self.warmup_s < load.duration_s and self.job.generator.ends_on_interrupt(load)
        before = ("timeout", "--preserve-status", "--signal=INT", f"{self.warmup_s:g}") if cut else ()
        return [replace(self.job, load=load, scratch=lasting.enter_context(make_scratch_folder()), before=before)]


@dataclass(frozen=True, slots=True)
class LoadRun:
    """A load that has ended: the generator's process and report, and everything that was observed during the load."""

    begun: BegunSample
    ended: GeneratorOutcome
    seen: Observation
    result: GeneratorResult | None
    """The generator's report; None: it reported nothing, and `faults` give the reason."""
    faults: Sequence[Fault]
    cores: Mapping[str, float | None]
    """The busy fraction of the CPUs of proxy and generator; None: not seen."""
    generator_cpus: int | None = None
    """The number of CPUs that the generator may use; None: not known."""


@dataclass(frozen=True, slots=True)
class SampleRun:
    """One planned measurement on one running system; for a pair (two variants at once), there are two such objects."""

    target: Target
    system: System
    slot: Slot
    chosen: ChosenGenerator
    generation: int
    bring_up_s: float
    readings: Sequence[Reading]
    manifests: Manifests = ()
    """The variant's manifests."""
    renewed: Renewed | None = None
    """The reload that made its workers; None: it came up with them."""
    start: LoadStart = field(default_factory=LoadStart)
    """The traces of earlier loads around this one."""

    @property
    def workers(self) -> int | None:
        """The number of the proxy's workers that the manifests set; None if the proxy derives it from its CPUs.

        The number of workers that actually run is in the sample's gauges.
        """
        return count_configured(self.manifests, len(self.target.cpus().get("proxy", ())) or None)

    def measure(self, regime: Regime, attempt: int) -> Measurement:
        """Carry out the measurement, and return the result.

        Nothing is loaded if a setting did not take effect or the wrong backend answers, because no number would mean
        anything. The result is then invalid.

        Args:
            regime: The way to make and judge the load.
            attempt: The number of the attempt, from 1.

        Raises:
            UndrainedStartError: The warm-up of a load without disruption takes too many local ports.

        """
        with ExitStack() as lasting:
            begun = self.begin(regime, attempt, lasting)
            if isinstance(begun, Measurement):
                return begun
            load = prepare_generators([begun.job], lasting)

            def warm_up() -> None:
                run_generators(begun.warm_up(lasting))
                self.start.seen["start"] = self.system.leftovers()
                if self.slot.point.disturbance is None:
                    refuse_undrained([self.start])

            ended, observation = regime.run(warm_up, lambda: load()[0], begun.job.scratch)
            self.start.seen["end"] = self.system.leftovers()
            run = self.load_run(begun, ended, observation, neighbour_s={})
            return self.finish(run, regime.findings(run))

    def blank(self, attempt: int) -> Sample:
        """Return the sample's record as it is before the load, with the carry-over (what earlier loads left behind).

        Args:
            attempt: The number of the attempt, from 1.

        """
        took_s, renewed = self.bring_up_s, self.renewed
        blank = make_blank_sample(self.target, self.slot, self.chosen, self.generation, attempt, took_s, renewed)
        return blank.model_copy(update=self.start.columns())

    def begin(self, regime: Regime, attempt: int, lasting: ExitStack) -> BegunSample | Measurement:
        """Do everything that comes before the load: prepare, check the settings, and send the canary (a checked request).

        Whether the generator can make the load is checked here, too. It depends on the number of hosts and on where TLS
        ends, which only a running system shows.

        Args:
            regime: The way to make and judge the load.
            attempt: The number of the attempt, from 1.
            lasting: Holds resources that must stay until the load is judged.

        Returns:
            A BegunSample if the load can be made. Otherwise a Measurement that is invalid with the reason.

        """
        system, point, chosen = self.system, self.slot.point, self.chosen
        blank = self.blank(attempt)
        prepared, unprepared = regime.prepare(lasting)
        if unprepared:
            return make_unmeasured(blank, unprepared)
        endpoint = system.endpoint(point)
        load = make_load(point, regime.asked(endpoint), timed=not blank.untimed)
        gauges = dict(system.gauges())
        notes = [*blank.notes, endpoint.way] if endpoint.way else [*blank.notes]
        unseen = self.start.before.unseen if self.start.before is not None else {}
        notes += [
            f"what earlier loads left in the {place} could not be seen: {reason}" for place, reason in unseen.items()
        ]
        first = send_canary(system, endpoint, point)
        blank = blank.model_copy(
            update={
                **prepared,
                "notes": tuple(notes),
                "argv": tuple(build_command(chosen.generator, chosen.path, load)),
                "gauges": gauges,
                "tls": first.tls,
            }
        )
        faults: list[Fault] = [(Reason.KNOB_NOT_APPLIED, str(reading)) for reading in self.readings if not reading.ok]
        faults += [(Reason.LIMIT_NOT_APPLIED, message) for message in system.unapplied()]
        if refusal := chosen.generator.refusal(load):
            faults.append((Reason.GENERATOR_FAILED, f"{chosen.generator.name} cannot make this load: {refusal}"))
        if faults := faults + first.faults:
            return make_unmeasured(blank, faults)
        warmup_s = point.warmup_s if self.start.warms_up else 0.0
        job = GeneratorJob(system, chosen.generator, chosen.path, load, lasting.enter_context(make_scratch_folder()))
        return BegunSample(blank, endpoint, first, job, warmup_s)

    def load_run(
        self,
        begun: BegunSample,
        ended: GeneratorOutcome,
        observation: Observation,
        neighbour_s: Mapping[str, float],
    ) -> LoadRun:
        """Collect everything about a load that was made: parse the generator's report, and attribute the CPU time.

        Args:
            begun: The measurement before its load.
            ended: The generator's process, which has ended.
            observation: What was observed of the system during the load.
            neighbour_s: role ("proxy", …) → CPU seconds of another system of the lab that shares these CPUs; empty =
                there is none.

        """
        cpus, load = self.target.cpus(), begun.job.load
        ended, observation, own_cpu_s = cpu.attribute_cpu(observation, ended, cpus, neighbour_s)
        result, faults = parse_report(self.chosen.generator, load, ended)
        has_proxy = observation.cores is None and bool(self.system.processes("proxy"))
        counted = begun.blank.gauges.get(GAUGE)
        count = self.workers if counted is None else int(counted)
        cores = cpu.compute_core_use(
            observation, own_cpu_s, result, cpus, has_proxy, count, alone=not self.slot.against
        )
        return LoadRun(begun, ended, observation, result, faults, cores, self.target.generator_cpus())

    def finish(self, run: LoadRun, findings: LoadFindings) -> Measurement:
        """Return the complete sample of a load, and the data that are stored with it.

        Args:
            run: The load.
            findings: The judgement of the load.

        """
        begun, result, ended, observation = run.begun, run.result, run.ended, run.seen
        observed = observation.usage.get("generator")  # several processes at once, where every host has a generator
        generator = Usage(
            cpu_s=ended.cpu_s,
            rss_bytes=max(ended.rss_bytes, observed.rss_bytes if observed else 0),
            processes=observed.processes if observed else 1,
        )
        warmed = begun.warmup_s > 0
        workers, running, notes = self.workers, begun.blank.gauges.get(GAUGE), [*begun.blank.notes]
        if workers is not None and running not in (None, workers):
            notes.append(f"the manifests make {workers} workers or threads of the proxy, {running:g} run")
        notes += [] if warmed or not self.slot.point.warmup_s else [WARM_UP_LEFT_OUT]
        notes += [NOTE_OTHERS_HIDDEN] if observation.others is None else []
        reported_notes = result.notes if result is not None else ()
        sample = begun.blank.model_copy(
            update={
                **self.start.columns(),
                "warmed_up": warmed,
                **_build_verdict(findings.faults),
                **(reported_fields(result) if result is not None else {}),
                "usage": {**observation.usage, "generator": generator},
                "busy": {str(number): share for number, share in observation.busy.items()},
                "steal": observation.steal,
                "others": observation.others,
                "counters": dict(observation.counters),
                "notes": (*notes, *reported_notes, *findings.notes),
                "proxy_core": run.cores["proxy"],
                "generator_core": run.cores["generator"],
                **findings.columns,
            }
        )
        histograms = result.histograms if result is not None else {}
        raw, left = join_raw(ended.stdout, ended.stderr), take_files(begun.job.scratch, self.chosen.keep)
        return Measurement(add_cause(sample), raw, histograms, observation.rows, findings.events, left)


def parse_report(
    generator: Generator, load: GeneratorLoad, ended: GeneratorOutcome
) -> tuple[GeneratorResult | None, list[Fault]]:
    """Parse the report of a generator from its output.

    Args:
        generator: The generator.
        load: The load that it made.
        ended: Its process, which has ended.

    Returns:
        The report and no faults; or None and the faults, each as a reason and a sentence.

    """
    if ended.hung:
        return None, [(Reason.GENERATOR_HUNG, f"still running {GRACE_S:g} s after its time, killed")]
    try:
        return generator.parse(ended.stdout, ended.stderr, ended.exit_status, load), []
    except OutputError as error:
        reason = Reason.GENERATOR_FAILED if ended.exit_status else Reason.GENERATOR_OUTPUT
        return None, [(reason, f"exit status {ended.exit_status}: {error}")]


def make_blank_sample(
    target: Target,
    slot: Slot,
    chosen: ChosenGenerator,
    generation: int,
    attempt: int,
    bring_up_s: float | None,
    renewed: Renewed | None = None,
) -> Sample:
    """Return the record of a planned measurement before anything is measured.

    Args:
        target: The target (where the system runs).
        slot: The planned measurement.
        chosen: The generator for its load point.
        generation: How many times its block (a repetition of all measurements) was begun anew after an interruption.
        attempt: The number of the attempt, from 1.
        bring_up_s: The seconds that the system's start took; None = it did not start.
        renewed: The reload that made the workers of a pair (two variants at once); None = there was none.

    """
    pair, layout, scheme = None, slot.layout, slot.point.scheme
    if layout is not None:
        pair = PairSide(
            against=slot.other,
            side=layout.side,
            scheme=scheme,
            first_up=layout.first_up == layout.side,
            first_slice=scheme == "slices" and layout.first_slice == layout.side,
            reload=slot.reload,
            repeat=slot.repeat,
            renewed=renewed,
        )
    return Sample(
        id=slot.sample_id(attempt, generation),
        order=slot.order,
        block=slot.block,
        generation=generation,
        attempt=attempt,
        arm=slot.arm.name,
        role=slot.arm.role,
        variant=slot.arm.variant,
        baseline=slot.arm.baseline,
        target=target.name,
        point=slot.point,
        generator=chosen.generator.name,
        generator_version=chosen.version,
        stand_in_for=chosen.stand_in_for,
        latency_from=chosen.generator.latency_from,
        notes=chosen.notes,
        argv=(),
        started_at=format_now(),
        bring_up_s=bring_up_s,
        offered_rps=slot.point.rate_rps,
        pair=pair,
        achieved_rps=None,
        requests=None,
        duration_s=None,
        recorded_s=None,
        verdict="valid",
        reason=None,
    )


def make_unmeasured(blank: Sample, faults: Sequence[Fault]) -> Measurement:
    """Return the invalid result of a measurement whose load was not made.

    Args:
        blank: The record of the sample before its load.
        faults: Why the load was not made, each as a reason and a sentence.

    """
    return Measurement(blank.model_copy(update=_build_verdict(faults)))


def _build_verdict(faults: Sequence[Fault]) -> dict[str, Any]:
    """Return the fields of a sample for its verdict: `verdict`, `reason` and `detail`.

    Args:
        faults: The faults, each as a reason and a sentence. The first reason in the order of `Reason` becomes `reason`,
            and `detail` has all of them. Empty = the sample is valid.

    """
    if not faults:
        return {"verdict": "valid", "reason": None, "detail": ""}
    order = list(Reason)
    first = min((reason for reason, _ in faults), key=order.index)
    detail = "; ".join(f"{reason}: {message}" for reason, message in faults)
    return {"verdict": "invalid", "reason": first, "detail": detail}
