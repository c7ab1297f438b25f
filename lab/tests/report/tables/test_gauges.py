"""What the arms of a run hold, under its table: medians, how many times the baseline's, and nothing where nothing is known."""

from __future__ import annotations

from collections.abc import Mapping

from lab.analysis.judge.effects import Asked
from lab.analysis.summary import Summary, summarise
from lab.model.plan import Slot
from lab.model.samples import Sample
from lab.model.usage import Usage
from lab.report.markdown import markdown
from lab.report.tables import gauges as gauge_tables
from lab.studies.results import RESULT
from lab.tests.support.factories import make_plan, make_run
from lab.tests.support.golden import print_page

MANY, FEW = ("okd-routes-1000", "okd")


def summary_of(gauges: Mapping[str, Mapping[str, float]], opened: Mapping[str, float] | None = None) -> Summary:
    """Block 1 of the many routes takes longer than the others do; the memory differs by the point.

    `opened`: variant → upstream connections per good answer.
    """

    def change(slot: Slot, sample: Sample) -> Sample:
        told = dict(gauges.get(slot.arm.variant, {}))
        if slot.block == 1 and slot.arm.variant == MANY and "proxy/load_s" in told:
            told["proxy/load_s"] = 9.0
        rss = 40_000_000 if slot.point.rate_rps is None else 30_000_000
        share = (opened or {}).get(slot.arm.variant, 0.0)
        counters = {"proxy/ActiveOpens": round((sample.requests or 0) * share)} if opened else {}
        return sample.model_copy(
            update={
                "counters": sample.counters | counters,
                "gauges": told,
                "usage": {"proxy": Usage(cpu_s=1.0, rss_bytes=rss, processes=2)},
            }
        )

    samples, histograms = make_run(make_plan(((MANY, FEW),), blocks=7), change=change)
    return summarise(
        make_plan(((MANY, FEW),), blocks=7),
        samples,
        lambda sample: histograms.get(sample.id),
        Asked({MANY: "cpu_per_request"}),
    )


BOTH = {
    FEW: {"proxy/config_bytes": 61_200.0, "proxy/load_s": 0.042},
    MANY: {"proxy/config_bytes": 612_000.0, "proxy/load_s": 0.303},
}


def printed(summary: Summary) -> str:
    return print_page(gauge_tables.page(summary), 100)


def test_configuration_loading_and_memory_stand_in_one_line_per_arm() -> None:
    lines = printed(summary_of(BOTH)).splitlines()
    assert lines[0] == "" and lines[1].split() == ["what", "it", "holds", "configuration", "loaded", "in", "memory"]
    assert [line.split()[0] for line in lines[2:]] == [FEW, f"{FEW}-again", MANY]  # the direct reference has no gauges
    assert lines[2].split()[1:] == ["61.2", "kB", "42.0", "ms", "40.0", "MB"]
    assert lines[4].split()[1:] == ["612", "kB", "×10.00", "303", "ms", "×7.21", "40.0", "MB", "×1.00"]


def test_upstream_connections_stand_there_once_some_arm_opens_many() -> None:
    """One for more than every hundredth answer."""
    few = printed(summary_of(BOTH, {FEW: 0.001, MANY: 0.002})).splitlines()
    assert "opened" not in few[1]
    many = printed(summary_of(BOTH, {FEW: 0.01, MANY: 0.95})).splitlines()
    assert many[1].split()[-4:] == ["opened", "per", "answer", "memory"]
    assert many[4].split()[-7:-3] == ["0.95", "[0.95,", "0.95]", "×95.00"]


def test_what_is_not_known_is_left_out() -> None:
    assert printed(summary_of({})) == "" and markdown(gauge_tables.page(summary_of({}))) == ""
    only = summary_of({MANY: {"proxy/config_bytes": 612_000.0}})
    counted = printed(summary_of({FEW: {"proxy/workers": 1.0}, MANY: {"proxy/workers": 4.0}})).splitlines()
    assert counted[1].split() == ["what", "it", "holds", "workers", "memory"] and counted[4].split()[1] == "4"
    assert [line.split() for line in printed(only).splitlines()[1:]] == [
        ["what", "it", "holds", "configuration", "memory"],
        [MANY, "612", "kB", "40.0", "MB"],
    ]


def test_the_same_stands_in_markdown_and_in_json() -> None:
    summary = summary_of(BOTH)
    text = markdown(gauge_tables.page(summary))
    assert text.splitlines()[:2] == [
        "| what it holds | configuration | loaded in | memory |",
        "| :-- | --: | --: | --: |",
    ]
    row = next(row for row in RESULT.plain(summary)["rows"] if (row["arm"], row["point"]) == (MANY, "rate-1000"))
    assert row["gauges"] == BOTH[MANY] and row["memory_bytes"] == 30_000_000
