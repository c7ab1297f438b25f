"""Calibration: what the known server does on purpose, with what load, and one measurement of one generator against it.

Open loops offer 1000 requests per second over 50 connections; closed loops have as many connections as make about that rate
of the server's delay, because a closed loop that runs as fast as it goes would measure the queue before the server.

Generator and server have the CPUs that generator and backend have in every sample; on two CPUs that is one for both. Refuses
to leave anything out for noise: what disturbed a measurement is written into it.
"""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lab.base.errors import MeasuringError
from lab.experiments.calibration.known_server import COLUMNS, SECOND, Behaviour
from lab.generators import GENERATORS, Generator, Installed, command
from lab.measure import validity
from lab.model import facts
from lab.model.facts import ROOT
from lab.model.load import Load, OutputError
from lab.model.metrics import QUANTILES
from lab.model.run import now
from lab.records.calibration import OVER_S, TOLD, CalibrationRecord, Known, Latencies, Measured, Reported, Truth
from lab.records.store import new_id
from lab.records.tables import join_raw
from lab.stats.histogram import Histogram, bucket_edges_s
from lab.targets.base import System, Target
from lab.targets.common.process import GRACE_S, run_generator
from lab.targets.common.scratch import scratch
from lab.targets.survey import facts_of

PAGE = "1kB.bin"
RATE_RPS = 1000.0
CONNECTIONS = 50
CEILING_S = 5.0
OVERLOAD_RPS = 200_000.0
"""What a generator that knows rates only is told where its ceiling is asked for: more than any here makes on one CPU."""
STARTS_WITHIN_S = 10.0
ENDS_WITHIN_S = 30.0
POLL_S = 0.01
SERVER = ("env", f"PYTHONPATH={ROOT}", sys.executable, "-S", "-m", "lab.experiments.calibration.known_server")
"""-S: nothing but the standard library."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """`behaviour` None: the real backend answers, as fast as it can. `closed`: connections of a closed loop."""

    name: str
    says: str
    behaviour: Behaviour | None
    closed: int
    open: int = CONNECTIONS


_ALL = (
    Scenario("floor", "answers at once", Behaviour(), closed=1),
    Scenario("fixed", "answers after 10 ms", Behaviour(delay_s=0.010), closed=10),
    Scenario(
        "bimodal",
        "answers after 1 ms, and 5 of 100 after 100 ms",
        Behaviour(delay_s=0.001, slow_s=0.100, slow_every=20),
        closed=6,
    ),
    Scenario(
        "pause",
        "answers after 10 ms, and once, mid-run, nobody for 1 s",
        Behaviour(delay_s=0.010, pause_s=1.0),
        closed=10,
    ),
    Scenario("ceiling", "the lab's own backend (nginx, 1 kB), as fast as both can", None, closed=64, open=64),
)
SCENARIOS = {each.name: each for each in _ALL}


@dataclass(frozen=True, slots=True)
class Cell:
    """One generator in one scenario. `behaviour`: the server's, with the pause in the middle of what the generator records.

    `refusal`: why it cannot be measured there; empty = it can.
    """

    generator: str
    scenario: str
    load: Load
    calibration_s: float
    behaviour: Behaviour | None
    refusal: str = ""


def cell(generator: Generator, of: Scenario, duration_s: float) -> Cell:
    """Return the load that this generator makes there: an open loop where it has one (of a ceiling, a closed one)."""
    ceiling = of.behaviour is None
    models = ("closed", "open") if ceiling else ("open", "closed")
    is_open = next(model for model in models if model in generator.models) == "open"
    load = Load(
        url=f"http://192.0.2.1/{PAGE}",
        host="known.lab.test",
        connections=of.open if is_open else of.closed,
        duration_s=min(duration_s, CEILING_S) if ceiling else duration_s,
        rate_rps=(OVERLOAD_RPS if ceiling else RATE_RPS) if is_open else None,
    )
    # as long as asked for beyond what the generator leaves out, and no shorter than it takes at all (wrk2: 30 s)
    first_s, last_s = (math.ceil(load.duration_s + times * generator.calibration_s(load)) for times in (1, 4))
    longer = (replace(load, duration_s=float(seconds)) for seconds in range(first_s, last_s + 1))
    load = next((each for each in longer if generator.refusal(each) is None), load)
    calibration_s, how = generator.calibration_s(load), of.behaviour
    if how is not None and how.pause_s:
        how = replace(how, pause_at_s=calibration_s + (load.duration_s - calibration_s - how.pause_s) / 2)
    return Cell(generator.name, of.name, load, calibration_s, how, generator.refusal(load) or "")


def true_share_over(pause_s: float, delay_s: float, recorded_s: float) -> float:
    """Return the share of requests that a pause makes wait longer than OVER_S, of all that fall due, evenly, in `recorded_s`.

    A request due `t` before the pause ends has its answer `t` later; it waits longer than OVER_S if t > OVER_S, and is held
    by the pause if it is due no earlier than the delay before its begin. So (pause + delay - OVER_S) / recorded: arithmetic
    of the scenario, nothing measured. It is what a user who comes at any moment meets, whatever a generator sends.
    """
    return max(0.0, pause_s + delay_s - OVER_S) / recorded_s


def planned(cells: Sequence[Cell], repeats: int, seed: int) -> list[tuple[int, Cell]]:
    """Return (repeat from 1, cell): every repeat has each measurable cell once, in an order of its own."""
    order = random.Random(seed)
    found: list[tuple[int, Cell]] = []
    for repeat in range(1, repeats + 1):
        mine = [each for each in cells if not each.refusal]
        order.shuffle(mine)
        found += [(repeat, each) for each in mine]
    return found


def takes_s(slots: Sequence[tuple[int, Cell]]) -> float:
    """Estimate the time: a server's start and a generator's own take a second beside each load."""
    return sum(each.load.duration_s + 1.0 for _, each in slots)


@dataclass(frozen=True, slots=True)
class Ready:
    """`slots`: (repeat, cell) in the order of measuring; `installed`: by name, of those that are."""

    record: CalibrationRecord
    slots: Sequence[tuple[int, Cell]]
    installed: Mapping[str, Installed]


def prepare(
    target: Target,
    names: Sequence[str],
    scenarios: Sequence[str],
    duration_s: float,
    repeats: int,
    seed: int,
    words: Sequence[str],
) -> Ready:
    """Plan a calibration of these generators in these scenarios; what is not installed, or cannot make a load, is in the record with the reason."""
    known = GENERATORS
    found = {name: installed for name in names if (installed := target.installed(known[name]))}
    cells = [cell(known[name], SCENARIOS[each], duration_s) for name in found for each in scenarios]
    slots = planned(cells, repeats, seed)
    generators = (
        Known(
            name=name,
            version=found[name].version if name in found else None,
            installed=name in found,
            remedy=known[name].remedy,
            models=tuple(sorted(known[name].models)),
            latency_from=known[name].latency_from,
            refusals={each.scenario: each.refusal for each in cells if each.generator == name and each.refusal},
        )
        for name in names
    )
    record = CalibrationRecord(
        id=new_id("calibration"),
        created_at=now(),
        command=tuple(words),
        target=target.name,
        seed=seed,
        repeats=repeats,
        duration_s=duration_s,
        scenarios={name: SCENARIOS[name].says for name in scenarios},
        generators=tuple(generators),
        planned=len(slots),
        facts=facts_of(target),
        git_commit=facts.git_commit(),
    )
    return Ready(record, slots, found)


# -- one measurement ------------------------------------------------------------------------------------------


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
