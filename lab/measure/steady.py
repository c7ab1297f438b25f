"""The way to measure a steady load: the system's processes and answers must be the same before and after the load."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from lab.measure import validity
from lab.measure.canary import send_canary
from lab.measure.measurement import LoadFindings, LoadRun, Regime
from lab.model.bottleneck import limited_by
from lab.model.samples import Reason
from lab.model.sweeps import LoadPoint
from lab.model.usage import Observation
from lab.records.steadiness import describe_change, judge_restart, judge_usage
from lab.targets.base import System
from lab.targets.common.process import GeneratorOutcome

NO_TLS = "no TLS on the way: there is no session to resume"
"""The note of a sample whose load prescribes whether sessions are resumed, but uses no TLS."""
NOTE_PROTOCOL_BY_CLIENT = "that HTTP/2 was spoken only its client shows: this proxy counts no requests by version"
"""The note of a sample by HTTP/2 on a proxy that does not count requests by version."""
NOT_COUNTED = "no TLS ends at the proxy here: whether sessions were resumed was not counted"
"""The note of a sample whose load prescribes whether sessions are resumed, where TLS does not end at the proxy."""

COUNTED_BY_PROCESS = frozenset({"proxy/requests", "proxy/requests_h2", "proxy/tls_handshakes", "proxy/tls_resumed"})
"""The counters that a restart of the proxy sets to 0, so that two readings of them show no increase."""

ProcessState = tuple[dict[str, int], dict[str, set[int]]]
"""The state that must not change: restarts by container, and the process ids of the proxy and of the backend."""


@dataclass(slots=True)
class SteadyRegime(Regime):
    """The way to make and judge a load without disruption, for one sample.

    Nothing may change in the system during the load, and answers must stay as they were.
    """

    system: System
    point: LoadPoint
    alone: bool = True
    """True for a solo sample; what disturbs both sides of a pair is no fault of either."""
    loaded_s: float | None = None
    """The seconds for which the load of an interleaved pair lasted; None: as long as the generator reports."""
    _changes: str = ""
    _restarted: bool = False
    """Whether all that changed is that the proxy's container was restarted."""

    def run(
        self, warm_up: Callable[[], object], load: Callable[[], GeneratorOutcome], folder: Path
    ) -> tuple[GeneratorOutcome, Observation]:
        """Warm up, then load the system while it is observed, with the client's link as slow as the load point requests.

        The canaries (checked requests) before and after the load use the link without the limit.

        Args:
            warm_up: A function that makes the warm-up.
            load: A function that makes the load, and returns the generator's process when it has ended.
            folder: The folder of the generator's output.

        Returns:
            The generator's process, and what was observed of the system.

        """
        self.system.shape(self.point.link_mbit, self.point.link_delay_ms)
        try:
            with ThreadPoolExecutor(1, "before") as pool:
                running = pool.submit(self._list_running)
                warm_up()
                before = running.result()
            with self.system.watch() as watch:
                ended = load()
        finally:
            self.system.shape(None)
        after = self._list_running()
        self._changes, self._restarted = _changes(before, after), _is_restart(before, after)
        return ended, watch.observation()

    def findings(self, run: LoadRun) -> LoadFindings:
        """Judge a load that has ended: find the faults of its sample, and what limited its throughput.

        Faults show in changes of the system's processes, in the generator's report, in what was observed of the system
        second by second, and in the answer to a second canary (a checked request).

        A restart of the proxy's container is a fault like any other end of its processes. Under a load of minutes it is an outcome: the
        load is there to show what becomes of the proxy, and a kubelet restarts one that no longer answers its probe.
        """
        point, result, endpoint, first = self.point, run.result, run.begun.endpoint, run.begun.first
        faults = list(run.faults)
        restarted = self._restarted and point.sustained and result is not None
        if restarted:
            counted = {name: count for name, count in run.seen.counters.items() if name not in COUNTED_BY_PROCESS}
            run = replace(run, seen=replace(run.seen, counters=counted))
        elif self._changes:
            faults.append((Reason.PROXY_DIED, "\n".join(filter(None, (self._changes, self.system.log_tail())))))
        if result is None:
            return LoadFindings(faults)
        faults += validity.find_faults(
            point,
            result,
            run.seen,
            run.cores["generator"] or 0.0,
            first.body_bytes * max(1, point.messages)
            if point.traffic is None
            else point.traffic.mean_bytes(result.requests),
            first.chunked,
            self.alone,
            run.ended.cpu_s,
            run.generator_cpus,
            endpoint.tls,
            first.head_bytes,
        )
        notes: list[str] = []
        after = send_canary(self.system, endpoint, point)
        if after.refusal and "errors" in point.subject:  # the refusal is one of the errors that the load is about
            notes.append(f"refused afterwards, too: {after.refusal}")
        elif after.faults:
            faults += after.faults
        elif abs(after.body_bytes - first.body_bytes) > validity.compute_size_slack(point, first.body_bytes):
            faults.append(
                (Reason.WRONG_SIZE, f"the canary weighed {first.body_bytes} bytes before and {after.body_bytes} after")
            )
        if point.resumption is not None:
            if endpoint.tls in ("edge", "reencrypt"):
                faults += validity.check_resumption(point.resumption, run.seen.counters)
            else:
                notes.append(NO_TLS if endpoint.tls == "none" else NOT_COUNTED)
        if point.protocol == "h2" and not point.grpc and "proxy/requests_h2" not in run.seen.counters:
            notes.append(NOTE_PROTOCOL_BY_CLIENT)
        interleaved = not self.alone and point.scheme == "slices"
        loaded_s = self.loaded_s if interleaved else min(result.duration_s, point.duration_s)
        if not restarted:
            steadiness = judge_usage(point, run.seen.rows, result.requests, loaded_s, interleaved)
        elif (steadiness := judge_restart(run.seen.rows, result.requests, loaded_s or 0.0)) is None:
            faults.append((Reason.PROXY_DIED, self._changes))
        if steadiness is not None and steadiness.change is not None and (restarted or not point.sustained):
            faults.append((Reason.NOT_STEADY, describe_change(steadiness.change)))
        limit = limited_by(point, result, run.seen.counters, run.cores["proxy"], run.cores["generator"])
        return LoadFindings(faults, notes, {"limited_by": limit, "steadiness": steadiness})

    def _list_running(self) -> ProcessState:
        """Return what must not change in the system during a load: restarts, and the process ids of proxy and backend.

        Process ids are included because a proxy may replace its workers without a restart of the container.
        """
        with ThreadPoolExecutor(2, "running") as pool:
            processes = {role: pool.submit(self.system.processes, role) for role in ("proxy", "backend")}
            return dict(self.system.restarts()), {role: set(ids.result()) for role, ids in processes.items()}


def _is_restart(before: ProcessState, after: ProcessState) -> bool:
    """Return whether two states of a system differ in nothing but this: containers of the proxy were restarted."""
    counts, later = before[0], after[0]
    more = counts.keys() == later.keys() and any(later[name] > count for name, count in counts.items())
    return more and before[1]["backend"] == after[1]["backend"]


def _changes(before: ProcessState, after: ProcessState) -> str:
    """Return in words what has changed between two states of a system: restarts, containers that are gone, processes.

    The text is empty if nothing has changed.
    """
    restarts, now = before[0], after[0]
    changes = [f"{name} restarted" for name, count in now.items() if count != restarts.get(name, count)]
    changes += [f"{name} is gone" for name in restarts if name not in now]
    for role, was in before[1].items():
        if was != (are := after[1][role]):
            changes.append(f"processes of the {role}: {len(was - are)} of {len(was)} ended, {len(are - was)} began")
    return "; ".join(changes)
