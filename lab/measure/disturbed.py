"""The way to measure a load with a disruption, such as the end of a pod: all requests and events are recorded and evaluated.

A control run is the same load without the disruption. Errors and restarts are results here. So other faults make a sample
invalid than under a steady load (`lab.measure.validity.find_disruption_faults`).
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
from lab.generators import get_generator
from lab.measure import validity
from lab.measure.measurement import LoadFindings, LoadRun
from lab.measure.validity import Fault
from lab.model.disturbance import Disturbance, DisturbanceContext, LoadEndedError, Manifests
from lab.model.endpoint import ClockOffset, Endpoint, Role
from lab.model.events import EventLog
from lab.model.load import OutputError
from lab.model.requests import RESOLUTION_S, shifted
from lab.model.samples import Reason
from lab.model.sweeps import LoadPoint
from lab.model.usage import Observation
from lab.records import outcomes
from lab.records.tables import events_frame
from lab.targets.base import System, Target
from lab.targets.common.process import GeneratorOutcome
from lab.targets.common.scratch import make_scratch_folder

NOTE_CLIENT_LOADED = "the transfer uses the generator's own CPUs: the latency of the other requests includes its work"
"""The note of a sample whose disruption loads the client's CPUs."""
POLL_S = 0.01
"""The seconds between two looks at the generator's log until the load begins."""
JOIN_S = 30.0
"""The seconds in which a disruption must end after the load: its actions must not affect the next measurement."""


@dataclass(slots=True)
class _DisturbanceThread:
    """A disruption that runs in a thread during the load.

    `fault` states what went wrong; it is empty if the disruption happened as planned.
    """

    disturbance: Disturbance
    context: DisturbanceContext
    log: Path
    """The generator's log; its first line shows that the load has begun."""
    fault: str = ""
    error: BaseException | None = None
    """The error that ends the run: a lost target or a defect of the lab."""
    thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread; it waits until the load has begun, and then disrupts the system."""
        self.thread = threading.Thread(target=self._run, name="disturbance", daemon=True)
        self.thread.start()

    def finish(self) -> None:
        """Wait for the end of the disruption after the load has ended, also if the load failed.

        Raises:
            LostError: The target (where systems run) was lost.
            BaseException: The disruption has failed because of a defect of the lab.

        """
        self.context.over.set()
        if self.thread is None:
            return
        self.thread.join(JOIN_S)
        if self.thread.is_alive():
            self.fault = f"still busy {JOIN_S:g} s after the load's end"
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        """Disrupt the system at the planned time after the first request.

        The beginning of the load is the first line in the generator's log. A generator may need a second or more until
        then.
        """
        try:
            while not (self.log.exists() and self.log.stat().st_size):
                self.context.wait(POLL_S)
            self.context.began = time.monotonic()
            self.context.wait_until(self.disturbance.at_s)
            self.disturbance.disturb(self.context)
        except LoadEndedError:
            self.fault = "the load was over before it was done"
        except LostError as error:
            self.error = error
        except LabError as error:
            self.fault = str(error)
        except BaseException as error:  # noqa: BLE001 - a defect of ours, raised where the run is
            self.error = error


@dataclass(slots=True)
class DisruptedRegime:
    """The way to make and judge a load with a disruption, for one sample.

    Each sample has a freshly started system, because a disruption leaves it changed.
    """

    target: Target
    system: System
    point: LoadPoint
    manifests: Manifests
    _context: DisturbanceContext = field(init=False)
    _began_s: float = 0.0
    _clocks: list[ClockOffset] = field(default_factory=list[ClockOffset])
    """The clock measurements before and after the load."""
    _restarts: Mapping[str, int] = field(default_factory=dict[str, int])
    """The restarts by container before the load."""
    _moved: Set[str] = frozenset()
    """Roles in which a process ended or began, or whose processes could not be listed."""
    _notes: Sequence[str] = ()
    _faults: list[Fault] = field(default_factory=list[Fault])

    def prepare(self, lasting: ExitStack) -> tuple[Mapping[str, Any], Sequence[Fault]]:
        """Set up what the disruption needs before the load; control runs (the load without the disruption) need it, too.

        Args:
            lasting: Holds resources that must be released when the load is judged.

        Returns:
            Fields of the sample: name → value; and the faults because of which the load is impossible, each as a reason
            and a sentence.

        """

        def find(name: str) -> str:
            if (installed := self.target.installed(get_generator(name))) is None:
                raise MeasuringError(f"generator {name}", "is not in the client's place", get_generator(name).remedy)
            return installed.path

        folder = lasting.enter_context(make_scratch_folder())
        background = lasting.enter_context(ExitStack())
        self._context = DisturbanceContext(self.system, EventLog(), self.manifests, folder, find, background)
        began_s, faults = time.monotonic(), list[Fault]()
        with _note_failure(faults, Reason.DISTURBANCE_FAILED, "before the load: "):
            self._disturbance.prepare(self._context)
        return {} if faults else {"prepared_s": time.monotonic() - began_s}, faults

    def asked(self, endpoint: Endpoint) -> Endpoint:
        """Return the address that the load is sent to.

        It is `endpoint`. If the disruption names a host of its own, the address is that of this host.
        """
        host = self._disturbance.host
        return endpoint if host is None else endpoint.at(host)

    def run(
        self, warm_up: Callable[[], object], load: Callable[[], GeneratorOutcome], folder: Path
    ) -> tuple[GeneratorOutcome, Observation]:
        """Warm up, then load the system while the disruption acts and all events are recorded.

        In a control run, which shows the load without the disruption, nothing is disrupted.

        Args:
            warm_up: A function that makes the warm-up.
            load: A function that makes the load, and returns the generator's process when it has ended.
            folder: The folder of the generator's output.

        """
        warm_up()
        self._restarts = dict(self.system.restarts())
        self._clocks.append(self.system.clock())
        running = _list_running(self.system)
        acting = _DisturbanceThread(self._disturbance, self._context, folder / "stderr")
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
        with _note_failure(self._faults, Reason.DISTURBANCE_FAILED, "during the load: "):
            self._context.background.close()  # only now do background processes log what became of them
        after = _list_running(self.system)
        self._clocks.append(self.system.clock())
        with _note_failure(self._faults, Reason.EVENT_LOG):
            self._context.log.events.extend(recorder.events())
        self._moved = {role for role, before in running.items() if before is None or before != after[role]}
        self._notes = recorder.notes()
        return ended, watch.observation()

    def findings(self, run: LoadRun) -> LoadFindings:
        """Judge a load that has ended, and compute the disruption's outcome from the logs of its requests and events.

        Failed requests are part of the outcome here, not faults of the sample. Only in a control run (the load without
        the disruption), no request may fail and no container may restart.
        """
        control = self.point.control
        # The better one of the two clock measurements is taken. Its error is that between requests and events, so the drift and the log's
        # own resolution are part of it.
        best = min(self._clocks, key=lambda clock: clock.error_s)
        drift_s = abs(self._clocks[-1].offset_s - self._clocks[0].offset_s)
        error_s = best.error_s + drift_s + RESOLUTION_S
        events = events_frame(self._context.log.events)
        # The counts of a process that ended are missing in the second reading, so the difference is no increase.
        counters = {
            name: count for name, count in run.seen.counters.items() if name.partition("/")[0] not in self._moved
        }
        columns: dict[str, Any] = {"clock_offset_s": best.offset_s, "counters": counters, "outcome": {}}
        faults = [*self._faults, *run.faults]
        try:
            if run.result is None:
                faults += validity.find_machine_faults(run.seen)
            else:
                job = run.begun.job
                log = job.generator.requests(run.ended.stdout, run.ended.stderr, job.load)
                requests = shifted(log, best.offset_s)
                first_s = requests["due_s"].min()
                outcome = outcomes.compute_outcome(self.point, requests, events, run.seen.rows, self._began_s, error_s)
                after_s = first_s - self._began_s if isinstance(first_s, float) else None
                columns |= {"outcome": outcome, "load_after_s": after_s}
                faults += validity.find_disruption_faults(
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
                faults += validity.find_control_faults(outcome) if control else []
        except OutputError as error:
            faults += [(Reason.REQUEST_LOG, str(error)), *validity.find_machine_faults(run.seen)]
        if control and (again := dict(self.system.restarts())) != self._restarts:
            faults.append((Reason.PROXY_DIED, f"restarts were {self._restarts} before and {again} after"))
        notes = [NOTE_CLIENT_LOADED] if self._disturbance.loads_client and not control else []
        return LoadFindings(faults, (*notes, *self._notes), columns, events)

    @property
    def _disturbance(self) -> Disturbance:
        assert self.point.disturbance is not None, "only such points come here"
        return self.point.disturbance


def _list_running(system: System) -> dict[Role, set[int] | None]:
    """Return the running processes of proxy and backend: role → process numbers.

    The value is None if a container is just starting or stopping, so that its processes cannot be listed.
    """
    roles: tuple[Role, ...] = ("proxy", "backend")
    running: dict[Role, set[int] | None] = {}
    for role in roles:
        try:
            running[role] = set(system.processes(role))
        except MeasuringError:  # a lost target shows in the next call, too
            running[role] = None
    return running


@contextmanager
def _note_failure(faults: list[Fault], reason: Reason, when: str = "") -> Iterator[None]:
    """Catch a MeasuringError that is raised in the `with` block, and add it to the faults of the sample.

    Args:
        faults: The sample's faults, to which the new one is added.
        reason: The reason of the new fault.
        when: A text before the error's message, such as `before the load: `.

    Raises:
        LostError: The target (where systems run) was lost; this error is not caught, because it ends the run.

    """
    try:
        yield
    except LostError:
        raise
    except MeasuringError as error:
        faults.append((reason, f"{when}{error}"))
