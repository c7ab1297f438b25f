"""One sample: canary, warm-up, load, and everything seen meanwhile, as one record with its verdict; steady or disturbed alike.

Refuses to decide what happens next: measuring again, storing and ordering belong to `loop`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from lab.generators import command
from lab.generators.loads import load_of
from lab.measure import cpu
from lab.measure.canary import Canary, canary
from lab.measure.measurement import ChosenGenerator, Measurement, blank_sample, measurement, unmeasured
from lab.measure.regime import LoadRun, Regime
from lab.measure.validity import Fault
from lab.model.endpoint import Endpoint
from lab.model.load import Load, OutputError, Result
from lab.model.plan import Slot
from lab.model.samples import Reason
from lab.model.usage import Observation
from lab.targets.base import System, Target
from lab.targets.common.process import GRACE_S, Ended, run_generator, scratch, taken
from lab.targets.readback import Reading


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
    """Of the proxy, as the manifests ask; None: one for each of its CPUs."""

    def measure(self, regime: Regime, attempt: int) -> Measurement:
        """Measure, unless a knob did not take or the wrong backend answers: then there is nothing worth a number."""
        system, point, chosen = self.system, self.slot.point, self.chosen
        blank = blank_sample(self.target, self.slot, chosen, self.generation, attempt, self.bring_up_s)
        with scratch() as folder, ExitStack() as lasting:
            prepared, unprepared = regime.prepare(lasting)
            if unprepared:
                return unmeasured(blank, unprepared)
            endpoint = system.endpoint(point)
            load = load_of(point, regime.asked(endpoint))
            known = {
                **prepared,
                "notes": (*blank.notes, *filter(None, [endpoint.way])),
                "argv": tuple(command(chosen.generator, chosen.path, load)),
                "gauges": dict(system.gauges()),
            }
            first = canary(system, endpoint, point)
            blank = blank.model_copy(update={**known, "tls": first.tls})
            if before := self._standing_faults(load) + first.faults:
                return unmeasured(blank, before)
            generate = partial(run_generator, system, chosen.generator, chosen.path, load, folder)
            ended, seen = regime.run(partial(self._warm_up, load), generate, folder)
            left = taken(folder, chosen.keep)
        run = self._load_run(endpoint, load, ended, seen, first)
        return measurement(blank, run, regime.findings(run), left)

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

    def _warm_up(self, load: Load) -> None:
        """The same load, of which nothing is kept."""
        warmup_s = self.slot.point.warmup_s
        if warmup_s:
            gentle = replace(load, duration_s=max(1.0, warmup_s), requests=None, generators=1, logged=False)
            with scratch() as folder:
                run_generator(self.system, self.chosen.generator, self.chosen.path, gentle, folder)

    def _load_run(self, endpoint: Endpoint, load: Load, ended: Ended, seen: Observation, first: Canary) -> LoadRun:
        cpus = self.target.cpus()
        ended, seen, own_cpu_s = cpu.accounted(seen, ended, cpus)
        result, faults = self._parsed(load, ended)
        has_proxy = seen.cores is None and bool(self.system.processes("proxy"))
        cores = cpu.cores(seen, own_cpu_s, result, ended, cpus, has_proxy, self.workers)
        return LoadRun(endpoint, load, ended, seen, result, faults, cores, first)

    def _parsed(self, load: Load, ended: Ended) -> tuple[Result | None, list[Fault]]:
        """What the generator reported, or why it reported nothing."""
        if ended.hung:
            return None, [(Reason.GENERATOR_HUNG, f"still running {GRACE_S:g} s after its time, killed")]
        try:
            return self.chosen.generator.parse(ended.stdout, ended.stderr, ended.exit_status, load), []
        except OutputError as error:
            reason = Reason.GENERATOR_FAILED if ended.exit_status else Reason.GENERATOR_OUTPUT
            return None, [(reason, f"exit status {ended.exit_status}: {error}")]
