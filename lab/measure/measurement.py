"""The measuring of one sample: canary, warm-up, load and observations, as one record with its verdict.

It is the same for steady and disrupted loads, which differ by their regime.

The traces of earlier loads are looked at before the warm-up, when the load starts and after it. Refuses to decide what happens next:
measuring again, bringing up anew, storing and ordering belong to `loop`.
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

NO_NEIGHBOUR: Mapping[str, float] = {}
"""The CPU seconds by role of another system on the same CPUs, where there is none."""
NOTE_OTHERS_HIDDEN = "what else ran there could not be seen, and is not judged"
"""The note of a sample where other processes were not visible."""
WARM_UP_LEFT_OUT = "there was no warm-up: it alone takes too many of the proxy's local ports"
"""The note of a sample whose warm-up was left out."""


@dataclass(frozen=True, slots=True)
class ChosenGenerator:
    """The generator of one load point: which, where it is installed, and the generator that it replaces."""

    generator: Generator
    path: str
    version: str | None
    stand_in_for: str | None
    notes: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    """The files that it leaves in its scratch folder and that are stored with the sample."""


@dataclass(frozen=True, slots=True)
class LoadFindings:
    """The judgement of a load: every fault, and what its sample records in addition to the measurements."""

    faults: Sequence[Fault]
    notes: Sequence[str] = ()
    columns: Mapping[str, Any] = field(default_factory=dict[str, Any])
    events: pl.DataFrame | None = None
    """The events of a disrupted load (EVENTS_SCHEMA)."""


class Regime(Protocol):
    """The differences between a steady load and a disrupted one in how a sample is measured.

    An object belongs to one sample; its methods are called in this order, once each. By default nothing is prepared, and the load goes
    where the canary goes.
    """

    def prepare(self, lasting: ExitStack) -> tuple[Mapping[str, Any], Sequence[Fault]]:
        """Prepare the load before any request to the system.

        Args:
            lasting: Holds what must end with the load.

        Returns:
            Columns of the sample, and the faults for which the load cannot be made.

        """
        return {}, []

    def asked(self, endpoint: Endpoint) -> Endpoint:
        """Return where the load goes, on a system whose canary goes to `endpoint`."""
        return endpoint

    def run(
        self, warm_up: Callable[[], object], load: Callable[[], GeneratorOutcome], folder: Path
    ) -> tuple[GeneratorOutcome, Observation]:
        """Warm up, then load while the system is watched.

        Args:
            warm_up: Makes the warm-up.
            load: Makes the load.
            folder: Where the generator's output goes.

        """
        ...

    def findings(self, run: LoadRun) -> LoadFindings:
        """Judge the load after it has ended."""
        ...


@dataclass(frozen=True, slots=True)
class Measurement:
    """The result of one attempt to measure a slot (a planned measurement): a sample, and the data stored with it.

    Attributes:
        sample: The record of the sample, valid or with the reason why not.
        raw: The generator's verbatim output; empty if there is none.
        histograms: Name → histogram of what the generator measured.
        usage: The CPU and memory that each process used during the load.

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
    """The warm-up, or what was there before it, has taken so many local ports that the load must not begin.

    Attributes:
        reasons: A sentence for each system whose ports are taken.
        by_warm_up: Whether a warm-up alone took them, so that it has to be left out.
        rate_rps: The requests per second that both generators of a pair answered while they warmed up; 0: not needed.

    """

    def __init__(self, reasons: Sequence[str], by_warm_up: bool, rate_rps: float) -> None:
        super().__init__("; ".join(reasons))
        self.reasons, self.by_warm_up, self.rate_rps = reasons, by_warm_up, rate_rps


@dataclass(slots=True)
class LoadStart:
    """The traces of earlier loads in one system around one load.

    Attributes:
        before: The state before the warm-up; None: it was not looked at, so no start is refused.
        fresh_bring_ups: How often the system had been brought up anew in its block.
        warms_up: Whether the load's warm-up is made.
        rate_rps: The requests per second that both generators of a pair answered in a warm-up that is left out since; 0: not known.
        seen: The states when the load started and when it had ended.

    """

    before: Leftovers | None = None
    fresh_bring_ups: int = 0
    warms_up: bool = True
    rate_rps: float = 0.0
    seen: dict[Moment, Leftovers] = field(default_factory=dict[Moment, Leftovers])

    def columns(self) -> dict[str, Any]:
        """Return the sample's columns for what was seen so far."""
        before: dict[Moment, Leftovers] = {"before": self.before} if self.before is not None else {}
        return {"leftovers": before | self.seen, "fresh_bring_ups": self.fresh_bring_ups}


def refuse_undrained(starts: Sequence[LoadStart], rate_rps: float = 0.0) -> None:
    """Refuse a load if too many local ports of one of these systems are taken when it starts.

    Args:
        starts: The systems' states; a system without a look before the warm-up is never refused.
        rate_rps: The requests per second that both generators of a pair answered in the warm-up.

    Raises:
        UndrainedStartError: Too many ports are taken.

    """
    reasons: list[str] = []
    any_by_warm_up = False
    for start in starts:
        at_start = start.seen["start"]
        if start.before is not None and ports_are_taken(at_start):
            by_warm_up = start.warms_up and ports_are_taken(at_start, start.before)
            reasons.append(f"{find_taken_ports(at_start)}{' after the warm-up' if by_warm_up else ''}")
            any_by_warm_up |= by_warm_up
    if reasons:
        raise UndrainedStartError(reasons, any_by_warm_up, rate_rps)


@dataclass(frozen=True, slots=True)
class BegunSample:
    """A sample whose load can be made: its record so far, its canary, and the generator's job."""

    blank: Sample
    endpoint: Endpoint
    first: Canary
    job: GeneratorJob
    warmup_s: float

    def warm_up(self, lasting: ExitStack) -> list[GeneratorJob]:
        """Return the jobs of the warm-up: the same load, without any record; empty where the point has no warm-up.

        The load lasts at least a second, since not every generator accepts less; one that ends well on an interrupt is interrupted after
        `warmup_s`. A generator that is late with its first second reports too low a rate, which only makes a pair's slices longer.
        """
        if not self.warmup_s:
            return []
        load = replace(self.job.load, duration_s=max(1.0, self.warmup_s), requests=None, generators=1, logged=False)
        cut = self.warmup_s < load.duration_s and self.job.generator.ends_on_interrupt(load)
        before = ("timeout", "--preserve-status", "--signal=INT", f"{self.warmup_s:g}") if cut else ()
        return [replace(self.job, load=load, scratch=lasting.enter_context(make_scratch_folder()), before=before)]


@dataclass(frozen=True, slots=True)
class LoadRun:
    """A load that was made, and everything that was observed of it."""

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
    """The measuring of one slot on one running system."""

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
        """The number of the proxy's workers that the manifests prescribe; None: the proxy derives it from its CPUs.

        The number that really runs is among the gauges.
        """
        return count_configured(self.manifests, len(self.target.cpus().get("proxy", ())) or None)

    def measure(self, regime: Regime, attempt: int) -> Measurement:
        """Measure the slot, unless a knob did not take effect or the wrong backend answers.

        In these cases no number would mean anything.

        Raises:
            UndrainedStartError: The warm-up of a steady load takes too many local ports.

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
            run = self.load_run(begun, ended, observation)
            return self.finish(run, regime.findings(run))

    def blank(self, attempt: int) -> Sample:
        """Return the record of this slot before its load, with the traces of earlier loads."""
        took_s, renewed = self.bring_up_s, self.renewed
        blank = make_blank_sample(self.target, self.slot, self.chosen, self.generation, attempt, took_s, renewed)
        return blank.model_copy(update=self.start.columns())

    def begin(self, regime: Regime, attempt: int, lasting: ExitStack) -> BegunSample | Measurement:
        """Do everything that comes before a load; return an invalid Measurement where no load would mean anything.

        Only a system that is up shows whether the generator can make the load: how many hosts it has and where its TLS ends.

        Args:
            regime: How the load is made and judged.
            attempt: The number of this attempt, from 1.
            lasting: Holds what must stay until the load is judged.

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
        columns = {
            **prepared,
            "notes": tuple(notes),
            "argv": tuple(build_command(chosen.generator, chosen.path, load)),
            "gauges": gauges,
            "tls": first.tls,
        }
        blank = blank.model_copy(update=columns)
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
        neighbour_s: Mapping[str, float] = NO_NEIGHBOUR,
    ) -> LoadRun:
        """Return a load that was made, with its CPU time attributed and the generator's output parsed.

        Args:
            begun: What came before the load.
            ended: The generator's process.
            observation: What the lab observed during the load.
            neighbour_s: Role → CPU seconds of another system of ours on the same CPUs.

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
        generator_cpus = self.target.generator_cpus()
        return LoadRun(begun, ended, observation, result, faults, cores, generator_cpus)

    def finish(self, run: LoadRun, findings: LoadFindings) -> Measurement:
        """Return the complete record of a load, and what is stored with it."""
        begun, result, ended, observation = run.begun, run.result, run.ended, run.seen
        observed = observation.usage.get("generator")  # several processes at once, where every host has a generator
        generator = Usage(
            cpu_s=ended.cpu_s,
            rss_bytes=max(ended.rss_bytes, observed.rss_bytes if observed else 0),
            processes=observed.processes if observed else 1,
        )
        workers, running = self.workers, begun.blank.gauges.get(GAUGE)
        unlike = []
        if workers is not None and running not in (None, workers):
            unlike.append(f"the manifests make {workers} workers or threads of the proxy, {running:g} run")
        warmed = begun.warmup_s > 0
        left_out = [] if warmed or not self.slot.point.warmup_s else [WARM_UP_LEFT_OUT]
        unseen = [NOTE_OTHERS_HIDDEN] if observation.others is None else []
        reported_notes = result.notes if result is not None else ()
        sample = begun.blank.model_copy(
            update={
                **self.start.columns(),
                "warmed_up": warmed,
                **_build_verdict(findings.faults),
                **reported_fields(result),
                "usage": {**observation.usage, "generator": generator},
                "busy": {str(number): share for number, share in observation.busy.items()},
                "steal": observation.steal,
                "others": observation.others,
                "counters": dict(observation.counters),
                "notes": (*begun.blank.notes, *unlike, *left_out, *unseen, *reported_notes, *findings.notes),
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
    """Parse what the generator reported; return None and the faults if it reported nothing usable."""
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
    """Return the record of a slot before anything is measured.

    Args:
        target: Where the system runs.
        slot: The planned measurement.
        chosen: The generator of its load point.
        generation: How often its block was begun anew.
        attempt: The number of this attempt, from 1.
        bring_up_s: How long the bring-up took; None: it did not come up.
        renewed: The reload that made a pair's workers; None: they came up with the system.

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
    """Return the measurement of a slot that was not loaded because of these faults."""
    return Measurement(blank.model_copy(update=_build_verdict(faults)))


def _build_verdict(faults: Sequence[Fault]) -> dict[str, Any]:
    """Return a sample's columns for its verdict.

    The first reason in the order of `Reason` is the sample's reason; `detail` lists every fault.
    """
    if not faults:
        return {"verdict": "valid", "reason": None, "detail": ""}
    order = list(Reason)
    first = min((reason for reason, _ in faults), key=order.index)
    detail = "; ".join(f"{reason}: {message}" for reason, message in faults)
    return {"verdict": "invalid", "reason": first, "detail": detail}
