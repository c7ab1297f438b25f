"""What the method catches, by simulation: carry-over, two clusters and missing samples (drift: `test_steadiness.py`); and what it flags.

A simulated run has four arms at two closed loops and one rate, in the order that the plan gives them, in twelve blocks. The noise of each
arm, point and metric is drawn anew: its coefficient of variation from the 10, 50 and 90 % quantiles of the committed arms. Every day a
tenth of the runs is simulated, in the long lane all.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from math import ceil
from typing import Any

import numpy as np
import pytest

from lab.analysis.aggregate.cells import build_cells
from lab.analysis.aggregate.order import ALPHA, METRICS_TESTED, find_missing_by_order, run_order_tests
from lab.model.plan import Plan, Slot
from lab.model.samples import Reason, Sample
from lab.model.usage import Usage
from lab.stats.groups import find_two_clusters
from lab.stats.histogram import Histogram
from lab.tests.support.factories import make_plan, make_point, make_sample, of_slot

BLOCKS = 12
CAUGHT, RUNS = 270, 300
FLAGGED, ORDINARY = 10, 1000
CV = {
    ("closed", "rate"): (0.03, 0.07, 0.15),
    ("closed", "cpu_per_request"): (0.03, 0.07, 0.15),
    ("closed", "p99"): (0.04, 0.11, 0.27),
    ("given", "cpu_per_request"): (0.06, 0.14, 0.20),
    ("given", "p99"): (0.16, 0.34, 0.56),
}
"""Quantiles (10, 50, 90 %) of the committed solo arms' coefficients of variation between blocks (review of the method, section 4)."""
UNRELATED = 0.01
"""Share of samples that are invalid for a reason that has nothing to do with the order."""
POINTS = [make_point("ceiling", rate_rps=None), make_point("close", rate_rps=None), make_point("rate-1000")]
Change = Callable[[Slot, str, float], float]
"""(slot, point before it or empty, value of the arm's cost) → the cost as it is measured."""


def simulated_plan(seed: int) -> Plan:
    return make_plan([("keepalive", "baseline"), ("backlog", "baseline")], POINTS, BLOCKS, seed, reference=None)


def simulated_run(
    plan: Plan,
    lots: np.random.Generator,
    cost: Change = lambda _slot, _before, value: value,
    missing: Callable[[Slot, str], bool] = lambda _slot, _before: False,
) -> tuple[list[Sample], dict[str, float]]:
    """Every sample of the plan, and sample id → p99 in seconds. `cost`: factor on what a request costs; `missing`: who is invalid."""
    spread: dict[tuple[str, str, str], float] = {}
    samples: list[Sample] = []
    p99: dict[str, float] = {}
    began, last = datetime(2026, 11, 21, tzinfo=UTC), None
    for slot in plan.slots:
        before = last.point.name if last is not None and last.bring_up == slot.bring_up else ""
        kind = "closed" if slot.point.rate_rps is None else "given"
        noise: dict[str, float] = {}
        for metric in METRICS_TESTED:
            if (kind, metric) in CV:
                low, middle, high = CV[kind, metric]
                where = slot.arm.name, slot.point.name, metric
                drawn = float(middle * np.exp(lots.normal() * np.log(high / low) / 2.563))
                noise[metric] = float(np.exp(lots.normal() * spread.setdefault(where, drawn)))
        factor = cost(slot, before, 1.0)
        rate = slot.point.rate_rps or 20_000.0 / factor * noise["rate"]
        requests = round(rate * slot.point.duration_s)
        usage = {"proxy": Usage(cpu_s=25e-6 * factor * noise["cpu_per_request"] * requests, rss_bytes=1, processes=1)}
        bad = missing(slot, before) or lots.random() < UNRELATED
        made = of_slot(slot) | {"started_at": began.isoformat(), "achieved_rps": rate, "requests": requests}
        samples.append(make_sample(**made, usage=usage, reason=Reason.DROPPED if bad else None))
        p99[samples[-1].id] = 1e-3 * factor * noise["p99"]
        began, last = began + timedelta(seconds=8), slot
    return samples, p99


@cache
def histogram(step: int) -> Histogram:
    """A histogram whose p99 is 1.02^step ms: noise is far coarser than that."""
    return Histogram.of_values(np.full(1200, 1e-3 * 1.02**step))


def flags(plan: Plan, made: tuple[list[Sample], dict[str, float]]) -> set[str]:
    """What the method says of a run: `order`, `missing`, `bimodal`."""
    samples, p99 = made

    def histogram_of(sample: Sample) -> Histogram:
        return histogram(round(float(np.log(p99[sample.id] / 1e-3) / np.log(1.02))))

    cells = build_cells(plan, samples, histogram_of)
    found = {"order"} if any(one.holm_p <= ALPHA for one in run_order_tests(cells, samples)) else set[str]()
    found |= {"missing"} if find_missing_by_order(samples) else set()
    values = [cell.known(metric) for cell in cells.cells.values() for metric in METRICS_TESTED]
    return found | ({"bimodal"} if any(find_two_clusters([*known.values()]) for known in values) else set())


def carry_over(slot: Slot, before: str, value: float) -> float:
    """One arm gets half as many answers after the ceiling."""
    return value * (2.0 if slot.arm.name == "keepalive" and before == "ceiling" else 1.0)


def bimodal(seed: int) -> Change:
    """One arm costs three to fifty times as much in half of its blocks, drawn by lot, at one point."""
    lots = random.Random(seed)
    factor, dear = lots.choice((3.0, 10.0, 50.0)), set(lots.sample(range(1, BLOCKS + 1), BLOCKS // 2))
    return lambda slot, _before, value: (
        value * (factor if (slot.arm.name, slot.point.name) == ("keepalive", "close") and slot.block in dear else 1.0)
    )


def missing_by_order(slot: Slot, before: str) -> bool:
    """Two arms serve no given rate after the closed loop with few connections."""
    return slot.arm.name != "backlog" and slot.point.name == "rate-1000" and before == "close"


def count(runs: int, kind: str) -> Counter[str]:
    """Flags of so many simulated runs of a kind."""
    found: Counter[str] = Counter()
    for seed in range(runs):
        changes: dict[str, dict[str, Any]] = {
            "carry-over": {"cost": carry_over},
            "bimodal": {"cost": bimodal(seed)},
            "missing": {"missing": missing_by_order},
        }
        plan = simulated_plan(seed)
        flagged = flags(plan, simulated_run(plan, np.random.default_rng(seed), **changes.get(kind, {})))
        found.update(flagged | ({"any"} if flagged else set[str]()))
    return found


CATCHES = {"carry-over": "order", "bimodal": "bimodal", "missing": "missing"}
SHARES = [pytest.param(10, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.long)]
"""A tenth of the runs, or all of them."""


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("kind", CATCHES)
def test_of_300_simulated_runs_of_a_kind_at_least_270_are_caught(kind: str, share: int) -> None:
    assert count(RUNS // share, kind)[CATCHES[kind]] >= CAUGHT // share


@pytest.mark.parametrize("share", SHARES)
def test_of_1000_ordinary_runs_at_most_10_are_flagged_by_anything(share: int) -> None:
    found = count(ORDINARY // share, "ordinary")
    assert found["any"] <= ceil(FLAGGED / share) + (share > 1), found
