"""Long answers: which rows the table has, of runs and of those that are missing, what does not pass, and each event's delay over time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from lab.analysis import evidence
from lab.analysis.evidence import Evidence, Missing, Shelf
from lab.studies.exhibits import exhibits
from lab.studies.study_files import load_study
from lab.tests.support.golden import drawn

pytestmark = pytest.mark.committed
KNOB = "haproxy+haproxy-http-no-delay"


@pytest.fixture(scope="module")
def shelf() -> Shelf:
    return evidence.shelf()


@pytest.fixture(scope="module")
def events(shelf: Shelf) -> Evidence:
    run = shelf.of("events", variant=["haproxy", "ingress-nginx"])
    assert isinstance(run, Evidence)
    return run


def rows(text: str) -> Mapping[tuple[str, str], list[str]]:
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    return {(title, variant): cells for title, variant, *cells in lines}


def without(events: Evidence, **outcome: float) -> Shelf:
    """The run, in which every sample of HAProxy ended so."""
    counted = {
        key: sample.model_copy(update={"outcome": sample.outcome | outcome}) if key[1] == "haproxy" else sample
        for key, sample in events.counted.items()
    }
    return Shelf((replace(events, counted=counted),), ())


def test_a_system_is_late_as_shipped_and_passes_with_a_setting_whose_meaning_is_below(shelf: Shelf) -> None:
    text = exhibits.passing(shelf, "streams")
    table = rows(text)
    assert table["token streams", "ingress-nginx"][0] == "yes"
    assert table["token streams", "haproxy"][0] == "late"
    passes, p50, p99, cpu, against, throughput, place = table["token streams", KNOB]
    assert passes == "yes, with `haproxy-http-no-delay`" and "- `haproxy-http-no-delay`: chunks" in text
    assert " ms [" in p50 and " ms [" in p99 and " µs [" in cpu and against.startswith("+") and not throughput
    faster, slower = (table["large transfers", f"tls at {point}"] for point in ("h1", "h2"))
    assert (faster[0], faster[4]) == ("yes", "") and " MB/s [" in faster[5] and faster[5] > slower[5]
    assert " × [" in table["large transfers", "envoy+gateway-tls at h2"][4]
    assert place == "streams-knobs on local" and faster[6] == "successors-http2 on local"


def test_every_run_that_is_missing_is_a_row_and_a_gap_with_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_REFERENCE", str(tmp_path))
    text, file = exhibits.passing(evidence.shelf(), "streams"), load_study("streams")
    table = rows(text)
    for change in file.changes:
        command = change.command(quick=False, place="")
        assert any(cells[0] == f"no run yet: `{command}`" for cells in table.values())
        assert f"*nothing to show: {next(title for title, names in table if change.variants[0] in names)}" in text
        assert f"({change.question}): {command}*" in text
    assert not any(cell for cells in table.values() if cells[0].startswith("no run") for cell in cells[1:])


@pytest.mark.parametrize(
    ("outcome", "answer"),
    [
        ({"not_opened": 200.0}, "no: 200 of 200 refused"),
        ({"cut": 7.0, "cut_s": 15.0}, "no: 7 of 200 cut, the first after 15 s [15, 15]"),
        ({"delay_p50_s": 0.009}, "yes"),
        ({"delay_p50_s": 0.011}, "late"),
    ],
)
def test_what_is_refused_or_cut_does_not_pass(events: Evidence, outcome: dict[str, float], answer: str) -> None:
    table = rows(exhibits.passing(without(events, **outcome), "streams"))
    assert table["token streams", "haproxy"][0] == answer
    assert table["token streams", "caddy"][0] == "yes"


def test_a_run_without_some_variant_has_rows_of_the_others(events: Evidence) -> None:
    record = events.run.record
    events.run.record = record.model_copy(update={"arms": tuple(arm for arm in record.arms if arm.name != "caddy")})
    table = rows(exhibits.passing(Shelf((events,), ()), "streams"))
    events.run.record = record
    assert table["token streams", "haproxy"][0] == "late"
    assert table["token streams", "caddy"][0] == "not part of this run: just bench caddy --sweep events"


def test_each_events_delay_is_drawn_over_the_stream_and_haproxys_come_in_threes(events: Evidence) -> None:
    figure = drawn(exhibits.event_delays(events, "T"))
    lines = {line["name"]: line for line in figure["data"]}
    assert set(lines) == set(events.arms()) and figure["layout"]["meta"]["runs"] == [events.run.record.id]
    assert all(line["x"] == pytest.approx([number / 10 for number in range(41)]) for line in lines.values())
    assert max(lines["ingress-nginx"]["y"]) < 1
    waits = [round(delay / 100) for delay in lines["haproxy"]["y"]]
    assert waits[:9] == [2, 1, 0, 2, 1, 0, 2, 1, 0]
    assert not drawn(exhibits.event_delays(Missing("nothing"), "T"))["data"]
    steady = evidence.shelf().of("quick", variant="keepalive")
    assert "no streams of events" in str(drawn(exhibits.event_delays(steady, "T"))["layout"])
