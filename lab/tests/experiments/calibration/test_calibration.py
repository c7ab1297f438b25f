"""What generators report beside what was: scenarios and their truths, one measurement, the folder, the rows and the tables; and the server with known behaviour."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
import zipfile
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from rich.console import Console

from lab.__main__ import main
from lab.analysis.calibration import summarise_generators
from lab.base.errors import MeasuringError
from lab.base.files import StoreError, reference_folder
from lab.commands import selfbench
from lab.experiments.calibration.known_server import ANSWER, SECOND, Behaviour, Planner
from lab.experiments.calibration.measuring import (
    SCENARIOS,
    ServerRecord,
    measure_once,
    parse_record,
    plan_cell,
    plan_slots,
    prepare,
    true_share_over,
)
from lab.generators import GENERATORS, Installed
from lab.model.endpoint import Role
from lab.model.facts import ROOT
from lab.model.load import GeneratorLoad, GeneratorResult, OutputError
from lab.records import calibration as folder
from lab.records.calibration import CalibrationRecord, Known, Latencies, Measured
from lab.records.tables import HISTOGRAM_SCHEMA, histogram_frame, read_joined_tables, read_raw
from lab.report.markdown import render_markdown
from lab.report.tables import calibration as tables
from lab.stats.histogram import Histogram
from lab.tests.support.fakes import FakeGenerator, FakeSystem, FakeTarget
from lab.tests.support.waiting import until

CLIENT = """
import http.client, json, sys, time
from urllib.parse import urlsplit
client, found = http.client.HTTPConnection(urlsplit(sys.argv[1]).netloc), []
for _ in range(int(sys.argv[2])):
    began = time.perf_counter()
    client.request("GET", "/")
    client.getresponse().read()
    found.append(time.perf_counter() - began)
print(json.dumps(found))
"""


@dataclass
class Client(FakeGenerator):
    script: str = CLIENT
    requests_made: int = 30

    def argv(self, load: GeneratorLoad) -> list[str]:
        return [self.binary, "load.py", load.url, str(self.requests_made)]

    def parse(self, stdout: str, stderr: str, exit_status: int, load: GeneratorLoad) -> GeneratorResult:
        if exit_status:
            raise OutputError(f"exit status {exit_status}")
        values = json.loads(stdout)
        return GeneratorResult(len(values), sum(values), Histogram.of_values(values), sum(values))


class HereSystem(FakeSystem):
    def pod_address(self, role: Role) -> str:
        assert role == "backend"
        return "127.0.0.1"


INSTALLED = Installed(sys.executable, "1")


def measured_here(generator: FakeGenerator, name: str) -> tuple[Measured, str, dict[str, Histogram]]:
    return measure_once(HereSystem(), generator, INSTALLED, plan_cell(generator, SCENARIOS[name], 4.0), 1)


# -- scenarios ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [name for name, of in GENERATORS.items() if name != "h2load" and not of.own_backend]
)  # of TLS, of streams alone
@pytest.mark.parametrize("of", SCENARIOS.values(), ids=lambda each: each.name)
def test_every_generator_takes_every_scenario(name: str, of: Any) -> None:
    generator = GENERATORS[name]
    found = plan_cell(generator, of, 12.0)
    assert found.refusal == ""
    assert found.load.duration_s >= (5.0 if of.name == "ceiling" else 12.0) + found.calibration_s
    is_open = found.load.rate_rps is not None
    assert is_open == (of.name != "ceiling" if len(generator.models) == 2 else "open" in generator.models)
    assert found.load.connections == (of.open if is_open else of.closed)


def test_what_a_generator_cannot_make_is_refused_and_not_planned() -> None:
    class Picky(FakeGenerator):
        def refusal(self, load: GeneratorLoad) -> str | None:
            return "no rates" if load.rate_rps else None

    cells = [plan_cell(Picky(), SCENARIOS[name], 5.0) for name in ("fixed", "ceiling")]
    assert [each.refusal for each in cells] == ["no rates", ""]
    assert [(repeat, each.scenario) for repeat, each in plan_slots(cells, 2, seed=1)] == [
        (1, "ceiling"),
        (2, "ceiling"),
    ]


def test_the_share_that_a_pause_holds_is_what_users_who_come_at_any_moment_meet() -> None:
    how, recorded_s = Behaviour(delay_s=0.01, pause_s=1.0, pause_at_s=5.5), 12.0
    arrivals = np.arange(0, recorded_s, 0.001)
    due = arrivals + how.delay_s
    answered = np.where((due >= 5.5) & (due < 6.5), 6.5, due)
    share = float((answered - arrivals > 0.5).mean())
    assert true_share_over(1.0, 0.01, recorded_s) == pytest.approx(share, rel=0.01)
    assert true_share_over(0.2, 0.01, recorded_s) == 0.0


# -- one measurement ----------------------------------------------------------------------------------------


def test_both_sides_of_a_measurement_agree_on_a_generator_that_tells_the_truth() -> None:
    measured, raw, histograms = measured_here(Client(), "fixed")
    said, true = measured.reported, measured.truth
    assert said and true and not measured.failure
    assert said.requests == true.answered == 30
    told_s, was_s = said.latency.quantiles_s["p50"], true.service.quantiles_s["p50"]
    assert told_s and was_s and 0.010 <= was_s <= told_s < was_s + 0.02
    assert said.latency.quantiles_s["p99"] is None  # fewer than ten requests lie beyond it
    assert true.share_over is None and true.unstamped == 0
    assert set(histograms) == {"latency", "truth"} and raw.startswith("[")


def test_a_generator_that_fails_is_a_result_with_its_reason() -> None:
    measured, _, _ = measured_here(Client(script="raise SystemExit(3)"), "floor")
    assert measured.reported is None and measured.failure == "exit status 3"
    assert measured.truth and measured.truth.answered == 0


def test_a_server_that_does_not_start_is_an_error_with_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.experiments.calibration.measuring.SERVER", (sys.executable, "-c", "raise SystemExit(5)"))
    with pytest.raises(MeasuringError, match="status 5 before it listened"):
        measured_here(Client(), "floor")


def test_a_calibration_that_stops_keeps_what_it_has_and_names_nothing_to_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAB_RUNS", str(tmp_path))

    def full(*_: object) -> None:
        raise StoreError("disk", "cannot be written: full", "free some disk space, then go on with --resume")

    class Pinned(FakeTarget):
        def facts(self) -> dict[str, str]:
            return {"cpus_backend": "1", "cpus_generator": "1"}

    target = Pinned(on_up=full)
    ready = prepare(target, ["k6"], ["fixed"], 4.0, 1, 1, ("lab",))
    with pytest.raises(StoreError) as caught:
        selfbench.calibrate(Namespace(plan=False), Console(stderr=True), target, ready)
    assert "--resume" not in str(caught.value) and "just selfbench calibrate" in caught.value.remedy
    assert f"just selfbench calibrate --show {folder.list_calibrations()[0]}" in capsys.readouterr().err


# -- records and rows ---------------------------------------------------------------------------------------


def lat(p50: float | None, p99: float | None = None, p999: float | None = None, share_over: float = 0.0) -> Latencies:
    quantiles_s = {"p50": p50, "p99": p99, "p99.9": p999}
    return Latencies(kind="exact", count=1000, quantiles_s=quantiles_s, max_s=1.0, share_over=share_over)


BASE = folder.CalibrationFolder.open(str(reference_folder() / folder.REFERENCE)).record


def made(
    name: str, said: Latencies, true: Latencies | None, repeat: int = 1, share: float | None = None, **changes: Any
) -> Measured:
    """A committed measurement with these numbers instead; `changes`: of what was reported."""
    base = next(each for each in BASE.measurements if each.reported and each.truth)
    assert base.reported and base.truth
    told = {"requests": 1000, "achieved_rps": 1000.0, "dropped": 0, "latency": said, **changes}
    truth = {"service": true, "share_over": share, "unstamped": 0, "late_s": {"p50": 1e-5, "p99": 9e-5, "p99.9": None}}
    known = {
        "id": f"r{repeat:02d}-fake-{name}",
        "repeat": repeat,
        "generator": "fake",
        "scenario": name,
        "offered_rps": 1000.0,
        "duration_s": 12.0,
        "reported": base.reported.model_copy(update=told),
        "truth": base.truth.model_copy(update=truth) if true else None,
        "cpu_s": 0.05,
        "noise": (),
    }
    return base.model_copy(update=known)


def record_of(measurements: list[Measured]) -> CalibrationRecord:
    fake = Known(name="fake", version="1", installed=True, remedy="", models=("closed", "open"), latency_from="sent")
    known = {
        "id": "c-1",
        "repeats": max((each.repeat for each in measurements), default=1),
        "duration_s": 12.0,
        "scenarios": {each.scenario: "answers" for each in measurements},
        "generators": (fake,),
        "planned": len(measurements),
        "facts": {"cpus_backend": "1", "cpus_generator": "1"},
        "measurements": tuple(measurements),
    }
    return BASE.model_copy(update=known)


def test_bias_is_taken_per_measurement_from_its_own_truth() -> None:
    both = [
        made("fixed", lat(0.011, 0.012), lat(0.010, 0.0115), 1),
        made("fixed", lat(0.021, 0.022), lat(0.020, None), 2),
    ]
    (row,) = summarise_generators(record_of(both))
    p50, p99 = row.bias["fixed"]["p50"], row.bias["fixed"]["p99"]
    assert p50.bias_s and p50.bias_s.median == pytest.approx(0.001) and p50.bias_s.high == pytest.approx(0.001)
    assert p50.bias_share and p50.bias_share.high == pytest.approx(0.1) and p50.bias_share.low == pytest.approx(0.05)
    assert p99.bias_s and p99.bias_s.low == p99.bias_s.high == pytest.approx(0.0005)
    assert row.bias["fixed"]["p99.9"].bias_s is None


def test_what_to_do_follows_from_what_was_seen() -> None:
    def advice(said: float, name: str = "pause", share: float | None = 0.04, **changes: Any) -> str:
        one = made(name, lat(0.01, share_over=said), lat(0.01), share=share, **changes)
        return summarise_generators(record_of([one]))[0].advice

    assert advice(0.04).startswith("use it for latency at a rate:")
    assert "below the knee only" in advice(0.08)
    assert "where it drops nothing" in advice(0.001, dropped=900)
    assert advice(0.001).startswith("use it for ceilings")
    assert advice(0.0, "fixed", None) == ""


# -- tables, folder, README ---------------------------------------------------------------------------------


def test_the_tables_say_it_all() -> None:
    missing = Known(
        name="wrk2", version=None, installed=False, remedy="put it on PATH", models=("open",), latency_from="due"
    )
    measurements = [
        made("floor", lat(0.0002, 0.0004), lat(0.0001, 0.0002)),
        made("fixed", lat(0.0105, 0.0112, 0.013), lat(0.010, 0.011, 0.012)),
        made("pause", lat(0.01, share_over=0.004), lat(0.01), share=0.0425, dropped=950),
        made("ceiling", lat(0.001), None, achieved_rps=20_000.0),
    ]
    record = record_of(measurements)
    record = record.model_copy(update={"generators": (*record.generators, missing)})
    lines = [" ".join(line.split()) for line in render_markdown(tables.page(record)).splitlines()]
    assert "| fake | 1 | open/closed | sent | 200 | 400 | 20,000 | 20,000 | 50.0 | 50.0 |" in lines
    assert "| fake | fixed | 10.0 | +500 +5.0 % | 11.0 | +200 +1.8 % | 12.0 | +1,000 +8.3 % |" in lines
    assert "| fake | 0.40 | 4.25 | 950 | hidden |" in lines
    assert "| wrk2 | not installed | open | due | – | – | – | – | – | – |" in lines
    assert "- wrk2: not installed: put it on PATH" in lines
    assert any("server on CPU 1, generators on CPU 1: shared" in line for line in lines)
    assert any("late by p50 10.0 µs, p99 90.0 µs" in line for line in lines)


def test_measurements_are_kept_with_what_they_were_read_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_RUNS", str(tmp_path))
    monkeypatch.setenv("LAB_REFERENCE", str(tmp_path / "reference"))
    first, second = (made("fixed", lat(0.01), lat(0.01), repeat) for repeat in (1, 2))
    histogram = Histogram.of_values([0.01, 0.02])
    store = folder.CalibrationFolder.create(record_of([first]).model_copy(update={"measurements": ()}))
    store.add(first, "said\n", {"latency": histogram, "truth": histogram})
    store.add(second, "said \udcff", {"truth": histogram})
    again = folder.CalibrationFolder.open("c-1")
    assert again.record.measurements == (first, second) and again.record.complete is False
    raws = zipfile.ZipFile(tmp_path / "c-1" / "raw.zip")
    said = [read_raw(zipfile.Path(raws, f"{each.id}/raw.zst")) for each in (first, second)]
    assert said == [("said\n", ""), ("said \udcff", "")]
    counted = read_joined_tables(tmp_path / "c-1" / folder.COUNTED, HISTOGRAM_SCHEMA)
    assert counted[first.id].equals(histogram_frame({"latency": histogram, "truth": histogram}))
    assert counted[second.id].equals(histogram_frame({"truth": histogram}))
    assert sorted(path.name for path in (tmp_path / "c-1").iterdir()) == [folder.FILE, folder.COUNTED, "raw.zip"]


def test_the_committed_one_is_read_with_the_scenarios_of_its_release(capsys: pytest.CaptureFixture[str]) -> None:
    assert BASE.complete and {"close", "rate-ceiling"} < BASE.scenarios.keys()
    rows = {row.known.name: row for row in summarise_generators(BASE)}
    assert rows["oha"].pause and rows["oha"].pause.sight == "visible" and len(rows["wrk"].bias) == 3
    assert main(["selfbench", "calibrate", "--show", str(reference_folder() / folder.REFERENCE)]) == 0
    assert re.search(r"^oha +1\.16\.0 ", capsys.readouterr().out, re.MULTILINE)


BEGIN = 1_000 * SECOND
REQUEST = b"GET /1kB.bin HTTP/1.1\r\nHost: h\r\n\r\n"


def plans(behaviour: Behaviour, arrivals_s: list[float]) -> list[float]:
    planner = Planner(behaviour)
    return [(planner.planned_ns(BEGIN + round(at * SECOND)) - BEGIN) / SECOND for at in arrivals_s]


def test_exactly_one_of_every_twenty_is_slow_and_not_every_twentieth() -> None:
    """A fixed place would lock into the turns of a closed loop's connections."""
    found = plans(Behaviour(delay_s=0.001, slow_s=0.1, slow_every=20), [0.0] * 400)
    slow = [place for place, at in enumerate(found) if at == 0.1]
    assert [place // 20 for place in slow] == list(range(20))
    assert len({place % 20 for place in slow}) > 5
    assert {at for at in found if at != 0.1} == {0.001}


def test_what_falls_into_the_pause_waits_for_its_end() -> None:
    how = Behaviour(delay_s=0.01, pause_s=1.0, pause_at_s=5.0)
    assert plans(how, [0, 4.98, 4.995, 5.5, 5.985, 5.995, 7]) == [0.01, 4.99, 6, 6, 6, 6.005, 7.01]


@contextmanager
def served(folder: Path, behaviour: Behaviour) -> Iterator[tuple[int, list[ServerRecord]]]:
    """(port, where its record is once this has ended)."""
    argv = [sys.executable, "-S", "-m", "lab.experiments.calibration.known_server", str(folder / "r")]
    server = subprocess.Popen([*argv, json.dumps(asdict(behaviour))], env={"PYTHONPATH": str(ROOT)}, cwd="/")
    found: list[ServerRecord] = []
    try:
        until((folder / "r.ready").exists, "the server is not ready")
        yield int((folder / "r.ready").read_text()), found
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == 0
        found.append(parse_record((folder / "r").read_bytes()))
    finally:
        server.kill()
        server.wait()


def ask(client: socket.socket) -> bytes:
    client.sendall(REQUEST)
    return client.recv(len(ANSWER), socket.MSG_WAITALL)


def test_its_record_lies_within_what_a_client_measures(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    with (
        served(tmp_path, Behaviour(delay_s=0.02)) as (port, found),
        socket.create_connection(("127.0.0.1", port)) as client,
    ):
        for _ in range(20):
            sent = time.time_ns()
            assert ask(client) == ANSWER
            seen.append((sent, time.time_ns()))
    (record,) = found
    assert len(record.rows) == 20 and record.connections == 1 and record.unstamped == 0
    for (sent, back), (_, arrived, due, written) in zip(seen, record.rows.tolist(), strict=True):
        assert sent <= arrived < due <= written <= back
        assert due - arrived == 20_000_000
    assert record.service().total == 20


def test_requests_that_wait_for_the_server_itself_arrived_when_the_kernel_says(tmp_path: Path) -> None:
    with served(tmp_path, Behaviour()) as (port, found), socket.create_connection(("127.0.0.1", port)) as client:
        assert ask(client) == ANSWER
        (server,) = [each for each in psutil.Process().children() if "known_server" in " ".join(each.cmdline())]
        server.suspend()
        client.sendall(REQUEST)
        time.sleep(0.3)
        server.resume()
        assert client.recv(len(ANSWER), socket.MSG_WAITALL) == ANSWER
    service_s = [(row[3] - row[1]) / SECOND for row in found[0].rows.tolist()]
    assert 0.29 < service_s[1] < 5


def test_a_window_leaves_out_the_first_requests_and_keeps_the_counts(tmp_path: Path) -> None:
    with served(tmp_path, Behaviour()) as (port, found), socket.create_connection(("127.0.0.1", port)) as client:
        ask(client)
        time.sleep(0.3)
        ask(client)
    later = found[0].after(0.2)
    assert (len(later.rows), later.connections) == (1, 1)
    assert len(found[0].after(0).rows) == 2
