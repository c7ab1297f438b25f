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
from typing import Any

import numpy as np
import numpy.typing as npt

from lab.base.errors import MeasuringError
from lab.experiments.calibration.known_server import COLUMNS, SECOND, Behaviour
from lab.experiments.calibration.scenarios import PAGE, Cell, true_share_over
from lab.generators import Generator, Installed, command
from lab.measure import validity
from lab.model.facts import ROOT
from lab.model.load import OutputError
from lab.model.metrics import QUANTILES
from lab.model.run import now
from lab.records.calibration import OVER_S, TOLD, Latencies, Measured, Reported, Truth
from lab.records.tables import join_raw
from lab.stats.histogram import Histogram, bucket_edges_s
from lab.targets.base import System
from lab.targets.common.process import GRACE_S, run_generator
from lab.targets.common.scratch import scratch

STARTS_WITHIN_S = 10.0
ENDS_WITHIN_S = 30.0
POLL_S = 0.01
SERVER = ("env", f"PYTHONPATH={ROOT}", sys.executable, "-S", "-m", "lab.experiments.calibration.known_server")
"""-S: nothing but the standard library."""


def measure_once(
    system: System, generator: Generator, installed: Installed, cell: Cell, repeat: int
) -> tuple[Measured, str, dict[str, Histogram]]:
    """Measure a cell while the reference system (the backend alone) is up.

    MeasuringError when the server does not start or leaves no record; a generator's failure is a result.

    Returns:
        The measurement, and what is stored beside it: the verbatim output, and histograms (latency, service, truth).

    """
    started_at = now()
    with scratch() as folder:
        with _serving(system, cell.behaviour, folder / "record") as (url, host):
            load = replace(cell.load, url=f"{url}/{PAGE}", host=host or cell.load.host)
            with system.watch() as watch:
                ended = run_generator(system, generator, installed.path, load, folder)
            seen = watch.observation()
        known = read((folder / "record").read_bytes()) if cell.behaviour else None
    result, failure = None, f"still running {GRACE_S:g} s after its time, killed" if ended.hung else ""
    if not ended.hung:
        try:
            result = generator.parse(ended.stdout, ended.stderr, ended.exit_status, load)
        except OutputError as error:
            failure = str(error)
    histograms = {"latency": result and result.latency, "service": result and result.service}
    reported = result and Reported(
        requests=result.requests,
        achieved_rps=result.achieved_rps,
        duration_s=result.duration_s,
        recorded_s=result.recorded_s,
        errors={str(kind): count for kind, count in result.errors.items() if count},
        dropped=result.dropped,
        latency=latencies(result.latency),
        notes=result.notes,
    )
    backend, truth = seen.usage.get("backend"), None
    server_cpu_s = backend.cpu_s if backend else None
    if known and cell.behaviour:
        how, windowed, server_cpu_s = cell.behaviour, known.after(cell.calibration_s), known.cpu_s
        histograms["truth"] = windowed.service()
        truth = Truth(
            answered=len(known.rows),
            connections=known.connections,
            broken=known.broken,
            unstamped=known.unstamped,
            service=latencies(windowed.service()),
            late_s=_quantiles(windowed.late()),
            share_over=true_share_over(how.pause_s, how.delay_s, result.recorded_s) if how.pause_s and result else None,
            cpu_s=known.cpu_s,
        )
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
        reported=reported,
        truth=truth,
        failure=failure,
        noise=tuple(f"{reason}: {said}" for reason, said in validity.machine_faults(seen)),
        cpu_s=ended.cpu_s,
        server_cpu_s=server_cpu_s,
        steal=seen.steal,
        others=seen.others,
    )
    counted = {name: histogram for name, histogram in histograms.items() if histogram is not None}
    return measured, join_raw(ended.stdout, ended.stderr), counted


@contextmanager
def _serving(system: System, behaviour: Behaviour | None, record: Path) -> Iterator[tuple[str, str]]:
    """Serve where is given: (URL, host, empty for any). The known server's record lies there once this has ended; None: the real backend."""
    if behaviour is None:
        yield system.entry().base_url, system.entry().host
        return
    ready = record.with_name(f"{record.name}.ready")
    address = system.pod_address("backend")
    server = system.spawn("backend", [*SERVER, str(record), json.dumps(asdict(behaviour))])
    try:
        deadline = time.monotonic() + STARTS_WITHIN_S
        while not ready.exists():
            if server.poll() is not None:
                raise MeasuringError("known server", f"ended with status {server.returncode} before it listened")
            if time.monotonic() > deadline:
                raise MeasuringError("known server", f"does not listen after {STARTS_WITHIN_S:g} s")
            time.sleep(POLL_S)
        yield f"http://{address}:{ready.read_text()}", ""
        server.terminate()
        server.wait(ENDS_WITHIN_S)
        if not record.exists():
            raise MeasuringError("known server", f"ended with status {server.returncode} and left no record")
    except subprocess.TimeoutExpired:
        raise MeasuringError("known server", f"did not end within {ENDS_WITHIN_S:g} s") from None
    finally:
        server.kill()
        server.wait()


def latencies(histogram: Histogram) -> Latencies:
    """Return a histogram in a few numbers."""
    filled = np.flatnonzero(histogram.counts)
    low, _ = bucket_edges_s(filled)
    over = int(histogram.counts[filled[low > OVER_S]].sum()) if filled.size else 0
    return Latencies(
        kind=histogram.kind,
        count=histogram.total,
        quantiles_s=_quantiles(histogram),
        max_s=histogram.maximum_s,
        share_over=over / histogram.total if histogram.total else 0.0,
    )


def _quantiles(histogram: Histogram) -> dict[str, float | None]:
    return {name: histogram.quantile_s(QUANTILES[name]) for name in TOLD}


# -- the known server's own record, read back: how long each answer really took --------------------------------

ARRIVED, PLANNED, WRITTEN = (COLUMNS.index(name) for name in ("arrived_ns", "planned_ns", "written_ns"))


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """`rows`: int64, shape (n, 4), nanoseconds, in the order in which answers were written. Counts are of the whole run.

    `broken`: answers that could not be written, since the client had gone; `unstamped`: arrivals that the kernel had not stamped, so that
    the moment of reading stands for them.
    """

    rows: npt.NDArray[np.int64]
    connections: int
    broken: int
    unstamped: int
    cpu_s: float

    def after(self, seconds: float) -> ServerRecord:
        """Leave out the requests of the first `seconds`, which a generator leaves out of its latencies (counts stay)."""
        if not len(self.rows):
            return self
        begin = self.rows[:, ARRIVED].min() + round(seconds * SECOND)
        return replace(self, rows=self.rows[self.rows[:, ARRIVED] >= begin])

    def service(self) -> Histogram:
        """Return the times from when a request's bytes were there to when its answer was handed to the kernel."""
        return Histogram.of_values((self.rows[:, WRITTEN] - self.rows[:, ARRIVED]) / SECOND)

    def late(self) -> Histogram:
        """Return by how much answers were later than they were to be: the server's own error, which is in `service`, too."""
        return Histogram.of_values((self.rows[:, WRITTEN] - self.rows[:, PLANNED]) / SECOND)


def read(content: bytes) -> ServerRecord:
    """Parse the record: a line of JSON, then an int64 row for every answered request."""
    line, _, rows = content.partition(b"\n")
    told: dict[str, Any] = json.loads(line)
    return ServerRecord(np.frombuffer(rows, dtype=np.int64).reshape(-1, len(COLUMNS)), **told)
