"""The regime of a disturbed load: every request is logged, what is done meanwhile is timed, and what came of it is the outcome.

A control run is the same with nothing done. Errors and restarts are the outcome here, so that other faults count against a
sample than under a steady load (`lab.measure.validity.disturbed_faults`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.base.errors import LabError, LostError, MeasuringError
from lab.generators import Generator, generator
from lab.measure import validity
from lab.measure.measurement import Findings, LoadRun
from lab.measure.validity import Fault
from lab.model.disturbance import Disturbance, DisturbanceContext, Manifests, OverError
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
POLL_S = 0.01
JOIN_S = 30.0
"""For a disturbance to end once the load has: what it still does must not reach the next measurement."""


@dataclass(slots=True)
class _Acting:
    """A disturbance in a thread of its own beside the load, and its `fault` (empty = it happened as asked)."""

    disturbance: Disturbance
    context: DisturbanceContext
    log: Path
    """Where the generator's log goes: the load has begun when its first line is there."""
    done: bool = False
    fault: str = ""
    error: BaseException | None = None
    """What ends the run: what it goes on with is lost, or a defect of ours."""
    thread: threading.Thread | None = None

    def start(self) -> None:
        self.thread = threading.Thread(target=self._run, name="disturbance", daemon=True)
        self.thread.start()

    def finish(self) -> None:
        """After the load, however it ended: LostError and defects come out here."""
        self.context.over.set()
        if self.thread is None:
            return
        self.thread.join(JOIN_S)
        if self.thread.is_alive():
            self.fault = f"still busy {JOIN_S:g} s after the load's end"
        if self.error is not None:
            raise self.error
        if not self.done and not self.fault:
            self.fault = "the load was over before it was done"

    def _run(self) -> None:
        """A generator takes a second and more to begin, on a busy machine: what is done counts from its first request."""
        try:
            while not (self.log.exists() and self.log.stat().st_size):
                self.context.wait(POLL_S)
            self.context.began = time.monotonic()
            self.context.wait_until(self.disturbance.at_s)
            self.disturbance.disturb(self.context)
            self.done = True
        except OverError:
            pass
        except LostError as error:
            self.error = error
        except LabError as error:
            self.fault = str(error)
        except BaseException as error:  # noqa: BLE001 - a defect of ours, raised where the run is
            self.error = error


@dataclass(slots=True)
class Disturbed:
    """One sample's regime, on a system of its own that was brought up as `changing`."""

    target: Target
    system: System
    point: Point
    generator: Generator
    manifests: Manifests
    _context: DisturbanceContext = field(init=False)
    _began_s: float = 0.0
    _clocks: list[ClockOffset] = field(default_factory=list[ClockOffset])
    """Before and after the load."""
    _restarts: Mapping[str, int] = field(default_factory=dict[str, int])
    """Before."""
    _moved: Set[str] = frozenset()
    """Roles of which a process ended or began, or that could not be asked."""
    _notes: Sequence[str] = ()
    _faults: list[Fault] = field(default_factory=list[Fault])

    def prepare(self, lasting: ExitStack) -> tuple[Mapping[str, Any], Sequence[Fault]]:
        """What the disturbance wants there before the load, in control runs too."""

        def find(name: str) -> str:
            installed = self.target.installed(generator(name))
            if installed is None:
                raise MeasuringError(f"generator {name}", "is not in the client's place", generator(name).remedy)
            return installed.path

        folder = lasting.enter_context(scratch())
        beside = lasting.enter_context(ExitStack())
        self._context = DisturbanceContext(self.system, EventLog(), self.manifests, folder, find, beside)
        began_s, found = time.monotonic(), list[Fault]()
        with _noting(found, Reason.DISTURBANCE_FAILED, "before the load: "):
            self._disturbance.prepare(self._context)
        return {} if found else {"prepared_s": time.monotonic() - began_s}, found

    def asked(self, endpoint: Endpoint) -> Endpoint:
        """The load's hosts may be the disturbance's own."""
        host = self._disturbance.host
        return endpoint if host is None else endpoint.at(host)

    def run(self, warm_up: Callable[[], object], load: Callable[[], Ended], folder: Path) -> tuple[Ended, Observation]:
        """The disturbance acts beside the load, unless this is a control run; all that happens is recorded."""
        warm_up()
        self._restarts = dict(self.system.restarts())
        self._clocks.append(self.system.clock())
        running = _running(self.system)
        acting = _Acting(self._disturbance, self._context, folder / "stderr")
        with self.system.recorder() as recorder, self.system.watch() as watch:
            self._began_s = time.time()
            if not self.point.control:
                acting.start()
            try:
                ended = load()
            finally:
                acting.finish()
        if acting.fault:
            self._faults.append((Reason.DISTURBANCE_FAILED, acting.fault))
        with _noting(self._faults, Reason.DISTURBANCE_FAILED, "beside the load: "):
            self._context.beside.close()  # what goes on there tells the log what became of it only now
        after = _running(self.system)
        self._clocks.append(self.system.clock())
        with _noting(self._faults, Reason.EVENT_LOG):
            self._context.log.extend(recorder.events())
        self._moved = {role for role, before in running.items() if before is None or before != after[role]}
        self._notes = recorder.notes()
        return ended, watch.observation()

    def findings(self, run: LoadRun) -> Findings:
        """By the log of its requests and what the disturbance was to do; errors are the outcome."""
        control = self.point.control
        # Of the two measurements of the clock the better one is taken. Its error is that between requests and events: the drift and the
        # log's own resolution are part of it.
        best = min(self._clocks, key=lambda clock: clock.error_s)
        drift_s = abs(self._clocks[-1].offset_s - self._clocks[0].offset_s)
        error_s = best.error_s + drift_s + RESOLUTION_S
        events = events_frame(self._context.log.events)
        # A process that ended took its counts along: what is left is no increase.
        counters = {
            name: count for name, count in run.seen.counters.items() if name.partition("/")[0] not in self._moved
        }
        columns: dict[str, Any] = {"clock_offset_s": best.offset_s, "counters": counters, "outcome": {}}
        found = [*self._faults, *run.faults]
        try:
            if run.result is None:
                found += validity.machine_faults(run.seen)
            else:
                log = self.generator.requests(run.ended.stdout, run.ended.stderr, run.begun.job.load)
                requests = shifted(log, best.offset_s)
                first_s = requests["due_s"].min()
                outcome = outcomes.outcome(self.point, requests, events, run.seen.rows, self._began_s, error_s)
                after_s = first_s - self._began_s if isinstance(first_s, float) else None
                columns |= {"outcome": outcome, "load_after_s": after_s}
                found += validity.disturbed_faults(
                    self.point,
                    run.result,
                    requests,
                    run.seen,
                    run.cores["generator"] or 0.0,
                    run.seen.cores is None,
                    error_s,
                    drift_s,
                    run.ended.cpu_s,
                    run.generator_cpus,
                )
                found += validity.control_faults(outcome) if control else []
        except OutputError as error:
            found += [(Reason.REQUEST_LOG, str(error)), *validity.machine_faults(run.seen)]
        if control and (again := dict(self.system.restarts())) != self._restarts:
            found.append((Reason.PROXY_DIED, f"restarts were {self._restarts} before and {again} after"))
        notes = [BESIDE] if self._disturbance.loads_client and not control else []
        return Findings(found, (*notes, *self._notes), columns, events)

    @property
    def _disturbance(self) -> Disturbance:
        assert self.point.disturbance is not None, "only such points come here"
        return self.point.disturbance


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
