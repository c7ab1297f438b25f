"""One sample: canary, warm-up, load, and everything seen meanwhile, as one record with its verdict; steady or disturbed alike.

What earlier loads have left is looked at before the warm-up, when the load starts and after it. Refuses to decide what happens next: measuring
again, bringing up anew, storing and ordering belong to `loop`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from lab.generators import Generator, command
from lab.generators.base import load_of
from lab.measure import cpu
from lab.measure.canary import Canary, canary
from lab.measure.measurement import (
    ChosenGenerator,
    LoadRun,
    Measurement,
    Regime,
    blank_sample,
    measurement,
    unmeasured,
)
from lab.measure.validity import Fault
from lab.model.endpoint import Endpoint
from lab.model.leftovers import Leftovers, Moment, ports_are_taken, ports_taken
from lab.model.load import Load, OutputError, Result
from lab.model.pairs import Renewed
from lab.model.plan import Slot
from lab.model.samples import Reason, Sample
from lab.model.usage import Observation
from lab.systems.workers import GAUGE
from lab.targets.base import System, Target
from lab.targets.common.process import GRACE_S, Ended, Job, held, run_generators, taken
from lab.targets.common.scratch import scratch
from lab.targets.readback import Reading

NOBODY: Mapping[str, float] = {}
WARM_UP_LEFT_OUT = "there was no warm-up: it alone takes too many of the proxy's local ports"


class UndrainedStartError(Exception):
    """The warm-up, or what was there before it, has taken so many local ports that the load must not begin.

    Attributes:
        reasons: A sentence for each system whose ports are taken.
        by_warm_up: Whether a warm-up alone took them, so that it has to be left out.
        rate_rps: What both generators of a pair answered per second while they warmed up; 0 where nobody needs it.

    """

    def __init__(self, reasons: Sequence[str], by_warm_up: bool, rate_rps: float) -> None:
        super().__init__("; ".join(reasons))
        self.reasons, self.by_warm_up, self.rate_rps = tuple(reasons), by_warm_up, rate_rps


@dataclass(slots=True)
class Start:
    """What one system shows around one load.

    Attributes:
        before: What was seen before the warm-up; None: nobody looked, so no start is refused.
        fresh_bring_ups: How often the system had been brought up anew in its block.
        warms_up: Whether the load's warm-up is made.
        rate_rps: What both generators of a pair answered per second in a warm-up that is left out since; 0: not known.

    """

    before: Leftovers | None = None
    fresh_bring_ups: int = 0
    warms_up: bool = True
    rate_rps: float = 0.0
    _seen: dict[Moment, Leftovers] = field(default_factory=dict[Moment, Leftovers])

    def look(self, system: System, moment: Moment) -> None:
        """Look at the system when its load starts or has ended."""
        self._seen[moment] = system.leftovers()

    def excess(self) -> tuple[str, bool] | None:
        """Return (a sentence, whether the warm-up alone did it) where TIME_WAIT sockets take too many ports; None where not."""
        start = self._seen["start"]
        if self.before is None or not ports_are_taken(start):
            return None
        by_warm_up = self.warms_up and ports_are_taken(start, self.before)
        return f"{ports_taken(start)}{' after the warm-up' if by_warm_up else ''}", by_warm_up

    def columns(self) -> dict[str, Any]:
        """Return the sample's columns of what was seen so far."""
        before: dict[Moment, Leftovers] = {"before": self.before} if self.before is not None else {}
        return {"leftovers": before | self._seen, "fresh_bring_ups": self.fresh_bring_ups}

    def notes(self) -> list[str]:
        """Return a sentence for each place that could not be looked at before the warm-up."""
        unseen: Mapping[str, str] = self.before.unseen if self.before is not None else {}
        return [f"what earlier loads left in the {place} could not be seen: {why}" for place, why in unseen.items()]


def refuse_undrained(starts: Sequence[Start], rate_rps: float = 0.0) -> None:
    """Raise UndrainedStartError where too many ports of one of these systems are taken when their load starts."""
    excesses = [excess for start in starts if (excess := start.excess()) is not None]
    if excesses:
        by_warm_up = any(alone for _, alone in excesses)
        raise UndrainedStartError([sentence for sentence, _ in excesses], by_warm_up, rate_rps)


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
class SampleRun:
    """One slot on one running system."""

    target: Target
    system: System
    slot: Slot
    chosen: ChosenGenerator
    generation: int
    bring_up_s: float
    readings: Sequence[Reading]
    workers: int | None = None
    """Of the proxy, as the manifests ask; None: as many as it makes of its CPUs. How many really run is among the gauges."""
    renewed: Renewed | None = None
    """The reload that made its workers; None: it came up with them."""
    start: Start = field(default_factory=Start)
    """What is seen of earlier loads around this one."""

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
                self.start.look(self.system, "start")
                if self.slot.point.disturbance is None:
                    refuse_undrained([self.start])

            ended, seen = regime.run(warm_up, lambda: load()[0], begun.job.scratch)
            self.start.look(self.system, "end")
            left = taken(begun.job.scratch, self.chosen.keep)
            run = self.load_run(begun, ended, seen)
            return measurement(self.seen_around(begun), run, regime.findings(run), left)

    def blank(self, attempt: int) -> Sample:
        """Return the record of this slot before its load, with what was seen before it."""
        blank = blank_sample(self.target, self.slot, self.chosen, self.generation, attempt, self.bring_up_s)
        pair = blank.pair and blank.pair.model_copy(update={"renewed": self.renewed})
        return blank.model_copy(update={"pair": pair, **self.start.columns()})

    def seen_around(self, begun: Begun) -> Sample:
        """Return the record of a load that was made, before its results, with what was seen until its end."""
        warmed = begun.warmup_s > 0
        left_out = [] if warmed or not self.slot.point.warmup_s else [WARM_UP_LEFT_OUT]
        notes = (*begun.blank.notes, *left_out)
        return begun.blank.model_copy(update={**self.start.columns(), "warmed_up": warmed, "notes": notes})

    def begin(self, regime: Regime, attempt: int, lasting: ExitStack) -> Begun | Measurement:
        """All that comes before a load; a Measurement where none is worth making. What `lasting` holds is to stay until the load is judged.

        Whether the generator can make the load could not be known before the system was up: how many hosts it has and where its TLS ends.
        """
        system, point, chosen = self.system, self.slot.point, self.chosen
        blank = self.blank(attempt)
        folder = lasting.enter_context(scratch())
        prepared, unprepared = regime.prepare(lasting)
        if unprepared:
            return unmeasured(blank, unprepared)
        endpoint = system.endpoint(point)
        load = load_of(point, regime.asked(endpoint), timed=not blank.untimed)
        gauges = dict(system.gauges())
        notes = [*blank.notes, endpoint.way] if endpoint.way else [*blank.notes]
        if self.workers is not None and (run := gauges.get(GAUGE, self.workers)) != self.workers:
            notes.append(f"the manifests make {self.workers} workers or threads of the proxy, {run:g} run")
        first = canary(system, endpoint, point)
        known = {
            **prepared,
            "notes": (*notes, *self.start.notes()),
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
        return Begun(blank, endpoint, first, Job(system, chosen.generator, chosen.path, load, folder), warmup_s)

    def load_run(
        self, begun: Begun, ended: Ended, seen: Observation, beside_s: Mapping[str, float] = NOBODY
    ) -> LoadRun:
        """A load that was made. `beside_s`: role → CPU seconds of another system of ours on the same CPUs."""
        cpus, load = self.target.cpus(), begun.job.load
        ended, seen, own_cpu_s = cpu.accounted(seen, ended, cpus, beside_s)
        result, faults = parsed(self.chosen.generator, load, ended)
        has_proxy = seen.cores is None and bool(self.system.processes("proxy"))
        run = begun.blank.gauges.get(GAUGE)
        count = self.workers if run is None else int(run)
        cores = cpu.cores(seen, own_cpu_s, result, cpus, has_proxy, count, alone=not self.slot.against)
        mine = self.target.generator_cpus()
        return LoadRun(begun.endpoint, load, ended, seen, result, faults, cores, begun.first, mine)


def parsed(generator: Generator, load: Load, ended: Ended) -> tuple[Result | None, list[Fault]]:
    """What the generator reported, or why it reported nothing."""
    if ended.hung:
        return None, [(Reason.GENERATOR_HUNG, f"still running {GRACE_S:g} s after its time, killed")]
    try:
        return generator.parse(ended.stdout, ended.stderr, ended.exit_status, load), []
    except OutputError as error:
        reason = Reason.GENERATOR_FAILED if ended.exit_status else Reason.GENERATOR_OUTPUT
        return None, [(reason, f"exit status {ended.exit_status}: {error}")]
