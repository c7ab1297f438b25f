"""What stands below a run's table: what its arms hold, levels of scatter, and what a move costs, with its traps."""

from __future__ import annotations

import io
from collections.abc import Mapping

import pytest

from lab.analysis.judge.effects import RunQuestions
from lab.analysis.summary import Summary, summarise
from lab.base.errors import UsageError
from lab.model.plan import Slot
from lab.model.samples import Sample
from lab.model.usage import Usage
from lab.records.levels import SystemComponents
from lab.report.export.tables import write, yield_tables
from lab.report.markdown import render_markdown
from lab.report.result import RunResult
from lab.report.tables import gauges as gauge_tables
from lab.report.terminal import render_terminal
from lab.studies.results import RESULT, make_result_json
from lab.tests.analysis.test_generations import known, planned
from lab.tests.support.factories import make_plan, make_run
from lab.tests.support.golden import print_page
from lab.tests.support.made_runs import made

MANY, FEW = "okd-routes-1000", "okd"
BOTH = {
    FEW: {"proxy/config_bytes": 61_200.0, "proxy/load_s": 0.042},
    MANY: {"proxy/config_bytes": 612_000.0, "proxy/load_s": 0.303},
}


def summary_of(gauges: Mapping[str, Mapping[str, float]], opened: Mapping[str, float] | None = None) -> Summary:
    """Block 1 of the many routes takes longer than the others do; the memory differs by the point.

    `opened`: variant → upstream connections per good answer.
    """

    def change(slot: Slot, sample: Sample) -> Sample:
        told = dict(gauges.get(slot.arm.variant, {}))
        if slot.block == 1 and slot.arm.variant == MANY and "proxy/load_s" in told:
            told["proxy/load_s"] = 9.0
        rss = 40_000_000 if slot.point.rate_rps is None else 30_000_000
        counters = dict(sample.counters)
        if opened:
            counters["proxy/ActiveOpens"] = round((sample.requests or 0) * opened.get(slot.arm.variant, 0.0))
        used = {"proxy": Usage(cpu_s=1.0, rss_bytes=rss, processes=2)}
        return sample.model_copy(update={"counters": counters, "gauges": told, "usage": used})

    run = make_plan(((MANY, FEW),), blocks=7)
    samples, histograms = make_run(run, change=change)
    return summarise(run, samples, lambda sample: histograms.get(sample.id), RunQuestions({MANY: "cpu_per_request"}))


def printed(summary: Summary) -> str:
    return print_page(gauge_tables.gauges_page(summary), 100)


def test_what_is_known_of_each_arm_stands_in_one_line() -> None:
    """Connections once one is opened for more than every hundredth answer."""
    summary = summary_of(BOTH)
    lines = printed(summary).splitlines()
    assert lines[0] == "" and lines[1].split() == ["what", "it", "holds", "configuration", "loaded", "in", "memory"]
    assert [line.split()[0] for line in lines[2:]] == [FEW, f"{FEW}-again", MANY]  # the direct reference has no gauges
    assert lines[2].split()[1:] == ["61.2", "kB", "42.0", "ms", "40.0", "MB"]
    assert lines[4].split()[1:] == ["612", "kB", "×10.00", "303", "ms", "×7.21", "40.0", "MB", "×1.00"]
    text = render_markdown(gauge_tables.gauges_page(summary)).splitlines()
    assert text[:2] == ["| what it holds | configuration | loaded in | memory |", "| :-- | --: | --: | --: |"]
    row = next(row for row in RESULT.plain(summary)["rows"] if (row["arm"], row["point"]) == (MANY, "rate-1000"))
    assert row["gauges"] == BOTH[MANY] and row["memory_bytes"] == 30_000_000
    few = printed(summary_of(BOTH, {FEW: 0.001, MANY: 0.002})).splitlines()
    assert "opened" not in few[1]
    many = printed(summary_of(BOTH, {FEW: 0.01, MANY: 0.95})).splitlines()
    assert many[1].split()[-4:] == ["opened", "per", "answer", "memory"]
    assert many[4].split()[-7:-3] == ["0.95", "[0.95,", "0.95]", "×95.00"]
    assert printed(summary_of({})) == "" and render_markdown(gauge_tables.gauges_page(summary_of({}))) == ""
    counted = printed(summary_of({FEW: {"proxy/workers": 1.0}, MANY: {"proxy/workers": 4.0}})).splitlines()
    assert counted[1].split() == ["what", "it", "holds", "workers", "memory"] and counted[4].split()[1] == "4"
    head, only = printed(summary_of({MANY: {"proxy/config_bytes": 612_000.0}})).splitlines()[1:]
    assert head.split() == ["what", "it", "holds", "configuration", "memory"]
    assert only.split() == [MANY, "612", "kB", "40.0", "MB"]


def test_levels_of_scatter_are_named_with_every_generation_and_exported() -> None:
    run = made(planned=planned(), change=known)
    text = "\n".join(line.plain for line in render_terminal(gauge_tables.variance_page(RunResult(run).levels), 160))
    assert "levels of scatter" in text and "2 × 2" in text and "1.0 % [" in text
    told = make_result_json(RunResult(run))["levels"][0]
    assert [len(each["log_ratios"]) for each in told["generations"]] == [2, 2, 2, 2] and told["bring_up"]["sd"] == 0
    (frame,), line = yield_tables(run, "levels", run.samples()), io.BytesIO()
    write([frame], "json", line)
    one = SystemComponents.model_validate_json(line.getvalue())
    assert (one.variant, one.target, one.scheme) == ("baseline", "local", "slices")
    assert (one.bring_ups, one.generations) == (2, 2)
    assert one.repeat == pytest.approx(0.01) and one.bring_up == 0
    with pytest.raises(UsageError, match="has no variance components"):
        list(yield_tables(made(), "levels", made().samples()))
    assert gauge_tables.variance_page(RunResult(made()).levels) == [] and "levels" not in make_result_json(
        RunResult(made())
    )
