"""What boom printed: the published outputs, and a run's samples in the same form, each beside the other as ratios of its own."""

from __future__ import annotations

import numpy as np
import pytest

from lab.analysis.cells import counted_samples
from lab.analysis.claims.evidence import Evidence, Missing
from lab.report.exhibits import boom, exhibits
from lab.report.html import markdown
from lab.stats.histogram import Histogram
from lab.tests.support.factories import make_plan, make_point
from lab.tests.support.made_runs import MadeStore, made

LAST, OLDER = 800, 500
POINT = make_point("hey-c800", generator="hey", connections=LAST, rate_rps=None)


def run_of(latencies_s: list[float], blocks: int = 6) -> Evidence:
    """Every sample answered a thousand requests in half a second, in these times over and over."""
    planned = make_plan([("nds-replicas-2", "baseline")], [POINT], blocks=blocks)
    told = {"requests": 1000, "achieved_rps": 2000.0, "duration_s": 0.5, "histogram": "exact", "errors": {}}
    store = made(planned=planned, change=lambda _, sample: sample.model_copy(update=told))
    whole = Histogram.of_values(np.resize(latencies_s, 1000))
    samples = tuple(store.samples())
    alike = MadeStore(store.record, samples, {sample.id: whole for sample in samples})
    return Evidence("made", alike, samples, counted_samples(samples))


def test_the_published_outputs_are_of_their_own() -> None:
    """Times against their average, the rate by Little's law, answers against requests."""
    found = boom.outputs()
    levels = found[LAST].levels
    assert levels["Slowest (ms)"] == (pytest.approx(3016.2), pytest.approx(3.0162 / 0.1335))
    assert levels["requests/s"] == (pytest.approx(2332.0068), pytest.approx(2332.0068 * 0.1335 / 800))
    assert found[OLDER].levels["answered 200"] == (745, 0.745)
    assert [sum(count for _, count in found[load].buckets) for load in (LAST, OLDER)] == [8000, 745]


def test_a_sample_is_printed_as_boom_prints() -> None:
    """Ten steps of the same width from the fastest to the slowest, after the fastest itself."""
    output = boom.measured(run_of([0.001 * ms for ms in range(1, 101)]), "baseline", LAST)[1]
    assert output.times_s["Total"] == 0.5
    assert (output.times_s["Fastest"], output.times_s["Slowest"]) == (pytest.approx(1e-3), pytest.approx(0.1, rel=1e-3))
    assert output.times_s["Average"] == pytest.approx(0.0505, rel=1e-2)
    assert output.times_s["50 %"] == pytest.approx(0.05, rel=1e-2)
    assert output.shares == pytest.approx([0.01, *[0.1] * 9, 0.09], abs=0.011)
    assert output.levels["answered 200"] == (1000, 1)


def test_both_stand_in_one_table() -> None:
    """Each line with what it is of its own output, ours with the blocks' interval."""
    told = exhibits.printed(run_of([0.01, 0.03]), "baseline", LAST)
    line = next(line for line in told.splitlines() if line.startswith("| Slowest"))
    assert line.startswith("| Slowest (ms) | 3,016 | 22.6 | 30")
    assert line.endswith("| 1.5 [1.5, 1.5] |")
    assert "run-1 (made)" in told
    assert markdown.gaps(told) == 0


def test_without_a_run_or_its_load_the_published_output_stands_with_a_gap() -> None:
    """One that is counted; the other output has no load in this run."""
    for told in (
        exhibits.printed(Missing("nothing of nds: just bench baseline --sweep nds"), "baseline", LAST),
        exhibits.printed(run_of([0.01]), "baseline", OLDER),
        exhibits.printed(run_of([0.01]), "nds-replicas-4", LAST),
    ):
        assert "| Average (ms) | " in told
        assert markdown.gaps(told) == 1


@pytest.mark.parametrize(("metric", "at_s"), [("mean_s", 0.1335), ("p50", 0.0305), ("p75_s", 0.0554), ("p99", 1.0767)])
def test_its_numbers_are_points_of_a_figure(metric: str, at_s: float) -> None:
    """By the names that our metrics have; p99.9 it did not print."""
    assert [told.value for load, told in boom.points(metric) if load == LAST] == [at_s]
    assert boom.points("p99.9") == []
