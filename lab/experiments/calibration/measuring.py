"""The measurements of a calibration: load generators measure the known server, which answers at times that are known beforehand.

The module defines the scenarios (behaviours of the server), plans the loads, and makes a single measurement. Open loops
offer 1000 requests per second over 50 connections. Closed loops have so many connections that they make about the same
rate with the server's delay. At full speed a closed loop would only measure the queue in front of the server.

The generator and the server run on the CPUs that the generator and the backend have in every sample; on a machine with
two CPUs they share one. No measurement is left out because of noise. The causes of noise are recorded with it.
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
from lab.generators import GENERATORS, Generator, Installed, build_command
from lab.measure import validity
from lab.model.facts import ROOT, read_git_commit
from lab.model.load import GeneratorLoad, OutputError
from lab.model.metrics import QUANTILES
from lab.model.run import format_now
from lab.records.calibration import OVER_S, PERCENTILES, CalibrationRecord, Known, Latencies, Measured, Reported, Truth
from lab.records.store import new_id
from lab.records.tables import join_raw
from lab.stats.histogram import Histogram, compute_bucket_edges_s
from lab.targets.base import System, Target
from lab.targets.common.process import GRACE_S, GeneratorJob, run_generators
from lab.targets.common.scratch import make_scratch_folder
from lab.targets.survey import collect_facts

PAGE = "1kB.bin"
RATE_RPS = 1000.0
CONNECTIONS = 50
CEILING_S = 5.0
OVERLOAD_RPS = 200_000.0
"""The offered rate that finds the ceiling of a generator without a closed loop.

It is more than any generator here makes on one CPU.
"""
STARTS_WITHIN_S = 10.0
ENDS_WITHIN_S = 30.0
POLL_S = 0.01
SERVER = ("env", f"PYTHONPATH={ROOT}", sys.executable, "-S", "-m", "lab.experiments.calibration.known_server")
"""The command of the known server; with -S it imports nothing but the standard library."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario of a calibration: how the server answers, and how many connections a load generator opens to it.

    Attributes:
        name: The name of the scenario.
        says: What the server does, for people.
        behaviour: The delays of the known server (whose answers are known beforehand). None: the lab's real backend answers, as fast as it
            can.
        closed: The number of connections of a closed loop (a load without an offered rate).
        open: The number of connections of an open loop (a load at an offered rate).

    """

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
SCENARIOS = {scenario.name: scenario for scenario in _ALL}


@dataclass(frozen=True, slots=True)
class CalibrationCell:
    """One measurement that a calibration plans: a load generator in a scenario, with its load and the server's behaviour.

    Attributes:
        generator: The generator's name.
        scenario: The scenario's name.
        load: The load that the generator makes.
        calibration_s: The seconds at the beginning that the generator leaves out of its latencies.
        behaviour: The delays of the known server, with its pause in the middle of what the generator records. None: the real backend
            answers.
        refusal: Why the generator cannot be measured in this scenario; empty if it can.

    """

    generator: str
    scenario: str
    load: GeneratorLoad
    calibration_s: float
    behaviour: Behaviour | None
    refusal: str = ""


def plan_cell(generator: Generator, scenario: Scenario, duration_s: float) -> CalibrationCell:
    """Plan the load that a generator makes in a scenario of a calibration.

    It is an open loop (with an offered rate) if the generator can make one. In the scenario `ceiling` a closed loop (without
    an offered rate) is preferred instead.

    Args:
        generator: The generator.
        scenario: The scenario.
        duration_s: The seconds of load, in addition to those that the generator leaves out of its latencies. In the scenario `ceiling` they
            are at most `CEILING_S`. The load becomes longer if the generator requires it (wrk2: 30 s).

    """
    is_ceiling = scenario.behaviour is None
    models = ("closed", "open") if is_ceiling else ("open", "closed")
    is_open = next(model for model in models if model in generator.models) == "open"
    load = GeneratorLoad(
        url=f"http://192.0.2.1/{PAGE}",
        host="known.lab.test",
        connections=scenario.open if is_open else scenario.closed,
        duration_s=min(duration_s, CEILING_S) if is_ceiling else duration_s,
        rate_rps=(OVERLOAD_RPS if is_ceiling else RATE_RPS) if is_open else None,
    )
    # the requested time beyond what the generator leaves out, and no shorter than the generator accepts (wrk2: 30 s)
    first_s, last_s = (math.ceil(load.duration_s + times * generator.calibration_s(load)) for times in (1, 4))
    candidates = (replace(load, duration_s=float(seconds)) for seconds in range(first_s, last_s + 1))
    load = next((candidate for candidate in candidates if generator.refusal(candidate) is None), load)
    calibration_s, behaviour = generator.calibration_s(load), scenario.behaviour
    if behaviour is not None and behaviour.pause_s:
        behaviour = replace(
            behaviour, pause_at_s=calibration_s + (load.duration_s - calibration_s - behaviour.pause_s) / 2
        )
    return CalibrationCell(generator.name, scenario.name, load, calibration_s, behaviour, generator.refusal(load) or "")


def true_share_over(pause_s: float, delay_s: float, recorded_s: float) -> float:
    """Compute the true share of requests that wait longer than OVER_S because the server pauses once.

    The result is a formula, not a measurement. It assumes requests at evenly spread times, as users would send them, whatever a load
    generator really sends. A request that is due `t` before the end of the pause waits `t` for its answer, so it counts if t > OVER_S. The
    pause also holds requests that came up to `delay_s` before it. The share is therefore (pause + delay - OVER_S) / recorded.

    Args:
        pause_s: The length of the pause, in seconds.
        delay_s: The usual delay of an answer, in seconds.
        recorded_s: The time that the requests are spread over, in seconds.

    """
    return max(0.0, pause_s + delay_s - OVER_S) / recorded_s


def plan_slots(cells: Sequence[CalibrationCell], repeats: int, seed: int) -> list[tuple[int, CalibrationCell]]:
    """Return the measurements of a calibration in their order, as (number of the repeat from 1, cell).

    A cell is one generator in one scenario. Each repeat has every measurable cell once, in a new random order.

    Args:
        cells: The cells.
        repeats: The number of repeats.
        seed: The seed of the random order.

    """
    order = random.Random(seed)
    slots: list[tuple[int, CalibrationCell]] = []
    for repeat in range(1, repeats + 1):
        measurable = [candidate for candidate in cells if not candidate.refusal]
        order.shuffle(measurable)
        slots += [(repeat, candidate) for candidate in measurable]
    return slots


def estimate_s(slots: Sequence[tuple[int, CalibrationCell]]) -> float:
    """Return the estimated seconds of a calibration: the duration of each load, plus one second for starting server and generator.

    Args:
        slots: The measurements, as (number of the repeat, cell).

    """
    return sum(planned_cell.load.duration_s + 1.0 for _, planned_cell in slots)


@dataclass(frozen=True, slots=True)
class PlannedCalibration:
    """The plan of a calibration, which measures load generators against a server whose answers are known beforehand.

    Attributes:
        record: The record, without measurements.
        slots: The measurements in their order, as (number of the repeat from 1, cell).
        installed: Name of a generator → how it is installed; generators that are not installed are left out.

    """

    record: CalibrationRecord
    slots: Sequence[tuple[int, CalibrationCell]]
    installed: Mapping[str, Installed]


def prepare(
    target: Target,
    names: Sequence[str],
    scenarios: Sequence[str],
    duration_s: float,
    repeats: int,
    seed: int,
    arguments: Sequence[str],
) -> PlannedCalibration:
    """Plan a calibration: measurements of a server with known answer times by several load generators, in several scenarios.

    The record also lists the generators that are not installed, and the loads that a generator cannot make, with the reasons.

    Args:
        target: The target to measure on.
        names: The names of the generators.
        scenarios: The names of the scenarios.
        duration_s: The seconds of load in each measurement, in addition to those that the generator leaves out of its latencies.
        repeats: How often each generator is measured in each scenario.
        seed: The seed of the random order.
        arguments: The command line, for the record.

    """
    installations = {name: installed for name in names if (installed := target.installed(GENERATORS[name]))}
    cells = [
        plan_cell(GENERATORS[name], SCENARIOS[scenario], duration_s) for name in installations for scenario in scenarios
    ]
    slots = plan_slots(cells, repeats, seed)
    generators = (
        Known(
            name=name,
            version=installations[name].version if name in installations else None,
            installed=name in installations,
            remedy=GENERATORS[name].remedy,
            models=tuple(sorted(GENERATORS[name].models)),
            latency_from=GENERATORS[name].latency_from,
            refusals={
                refused.scenario: refused.refusal for refused in cells if refused.generator == name and refused.refusal
            },
        )
        for name in names
    )
    record = CalibrationRecord(
        id=new_id("calibration"),
        created_at=format_now(),
        command=tuple(arguments),
        target=target.name,
        seed=seed,
        repeats=repeats,
        duration_s=duration_s,
        scenarios={name: SCENARIOS[name].says for name in scenarios},
        generators=tuple(generators),
        planned=len(slots),
        facts=collect_facts(target),
        git_commit=read_git_commit(),
    )
    return PlannedCalibration(record, slots, installations)


# -- one measurement ------------------------------------------------------------------------------------------


def measure_once(
    system: System, generator: Generator, installed: Installed, cell: CalibrationCell, repeat: int
) -> tuple[Measured, str, dict[str, Histogram]]:
    """Let one load generator measure the known server (or the real backend) in one scenario, and return the measurement.

    If the generator fails, no error is raised: the returned measurement contains the reason.

    Args:
        system: The running system, which consists of the backend alone.
        generator: The generator.
        installed: How the generator is installed.
        cell: The planned measurement.
        repeat: The number of the repeat.

    Returns:
        (measurement, output of the generator, histograms by name). The histograms are `latency` and `service` as the generator reports
        them, and `truth` as the server recorded it; those that are not known are left out.

    Raises:
        MeasuringError: The server does not start, or leaves no record.

    """
    started_at = format_now()
    with make_scratch_folder() as folder:
        with _run_server(system, cell.behaviour, folder / "record") as (url, host):
            load = replace(cell.load, url=f"{url}/{PAGE}", host=host or cell.load.host)
            with system.watch() as watch:
                (ended,) = run_generators([GeneratorJob(system, generator, installed.path, load, folder)])
            observation = watch.observation()
        server_record = parse_record((folder / "record").read_bytes()) if cell.behaviour else None
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
        latency=summarise_latencies(result.latency),
        notes=result.notes,
    )
    backend, truth = observation.usage.get("backend"), None
    server_cpu_s = backend.cpu_s if backend else None
    if server_record and cell.behaviour:
        behaviour, windowed, server_cpu_s = (
            cell.behaviour,
            server_record.after(cell.calibration_s),
            server_record.cpu_s,
        )
        histograms["truth"] = windowed.service()
        truth = Truth(
            answered=len(server_record.rows),
            connections=server_record.connections,
            broken=server_record.broken,
            unstamped=server_record.unstamped,
            service=summarise_latencies(windowed.service()),
            late_s=_list_quantiles(windowed.late()),
            share_over=true_share_over(behaviour.pause_s, behaviour.delay_s, result.recorded_s)
            if behaviour.pause_s and result
            else None,
            cpu_s=server_record.cpu_s,
        )
    measured = Measured(
        id=f"r{repeat:02d}-{cell.generator}-{cell.scenario}",
        repeat=repeat,
        generator=cell.generator,
        scenario=cell.scenario,
        connections=load.connections,
        offered_rps=load.rate_rps,
        duration_s=load.duration_s,
        argv=tuple(build_command(generator, installed.path, load)),
        started_at=started_at,
        reported=reported,
        truth=truth,
        failure=failure,
        noise=tuple(f"{reason}: {detail}" for reason, detail in validity.find_machine_faults(observation)),
        cpu_s=ended.cpu_s,
        server_cpu_s=server_cpu_s,
        steal=observation.steal,
        others=observation.others,
    )
    counted = {name: histogram for name, histogram in histograms.items() if histogram is not None}
    return measured, join_raw(ended.stdout, ended.stderr), counted


@contextmanager
def _run_server(system: System, behaviour: Behaviour | None, record: Path) -> Iterator[tuple[str, str]]:
    """Run the known server (a test server that answers at known times) during a `with` statement, or use the system's real backend.

    After the `with` statement the known server has stopped and has written its record.

    Args:
        system: The running system, which consists of the backend alone.
        behaviour: The delays of the known server; None: use the real backend.
        record: The file that the known server writes.

    Yields:
        (base URL, host that requests must name). The host is empty where the server answers for any host.

    """
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


def summarise_latencies(histogram: Histogram) -> Latencies:
    """Return a histogram's count, percentiles and maximum, and the share of requests that took longer than OVER_S."""
    filled = np.flatnonzero(histogram.counts)
    low, _ = compute_bucket_edges_s(filled)
    over = int(histogram.counts[filled[low > OVER_S]].sum()) if filled.size else 0
    return Latencies(
        kind=histogram.kind,
        count=histogram.total,
        quantiles_s=_list_quantiles(histogram),
        max_s=histogram.maximum_s,
        share_over=over / histogram.total if histogram.total else 0.0,
    )


def _list_quantiles(histogram: Histogram) -> dict[str, float | None]:
    return {name: histogram.quantile_s(QUANTILES[name]) for name in PERCENTILES}


# -- the known server's own record, read back: how long each answer really took --------------------------------

ARRIVED, PLANNED, WRITTEN = (COLUMNS.index(name) for name in ("arrived_ns", "planned_ns", "written_ns"))


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """The record that the known server (a test server that answers at known times) wrote about one load.

    Attributes:
        rows: The answered requests in the order of their answers: int64, shape (n, 4). The columns are the connection's number, and the
            nanoseconds when the request arrived, when its answer was planned, and when the answer was written (`COLUMNS`).
        connections: The number of connections that were accepted during the entire load. `broken` and `unstamped` are about the entire
            load, too.
        broken: The number of answers that could not be written, since the client had gone.
        unstamped: The number of requests whose arrival the kernel had not stamped, so that the time of reading is recorded instead.
        cpu_s: The server's CPU seconds.

    """

    rows: npt.NDArray[np.int64]
    connections: int
    broken: int
    unstamped: int
    cpu_s: float

    def after(self, seconds: float) -> ServerRecord:
        """Return the record without the requests of the first seconds, which a load generator leaves out of its latencies.

        The counts of connections and faults stay those of the entire load.

        Args:
            seconds: The time from the first request on that is left out.

        """
        if not len(self.rows):
            return self
        begin = self.rows[:, ARRIVED].min() + round(seconds * SECOND)
        return replace(self, rows=self.rows[self.rows[:, ARRIVED] >= begin])

    def service(self) -> Histogram:
        """Return the histogram of the service times: from the arrival of a request until its answer was handed to the kernel."""
        return Histogram.of_values((self.rows[:, WRITTEN] - self.rows[:, ARRIVED]) / SECOND)

    def late(self) -> Histogram:
        """Return the histogram of how much later than planned each answer was written.

        This delay is the server's own error. The latencies that a load generator reports include it.
        """
        return Histogram.of_values((self.rows[:, WRITTEN] - self.rows[:, PLANNED]) / SECOND)


def parse_record(content: bytes) -> ServerRecord:
    """Parse the content of the known server's record file: a line of JSON with counts, then an int64 row for every answered request."""
    line, _, rows = content.partition(b"\n")
    counts: dict[str, Any] = json.loads(line)
    return ServerRecord(np.frombuffer(rows, dtype=np.int64).reshape(-1, len(COLUMNS)), **counts)
