"""The regime of a steady load: nothing may happen meanwhile, and what is answered afterwards is what was answered before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.generators import Generator
from lab.measure import validity
from lab.measure.canary import Canary, canary
from lab.measure.regime import Findings, LoadRun
from lab.measure.validity import Fault
from lab.model.bottleneck import limited_by
from lab.model.endpoint import Endpoint
from lab.model.load import Result
from lab.model.samples import Reason
from lab.model.steadiness import Steadiness
from lab.model.sweeps import Point
from lab.model.usage import Observation
from lab.records.steadiness import describe_change, judge_usage
from lab.targets.base import System
from lab.targets.common.process import Ended

NO_TLS = "no TLS on the way: there is no session to resume"
BY_CLIENT = "that HTTP/2 was spoken its client alone tells: this proxy counts no requests by version"
NOT_COUNTED = "no TLS ends at the proxy here: whether sessions were resumed was not counted"


Running = tuple[dict[str, int], set[int], set[int]]
"""Restarts by container, processes of the proxy, processes of the backend."""


@dataclass(slots=True)
class Steady:
    """One sample's regime."""

    system: System
    point: Point
    generator: Generator
    alone: bool = True
    """Whether it has the machine to itself; one of two sides does not, and what disturbs both speaks against neither."""
    loaded_s: float | None = None
    """How long the load of a pair lasted whose sides ran in turns; None: as long as the generator says."""
    _changes: str = ""

    def prepare(self, lasting: ExitStack) -> tuple[Mapping[str, Any], Sequence[Fault]]:
        """There is nothing to be prepared."""
        return {}, []

    def asked(self, endpoint: Endpoint) -> Endpoint:
        """The load goes where the canary goes."""
        return endpoint

    def run(self, warm_up: Callable[[], object], load: Callable[[], Ended], folder: Path) -> tuple[Ended, Observation]:
        """On the client's link as the point wants it. What runs there is looked at while it warms up: on a cluster that takes a while."""
        with self._shaped():
            with ThreadPoolExecutor(1, "before") as pool:
                running = pool.submit(self._running)
                warm_up()
                before = running.result()
            with self.system.watch() as watch:
                ended = load()
        self._changes = _changes(before, self._running())
        return ended, watch.observation()

    def findings(self, run: LoadRun) -> Findings:
        """By what changed, what the generator reported, and a second canary; and who limited it."""
        found = list(run.faults)
        if self._changes:
            found.append((Reason.PROXY_DIED, "\n".join(filter(None, (self._changes, self.system.log_tail())))))
        if run.result is None:
            return Findings(found)
        faults, notes, limit = self._of_result(run, run.result)
        steadiness = self._steadiness(run, run.result)
        if steadiness is not None and steadiness.change is not None and not self.point.sustained:
            faults.append((Reason.NOT_STEADY, describe_change(steadiness.change)))
        return Findings(found + faults, notes, {"limited_by": limit, "steadiness": steadiness})

    def _steadiness(self, run: LoadRun, result: Result) -> Steadiness | None:
        """Judge whether the rate and the CPU time per request held; None for a load that cannot be judged."""
        in_turns = not self.alone and self.point.scheme == "slices"
        loaded_s = self.loaded_s if in_turns else min(result.duration_s, self.point.duration_s)
        return judge_usage(self.point, run.seen.rows, result.requests, loaded_s, in_turns)

    def _of_result(self, run: LoadRun, result: Result) -> tuple[list[Fault], list[str], str | None]:
        """(faults, notes, limit)"""
        point, first, core = self.point, run.first, run.cores["generator"] or 0.0
        calibration_s = self.generator.calibration_s(run.load)
        found = validity.faults(
            point,
            result,
            run.seen,
            core,
            calibration_s,
            first.body_bytes,
            first.chunked,
            self.alone,
            run.ended.cpu_s,
            run.generator_cpus,
            run.endpoint.tls,
            first.head_bytes,
        )
        judged, notes = _afterwards(point, first, canary(self.system, run.endpoint, point))
        found += judged
        if run.endpoint.tls in ("edge", "reencrypt"):
            found += validity.resumption(point, run.seen.counters)
        elif point.resumption is not None:
            notes.append(NO_TLS if run.endpoint.tls == "none" else NOT_COUNTED)
        if point.protocol == "h2" and "proxy/requests_h2" not in run.seen.counters:
            notes.append(BY_CLIENT)
        return found, notes, limited_by(point, result, run.seen.counters, run.cores["proxy"], run.cores["generator"])

    @contextmanager
    def _shaped(self) -> Iterator[None]:
        """For as long as the load lasts: canaries take the link as it is."""
        self.system.shape(self.point.link_mbit)
        try:
            yield
        finally:
            self.system.shape(None)

    def _running(self) -> Running:
        """What must be the same before and after: restarts, and every process of proxy and backend (a master respawns its workers)."""
        with ThreadPoolExecutor(2, "running") as pool:
            proxy, backend = (pool.submit(self.system.processes, role) for role in ("proxy", "backend"))
            return dict(self.system.restarts()), set(proxy.result()), set(backend.result())


def _changes(before: Running, after: Running) -> str:
    """In words, of restarts (containers that are gone too) and of the processes of proxy and backend; empty = none."""
    restarts, now = before[0], after[0]
    said = [f"{name} restarted" for name, count in now.items() if count != restarts.get(name, count)]
    said += [f"{name} is gone" for name in restarts if name not in now]
    for role, was, are in (("proxy", before[1], after[1]), ("backend", before[2], after[2])):
        if was != are:
            said.append(f"processes of the {role}: {len(was - are)} of {len(was)} ended, {len(are - was)} began")
    return "; ".join(said)


def _afterwards(point: Point, before: Canary, after: Canary) -> tuple[list[Fault], list[str]]:
    """(faults, notes) of the second canary. Where errors are the subject, that it too was refused is one of them."""
    if after.refusal and "errors" in point.subject:
        return [], [f"refused afterwards, too: {after.refusal}"]
    apart = abs(after.body_bytes - before.body_bytes)
    if not after.faults and apart > validity.size_slack(point, before.body_bytes):
        said = f"the canary weighed {before.body_bytes} bytes before and {after.body_bytes} after"
        return [(Reason.WRONG_SIZE, said)], []
    return after.faults, []
