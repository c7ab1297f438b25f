"""The ways to measure loads whose counts the backend also keeps: streams of Server-Sent Events, WebSockets, and gRPC calls.

The generator's counts are compared with those on the backend's page `/counts`, which is read right before and right after the
load. As under a steady load, the system is observed, and its processes must not change. The results of streams and WebSockets are
delays and cut connections. gRPC calls are judged like any steady load, also in pairs (two systems that are loaded at once).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from lab.measure import credible, validity
from lab.measure.canary import send_canary
from lab.measure.measurement import LoadFindings, LoadRun
from lab.measure.steady import SteadyRegime
from lab.model.samples import Reason
from lab.model.usage import Observation
from lab.records import outcomes
from lab.targets.common.process import GeneratorOutcome

PORT, COUNTS = 8080, "/counts"
"""The port of the backend's pod, and the page with its counts."""
Counts = Mapping[str, int]


@dataclass(slots=True)
class CountedRegime(SteadyRegime):
    """The way to make a load whose counts are to be compared with those of the backend, for one sample."""

    _counts: list[Counts] = field(default_factory=list[Counts])
    """The backend's counts before and after the load."""
    _times_s: list[float] = field(default_factory=list[float])
    """When the load began and ended, in seconds since the epoch."""

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

        def look() -> None:
            self._counts.append(parse_counts(self.system.ask("backend", PORT, COUNTS)))

        def counted() -> GeneratorOutcome:
            look()
            self._times_s.append(time.time())
            ended = load()
            self._times_s.append(time.time())
            look()
            return ended

        return SteadyRegime.run(self, warm_up, counted, folder)


@dataclass(slots=True)
class CalledRegime(CountedRegime):
    """The way to make and judge a load of gRPC calls, for one sample."""

    def findings(self, run: LoadRun) -> LoadFindings:
        """Judge a load of gRPC calls that has ended, by the rules for a steady load and by the backend's counts of calls."""
        findings, result = SteadyRegime.findings(self, run), run.result
        if result is None or result.calls is None:
            return findings
        faults = credible.find_call_faults(self.point, result, self._counts)
        return replace(findings, faults=[*findings.faults, *faults])


STEADY_REGIMES: dict[bool, type[SteadyRegime]] = {False: SteadyRegime, True: CalledRegime}
"""Whether a load without disruption makes gRPC calls → how it is made and judged, for a solo sample and for a side of a pair."""


@dataclass(slots=True)
class StreamedRegime(CountedRegime):
    """The way to make and judge a load with streams of Server-Sent Events or with WebSockets, for one sample."""

    def findings(self, run: LoadRun) -> LoadFindings:
        """Judge a load that has ended: find the faults of its sample, and compute the delays and cuts of its streams.

        Faults show in changes of the system's processes, in the generator's report, in the backend's counts, and in the
        answer to a second canary (a checked request).
        """
        result, faults = run.result, list(run.faults)
        if self._changes:
            faults.append((Reason.PROXY_DIED, "\n".join(filter(None, (self._changes, self.system.log_tail())))))
        if result is None or result.streams is None:
            return LoadFindings([*faults, *validity.find_machine_faults(run.seen)])
        faults += validity.find_stream_faults(
            self.point,
            result,
            self._counts,
            self._times_s,
            run.seen,
            run.cores["generator"] or 0.0,
            run.ended.cpu_s,
            run.generator_cpus,
        )
        faults += send_canary(self.system, run.begun.endpoint, self.point).faults
        leftovers = run.begun.blank.leftovers.get("before")
        outcome = outcomes.choose_stream_outcome(self.point)(result.streams, result.latency, run.seen.usage, leftovers)
        return LoadFindings(faults, (), {"outcome": outcome})


def parse_counts(page: str) -> Counts:
    r"""Parse the backend's page of counts, which has a name and a number on each line: name → number.

    >>> parse_counts("begun 3\nevents 93\nx_accel_buffering \n")
    {'begun': 3, 'events': 93}
    """
    return {name: int(count) for name, count in re.findall(r"^(\w+) (\d+)$", page, re.MULTILINE)}
