"""What generators report beside what was: scenarios and their truths, one measurement, the folder, the rows and the tables."""

import json
import os
import shutil
import sys
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from lab.__main__ import main
from lab.analysis.calibration import folder
from lab.analysis.calibration.behaviour import Behaviour
from lab.analysis.calibration.findings import Row, Spread
from lab.analysis.calibration.records import (
    CalibrationRecord,
    Known,
    Latencies,
    Measured,
    Reported,
    Taken,
    Truth,
    latencies,
)
from lab.analysis.calibration.rows import rows_of, spread
from lab.analysis.calibration.scenarios import SCENARIOS, cell, planned, scenario, takes_s, true_share_over
from lab.base.errors import MeasuringError, UsageError
from lab.base.files import StoreError
from lab.commands import calibrating
from lab.commands.readme import parts, texts
from lab.experiments.calibration.measuring import Calibrating
from lab.experiments.calibration.prepared import prepare
from lab.generators import GENERATORS, Installed
from lab.model.endpoint import Role
from lab.model.load import Load, OutputError, Result
from lab.records.packed import Packed
from lab.records.store import run_names
from lab.records.tables import HISTOGRAM_SCHEMA, histogram_frame, pack_raw, read_histograms, read_joined, read_raw
from lab.report.json.answers import CALIBRATED
from lab.report.markdown import markdown
from lab.report.tables import calibration as tables
from lab.report.terminal import show
from lab.stats.histogram import Histogram
from lab.targets.common.process import Ended, run_generator
from lab.tests.support.fakes import FakeGenerator, FakeSystem, FakeTarget

CLIENT = """
import json, socket, sys, time
from urllib.parse import urlsplit
url, requests = urlsplit(sys.argv[1]), int(sys.argv[2])
found = []
client = socket.create_connection((url.hostname, url.port))
for _ in range(requests):
    began = time.perf_counter()
    client.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
    got = 0
    while got < 1024 + 80:
        part = client.recv(65536)
        if not part:
            break
        got += len(part)
    found.append(time.perf_counter() - began)
print(json.dumps(found))
"""


@dataclass
class Client(FakeGenerator):
    """Asks one request after the other, and says how long each took."""

    script: str = CLIENT
    requests_made: int = 30

    def argv(self, load: Load) -> list[str]:
        return [self.binary, "load.py", load.url, str(self.requests_made)]

    def parse(self, stdout: str, stderr: str, exit_status: int, load: Load) -> Result:
        if exit_status:
            raise OutputError(f"exit status {exit_status}")
        values = json.loads(stdout)
        return Result(len(values), sum(values), Histogram.of_values(values), sum(values))


class HereSystem(FakeSystem):
    def pod_address(self, role: Role) -> str:
        assert role == "backend"
        return "127.0.0.1"


HERE = Calibrating(FakeTarget(system=HereSystem()), HereSystem())
INSTALLED = Installed("fake", sys.executable, "1")


def measured_here(generator: FakeGenerator, name: str, duration_s: float = 4.0) -> Taken:
    return HERE.once(generator, INSTALLED, cell(generator, scenario(name), duration_s), 1)


# -- scenarios ----------------------------------------------------------------------------------------------


ENCRYPTED = {"h2load"}
"""They speak TLS alone, which the known server does not."""


@pytest.mark.parametrize("name", sorted(ENCRYPTED))
def test_who_cannot_ask_the_known_server_is_left_out_with_the_reason(name: str) -> None:
    assert all("over TLS alone" in cell(GENERATORS[name], of, 12.0).refusal for of in SCENARIOS)


@pytest.mark.parametrize("name", [name for name in GENERATORS if name not in ENCRYPTED])
@pytest.mark.parametrize("of", SCENARIOS, ids=lambda each: each.name)
def test_every_generator_takes_every_scenario(name: str, of: Any) -> None:
    """For as long as was asked beyond its calibration, or longer; in an open loop where it has one."""
    generator = GENERATORS[name]
    found = cell(generator, of, 12.0)
    assert found.refusal == ""
    assert found.load.duration_s >= (5.0 if of.name == "ceiling" else 12.0) + found.calibration_s
    wants = "closed" if of.name == "ceiling" else "open"
    is_open = found.load.rate_rps is not None
    assert is_open == (wants == "open" if len(generator.models) == 2 else "open" in generator.models)
    assert found.load.connections == (of.open if is_open else of.closed)


def test_only_what_calibrates_runs_longer_than_asked() -> None:
    lasting = {name: cell(each, scenario("fixed"), 12.0).load.duration_s for name, each in GENERATORS.items()}
    assert lasting.pop("wrk2") >= 30
    assert set(lasting.values()) == {12.0}


def test_the_pause_lies_in_the_middle_of_what_is_recorded() -> None:
    """After the calibration, whole, with as much before as behind it."""
    for each in GENERATORS.values():
        found = cell(each, scenario("pause"), 6.0)
        how = found.behaviour
        assert how is not None
        before_s = how.pause_at_s - found.calibration_s
        behind_s = found.load.duration_s - how.pause_at_s - how.pause_s
        assert before_s == pytest.approx(behind_s) and before_s > 1.4


def test_what_a_generator_cannot_make_is_refused_and_not_planned() -> None:
    class Picky(FakeGenerator):
        def refusal(self, load: Load) -> str | None:
            return "no rates" if load.rate_rps else None

    cells = [cell(Picky(), scenario(name), 5.0) for name in ("fixed", "ceiling")]
    assert [each.refusal for each in cells] == ["no rates", ""]
    assert [(repeat, each.scenario) for repeat, each in planned(cells, 2, seed=1)] == [(1, "ceiling"), (2, "ceiling")]


def test_every_repeat_has_every_cell_once_in_an_order_of_its_own_that_the_seed_gives_again() -> None:
    cells = [cell(FakeGenerator(), each, 5.0) for each in SCENARIOS]
    slots = planned(cells, 5, seed=3)
    orders = [[each.scenario for repeat, each in slots if repeat == number] for number in range(1, 6)]
    assert all(sorted(order) == sorted(each.name for each in SCENARIOS) for order in orders)
    assert len({tuple(order) for order in orders}) > 1
    assert planned(cells, 5, seed=3) == slots and planned(cells, 5, seed=4) != slots
    assert takes_s(slots) == 5 * 7 * 6.0


def test_the_share_that_a_pause_holds_is_what_users_who_come_at_any_moment_meet() -> None:
    """By simulation: arrivals evenly over the time, each answered as the server's own plan says."""
    how, recorded_s = Behaviour(delay_s=0.01, pause_s=1.0, pause_at_s=5.5), 12.0
    arrivals = np.arange(0, recorded_s, 0.001)
    due = arrivals + how.delay_s
    answered = np.where((due >= 5.5) & (due < 6.5), 6.5, due)
    share = float((answered - arrivals > 0.5).mean())
    assert true_share_over(1.0, 0.01, recorded_s) == pytest.approx(share, rel=0.01)
    assert true_share_over(0.2, 0.01, recorded_s) == 0.0


# -- one measurement ----------------------------------------------------------------------------------------


def test_both_sides_of_a_measurement_agree_on_a_generator_that_tells_the_truth() -> None:
    """The server's own record and the client's clock, within what lies between them."""
    taken = measured_here(Client(), "fixed")
    said, true = taken.measured.reported, taken.measured.truth
    assert said and true and not taken.measured.failure
    assert said.requests == true.answered == 30
    for name in ("p50",):
        told_s, was_s = said.latency.quantiles_s[name], true.service.quantiles_s[name]
        assert told_s and was_s and 0.010 <= was_s <= told_s < was_s + 0.02
    assert said.latency.quantiles_s["p99"] is None  # fewer than ten requests lie beyond it
    assert true.share_over is None and true.unstamped == 0
    assert set(taken.histograms) == {"latency", "truth"} and taken.raw.startswith("[")


def test_a_generator_that_lies_is_caught() -> None:
    """It says a tenth of what it saw."""

    class Liar(Client):
        def parse(self, stdout: str, stderr: str, exit_status: int, load: Load) -> Result:
            result = super().parse(stdout, stderr, exit_status, load)
            return replace(result, latency=Histogram.of_values(np.array(json.loads(stdout)) / 10))

    (row,) = rows_of(record_of([measured_here(Liar(), "fixed").measured]))
    bias = row.bias["fixed"]["p50"]
    assert bias.bias_share and bias.bias_share.median < -0.8
    assert bias.bias_s and bias.bias_s.median < -0.008


def test_what_a_generator_cannot_have_counted_or_used_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The known server counts every answer, and a CPU has as many seconds as pass."""

    class Boasting(Client):
        def parse(self, stdout: str, stderr: str, exit_status: int, load: Load) -> Result:
            result = super().parse(stdout, stderr, exit_status, load)
            return replace(result, requests=result.requests * 10)

    honest, boasting = (measured_here(kind(), "fixed").measured for kind in (Client, Boasting))
    said = "it counts 300 requests, the proxy 30"
    assert said in boasting.detail and said not in honest.detail and "it cannot have used" not in honest.detail

    def busier(*given: Any) -> Ended:
        return replace(run_generator(*given), cpu_s=100.0 * (os.cpu_count() or 1))

    monkeypatch.setattr("lab.experiments.calibration.measuring.run_generator", busier)
    worked = measured_here(Client(), "fixed").measured
    assert "it cannot have used" in worked.detail and "generator-time" in worked.reasons


def test_a_generator_that_fails_is_a_result_with_its_reason() -> None:
    taken = measured_here(Client(script="raise SystemExit(3)"), "floor")
    assert taken.measured.reported is None and taken.measured.failure == "exit status 3"
    assert taken.measured.truth and taken.measured.truth.answered == 0


def test_a_rate_that_was_not_made_is_called_that() -> None:
    """The fake makes 30 requests of the thousand per second that it was asked for."""
    taken = measured_here(Client(), "rate-ceiling")
    assert "rate-not-achieved" in taken.measured.reasons
    assert taken.measured.offered_rps == 1000


def test_a_server_that_does_not_start_is_an_error_with_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.experiments.calibration.measuring.SERVER", (sys.executable, "-c", "raise SystemExit(5)"))
    with pytest.raises(MeasuringError, match="status 5 before it listened"):
        measured_here(Client(), "floor")


def test_a_server_that_dies_meanwhile_is_an_error_with_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was to be written, and there is nothing to resume."""
    dies = "import pathlib, sys; pathlib.Path(sys.argv[1] + '.ready').write_text('1'); raise SystemExit(5)"
    monkeypatch.setattr("lab.experiments.calibration.measuring.SERVER", (sys.executable, "-c", dies))
    monkeypatch.setattr("lab.experiments.calibration.measuring._await", lambda server, ready: server.wait())
    with pytest.raises(MeasuringError, match="status 5 and left no record"):
        measured_here(Client(script="raise SystemExit(3)"), "floor")


def test_a_calibration_that_stops_keeps_what_it_has_and_names_nothing_to_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAB_RUNS", str(tmp_path))

    def full(*_: object) -> None:
        raise StoreError("disk", "cannot be written: full", "free some disk space, then go on with --resume")

    class Pinned(FakeTarget):
        def facts(self) -> dict[str, str]:
            return {"cpus_backend": "1", "cpus_generator": "1"}

    monkeypatch.setattr(calibrating, "_measure_all", full)
    ready = prepare(Pinned(), ["k6"], ["fixed"], 4.0, 1, 1, ("lab",))
    with pytest.raises(StoreError) as caught:
        calibrating.measure(Namespace(plan=False), Console(stderr=True), Pinned(), ready)
    assert "--resume" not in str(caught.value) and "just calibrate" in caught.value.remedy
    assert f"just calibrate --show {folder.names()[0]}" in capsys.readouterr().err


# -- records and rows ---------------------------------------------------------------------------------------


def lat(p50: float | None, p99: float | None = None, p999: float | None = None, share_over: float = 0.0) -> Latencies:
    quantiles_s = {"p50": p50, "p99": p99, "p99.9": p999}
    return Latencies(kind="exact", count=1000, quantiles_s=quantiles_s, max_s=1.0, share_over=share_over)


def made(
    name: str,
    said: Latencies | None,
    true: Latencies | None,
    repeat: int = 1,
    generator: str = "fake",
    share: float | None = None,
    **changes: Any,
) -> Measured:
    told: dict[str, Any] = {"requests": 1000, "achieved_rps": 1000.0, "dropped": 0, "errors": {}} | {
        key: changes.pop(key) for key in ("requests", "achieved_rps", "dropped", "errors") if key in changes
    }
    reported = Reported(duration_s=1.0, recorded_s=1.0, latency=said, **told) if said else None
    known: dict[str, Any] = {"answered": 1000, "achieved_rps": 500.0, "connections": 1, "closed": 0} | {
        key: changes.pop(key) for key in ("answered", "closed") if key in changes
    }
    truth = None
    if true:
        late_s = {"p50": 1e-5, "p99": 9e-5, "p99.9": None}
        truth = Truth(broken=0, unstamped=0, service=true, late_s=late_s, share_over=share, cpu_s=0.1, **known)
    defaults: dict[str, Any] = {
        "connections": 1,
        "offered_rps": 1000.0,
        "duration_s": 12.0,
        "argv": (),
        "started_at": "",
        "cpu_s": 0.05,
        "server_cpu_s": 0.1,
        "steal": 0.0,
        "others": 0.0,
    }
    return Measured(
        id=f"r{repeat:02d}-{generator}-{name}",
        repeat=repeat,
        generator=generator,
        scenario=name,
        reported=reported,
        truth=truth,
        **defaults | changes,
    )


def record_of(measurements: list[Measured], **changes: Any) -> CalibrationRecord:
    fake = Known(name="fake", version="1", installed=True, remedy="", models=("closed", "open"), latency_from="sent")
    defaults: dict[str, Any] = {
        "id": "c-1",
        "created_at": "",
        "command": (),
        "target": "local",
        "seed": 1,
        "repeats": max((each.repeat for each in measurements), default=1),
        "duration_s": 12.0,
        "scenarios": {each.scenario: scenario(each.scenario).says for each in measurements},
        "generators": (fake,),
        "planned": len(measurements),
        "facts": {"cpus_backend": "1", "cpus_generator": "1"},
        "git_commit": None,
        "measurements": tuple(measurements),
    }
    return CalibrationRecord(**defaults | changes)


def row_of(*measurements: Measured) -> Row:
    (row,) = rows_of(record_of(list(measurements)))
    return row


def test_a_histogram_in_few_numbers() -> None:
    found = latencies(Histogram.of_values([0.001] * 900 + [0.5] * 50 + [0.6] * 50))
    assert found.count == 1000 and found.share_over == 0.05  # half a second is not more than half a second
    assert found.quantiles_s["p50"] == 0.001 and found.quantiles_s["p99.9"] is None
    assert latencies(Histogram.empty()).share_over == 0.0


def test_a_spread_is_the_median_and_the_range_of_what_is_known() -> None:
    assert spread([3.0, None, 1.0, 2.0]) == Spread(median=2.0, low=1.0, high=3.0, count=3)
    assert spread([None]) is None


def markdown_of(record: CalibrationRecord) -> str:
    return markdown(tables.page(record))


def test_bias_is_taken_per_measurement_from_its_own_truth() -> None:
    """The server was slow once; the generator was not wrong for it."""
    row = row_of(
        made("fixed", lat(0.011, 0.012), lat(0.010, 0.0115), 1),
        made("fixed", lat(0.021, 0.022), lat(0.020, None), 2),
    )
    p50, p99 = row.bias["fixed"]["p50"], row.bias["fixed"]["p99"]
    assert p50.bias_s and p50.bias_s.median == pytest.approx(0.001) and p50.bias_s.high == pytest.approx(0.001)
    assert p50.bias_share and p50.bias_share.high == pytest.approx(0.1) and p50.bias_share.low == pytest.approx(0.05)
    assert p99.bias_s and p99.bias_s.count == 1
    assert row.bias["fixed"]["p99.9"].bias_s is None


@pytest.mark.parametrize(
    ("said", "sight"),
    [(0.0, "hidden"), (0.019, "hidden"), (0.021, "visible"), (0.055, "visible"), (0.08, "exaggerated")],
)
def test_a_pause_is_seen_by_the_share_of_slow_requests_against_the_truth(said: float, sight: str) -> None:
    row = row_of(made("pause", lat(0.01, share_over=said), lat(0.01), share=0.04))
    assert row.pause and row.pause.sight == sight
    assert (row.pause.reported_share.median, row.pause.true_share.median) == (said, 0.04)


def test_what_to_do_follows_from_what_was_seen() -> None:
    def advice(said: float, **changes: Any) -> str:
        return row_of(made("pause", lat(0.01, share_over=said), lat(0.01), share=0.04, **changes)).advice

    assert advice(0.04).startswith("use it for latency at a rate:")
    assert "below the knee only" in advice(0.08)
    assert "where it drops nothing" in advice(0.001, dropped=900)
    assert advice(0.001).startswith("use it for ceilings")
    assert row_of(made("fixed", lat(0.01), lat(0.01))).advice == ""


def test_closed_connections_are_counted_on_both_sides() -> None:
    row = row_of(
        made("close", lat(0.01), lat(0.01), requests=990, errors={"read": 7, "connect": 3}, answered=995, closed=99)
    )
    assert row.close
    found = (row.close.reported, row.close.true, row.close.errors, row.close.closed)
    assert [each and each.median for each in found] == [990, 995, 10, 99]


def test_a_generator_that_closed_connections_silence_has_its_row() -> None:
    """It is what the scenario is to show, so that the calibration is complete."""
    record = record_of([made("close", None, lat(0.01), failure="no latency", answered=500, closed=50)])
    assert record.complete
    assert "| fake | – | 500 | – | 50 |" in markdown_of(record)


@pytest.mark.parametrize(
    ("reasons", "offered", "recognised"),
    [
        (("rate-not-achieved",), 1000.0, True),
        (("dropped",), 1000.0, True),
        (("generator-saturated",), 1000.0, False),
        ((), 1000.0, False),
        ((), None, None),
    ],
)
def test_a_rate_that_the_server_does_not_serve_must_be_recognised(
    reasons: tuple[str, ...], offered: float | None, recognised: bool | None
) -> None:
    row = row_of(made("rate-ceiling", lat(0.1), lat(0.1), achieved_rps=501.0, reasons=reasons, offered_rps=offered))
    assert row.rate_ceiling and row.rate_ceiling.recognised is recognised
    assert (row.rate_ceiling.achieved_rps.median, row.rate_ceiling.true_rps.median) == (501, 500)


def test_cpu_per_request_and_what_a_cpu_alone_would_give() -> None:
    row = row_of(made("ceiling", lat(0.001), None, requests=5000, cpu_s=0.1, server_cpu_s=0.2))
    assert row.ceiling and row.ceiling.cpu_per_request_s and row.ceiling.alone_rps
    assert row.ceiling.cpu_per_request_s.median == pytest.approx(20e-6)
    assert row.ceiling.alone_rps.median == pytest.approx(50_000)
    assert row.cpu_per_request_s is None
    at_rate = row_of(made("fixed", lat(0.01), lat(0.01), requests=1000, cpu_s=0.05)).cpu_per_request_s
    assert at_rate and at_rate.median == pytest.approx(50e-6)


def test_noise_is_marked_and_not_left_out() -> None:
    quiet, loud = made("fixed", lat(0.01), lat(0.01), 1), made("fixed", lat(0.03), lat(0.01), 2, noise=("steal: 3 %",))
    row = row_of(quiet, loud)
    assert row.noisy == {"fixed": 1}
    assert row.bias["fixed"]["p50"].reported_s and row.bias["fixed"]["p50"].reported_s.count == 2
    text = markdown_of(record_of([quiet, loud]))
    assert "fake\\*" in text and "1 of 2 measurements were disturbed (steal)" in text
    assert "\\*" not in markdown_of(record_of([quiet]))


def test_it_is_complete_when_every_cell_has_something_reported() -> None:
    good, bad = made("fixed", lat(0.01), lat(0.01)), made("fixed", None, lat(0.01), 2, failure="it crashed")
    assert record_of([good, bad]).complete
    assert not record_of([bad]).complete
    assert not record_of([good], planned=2).complete
    assert "fake, fixed: it crashed" in markdown_of(record_of([bad]))


# -- tables, folder, README ---------------------------------------------------------------------------------


def everything() -> CalibrationRecord:
    missing = Known(
        name="wrk2", version=None, installed=False, remedy="put it on PATH", models=("open",), latency_from="due"
    )
    measurements = [
        made("floor", lat(0.0002, 0.0004), lat(0.0001, 0.0002)),
        made("fixed", lat(0.0105, 0.0112, 0.013), lat(0.010, 0.011, 0.012)),
        made("pause", lat(0.01, share_over=0.004), lat(0.01), share=0.0425, dropped=950),
        made("close", lat(0.01), lat(0.01), errors={"read": 3}),
        made("rate-ceiling", lat(0.1), lat(0.1), achieved_rps=500.0, reasons=("dropped", "rate-not-achieved")),
        made("ceiling", lat(0.001), None, achieved_rps=20_000.0),
    ]
    record = record_of(measurements)
    return record.model_copy(update={"generators": (*record.generators, missing)})


def test_the_tables_say_it_all() -> None:
    """What a reader looks for, in one line each; what is not installed has its row and how to get it."""
    text = markdown_of(everything())
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "| fake | 1 | open/closed | sent | 200 | 400 | 20,000 | 20,000 | 50.0 | 50.0 |" in lines
    assert "| fake | fixed | 10.0 | +500 +5.0 % | 11.0 | +200 +1.8 % | 12.0 | +1,000 +8.3 % |" in lines
    assert "| fake | 0.40 | 4.25 | 950 | hidden |" in lines
    assert "| fake | 1,000 | 1,000 | 3 | 0 |" in lines
    assert "| fake | 1,000 | 500 | 500 | invalid: dropped, rate-not-achieved |" in lines
    assert "| wrk2 | not installed | open | due | – | – | – | – | – | – |" in lines
    assert "- wrk2: not installed: put it on PATH" in lines
    assert any("server on CPU 1, generators on CPU 1: shared" in line for line in lines)
    assert any("late by p50 10.0 µs, p99 90.0 µs" in line for line in lines)


def test_the_terminal_has_the_same_cells(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    show(Console(width=60), tables.page(everything()))
    printed = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "fake 0.40 4.25 950 hidden" in printed
    assert "fake fixed 10.0 +500 +5.0 % 11.0 +200 +1.8 % 12.0 +1,000 +8.3 %" in printed


def test_json_has_what_is_complete_and_what_a_generator_sees() -> None:
    printed = CALIBRATED.plain(everything())
    assert printed["complete"] is True and printed["rows"][0]["pause"]["sight"] == "hidden"


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("LAB_REFERENCE", str(tmp_path / "reference"))
    return tmp_path / "runs"


def kept(measured: Measured, histograms: Mapping[str, Histogram]) -> folder.CalibrationFolder:
    record = record_of([measured]).model_copy(update={"measurements": ()})
    store = folder.CalibrationFolder.create(record)
    store.add(Taken(measured, "said\n", histograms))
    return store


def test_a_measurement_is_kept_with_what_it_was_read_from(runs: Path) -> None:
    measured = made("fixed", lat(0.01), lat(0.01))
    histogram = Histogram.of_values([0.01, 0.02])
    kept(measured, {"latency": histogram, "truth": histogram})
    again = folder.CalibrationFolder.open("c-1")
    assert again.record.measurements == (measured,) and again.record.complete
    beside = runs / "c-1" / "measurements" / measured.id
    assert read_raw(beside / "raw.zst") == ("said\n", "")
    stored = read_histograms(beside / "hist.parquet", "exact").get("truth")
    assert stored is not None and (stored.counts == histogram.counts).all()
    assert not list(runs.glob("**/.*"))


def test_it_is_no_run(runs: Path) -> None:
    kept(made("fixed", lat(0.01), lat(0.01)), {})
    assert run_names() == [] and folder.names() == ["c-1"]


def test_it_is_found_by_name_by_folder_and_among_the_references(runs: Path) -> None:
    kept(made("fixed", lat(0.01), lat(0.01)), {})
    assert folder.CalibrationFolder.open(str(runs / "c-1")).record.id == "c-1"
    reference = runs.parent / "reference"
    reference.mkdir()
    (runs / "c-1").rename(reference / "calibration")
    assert folder.CalibrationFolder.open("calibration").folder == reference / "calibration"


def test_what_is_not_there_or_damaged_is_refused(runs: Path) -> None:
    with pytest.raises(UsageError, match="unknown calibration 'c-1'.*\n.*just calibrate"):
        folder.CalibrationFolder.open("c-1")
    kept(made("fixed", lat(0.01), lat(0.01)), {})
    with pytest.raises(UsageError, match="did you mean 'c-1'"):
        folder.CalibrationFolder.open("c-2")
    (runs / "c-1" / "calibration.json").write_text('{"id": "c-1"}')
    with pytest.raises(UsageError, match="damaged"):
        folder.CalibrationFolder.open("c-1")


def test_the_readme_part_is_the_reference(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "REFERENCE", runs.parent / "reference")
    kept(made("pause", lat(0.01, share_over=0.001), lat(0.01), share=0.04), {})
    (runs.parent / "reference").mkdir()
    (runs / "c-1").rename(runs.parent / "reference" / "calibration")
    assert "| fake | 0.10 | 4.00 | 0 | hidden |" in " ".join(parts.makers()["calibration"](texts.ROOT, []).split())


def test_a_readme_without_a_place_for_it_is_not_stale(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text("# T\n")
    assert texts.stale(path, parts.makers()) == []
    path.write_text("# T\n\n<!-- generated: calibration -->\nold\n<!-- end -->\n")
    assert texts.stale(path, parts.makers()) == [f"calibration in {path}"]


def test_an_unknown_scenario_is_no_scenario() -> None:
    with pytest.raises(KeyError):
        scenario("fixd")


def test_a_packed_calibration_is_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What every generator said, and what was counted, in two files; packed once."""
    said = {"r01-wrk-pause": "said \udcff", "r01-hey-close": ""}
    counted = {name: histogram_frame({"truth": Histogram.of_values([0.1] * len(text))}) for name, text in said.items()}
    shutil.copy(folder.reference_folder() / folder.REFERENCE / folder.FILE, tmp_path)
    for name, text in said.items():
        (tmp_path / "measurements" / name).mkdir(parents=True)
        (tmp_path / "measurements" / name / "raw.zst").write_bytes(pack_raw(text))
        counted[name].write_parquet(tmp_path / "measurements" / name / "hist.parquet")
    assert main(["calibrate", "--show", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert main(["maintain", "pack", str(tmp_path)]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [folder.FILE, "histograms.parquet", "raw.zip"]
    assert capsys.readouterr().out.rpartition("→ ")[2].startswith("3 files, ")
    form = Packed(tmp_path)
    assert {name: read_raw(form.raw(name)) for name in said} == {name: (text, "") for name, text in said.items()}
    kept = read_joined(tmp_path / "histograms.parquet", HISTOGRAM_SCHEMA)
    assert kept.keys() == {"r01-wrk-pause"} and kept["r01-wrk-pause"].equals(counted["r01-wrk-pause"])
    assert main(["calibrate", "--show", str(tmp_path)]) == 0
    assert capsys.readouterr().out == shown
    assert main(["maintain", "pack", str(tmp_path)]) == 2
    assert "is packed already" in capsys.readouterr().err
