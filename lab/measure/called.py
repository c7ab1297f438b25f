"""The way to measure a load of gRPC calls: the generator's counts and sum of latencies are compared with the backend's.

The backend's page `/counts` is read right before and right after the load. In all other respects a load of gRPC calls is judged
like any steady load, also in pairs (two systems that are loaded at once).
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
        """Judge the load after it has ended: by the rules for a steady load, and by the backend's counts of calls."""
        findings, result = SteadyRegime.findings(self, run), run.result
        if result is None or result.calls is None:
            return findings
        before, after = self._counts
        faults = credible.find_call_faults(self.point, result, (before, after))
        return replace(findings, faults=[*findings.faults, *faults])


def make_steady_regime(system: System, point: LoadPoint, generator: Generator, alone: bool = True) -> SteadyRegime:
    """Return the object that makes and judges a load without disruption: a CalledRegime for gRPC calls, else a SteadyRegime.

    Args:
        system: The running system.
        point: The load.
        generator: The generator that makes the load.
        alone: True for a solo sample; False for one side of a pair (two systems at once).

    """
    return (CalledRegime if point.grpc else SteadyRegime)(system, point, generator, alone)
