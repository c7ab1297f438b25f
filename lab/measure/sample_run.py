"""One sample: canary, warm-up, load, and everything seen meanwhile, as one record with its verdict; steady or disturbed alike.

Refuses to decide what happens next: measuring again, storing and ordering belong to `loop`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from lab.generators import Generator, command
from lab.generators.base import load_of
from lab.measure import cpu
from lab.measure.canary import Canary, canary
from lab.measure.measurement import ChosenGenerator, Measurement, blank_sample, measurement, unmeasured
from lab.measure.regime import LoadRun, Regime
from lab.measure.starting import Start, refuse_undrained
from lab.measure.validity import Fault
from lab.model.endpoint import Endpoint
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
        if blank.pair is not None:
            blank = blank.model_copy(update={"pair": blank.pair.model_copy(update={"renewed": self.renewed})})
        return blank.model_copy(update=self.start.columns())

    def seen_around(self, begun: Begun) -> Sample:
        """Return the record of a load that was made, before its results, with what was seen until its end."""
        warmed = begun.warmup_s > 0
        left_out = [] if warmed or not self.slot.point.warmup_s else [WARM_UP_LEFT_OUT]
        notes = (*begun.blank.notes, *left_out)
        return begun.blank.model_copy(update={**self.start.columns(), "warmed_up": warmed, "notes": notes})

    def begin(self, regime: Regime, attempt: int, lasting: ExitStack) -> Begun | Measurement:
        """All that comes before a load; a Measurement where none is worth making. What `lasting` holds is to stay until the load is judged."""
        system, point, chosen = self.system, self.slot.point, self.chosen
        blank = self.blank(attempt)
        folder = lasting.enter_context(scratch())
        prepared, unprepared = regime.prepare(lasting)
        if unprepared:
            return unmeasured(blank, unprepared)
        endpoint = system.endpoint(point)
        load = load_of(point, regime.asked(endpoint), timed=not blank.untimed)
        gauges = dict(system.gauges())
        known = {
            **prepared,
            "notes": (*blank.notes, *filter(None, [endpoint.way, self._other_workers(gauges)]), *self.start.notes()),
            "argv": tuple(command(chosen.generator, chosen.path, load)),
            "gauges": gauges,
        }
        first = canary(system, endpoint, point)
        blank = blank.model_copy(update={**known, "tls": first.tls})
        if before := self._standing_faults(load) + first.faults:
            return unmeasured(blank, before)
        warmup_s = point.warmup_s if self.start.warms_up else 0.0
        return Begun(blank, endpoint, first, Job(system, chosen.generator, chosen.path, load, folder), warmup_s)

    def _other_workers(self, gauges: Mapping[str, float]) -> str:
        """That not as many run as the manifests ask for; empty where they do, or it cannot be told."""
        run = gauges.get(GAUGE)
        if run is None or self.workers is None or run == self.workers:
            return ""
        return f"the manifests make {self.workers} workers or threads of the proxy, {run:g} run"

    def _standing_faults(self, load: Load) -> list[Fault]:
        """What speaks against measuring at all: a knob or limit that did not take, a load that cannot be made here.

        The last could not be known before the system was up: how many hosts it has and where its TLS ends.
        """
        faults = [(Reason.KNOB_NOT_APPLIED, str(reading)) for reading in self.readings if not reading.ok]
        faults += [(Reason.LIMIT_NOT_APPLIED, what) for what in self.system.unapplied()]
        generator = self.chosen.generator
        if refusal := generator.refusal(load):
            faults.append((Reason.GENERATOR_FAILED, f"{generator.name} cannot make this load: {refusal}"))
        return faults

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
        cores = cpu.cores(seen, own_cpu_s, result, ended, cpus, has_proxy, count, alone=not self.slot.against)
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
