"""The regime of a steady load: nothing may happen meanwhile, and what is answered afterwards is what was answered before."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lab.generators import Generator
from lab.measure import validity
from lab.measure.canary import canary
from lab.measure.measurement import Findings, LoadRun, Regime
from lab.model.bottleneck import limited_by
from lab.model.samples import Reason
from lab.model.sweeps import Point
from lab.model.usage import Observation
from lab.records.steadiness import describe_change, judge_usage
from lab.targets.base import System
from lab.targets.common.process import Ended

NO_TLS = "no TLS on the way: there is no session to resume"
BY_CLIENT = "that HTTP/2 was spoken its client alone tells: this proxy counts no requests by version"
NOT_COUNTED = "no TLS ends at the proxy here: whether sessions were resumed was not counted"

Running = tuple[dict[str, int], dict[str, set[int]]]
"""Restarts by container, processes of the proxy and of the backend."""


@dataclass(slots=True)
class Steady(Regime):
    """One sample's regime."""

    system: System
    point: Point
    generator: Generator
    alone: bool = True
    """Whether it has the machine to itself; one of two sides does not, and what disturbs both speaks against neither."""
    loaded_s: float | None = None
    """How long the load of a pair lasted whose sides ran in turns; None: as long as the generator says."""
    _changes: str = ""

    def run(self, warm_up: Callable[[], object], load: Callable[[], Ended], folder: Path) -> tuple[Ended, Observation]:
        """On the client's link as the point wants it: canaries take it as it is. What runs there is looked at while it warms up: on a
        cluster that takes a while.
        """
        self.system.shape(self.point.link_mbit)
        try:
            with ThreadPoolExecutor(1, "before") as pool:
                running = pool.submit(self._running)
                warm_up()
                before = running.result()
            with self.system.watch() as watch:
                ended = load()
        finally:
            self.system.shape(None)
        self._changes = _changes(before, self._running())
        return ended, watch.observation()

    def findings(self, run: LoadRun) -> Findings:
        """By what changed, what the generator reported, and a second canary; and who limited it."""
        point, result, endpoint, first = self.point, run.result, run.begun.endpoint, run.begun.first
        found = list(run.faults)
        if self._changes:
            found.append((Reason.PROXY_DIED, "\n".join(filter(None, (self._changes, self.system.log_tail())))))
        if result is None:
            return Findings(found)
        found += validity.faults(
            point,
            result,
            run.seen,
            run.cores["generator"] or 0.0,
            self.generator.calibration_s(run.begun.job.load),
            first.body_bytes,
            first.chunked,
            self.alone,
            run.ended.cpu_s,
            run.generator_cpus,
            endpoint.tls,
            first.head_bytes,
        )
        notes: list[str] = []
        after = canary(self.system, endpoint, point)
        if after.refusal and "errors" in point.subject:  # it is one of them
            notes.append(f"refused afterwards, too: {after.refusal}")
        elif after.faults:
            found += after.faults
        elif abs(after.body_bytes - first.body_bytes) > validity.size_slack(point, first.body_bytes):
            said = f"the canary weighed {first.body_bytes} bytes before and {after.body_bytes} after"
            found.append((Reason.WRONG_SIZE, said))
        if endpoint.tls in ("edge", "reencrypt"):
            found += validity.resumption(point, run.seen.counters)
        elif point.resumption is not None:
            notes.append(NO_TLS if endpoint.tls == "none" else NOT_COUNTED)
        if point.protocol == "h2" and "proxy/requests_h2" not in run.seen.counters:
            notes.append(BY_CLIENT)
        in_turns = not self.alone and point.scheme == "slices"
        loaded_s = self.loaded_s if in_turns else min(result.duration_s, point.duration_s)
        steadiness = judge_usage(point, run.seen.rows, result.requests, loaded_s, in_turns)
        if steadiness is not None and steadiness.change is not None and not point.sustained:
            found.append((Reason.NOT_STEADY, describe_change(steadiness.change)))
        limit = limited_by(point, result, run.seen.counters, run.cores["proxy"], run.cores["generator"])
        return Findings(found, notes, {"limited_by": limit, "steadiness": steadiness})

    def _running(self) -> Running:
        """What must be the same before and after: restarts, and every process of proxy and backend (a master respawns its workers)."""
        with ThreadPoolExecutor(2, "running") as pool:
            processes = {role: pool.submit(self.system.processes, role) for role in ("proxy", "backend")}
            return dict(self.system.restarts()), {role: set(found.result()) for role, found in processes.items()}


def _changes(before: Running, after: Running) -> str:
    """In words, of restarts (containers that are gone too) and of the processes of proxy and backend; empty = none."""
    restarts, now = before[0], after[0]
    said = [f"{name} restarted" for name, count in now.items() if count != restarts.get(name, count)]
    said += [f"{name} is gone" for name in restarts if name not in now]
    for role, was in before[1].items():
        if was != (are := after[1][role]):
            said.append(f"processes of the {role}: {len(was - are)} of {len(was)} ended, {len(are - was)} began")
    return "; ".join(said)
