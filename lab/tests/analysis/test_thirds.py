"""Effects within a sustained sample: by thirds, and what a verdict makes of one that holds only at first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log

import polars as pl
import pytest

from lab.analysis.comparison.comparison import compare_runs
from lab.analysis.explain.run import make_verdicts
from lab.analysis.judge.decision import Decision
from lab.analysis.judge.thirds import (
    STAND_IN,
    RunningTotals,
    compute_thirds,
    lasting_change,
    read_running_totals,
)
from lab.analysis.summary import summarise_run
from lab.model.plan import Slot
from lab.model.samples import Sample
from lab.model.steadiness import Change, Steadiness
from lab.model.usage import USAGE_SCHEMA
from lab.records.steadiness import judge_unjudged
from lab.tests.support.factories import make_plan, make_point, make_sample
from lab.tests.support.made_runs import made, with_variant

LENGTH_S = 180
POINT = make_point("ceiling", rate_rps=None).for_minutes()


def usage(proxy: Sequence[float], backend: Sequence[float]) -> pl.DataFrame:
    """One process each, which used so many CPU seconds in each second."""
    rows = [
        {"t_s": float(at), "role": role, "pid": pid, "cpu_s": sum(used[:at])}
        for role, pid, used in (("proxy", 7, proxy), ("backend", 8, backend))
        for at in range(len(used) + 1)
    ]
    return pl.DataFrame(rows).select(
        (pl.col(name) if name in rows[0] else pl.lit(None)).cast(kind).alias(name)
        for name, kind in USAGE_SCHEMA.items()
    )


def test_the_bytes_that_the_backend_sent_stand_for_the_requests_of_each_third_or_its_cpu_time() -> None:
    by_cpu = usage([0.5] * 9, [0.4] * 3 + [0.1] * 6)
    sent = [0, *(min(at, 3) * 800 + max(0, at - 3) * 200 for at in range(1, 10))] * 2
    bytes_sent = pl.when(pl.col("role") == "backend").then(pl.Series(sent, dtype=pl.Int64))
    by_bytes = usage([0.5] * 9, [0.1] * 9).with_columns(sent_bytes=bytes_sent)
    for looks, source in ((by_cpu, "backend-cpu"), (by_bytes, "sent-bytes")):
        found = read_running_totals(make_sample(requests=900), looks)
        assert found is not None and found.source == source
        assert [third["rate"] for third in found.thirds()] == pytest.approx([200, 50, 50])
        assert [third["cpu_per_request"] for third in found.thirds()] == pytest.approx([0.0025, 0.01, 0.01])
        assert found.burst()["rate"] == pytest.approx(200)
    assert read_running_totals(make_sample(), usage([0.5] * 2, [0.1] * 2)) is None


def steady(rates: Sequence[float]) -> Callable[[Sample], RunningTotals]:
    """What a variant's samples answered per second in each third, the baseline's 100 in all; a little else by block."""

    def of(sample: Sample) -> RunningTotals:
        thirds = rates if sample.role == "variant" else (100.0, 100.0, 100.0)
        third_s = LENGTH_S / 3
        noise = 1 + 0.01 * (sample.block % 3)
        sums = [noise * third_s * sum(thirds[:at]) for at in range(4)]
        return RunningTotals([third_s * at for at in range(4)], sums, [third_s * at for at in range(4)], "sent-bytes")

    return of


CHANGE = Change(at_s=2.0, rate_before_rps=11_300.0, rate_after_rps=340.0, rate=True, cpu=False, cause="ports")


def changing(sample: Sample) -> Sample:
    return sample.model_copy(update={"steadiness": Steadiness(source="sent-bytes", seconds=LENGTH_S, change=CHANGE)})


def test_that_a_sustained_sample_changes_is_reported_and_takes_nothing_from_it() -> None:
    samples = [changing(make_sample(point=POINT))]
    assert judge_unjudged(samples, lambda _: pl.DataFrame(), {}) == samples
    found = lasting_change(samples)
    said = "the rate falls in 1 of 1 samples after 2 s (11,300 req/s, then 340): local ports run out"
    assert found is not None and found.sentence() == said


def judged(rates: Sequence[float], change: Callable[[Sample], Sample] = lambda sample: sample) -> tuple[str, str]:
    """The kind and text of the verdict on a variant whose rate is 20 % higher over the whole sample, and these in its thirds."""

    def alone(slot: Slot, sample: Sample) -> Sample:
        return change(sample) if slot.arm.role == "variant" else sample

    store = made("run-1", {"keepalive": 0.8}, make_plan(points=[POINT]), 0.005, change=alone)
    with_variant(store, primary_metric="rate")
    (verdict,) = make_verdicts(summarise_run(store.record, store.samples(), store.histogram, False, steady(rates)))
    return verdict.kind, verdict.text


def test_a_comparison_decides_a_sustained_load_as_its_table_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """The average is 20 % higher, and the last two thirds are lower: inconclusive in both."""
    store = made("run-1", {"keepalive": 0.8}, make_plan(points=[POINT]), 0.005)
    with_variant(store, primary_metric="rate")
    totals = steady((300.0, 40.0, 40.0))
    monkeypatch.setattr("lab.analysis.comparison.comparison.make_totals_reader", lambda _: totals)
    (row,) = (row for row in compare_runs(store, None).rows if row.metric == "rate" and row.other.arm == "keepalive")
    table = summarise_run(store.record, store.samples(), store.histogram, False, totals)
    (effect,) = (
        one for row in table.rows if row.arm.name == "keepalive" for one in row.effects if one.metric == "rate"
    )
    assert row.decision is effect.decision is Decision.INCONCLUSIVE


def test_a_burst_that_the_average_hides_is_found_from_usage_alone() -> None:
    """As the review has port-wait: more in the first two seconds, less in the other eighteen, and more on average."""
    own, base = usage([1.0] * 20, [0.9] * 2 + [0.01] * 18), usage([1.0] * 20, [0.4] * 2 + [0.02] * 18)
    looks = {"own": own, "base": base}
    samples = {name: {block: make_sample(id=name, requests=1000) for block in range(1, 7)} for name in looks}
    found = compute_thirds(
        samples["own"], samples["base"], lambda sample: read_running_totals(sample, looks[sample.id])
    )
    assert found is not None and found.burst["rate"].effect > 0
    assert found.holds("rate", log(2.3)) == "changes"
    assert STAND_IN["backend-cpu"] in found.sentence("rate", log(2.3))


def test_a_sustained_load_is_long_alone_and_from_its_first_second_and_one_by_number_stays_as_it_is() -> None:
    assert (POINT.duration_s, POINT.warmup_s, POINT.sustained) == (LENGTH_S, 0, True)
    assert POINT.why_alone
    point = make_point(requests=100)
    assert point.for_minutes() == point


def test_a_verdict_says_what_holds_in_each_third_and_decides_nothing_by_what_changes_its_sign() -> None:
    kind, text = judged([120, 121, 119], changing)
    assert kind == "apply" and "it holds in each third (×1.2 in the first 2 s, by thirds +20.0 %" in text
    assert "of keepalive the rate falls in 6 of 6 samples after 2 s" in text
    kind, text = judged([300, 60, 60])
    assert kind == "inconclusive" and "its sign changes within the sample" in text and "nothing to decide by" in text
