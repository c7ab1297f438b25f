"""The regime of gRPC calls: a steady load whose counts, and whose latencies in sum, are compared with those of the backend.

The backend's page `/counts` is read right before the load and right after it. Everything else is judged as under any steady load, in pairs
as well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lab.generators import Generator
from lab.measure import credible
from lab.measure.measurement import LoadFindings, LoadRun
from lab.measure.steady import SteadyRegime
from lab.measure.streamed import CountedRegime
from lab.model.sweeps import LoadPoint
from lab.targets.base import System


@dataclass(slots=True)
class CalledRegime(CountedRegime):
    """The way to make and judge a load of gRPC calls, for one sample."""

    def findings(self, run: LoadRun) -> LoadFindings:
        """Judge the load after it has ended, as a steady one, and by the backend's counts."""
        findings, result = SteadyRegime.findings(self, run), run.result
        if result is None or result.calls is None:
            return findings
        before, after = self._counts
        faults = credible.find_call_faults(self.point, result, (before, after))
        return replace(findings, faults=[*findings.faults, *faults])


def make_steady_regime(system: System, point: LoadPoint, generator: Generator, alone: bool = True) -> SteadyRegime:
    """Return the way to make and judge a load without disruption: that of gRPC calls where a load has them.

    Args:
        system: The running system.
        point: The load.
        generator: The generator that makes it.
        alone: True for a solo sample.

    """
    return (CalledRegime if point.grpc else SteadyRegime)(system, point, generator, alone)
