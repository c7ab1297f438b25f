"""The regime of a disturbed load: every request is logged, what is done meanwhile is timed, and what came of it is the outcome.

A control run is the same with nothing done. Errors and restarts are the outcome here, so that other faults count against a
sample than under a steady load (`lab.measure.validity.disturbed_faults`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lab.base.errors import LostError, MeasuringError
from lab.generators import Generator, generator
from lab.measure import validity
from lab.measure.acting import Acting
from lab.measure.regime import Findings, LoadRun
from lab.measure.validity import Fault
from lab.model.disturbance import Disturbance, DisturbanceContext, Manifests
from lab.model.endpoint import ClockOffset, Endpoint, Role
from lab.model.events import EventLog
from lab.model.load import OutputError
from lab.model.requests import RESOLUTION_S, shifted
from lab.model.samples import Reason
from lab.model.sweeps import Point
from lab.model.usage import Observation
from lab.records import outcomes
from lab.records.tables import events_frame
from lab.targets.base import System, Target
from lab.targets.common.process import Ended
from lab.targets.common.scratch import scratch

BESIDE = (
    "what is transferred goes through the generator's own CPUs: the latency of the requests beside it has that in it"
)


@dataclass(slots=True)
class Disturbed:
    """One sample's regime, on a system of its own that was brought up as `changing`."""

    target: Target
    system: System
    point: Point
    generator: Generator
    manifests: Manifests
    _context: DisturbanceContext = field(init=False)
    _timeline: _Timeline = field(init=False)

    def prepare(self, lasting: ExitStack) -> tuple[Mapping[str, Any], Sequence[Fault]]:
        """What the disturbance wants there before the load, in control runs too."""
        folder = lasting.enter_context(scratch())
        beside = lasting.enter_context(ExitStack())
        self._context = DisturbanceContext(
            self.system, EventLog(), self.manifests, folder, _finder(self.target), beside
        )
        began_s, found = time.monotonic(), list[Fault]()
        with _noting(found, Reason.DISTURBANCE_FAILED, "before the load: "):
            self._disturbance.prepare(self._context)
        return {} if found else {"prepared_s": time.monotonic() - began_s}, found

    def asked(self, endpoint: Endpoint) -> Endpoint:
        """The load's hosts may be the disturbance's own."""
        host = self._disturbance.host
        return endpoint if host is None else replace(endpoint, host=host, hosts=(host,))

    def run(self, warm_up: Callable[[], object], load: Callable[[], Ended], folder: Path) -> tuple[Ended, Observation]:
        """The disturbance acts beside the load, unless this is a control run; all that happens is recorded."""
        warm_up()
        restarts = dict(self.system.restarts())
        clocks = [self.system.clock()]
        running = _running(self.system)
        acting = Acting(self._disturbance, self._context, told=folder / "stderr")
        with self.system.recorder() as recorder, self.system.watch() as watch:
            began_s = time.time()
            if not self.point.control:
                acting.start()
            try:
                ended = load()
            finally:
                acting.finish()
        found: list[Fault] = [(Reason.DISTURBANCE_FAILED, acting.fault)] if acting.fault else []
        with _noting(found, Reason.DISTURBANCE_FAILED, "beside the load: "):
            self._context.beside.close()  # what goes on there tells the log what became of it only now
        after = _running(self.system)
        clocks.append(self.system.clock())
        with _noting(found, Reason.EVENT_LOG):
            self._context.log.extend(recorder.events())
        moved = {role for role, before in running.items() if before is None or before != after[role]}
        self._timeline = _Timeline(began_s, clocks, restarts, moved, tuple(recorder.notes()), found)
        return ended, watch.observation()

    def findings(self, run: LoadRun) -> Findings:
        """By the log of its requests and what the disturbance was to do; errors are the outcome."""
        timeline, control = self._timeline, self.point.control
        offset_s, error_s, drift_s = _agreed(timeline.clocks)
        events = events_frame(self._context.log.events)
        # A process that ended took its counts along: what is left is no increase.
        counters = {
            name: count for name, count in run.seen.counters.items() if name.partition("/")[0] not in timeline.moved
        }
        columns: dict[str, Any] = {"clock_offset_s": offset_s, "counters": counters, "outcome": {}}
        found = [*timeline.faults, *run.faults]
        if run.result is None:
            found += validity.machine_faults(run.seen)
        else:
            try:
                log = self.generator.requests(run.ended.stdout, run.ended.stderr, run.load)
                requests = shifted(log, offset_s)
            except OutputError as error:
                found += [(Reason.REQUEST_LOG, str(error)), *validity.machine_faults(run.seen)]
            else:
                first_s = requests["due_s"].min()
                outcome = outcomes.outcome(self.point, requests, events, run.seen.rows, timeline.began_s, error_s)
                after_s = first_s - timeline.began_s if isinstance(first_s, float) else None
                columns |= {"outcome": outcome, "load_after_s": after_s}
                busy, pinned = run.cores["generator"] or 0.0, run.seen.cores is None
                found += validity.disturbed_faults(
                    self.point,
                    run.result,
                    requests,
                    run.seen,
                    busy,
                    pinned,
                    error_s,
                    drift_s,
                    run.ended.cpu_s,
                    run.generator_cpus,
                )
                found += validity.control_faults(outcome) if control else []
        if control and (again := dict(self.system.restarts())) != timeline.restarts:
            found.append((Reason.PROXY_DIED, f"restarts were {timeline.restarts} before and {again} after"))
        notes = [BESIDE] if self._disturbance.loads_client and not control else []
        return Findings(found, (*notes, *timeline.notes), columns, events)

    @property
    def _disturbance(self) -> Disturbance:
        assert self.point.disturbance is not None, "only such points come here"
        return self.point.disturbance


@dataclass(frozen=True, slots=True)
class _Timeline:
    """What was seen around the load, beside the system's usage."""

    began_s: float
    clocks: Sequence[ClockOffset]
    restarts: Mapping[str, int]
    """Before."""
    moved: Set[str]
    """Roles of which a process ended or began, or that could not be asked."""
    notes: tuple[str, ...]
    faults: Sequence[Fault]


def _running(system: System) -> dict[Role, set[int] | None]:
    """Role → its processes; None where a container is on its way up or down and cannot be asked."""
    roles: tuple[Role, ...] = ("proxy", "backend")
    found: dict[Role, set[int] | None] = {}
    for role in roles:
        try:
            found[role] = set(system.processes(role))
        except MeasuringError:  # a lost client's place shows in the next call, too
            found[role] = None
    return found


@contextmanager
def _noting(found: list[Fault], reason: Reason, when: str = "") -> Iterator[None]:
    """A failure inside is a fault of the sample; that what the run goes on with is lost ends the run."""
    try:
        yield
    except LostError:
        raise
    except MeasuringError as error:
        found.append((reason, f"{when}{error}"))


def _agreed(clocks: Sequence[ClockOffset]) -> tuple[float, float, float]:
    """(offset, its error, how far the two measurements of it lie apart), seconds: the better measured one is taken.

    The error is that between requests and events: the drift and the log's own resolution are part of it.
    """
    best = min(clocks, key=lambda clock: clock.error_s)
    drift_s = abs(clocks[-1].offset_s - clocks[0].offset_s)
    return best.offset_s, best.error_s + drift_s + RESOLUTION_S, drift_s


def _finder(target: Target) -> Callable[[str], str]:
    def find(name: str) -> str:
        installed = target.installed(generator(name))
        if installed is None:
            raise MeasuringError(f"generator {name}", "is not in the client's place", generator(name).remedy)
        return installed.path

    return find
