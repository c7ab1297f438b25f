"""The regime of gRPC calls: a steady load whose counts, and whose latencies in sum, are compared with those of the backend.

The backend's page `/counts` is read right before the load and right after it. Everything else is judged as under any steady load, in pairs
as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from lab.generators import Generator
from lab.measure import credible
from lab.measure.measurement import LoadFindings, LoadRun
from lab.measure.steady import SteadyRegime
from lab.measure.streamed import COUNTS, PORT, Counts, parse_counts
from lab.model.sweeps import LoadPoint
from lab.model.usage import Observation
from lab.targets.base import System
from lab.targets.common.process import GeneratorOutcome


@dataclass(slots=True)
class CalledRegime(SteadyRegime):
    """The way to make and judge a load of gRPC calls, for one sample."""

    _counts: list[Counts] = field(default_factory=list[Counts])
    """The backend's counts before and after the load."""

    def run(
        self, warm_up: Callable[[], object], load: Callable[[], GeneratorOutcome], folder: Path
    ) -> tuple[GeneratorOutcome, Observation]:
        """Warm up, then load the system while it is observed, and read the backend's counts before and after the load.

        Args:
            warm_up: A function that makes the warm-up.
            load: A function that makes the load, and returns the generator's process when it has ended.
            folder: The folder of the generator's output.

        Returns:
            The generator's process, and what was observed of the system.

        """

        def counted() -> GeneratorOutcome:
            self._counts.append(self._ask_counts())
            ended = load()
            self._counts.append(self._ask_counts())
            return ended

        return SteadyRegime.run(self, warm_up, counted, folder)

    def findings(self, run: LoadRun) -> LoadFindings:
        """Judge the load after it has ended, as a steady one, and by the backend's counts."""
        findings, result = SteadyRegime.findings(self, run), run.result
        if result is None or result.calls is None:
            return findings
        before, after = self._counts
        faults = credible.find_call_faults(self.point, result, (before, after))
        return replace(findings, faults=[*findings.faults, *faults])

    def _ask_counts(self) -> Counts:
        return parse_counts(self.system.ask("backend", PORT, COUNTS))


def make_steady_regime(system: System, point: LoadPoint, generator: Generator, alone: bool = True) -> SteadyRegime:
    """Return the way to make and judge a load without disruption: that of gRPC calls where a load has them.

    Args:
        system: The running system.
        point: The load.
        generator: The generator that makes it.
        alone: True for a solo sample.

    """
    return (CalledRegime if point.grpc else SteadyRegime)(system, point, generator, alone)
