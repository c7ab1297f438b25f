"""The explorer's parts: which run is looked at, what is said of it, and its variants side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.analysis.evidence import Evidence, Missing
from lab.stats.paired import MIN_BLOCKS
from lab.studies.exhibits import exhibits, exploring
from lab.tests.support.committed import nds_story, run_of
from lab.tests.support.golden import drawn

pytestmark = pytest.mark.committed

STEADY = "quick-keepalive"


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No run of one's own, and those that are committed."""
    monkeypatch.delenv("LAB_REFERENCE", raising=False)
    monkeypatch.setenv("LAB_RUNS", str(tmp_path))
    return tmp_path


def disturbed(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    pairs = [("grace-period-30+host-port", "ingress-nginx+grace-period-30")]
    run_of(folder, monkeypatch, "kill", pairs, nds_story, 1, name, points=["held"])


def named(run: exhibits.Run) -> str:
    return run.name if isinstance(run, Evidence) else run.said


@pytest.mark.slow
def test_the_newest_of_ones_own_comes_first(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its state: one without a valid sample is shown as such, a damaged one is a gap."""
    disturbed(own, monkeypatch, "20260101-a")
    disturbed(own, monkeypatch, "20260102-b")
    for path in (own / "20260102-b" / "samples").glob("*/sample.json"):
        path.write_text(path.read_text().replace('"verdict": "valid"', '"verdict": "invalid"'))
    newest = exploring.picked()
    assert named(newest) == "20260102-b"
    assert " samples invalid" in exploring.overview(newest)
    assert exhibits.table(newest, exploring.metrics(newest)).startswith("*nothing to show: ")
    (own / "20260103-c").mkdir()
    (own / "20260103-c" / "run.json").write_text("{")
    assert exploring.overview(exploring.picked()).startswith("*no run: 20260103-c: damaged: ")
    assert named(exploring.picked("20260101-a")) == "20260101-a"
    assert named(exploring.picked(str(own / "20260101-a"))) == "20260101-a"


def test_without_any_a_committed_one_that_has_intervals() -> None:
    """And something to compare. Of a run by name percentiles are drawn; there is no timeline, and why is said."""
    picked = exploring.picked()
    assert isinstance(picked, Evidence) and picked.run.record.blocks >= MIN_BLOCKS
    assert any(arm.role == "variant" for arm in picked.run.record.arms)
    run = exploring.picked(STEADY)
    assert named(run) == STEADY
    assert len(drawn(exhibits.tails(run, "T", "ceiling", ["keepalive"]))["data"]) == 1
    assert "steady loads alone" in str(drawn(exhibits.timeline(run, "T", "keepalive")))
    table = exhibits.table(run, ["rate"], "ceiling", ["keepalive"])
    assert "keepalive at ceiling" in table and "ingress-nginx" not in table.replace(STEADY, "")


def test_without_any_at_all_it_says_so(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every part, and no figure stops."""
    monkeypatch.setenv("LAB_REFERENCE", str(own))
    run = exploring.picked()
    for text in (exploring.overview(run), exploring.compared(run), exhibits.table(run, exploring.metrics(run))):
        assert text.startswith("*no run: nothing in data/reference of any sweep")
    assert isinstance(run, Missing) and exploring.variants(run)
    monkeypatch.setenv("LAB_RUNS", str(own / "none"))
    (own / "broken").mkdir()
    (own / "broken" / "run.json").write_text("{")
    assert "; broken is damaged: " in named(exploring.picked())
    assert "unknown run" in named(exploring.picked("none"))


def test_the_overview_has_arms_loads_and_machine_and_metrics_are_those_of_the_run(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = exploring.picked(STEADY)
    text = exploring.overview(run)
    assert "| keepalive | longer-lived client connections, shorter-lived upstream ones | ingress-nginx |" in text
    assert "| ceiling | 64 connections, closed loop, 5 s, 1kB.bin | wrk " in text and "| cpu | Intel" in text
    assert "cpu_per_request" in exploring.metrics(run)
    disturbed(own, monkeypatch, "20260101-a")
    newest = exploring.picked()
    assert "| held |" in exploring.overview(newest) and "gap_s" in exploring.metrics(newest)


def test_variants_are_compared_with_their_baselines() -> None:
    """Only those points, metrics and variants that are asked for; a second run beside it. Looking at one row makes it no surer, and changes no advice."""
    run = exploring.picked(STEADY)
    text = exploring.compared(run, metrics=["rate"], point="ceil*")
    assert "| keepalive against ingress-nginx | rate (req/s) |" in text
    assert "**rate-1000**" not in text and "p99 (ms)" not in text
    assert exploring.compared(run, only=["direct"]).startswith("*nothing to compare: ")
    assert exploring.compared(run, other=STEADY).startswith("*nothing to compare: ")
    assert exploring.compared(run, other="none").startswith("*no run: ")
    whole, part = (exploring.compared(run, metrics=metrics).splitlines() for metrics in ((), ["p90"]))
    rows = [line for line in part if line.startswith("| keepalive")]
    same = [line.rpartition(" | ")[0] for line in whole if "| p90 (ms) |" in line]
    assert [row.rpartition(" | ")[0] for row in rows] == same and part[-1] == whole[-1]
    assert any("Holm-adjusted over 2 and 3 comparisons" in line and line in whole for line in part)
