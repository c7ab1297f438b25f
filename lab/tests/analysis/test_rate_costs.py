"""Idle and marginal costs: known answers, pairs and solo samples, and how often the intervals cover the truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lab.analysis.explain.conclusion import conclude_run
from lab.analysis.rate_costs import RateCost, compute_rate_costs
from lab.analysis.summary import summarise_run
from lab.model.design import find_solo_places
from lab.model.plan import Plan, Slot
from lab.model.samples import Sample
from lab.model.usage import Usage
from lab.report.tables.gauges import rate_costs_page
from lab.stats import paired as stats
from lab.tests.report.tables.test_run import summary_of
from lab.tests.support.factories import costing, make_plan, make_point
from lab.tests.support.golden import print_page
from lab.tests.support.made_runs import made, made_record, paired_plan, with_variant

RATES = (200.0, 1500.0)
IDLE, MARGINAL = 0.02, 40e-6
"""In CPU cores, and in CPU seconds per request."""


def planned(**fields: Any) -> Plan:
    points = [make_point(f"rate-{rate:g}", rate_rps=rate, duration_s=4.0) for rate in RATES]
    return make_plan(points=points, blocks=8, reference=None, **fields)


def using(idle: float = IDLE, marginal: float = MARGINAL, noise: float = 0.0, seed: int = 1) -> Any:
    """Every sample uses that much CPU time; the variant 50 mCPU and 8 µs more."""
    rng = np.random.default_rng(seed)

    def change(slot: Slot, sample: Sample) -> Sample:
        more = (0.05, 8e-6) if slot.arm.role == "variant" else (0.0, 0.0)
        cores = idle + more[0] + (marginal + more[1]) * (sample.achieved_rps or 0.0)
        cpu_s = cores * sample.point.duration_s * float(np.exp(noise * rng.standard_normal()))
        usage = {"proxy": Usage(cpu_s=cpu_s, rss_bytes=1, processes=1)}
        return sample.model_copy(update={"usage": usage})

    return change


def costs_of(**fields: Any) -> dict[str, RateCost]:
    summary = summary_of(planned(), {"keepalive": "cpu_per_request"}, change=using(**fields))
    return {cost.arm: cost for cost in compute_rate_costs(summary)}


def test_both_costs_and_their_differences_are_what_was_put_in() -> None:
    costs = costs_of()
    base, own = costs["baseline"], costs["keepalive"]
    assert (base.idle.effect, base.marginal.effect) == pytest.approx((IDLE, MARGINAL), rel=2e-3)
    assert base.idle_change is None and base.against == "" and base.rates == RATES
    assert own.idle_change is not None and own.marginal_change is not None and own.against == "baseline"
    assert (own.idle_change.effect, own.marginal_change.effect) == pytest.approx((0.05, 8e-6), rel=2e-3)
    assert base.even_rate == pytest.approx(IDLE / MARGINAL, rel=5e-3)
    text = print_page(rate_costs_page([*costs.values()]))
    assert "against baseline" in text and "+50 mCPU" in text and "+8 µs" in text
    assert "from 200 and 1,500 req/s" in text and max(map(len, text.splitlines())) <= 110


@pytest.mark.parametrize("shared", [True, False])
def test_where_solo_samples_decide_the_differences_are_theirs_and_have_an_interval(shared: bool) -> None:
    """A knob with a shared cost has pairs in three blocks, which give no interval; pairs here use half of what solo samples do."""
    run = planned()
    solo = find_solo_places(run.arms, run.points, {"keepalive": (shared, "cpu_per_request")})

    def halved(slot: Slot, sample: Sample) -> Sample:
        sample = using()(slot, sample)
        return sample.model_copy(update=costing(0.5)(sample)) if slot.other else sample

    store = with_variant(made("run-1", planned=paired_plan(run.points, 8, solo), change=halved), shared_cost=shared)
    costs = {
        cost.arm: cost for cost in compute_rate_costs(summarise_run(store.record, store.samples(), store.histogram))
    }
    own = costs["keepalive"]
    assert own.idle_change is not None and own.idle_change.has_interval and own.idle_change.n == 8
    assert own.marginal_change is not None and own.marginal_change.has_interval
    expected = (0.05, 8e-6) if shared else (0.025, 4e-6)
    assert (own.idle_change.effect, own.marginal_change.effect) == pytest.approx(expected, rel=2e-3)


def test_the_verdict_says_at_which_rates_each_difference_matters() -> None:
    run = planned()
    summary = summary_of(run, {"keepalive": "cpu_per_request"}, change=using())
    lines = [line for line, _ in conclude_run(summary, made_record("run-1", run))]
    (line,) = [line for line in lines if "idle cost" in line]
    assert "idle cost +50 mCPU [" in line and "each further request +8 µs [" in line
    assert line.endswith("; the first matters below some 500 req/s, the second above")


def test_one_rate_or_two_close_ones_or_different_loads_say_nothing_about_rest() -> None:
    for points in (
        [make_point(rate_rps=1000.0)],
        [make_point("a", rate_rps=1000.0), make_point("b", rate_rps=1900.0)],
        [make_point("a", rate_rps=200.0), make_point("b", rate_rps=1000.0, connections=7)],
        [make_point("ceiling", rate_rps=None), make_point("b", rate_rps=1000.0)],
    ):
        assert compute_rate_costs(summary_of(make_plan(points=points))) == []
    assert rate_costs_page([]) == []


@pytest.mark.parametrize("noise", [0.01, 0.04])
def test_intervals_cover_the_true_difference_as_often_as_they_promise(noise: float) -> None:
    """10,000 runs of eight blocks, with noise of one sample as the committed pairs have it at 1,000 req/s and four times that."""
    rng = np.random.default_rng(42)
    (low, high), runs, blocks = RATES, 10_000, 8
    cores = np.array(
        [[IDLE + MARGINAL * rate for rate in RATES], [IDLE + 0.05 + (MARGINAL + 8e-6) * rate for rate in RATES]]
    )
    measured = cores[:, :, None, None] * np.exp(noise * rng.standard_normal((2, 2, runs, blocks)))
    marginal = (measured[:, 1] - measured[:, 0]) / (high - low)
    idle = measured[:, 0] - marginal * low
    for values, truth in ((idle, 0.05), (marginal, 8e-6)):
        differences = values[1] - values[0]
        half = stats.compute_t_quantile(blocks) * differences.std(axis=1, ddof=1) / np.sqrt(blocks)
        middle = differences.mean(axis=1)
        first = stats.estimate_difference(values[1, 0], values[0, 0])
        assert (first.low, first.high) == pytest.approx((middle[0] - half[0], middle[0] + half[0])), (
            "as the lab computes it"
        )
        assert 0.94 <= np.mean(np.abs(middle - truth) <= half) <= 0.96
