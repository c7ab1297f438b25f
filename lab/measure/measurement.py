"""One sample: canary, warm-up, load, and everything seen meanwhile, as one record with its verdict; steady or disturbed alike.

What earlier loads have left is looked at before the warm-up, when the load starts and after it. Refuses to decide what happens next: measuring
again, bringing up anew, storing and ordering belong to `loop`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from lab.generators import Generator, command, load_of
from lab.measure import cpu
from lab.measure.canary import Canary, canary
from lab.measure.validity import Fault
from lab.model.disturbance import Manifests
from lab.model.endpoint import Endpoint
from lab.model.leftovers import Leftovers, Moment, ports_are_taken, ports_taken
from lab.model.load import Load, OutputError, Result
from lab.model.pairs import PairSide, Renewed
from lab.model.plan import Slot
from lab.model.run import now
from lab.model.samples import Reason, Sample
from lab.model.usage import USAGE_SCHEMA, Observation, Usage
from lab.records.steadiness import with_cause
from lab.records.store import reported
from lab.records.tables import join_raw
from lab.stats.histogram import Histogram
from lab.systems.workers import GAUGE, asked
from lab.targets.base import System, Target
from lab.targets.common.process import GRACE_S, Ended, Job, held, run_generators, taken
from lab.targets.common.scratch import scratch
from lab.targets.readback import Reading

NOBODY: Mapping[str, float] = {}
OTHERS_HIDDEN = "what else ran there could not be seen, and is not judged"
WARM_UP_LEFT_OUT = "there was no warm-up: it alone takes too many of the proxy's local ports"


@dataclass(frozen=True, slots=True)
class ChosenGenerator:
    """The generator of one point: which, where it is installed, and the one it stands in for."""

    generator: Generator
    path: str
    version: str | None
    stand_in_for: str | None
    notes: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    """Files that it leaves in its scratch folder and that are kept beside the sample."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What a load comes to: all that speaks against it, and what its sample says beside the measurements."""

    faults: Sequence[Fault]
    notes: Sequence[str] = ()
    columns: Mapping[str, Any] = field(default_factory=dict[str, Any])
    events: pl.DataFrame | None = None
    """Of a disturbed load: EVENTS_SCHEMA."""


class Regime(Protocol):
    """What a steady load and a disturbed one do differently around the same measuring: one sample's, its methods called in this order, once each.

    As it is here nothing is prepared, and the load goes where the canary goes.
    """

    def prepare(self, lasting: ExitStack) -> tuple[Mapping[str, Any], Sequence[Fault]]:
        """Before anything is asked of the system: columns of the sample, and why it cannot go on. What `lasting` holds ends with the load."""
        return {}, []

    def asked(self, endpoint: Endpoint) -> Endpoint:
        """Where the load goes, of a system whose canary goes to `endpoint`."""
        return endpoint

    def run(self, warm_up: Callable[[], object], load: Callable[[], Ended], folder: Path) -> tuple[Ended, Observation]:
        """Warm up, then load while the system is watched. `folder`: where the generator's output goes."""
        ...

    def findings(self, run: LoadRun) -> Findings:
        """After the load."""
        ...


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one attempt at a slot left behind: the record and what is stored beside it."""

    sample: Sample
    raw: str = ""
    histograms: Mapping[str, Histogram] = field(default_factory=dict[str, Histogram])
    usage: pl.DataFrame = field(default_factory=partial(pl.DataFrame, schema=USAGE_SCHEMA))
    events: pl.DataFrame | None = None
    """Of a disturbed sample: the columns of `lab.model.events.EVENTS_SCHEMA`."""
    left: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """File name → content of what the generator itself wrote (`ChosenGenerator.keep`)."""


class UndrainedStartError(Exception):
    """The warm-up, or what was there before it, has taken so many local ports that the load must not begin.

    Attributes:
        reasons: A sentence for each system whose ports are taken.
        by_warm_up: Whether a warm-up alone took them, so that it has to be left out.
        rate_rps: What both generators of a pair answered per second while they warmed up; 0 where nobody needs it.

    """

    def __init__(self, reasons: Sequence[str], by_warm_up: bool, rate_rps: float) -> None:
        super().__init__("; ".join(reasons))
        self.reasons, self.by_warm_up, self.rate_rps = reasons, by_warm_up, rate_rps


@dataclass(slots=True)
class Start:
    """What one system shows around one load.

    Attributes:
        before: What was seen before the warm-up; None: nobody looked, so no start is refused.
        fresh_bring_ups: How often the system had been brought up anew in its block.
        warms_up: Whether the load's warm-up is made.
        rate_rps: What both generators of a pair answered per second in a warm-up that is left out since; 0: not known.
        seen: What was seen when the load started, and when it had ended.

    """

    before: Leftovers | None = None
    fresh_bring_ups: int = 0
    warms_up: bool = True
    rate_rps: float = 0.0
    seen: dict[Moment, Leftovers] = field(default_factory=dict[Moment, Leftovers])

    def columns(self) -> dict[str, Any]:
        """Return the sample's columns of what was seen so far."""
        before: dict[Moment, Leftovers] = {"before": self.before} if self.before is not None else {}
        return {"leftovers": before | self.seen, "fresh_bring_ups": self.fresh_bring_ups}


def refuse_undrained(starts: Sequence[Start], rate_rps: float = 0.0) -> None:
    """Raise UndrainedStartError where too many ports of one of these systems are taken when their load starts."""
    reasons: list[str] = []
    any_by_warm_up = False
    for start in starts:
        now_seen = start.seen["start"]
        if start.before is not None and ports_are_taken(now_seen):
            by_warm_up = start.warms_up and ports_are_taken(now_seen, start.before)
            reasons.append(f"{ports_taken(now_seen)}{' after the warm-up' if by_warm_up else ''}")
            any_by_warm_up |= by_warm_up
    if reasons:
        raise UndrainedStartError(reasons, any_by_warm_up, rate_rps)


@dataclass(frozen=True, slots=True)
class Begun:
    """A sample whose load can be made: what is known of it before, and the generator's job."""

    blank: Sample
    endpoint: Endpoint
    first: Canary
    job: Job
    warmup_s: float

    def warm_up(self, lasting: ExitStack) -> list[Job]:
        """The same load, of which nothing is kept; none where the point wants none.

        A second at least, as not every generator takes less: who can is interrupted before. One that is late with its first second tells
        too low a rate, and slices are longer then, no other.
        """
        if not self.warmup_s:
            return []
        load = replace(self.job.load, duration_s=max(1.0, self.warmup_s), requests=None, generators=1, logged=False)
        cut = self.warmup_s < load.duration_s and self.job.generator.ends_on_interrupt(load)
        before = ("timeout", "--preserve-status", "--signal=INT", f"{self.warmup_s:g}") if cut else ()
        return [replace(self.job, load=load, scratch=lasting.enter_context(scratch()), before=before)]


@dataclass(frozen=True, slots=True)
class LoadRun:
    """A load that was made, and everything that was seen of it."""

    begun: Begun
    ended: Ended
    seen: Observation
    result: Result | None
    """What the generator reported; None: nothing, and `faults` say why."""
    faults: Sequence[Fault]
    cores: Mapping[str, float | None]
    """How busy the CPUs of proxy and generator were; None: not seen."""
    generator_cpus: int | None = None
    """How many it may use; None: not known."""


@dataclass(frozen=True, slots=True)
class SampleRun:
    """One slot on one running system."""

    target: Target
    system: System
    slot: Slot
    chosen: ChosenGenerator
    generation: int
    bring_up_s: float
    readings: Sequence[Reading]
    manifests: Manifests = ()
    """Of the variant."""
    renewed: Renewed | None = None
    """The reload that made its workers; None: it came up with them."""
    start: Start = field(default_factory=Start)
    """What is seen of earlier loads around this one."""

    @property
    def workers(self) -> int | None:
        """Of the proxy, as the manifests ask; None: as many as it makes of its CPUs. How many really run is among the gauges."""
        return asked(self.manifests, len(self.target.cpus().get("proxy", ())) or None)

    def measure(self, regime: Regime, attempt: int) -> Measurement:
        """Measure, unless a knob did not take or the wrong backend answers: then there is nothing worth a number.

        Raises UndrainedStartError where the warm-up of a steady load takes too many local ports.
        """
        with ExitStack() as lasting:
            begun = self.begin(regime, attempt, lasting)
            if isinstance(begun, Measurement):
                return begun
            load = held([begun.job], lasting)

            def warm_up() -> None:
                run_generators(begun.warm_up(lasting))
                self.start.seen["start"] = self.system.leftovers()
                if self.slot.point.disturbance is None:
                    refuse_undrained([self.start])

            ended, seen = regime.run(warm_up, lambda: load()[0], begun.job.scratch)
            self.start.seen["end"] = self.system.leftovers()
            run = self.load_run(begun, ended, seen)
            return self.finish(run, regime.findings(run))

    def blank(self, attempt: int) -> Sample:
        """Return the record of this slot before its load, with what was seen before it."""
        took_s, renewed = self.bring_up_s, self.renewed
        blank = blank_sample(self.target, self.slot, self.chosen, self.generation, attempt, took_s, renewed)
        return blank.model_copy(update=self.start.columns())

    def begin(self, regime: Regime, attempt: int, lasting: ExitStack) -> Begun | Measurement:
        """All that comes before a load; a Measurement where none is worth making. What `lasting` holds is to stay until the load is judged.

        Whether the generator can make the load could not be known before the system was up: how many hosts it has and where its TLS ends.
        """
        system, point, chosen = self.system, self.slot.point, self.chosen
        blank = self.blank(attempt)
        prepared, unprepared = regime.prepare(lasting)
        if unprepared:
            return unmeasured(blank, unprepared)
        endpoint = system.endpoint(point)
        load = load_of(point, regime.asked(endpoint), timed=not blank.untimed)
        gauges = dict(system.gauges())
        notes = [*blank.notes, endpoint.way] if endpoint.way else [*blank.notes]
        unseen = self.start.before.unseen if self.start.before is not None else {}
        notes += [f"what earlier loads left in the {place} could not be seen: {why}" for place, why in unseen.items()]
        first = canary(system, endpoint, point)
        known = {
            **prepared,
            "notes": tuple(notes),
            "argv": tuple(command(chosen.generator, chosen.path, load)),
            "gauges": gauges,
            "tls": first.tls,
        }
        blank = blank.model_copy(update=known)
        faults: list[Fault] = [(Reason.KNOB_NOT_APPLIED, str(each)) for each in self.readings if not each.ok]
        faults += [(Reason.LIMIT_NOT_APPLIED, what) for what in system.unapplied()]
        if refusal := chosen.generator.refusal(load):
            faults.append((Reason.GENERATOR_FAILED, f"{chosen.generator.name} cannot make this load: {refusal}"))
        if faults := faults + first.faults:
            return unmeasured(blank, faults)
        warmup_s = point.warmup_s if self.start.warms_up else 0.0
        job = Job(system, chosen.generator, chosen.path, load, lasting.enter_context(scratch()))
        return Begun(blank, endpoint, first, job, warmup_s)

    def load_run(
        self, begun: Begun, ended: Ended, seen: Observation, beside_s: Mapping[str, float] = NOBODY
    ) -> LoadRun:
        """A load that was made. `beside_s`: role → CPU seconds of another system of ours on the same CPUs."""
        cpus, load = self.target.cpus(), begun.job.load
        ended, seen, own_cpu_s = cpu.accounted(seen, ended, cpus, beside_s)
        result, faults = parsed(self.chosen.generator, load, ended)
        has_proxy = seen.cores is None and bool(self.system.processes("proxy"))
        counted = begun.blank.gauges.get(GAUGE)
        count = self.workers if counted is None else int(counted)
        cores = cpu.cores(seen, own_cpu_s, result, cpus, has_proxy, count, alone=not self.slot.against)
        mine = self.target.generator_cpus()
        return LoadRun(begun, ended, seen, result, faults, cores, mine)

    def finish(self, run: LoadRun, findings: Findings) -> Measurement:
        """Everything that is known of a load in the end."""
        begun, result, ended, seen = run.begun, run.result, run.ended, run.seen
        most = seen.usage.get("generator")  # several at once, where it has one for every host
        generator = Usage(
            cpu_s=ended.cpu_s,
            rss_bytes=max(ended.rss_bytes, most.rss_bytes if most else 0),
            processes=most.processes if most else 1,
        )
        workers, running = self.workers, begun.blank.gauges.get(GAUGE)
        unlike = []
        if workers is not None and running not in (None, workers):
            unlike.append(f"the manifests make {workers} workers or threads of the proxy, {running:g} run")
        warmed = begun.warmup_s > 0
        left_out = [] if warmed or not self.slot.point.warmup_s else [WARM_UP_LEFT_OUT]
        unseen = [OTHERS_HIDDEN] if seen.others is None else []
        reported_notes = result.notes if result is not None else ()
        sample = begun.blank.model_copy(
            update={
                **self.start.columns(),
                "warmed_up": warmed,
                **_verdict(findings.faults),
                **reported(result),
                "usage": {**seen.usage, "generator": generator},
                "busy": {str(each): share for each, share in seen.busy.items()},
                "steal": seen.steal,
                "others": seen.others,
                "counters": dict(seen.counters),
                "notes": (*begun.blank.notes, *unlike, *left_out, *unseen, *reported_notes, *findings.notes),
                "proxy_core": run.cores["proxy"],
                "generator_core": run.cores["generator"],
                **findings.columns,
            }
        )
        histograms = result.histograms if result is not None else {}
        raw, left = join_raw(ended.stdout, ended.stderr), taken(begun.job.scratch, self.chosen.keep)
        return Measurement(with_cause(sample), raw, histograms, seen.rows, findings.events, left)


def parsed(generator: Generator, load: Load, ended: Ended) -> tuple[Result | None, list[Fault]]:
    """What the generator reported, or why it reported nothing."""
    if ended.hung:
        return None, [(Reason.GENERATOR_HUNG, f"still running {GRACE_S:g} s after its time, killed")]
    try:
        return generator.parse(ended.stdout, ended.stderr, ended.exit_status, load), []
    except OutputError as error:
        reason = Reason.GENERATOR_FAILED if ended.exit_status else Reason.GENERATOR_OUTPUT
        return None, [(reason, f"exit status {ended.exit_status}: {error}")]


def blank_sample(
    target: Target,
    slot: Slot,
    chosen: ChosenGenerator,
    generation: int,
    attempt: int,
    bring_up_s: float | None,
    renewed: Renewed | None = None,
) -> Sample:
    """The record of a slot before anything is known about it."""
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
        started_at=now(),
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


def unmeasured(blank: Sample, found: Sequence[Fault]) -> Measurement:
    """Nothing was loaded, for these faults."""
    return Measurement(blank.model_copy(update=_verdict(found)))


def _verdict(found: Sequence[Fault]) -> dict[str, Any]:
    """The first reason in the list's own order stands for all; `detail` tells every one."""
    if not found:
        return {"verdict": "valid", "reason": None, "detail": ""}
    order = list(Reason)
    first = min((reason for reason, _ in found), key=order.index)
    detail = "; ".join(f"{reason}: {what}" for reason, what in found)
    return {"verdict": "invalid", "reason": first, "detail": detail}
