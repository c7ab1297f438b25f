"""The catalogue of metrics: every entry can be read, shown and looked up, and what is derived from it follows it."""

from __future__ import annotations

import pytest

from lab.analysis.evidence import LOGS
from lab.model.metrics import (
    COLUMNS,
    DIFFERENCES,
    METRICS,
    OUTCOME_OF_METRIC,
    QUANTILES,
    RATIOS,
    find_metric,
    list_compared_metrics,
)
from lab.tests.support.factories import make_point


def test_every_metric_is_read_off_something() -> None:
    """Off the sample, its histogram, its outcome, its gauges (`role/name`), or its logs."""
    for name, metric in METRICS.items():
        sources = [metric.sample, metric.histogram, metric.kind == "difference", "/" in name, name in LOGS]
        assert sum(map(bool, sources)) == 1, name


def test_arms_are_compared_by_ratio_at_steady_loads_and_by_difference_beside_a_disturbance() -> None:
    assert list_compared_metrics(make_point()) == ("rate", "cpu_per_request", *QUANTILES)
    assert (
        list_compared_metrics(make_point(transfer="download"))
        == RATIOS
        == ("rate", "throughput", "cpu_per_request", *QUANTILES)
    )
    assert {name for name in RATIOS if METRICS[name].primary} == {"rate", "throughput", "cpu_per_request", *QUANTILES}
    assert set(OUTCOME_OF_METRIC.values()) <= set(DIFFERENCES)


def test_columns_stand_in_their_places_and_what_is_not_in_the_catalogue_is_called_by_its_own_name() -> None:
    assert COLUMNS == ("rate", "p50", "p90", "p99", "p99.9", "slowest_s", "errors", "cpu_per_request")
    assert (find_metric("proxy/threads").title, find_metric("proxy/threads").unit) == ("proxy/threads", "")


@pytest.mark.parametrize(
    ("name", "value", "text", "size", "change", "ends"),
    [
        ("rate", 12_345.6, "12,346", "5.1 %", "+5.1 %", " [−4.9, +5.1]"),
        ("p99", 0.00361, "3.61", "5.1 %", "+5.1 %", " [−4.9, +5.1]"),
        ("cpu_per_request", 21e-6, "21.0", "5.1 %", "+5.1 %", " [−4.9, +5.1]"),
        ("gap_s", 29.81, "29.8", "0.05 s", "+0.05 s", " [−0.05, +0.05]"),
        ("gap_s", 0.0, "0", "0.05 s", "+0.05 s", " [−0.05, +0.05]"),
        ("gap_s", 2.0, "2.00", "0.05 s", "+0.05 s", " [−0.05, +0.05]"),
        ("gap_s", 129.8, "130", "0.05 s", "+0.05 s", " [−0.05, +0.05]"),
    ],
)
def test_numbers_and_effects_read_as_their_kind_has_it(
    name: str, value: float, text: str, size: str, change: str, ends: str
) -> None:
    metric = METRICS[name]
    assert metric.text(value) == text
    assert (metric.size(0.05), metric.change(0.05), metric.ends(-0.05, 0.05)) == (size, change, ends)
    assert metric.ends(None, None) == ""
    failed = METRICS["failed"]
    assert [failed.text(value) for value in (0.0, 3.5, 2981.0, None)] == ["0", "3.5", "2,981", "–"]
    assert [failed.text(value, signed=True) for value in (-12.0, 0.0, 7.0)] == ["−12", "0", "+7"]
    assert METRICS["p99_during_s"].with_unit(0.01234) == "12.3 ms"
    assert METRICS["rss_bytes"].with_unit(48.2e6) == "48.2 MB"


@pytest.mark.parametrize(
    ("level", "effect", "text"),
    [
        (16.7e-6, -0.2231, " = −3.3 µs"),
        (16.7e-6, 0.0134, " = +0.23 µs"),
        (16.7e-6, 1.2478, " = +41.5 µs"),
        (16.7e-6, 1e-5, " = 0 µs"),
        (2.5e-3, 1.0986, " = +5,000 µs"),
        (None, 0.5, ""),
    ],
)
def test_an_effect_on_a_cost_is_a_time_at_the_level_of_what_it_is_compared_with(
    level: float | None, effect: float, text: str
) -> None:
    assert METRICS["cpu_per_request"].time(effect, level) == text
    assert METRICS["p99"].time(effect, level) == METRICS["gap_s"].time(effect, level) == ""
