"""One measurement under a disturbance: a load whose every request is logged, what is done meanwhile, and what came of it.

A control run is the same measurement with nothing done. Errors and restarts are the outcome here, so that other faults count
against a sample than under a steady load (`lab.measure.validity.disturbed_faults`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lab.base.errors import LabError, LostError, MeasuringError
from lab.generators import command, generator
from lab.generators.loads import load_of
from lab.measure import validity
from lab.measure.canary import canary
from lab.measure.steady import Measurement, Measuring
from lab.measure.validity import Fault
from lab.model.disturbance import Disturbance, OverError, Stage
from lab.model.endpoint import ClockOffset, Endpoint, Role
from lab.model.events import EventLog
from lab.model.load import Load, OutputError
from lab.model.requests import RESOLUTION_S, shifted
from lab.model.samples import Reason, Sample
from lab.model.system import Recorder
from lab.records import outcomes
from lab.records.tables import events_frame
from lab.targets.base import System, Target
from lab.targets.common.process import run_generator, scratch, taken

POLL_S = 0.01
JOIN_S = 30.0
"""For a disturbance to end once the load has: what it still does must not reach the next measurement."""
BESIDE = (
    "what is transferred goes through the generator's own CPUs: the latency of the requests beside it has that in it"
)


@dataclass(slots=True)
class _Acting:
    """A disturbance in a thread of its own, and why it did not happen as asked (empty = it did)."""

    disturbance: Disturbance
    stage: Stage
    done: bool = False
    fault: str = ""
    lost: LostError | None = None
    defect: BaseException | None = None
    thread: threading.Thread | None = field(default=None)
    told: Path | None = None
    """Where the generator's log goes: the load has begun when its first line is there."""

    def start(self) -> None:
        self.thread = threading.Thread(target=self._run, name="disturbance", daemon=True)
        self.thread.start()

    def finish(self) -> None:
        """After the load, however it ended: LostError and defects come out here."""
        self.stage.over.set()
        if self.thread is None:
            return
        self.thread.join(JOIN_S)
        if self.thread.is_alive():
            self.fault = f"still busy {JOIN_S:g} s after the load's end"
        if self.lost or self.defect:
            raise self.lost or self.defect or RuntimeError
        if not self.done and not self.fault:
            self.fault = "the load was over before it was done"

    def _run(self) -> None:
        try:
            self._await_load()
            self.stage.wait_until(self.disturbance.at_s)
            self.disturbance.disturb(self.stage)
            self.done = True
        except OverError:
            pass
        except LostError as error:
            self.lost = error
        except LabError as error:
            self.fault = str(error)
        except BaseException as error:  # noqa: BLE001 - a defect of ours, raised where the run is
            self.defect = error

    def _await_load(self) -> None:
        """A generator takes a second and more to begin, on a busy machine: what is done counts from its first request."""
        assert self.told is not None
        while not (self.told.exists() and self.told.stat().st_size):
            self.stage.wait(POLL_S)
        self.stage.began = time.monotonic()


def once(measuring: Measuring, manifests: Sequence[Mapping[str, Any]], attempt: int) -> Measurement:
    """Measure one slot whose point has a disturbance, on a system of its own that was brought up as `changing`."""
    system, point = measuring.system, measuring.slot.point
    assert point.disturbance is not None, "only such points come here"
    blank = measuring.blank(attempt)
    log = EventLog()
    with scratch() as folder, scratch() as beside, ExitStack() as lasting:
        stage = Stage(system, log, manifests, beside, _finder(measuring.target), lasting)
        began_s = time.monotonic()
        try:
            point.disturbance.prepare(stage)
        except LostError:
            raise
        except MeasuringError as error:
            return measuring.unmeasured(blank, [(Reason.DISTURBANCE_FAILED, f"before the load: {error}")])
        blank = blank.model_copy(update={"prepared_s": time.monotonic() - began_s})
        endpoint = system.endpoint(point)
        load = logged_load(measuring, endpoint)
        argv = tuple(command(measuring.chosen.generator, measuring.chosen.path, load))
        notes = (*blank.notes, *filter(None, [endpoint.way]))
        blank = blank.model_copy(update={"notes": notes, "argv": argv, "gauges": dict(system.gauges())})
        first = canary(system, endpoint, point)
        blank = blank.model_copy(update={"tls": first.tls})
        if before := measuring.standing_faults(load) + first.faults:
            return measuring.unmeasured(blank, before)
        return _measured(measuring, load, stage, folder, blank)


def _measured(measuring: Measuring, load: Load, stage: Stage, folder: Path, blank: Sample) -> Measurement:
    system, point, chosen = measuring.system, measuring.slot.point, measuring.chosen
    assert point.disturbance is not None
    if point.warmup_s:
        warm_up = replace(load, duration_s=max(1.0, point.warmup_s), logged=False)
        with scratch() as before:
            run_generator(system, chosen.generator, chosen.path, warm_up, before)
    restarted = dict(system.restarts())
    clocks = [system.clock()]
    running = _running(system)
    acting = _Acting(point.disturbance, stage, told=folder / "stderr")
    with system.recorder() as recorder, system.watch() as watch:
        began_s = time.time()
        if not point.control:
            acting.start()
        try:
            ended = run_generator(system, chosen.generator, chosen.path, load, folder)
        finally:
            acting.finish()
    found: list[Fault] = [(Reason.DISTURBANCE_FAILED, acting.fault)] if acting.fault else []
    found += _ended(stage)
    after = _running(system)
    clocks.append(system.clock())
    found += _recorded(recorder, stage.log)
    ended, seen, own_cpu_s = measuring.observed(watch.observation(), ended)
    result, faults = measuring.parsed(load, ended)
    found += faults
    cores = measuring.cores(seen, own_cpu_s, result, ended)
    offset_s, error_s, drift_s = _agreed(clocks)
    events = events_frame(stage.log.events)
    outcome: dict[str, float | None] = {}
    load_after_s: float | None = None
    if result is None:
        found += validity.machine_faults(seen)
    else:
        try:
            requests = shifted(chosen.generator.requests(ended.stdout, ended.stderr, load), offset_s)
        except OutputError as error:
            found += [(Reason.REQUEST_LOG, str(error)), *validity.machine_faults(seen)]
        else:
            outcome = outcomes.outcome(point, requests, events, seen.rows, began_s, error_s)
            first_s = requests["due_s"].min()
            load_after_s = first_s - began_s if isinstance(first_s, float) else None
            busy, pinned = cores["generator"] or 0.0, seen.cores is None
            found += validity.disturbed_faults(point, result, requests, seen, busy, pinned, error_s, drift_s)
            found += validity.control_faults(outcome) if point.control else []
    if point.control and (again := dict(system.restarts())) != restarted:
        found.append((Reason.PROXY_DIED, f"restarts were {restarted} before and {again} after"))
    said = [BESIDE] if point.disturbance.loads_client and not point.control else []
    said += recorder.notes()
    told = {"outcome": outcome, "clock_offset_s": offset_s, "notes": (*blank.notes, *said)}
    told |= {"load_after_s": load_after_s}
    made = measuring.finished(blank.model_copy(update=told), found, result, seen, ended, cores)
    moved = {role for role, before in running.items() if before is None or before != after[role]}
    # A process that ended took its counts along: what is left is no increase.
    kept = {name: count for name, count in made.sample.counters.items() if name.partition("/")[0] not in moved}
    left = taken(folder, chosen.keep)
    return replace(made, sample=made.sample.model_copy(update={"counters": kept}), events=events, left=left)


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


def logged_load(measuring: Measuring, endpoint: Endpoint) -> Load:
    """What the generator is told: its hosts may be the disturbance's own."""
    point = measuring.slot.point
    assert point.disturbance is not None
    if (host := point.disturbance.host) is not None:
        endpoint = replace(endpoint, host=host, hosts=(host,))
    return load_of(point, endpoint)


def _ended(stage: Stage) -> list[Fault]:
    """What went on beside the load, which tells the log what became of it only now."""
    try:
        stage.beside.close()
    except LostError:
        raise
    except MeasuringError as error:
        return [(Reason.DISTURBANCE_FAILED, f"beside the load: {error}")]
    return []


def _recorded(recorder: Recorder, log: EventLog) -> list[Fault]:
    try:
        log.extend(recorder.events())
    except LostError:
        raise
    except MeasuringError as error:
        return [(Reason.EVENT_LOG, str(error))]
    return []


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
