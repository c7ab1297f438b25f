"""One measurement: the known server up in the backend's place, one generator against it, both sides' stories as one record.

Generator and server have the CPUs that generator and backend have in every sample; on two CPUs that is one for both. Refuses
to leave anything out for noise: what disturbed a measurement is written into it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from lab.analysis.calibration import records
from lab.analysis.calibration.behaviour import Behaviour
from lab.analysis.calibration.records import Measured, Reported, Taken, Truth
from lab.analysis.calibration.scenarios import PAGE, Cell, true_share_over
from lab.base.errors import MeasuringError
from lab.experiments.calibration import truth
from lab.experiments.calibration.known_server import BODY_BYTES
from lab.generators import Generator, Installed, command
from lab.measure import validity
from lab.model.facts import ROOT
from lab.model.load import Load, OutputError, Result
from lab.model.run import now
from lab.model.samples import Reason
from lab.model.sweeps import Point
from lab.model.usage import Observation
from lab.records.tables import join_raw
from lab.targets.base import System, Target
from lab.targets.common.process import GRACE_S, Ended, run_generator
from lab.targets.common.scratch import scratch

STARTS_WITHIN_S = 10.0
ENDS_WITHIN_S = 30.0
POLL_S = 0.01
SERVER = ("env", f"PYTHONPATH={ROOT}", sys.executable, "-S", "-m", "lab.experiments.calibration.known_server")
"""-S: nothing but the standard library."""


@dataclass(frozen=True, slots=True)
class Calibrating:
    """The reference system (the backend alone) while it is up."""

    target: Target
    system: System

    def once(self, generator: Generator, installed: Installed, cell: Cell, repeat: int) -> Taken:
        """MeasuringError when the server does not start or leaves no record; a generator's failure is a result."""
        started_at, behaviour, known = now(), cell.behaviour, None
        with scratch() as folder:
            if behaviour is None:
                entry = self.system.entry()
                load = replace(cell.load, url=f"{entry.base_url}/{PAGE}", host=entry.host)
                ended, seen = self._loaded(generator, installed, load, folder)
            else:
                record = folder / "record"
                with self._served(behaviour, record) as address:
                    load = replace(cell.load, url=f"http://{address}/{PAGE}")
                    ended, seen = self._loaded(generator, installed, load, folder)
                known = truth.read(record.read_bytes())
        result, failure = _parsed(generator, load, ended)
        found = self._faults(cell, load, result, seen, ended, known) if result else []
        histograms = {} if result is None else {"latency": result.latency, "service": result.service}
        backend = seen.usage.get("backend")
        server_cpu_s = backend.cpu_s if backend else None
        if known:
            histograms["truth"], server_cpu_s = known.after(cell.calibration_s).service(), known.cpu_s
        measured = Measured(
            id=f"r{repeat:02d}-{cell.generator}-{cell.scenario}",
            repeat=repeat,
            generator=cell.generator,
            scenario=cell.scenario,
            connections=load.connections,
            offered_rps=load.rate_rps,
            duration_s=load.duration_s,
            argv=tuple(command(generator, installed.path, load)),
            started_at=started_at,
            reported=_reported(result) if result else None,
            truth=_truth(known, cell, behaviour, result) if known and behaviour else None,
            failure=failure,
            reasons=tuple(dict.fromkeys(str(reason) for reason, _ in found)),
            detail="; ".join(said for _, said in found),
            noise=tuple(f"{reason}: {said}" for reason, said in validity.machine_faults(seen)),
            cpu_s=ended.cpu_s,
            server_cpu_s=server_cpu_s,
            steal=seen.steal,
            others=seen.others,
        )
        counted = {name: histogram for name, histogram in histograms.items() if histogram is not None}
        return Taken(measured, join_raw(ended.stdout, ended.stderr), counted)

    @contextmanager
    def _served(self, behaviour: Behaviour, record: Path) -> Iterator[str]:
        """The server's address with port; its record lies there once this has ended."""
        ready = record.with_name(f"{record.name}.ready")
        address = self.system.pod_address("backend")
        server = self.system.spawn("backend", [*SERVER, str(record), json.dumps(asdict(behaviour))])
        try:
            _await(server, ready)
            yield f"{address}:{ready.read_text()}"
            server.terminate()
            server.wait(ENDS_WITHIN_S)
            if not record.exists():
                raise MeasuringError("known server", f"ended with status {server.returncode} and left no record")
        except subprocess.TimeoutExpired:
            raise MeasuringError("known server", f"did not end within {ENDS_WITHIN_S:g} s") from None
        finally:
            server.kill()
            server.wait()

    def _loaded(
        self, generator: Generator, installed: Installed, load: Load, folder: Path
    ) -> tuple[Ended, Observation]:
        with self.system.watch() as watch:
            ended = run_generator(self.system, generator, installed.path, load, folder)
        return ended, watch.observation()

    def _faults(
        self,
        cell: Cell,
        load: Load,
        result: Result,
        seen: Observation,
        ended: Ended,
        known: truth.ServerRecord | None,
    ) -> list[tuple[Reason, str]]:
        """What the lab's own validity says of such a sample, without what the machine did; the known server's count is the proxy's."""
        point = Point(
            name=cell.scenario,
            generator=cell.generator,
            connections=load.connections,
            rate_rps=load.rate_rps,
            duration_s=load.duration_s,
            warmup_s=0.0,
            threads=load.threads,
            page=PAGE,
        )
        if known:
            seen = replace(seen, counters={**seen.counters, "proxy/requests": known.answered})
        core, cpus = self._core(seen, ended), self.target.generator_cpus()
        found = validity.faults(point, result, seen, core, cell.calibration_s, BODY_BYTES, cpu_s=ended.cpu_s, cpus=cpus)
        return [(reason, said) for reason, said in found if not reason.environmental]

    def _core(self, seen: Observation, ended: Ended) -> float:
        """How busy the generator's busiest CPU was, with whatever shares it; where none is its own, its CPU time says."""
        busy = [seen.busy[cpu] for cpu in self.target.cpus().get("generator", ()) if cpu in seen.busy]
        return max(busy, default=min(1.0, (ended.cpu_s or 0.0) / seen.elapsed_s))


def _await(server: subprocess.Popen[bytes], ready: Path) -> None:
    deadline = time.monotonic() + STARTS_WITHIN_S
    while not ready.exists():
        if server.poll() is not None:
            raise MeasuringError("known server", f"ended with status {server.returncode} before it listened")
        if time.monotonic() > deadline:
            raise MeasuringError("known server", f"does not listen after {STARTS_WITHIN_S:g} s")
        time.sleep(POLL_S)


def _parsed(generator: Generator, load: Load, ended: Ended) -> tuple[Result | None, str]:
    if ended.hung:
        return None, f"still running {GRACE_S:g} s after its time, killed"
    try:
        return generator.parse(ended.stdout, ended.stderr, ended.exit_status, load), ""
    except OutputError as error:
        return None, str(error)


def _reported(result: Result) -> Reported:
    return Reported(
        requests=result.requests,
        achieved_rps=result.achieved_rps,
        duration_s=result.duration_s,
        recorded_s=result.recorded_s,
        errors={str(kind): count for kind, count in result.errors.items() if count},
        dropped=result.dropped,
        latency=records.latencies(result.latency),
        notes=result.notes,
    )


def _truth(known: truth.ServerRecord, cell: Cell, behaviour: Behaviour, result: Result | None) -> Truth:
    """Latencies are of what the generator's cover; counts are of the whole run."""
    share = None
    if behaviour.pause_s and result:
        share = true_share_over(behaviour.pause_s, behaviour.delay_s, result.recorded_s)
    windowed = known.after(cell.calibration_s)
    return Truth(
        answered=known.answered,
        achieved_rps=known.answered / known.span_s if known.span_s else None,
        connections=known.connections,
        closed=known.closed,
        broken=known.broken,
        unstamped=known.unstamped,
        service=records.latencies(windowed.service()),
        late_s=records.quantiles(windowed.late()),
        share_over=share,
        cpu_s=known.cpu_s,
    )
