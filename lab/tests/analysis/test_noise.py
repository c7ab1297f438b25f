"""A/A: the arms of a variant against itself, how much they vary, what was claimed of them, and what is said of it."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from rich.console import Console

from lab.analysis.evidence import Evidence
from lab.analysis.judge.effects import RunQuestions
from lab.analysis.noise import (
    Noise,
    describe_null_claims,
    has_too_many_claims,
    make_aa_arms,
    measure_noise,
    pool_deviations,
)
from lab.analysis.past import past_of, select_judged_noise
from lab.analysis.summary import Summary, list_null_arms, summarise, summarise_run
from lab.base.errors import UsageError
from lab.commands import aa, schema
from lab.experiments.bench import BenchRequest, prepare, resume
from lab.model.design import NOISE_FLOOR_BLOCKS, find_solo_places
from lab.model.metrics import find_metric
from lab.model.plan import Plan, list_arms, plan_samples
from lab.records.store import RunStore
from lab.report.tables import noise as noise_tables
from lab.report.tables.noise import NextMeasurement, Report
from lab.report.terminal import print_parts
from lab.stats import paired as stats
from lab.stats import power
from lab.stats.units import format_rate
from lab.studies.site.site import read_reliability
from lab.tests.experiments.test_design import record
from lab.tests.support.factories import alter, costing, lose, make_plan, make_point, make_run
from lab.tests.support.fakes import FakeTarget
from lab.tests.support.made_runs import MadeStore, paired_plan

POINTS = [make_point("ceiling", rate_rps=None), make_point()]


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAB_RUNS", str(tmp_path / "runs"))
    return tmp_path


limited = alter(lambda slot: slot.point.rate_rps is None, lambda _: {"limited_by": "generator"})
"""Every ceiling by its generator."""


def planned(nulls: int = 2, blocks: int = 10) -> Plan:
    return plan_samples(make_aa_arms("ingress-nginx", nulls, "direct"), POINTS, blocks, 1)


def summary_of(of: Plan, **made: Any) -> Summary:
    samples, histograms = make_run(of, **made)
    return summarise(of, samples, lambda sample: histograms.get(sample.id), RunQuestions())


def one(found: tuple[Noise, ...], metric: str, point: str = "ceiling") -> Noise:
    return next(noise for noise in found if (noise.metric, noise.point) == (metric, point))


def finished(blocks: int = 10, nulls: int = 2, **made: Any) -> MadeStore:
    """An A/A run."""
    of = planned(nulls, blocks)
    variants = {name: record("x").variants["ingress-nginx"] for name in ("ingress-nginx", "direct")}
    samples, histograms = make_run(of, **made)
    return MadeStore(
        record("run-aa", of, variants=variants, command=("lab", "aa", "--sweep=quick")), samples, histograms
    )


def report_of(run: RunStore) -> Report:
    samples = run.samples()
    summary = summarise_run(run.record, samples, run.histogram)
    return noise_tables.make_report(run.record, past_of(run.record, samples, summary), summary.complete)


def shown(found: Report, capsys: pytest.CaptureFixture[str]) -> list[str]:
    print_parts(Console(width=200), noise_tables.page(found, "do this"))
    return capsys.readouterr().out.splitlines()


def test_the_arms_are_one_variant_under_several_names() -> None:
    arms = make_aa_arms("keepalive", 2, "direct")
    assert [(arm.name, arm.role) for arm in arms] == [
        ("keepalive", "baseline"),
        ("keepalive-again", "again"),
        ("keepalive-null-1", "variant"),
        ("keepalive-null-2", "variant"),
        ("direct", "reference"),
    ]
    assert {(arm.variant, arm.baseline) for arm in arms[1:4]} == {("keepalive", "keepalive")}
    assert [arm.name for arm in list_null_arms(arms)] == ["keepalive-null-1", "keepalive-null-2"]
    assert [arm.name for arm in make_aa_arms("direct", 0, "direct")] == ["direct", "direct-again"]
    assert list_null_arms(make_plan().arms) == [], "a variant against its baseline is none"


def test_several_scatters_are_pooled_by_their_degrees_of_freedom() -> None:
    """√((2·3² + 6·1²) / 8) = √3, and nothing known is nothing."""
    assert pool_deviations([(3.0, 2), (1.0, 6)]) == (pytest.approx(sqrt(3)), 8)
    assert pool_deviations([(3.0, 2), (None, 0), (5.0, 0)]) == (3.0, 2)
    assert pool_deviations([]) == pool_deviations([(None, 0)]) == (None, 0)


def test_each_metric_has_its_level_and_scatter() -> None:
    found = measure_noise(summary_of(planned(nulls=3, blocks=20), noise=0.02))
    rate = one(found, "rate")
    assert rate.why == "" and rate.level == pytest.approx(20_000, rel=0.02)
    assert rate.cv == pytest.approx(0.02, rel=0.4) and rate.sd == pytest.approx(0.02 * sqrt(2), rel=0.25)
    assert rate.pilot_blocks == 1 + 19 * 4 and rate.aa is not None and rate.aa.n == 20
    assert rate.aa.low is not None and rate.aa.high is not None and rate.aa.high - rate.aa.low < 0.04
    assert one(found, "cpu_per_request").level == pytest.approx(25e-6, rel=0.02)


def test_pairs_and_arms_alone_are_two_noises() -> None:
    """As they were judged: of pairs where both were up at once, the variant's too; the levels of the arms alone."""
    every = measure_noise(summary_of(paired_plan(POINTS)))
    found = [noise for noise in every if noise.metric == "cpu_per_request" and not noise.why]
    assert [(noise.point, noise.scheme) for noise in found] == [("ceiling", "slices"), ("rate-1000", "together")]
    for noise in found:
        assert (
            noise.pilot_blocks == 1 + 7 + NOISE_FLOOR_BLOCKS - 1
            and noise.aa is not None
            and noise.aa.n == NOISE_FLOOR_BLOCKS
        )
        assert noise.sd is not None and noise.sd < 0.01, "a tenth of what arms alone scatter by"
        assert noise.level == pytest.approx(25e-6, rel=0.05)


@pytest.mark.parametrize(("singly", "blocks"), [(False, 8), (True, 8 * 3 + NOISE_FLOOR_BLOCKS - 1)])
def test_a_guard_on_one_generation_does_not_tell_what_a_mean_of_several_scatters_by(singly: bool, blocks: int) -> None:
    of = paired_plan([make_point("ceiling", rate_rps=None, generations=3, singly=singly)])
    cpu = one(measure_noise(summary_of(of)), "cpu_per_request")
    assert cpu.pilot_blocks == blocks and cpu.aa is not None and cpu.aa.n == NOISE_FLOOR_BLOCKS


def test_where_nothing_is_compared_with_itself_the_variants_tell() -> None:
    arms = list_arms([("keepalive", "baseline")], None)
    places = find_solo_places(arms, POINTS, {"keepalive": (True, "cpu_per_request")})
    of = paired_plan(POINTS, 8, places)
    samples, histograms = make_run(of, {"keepalive": 0.5})
    asked = RunQuestions({"keepalive": "cpu_per_request"}, solo=places)
    found = measure_noise(summarise(of, samples, lambda sample: histograms.get(sample.id), asked))
    cpu = one(found, "cpu_per_request")
    assert (cpu.variant, cpu.scheme, cpu.aa, cpu.why) == ("baseline", None, None, "")
    assert cpu.sd == pytest.approx(0.02 * sqrt(2), rel=0.5) and cpu.pilot_blocks == 8


def test_what_is_not_judged_says_why() -> None:
    """And promises nothing: rates that are given, latency of a closed loop beside rates, percentiles without requests."""
    found = measure_noise(summary_of(planned()))
    assert one(found, "rate", "rate-1000").why == "the rate is given here, not measured"
    assert one(found, "p99").why.startswith("latency is judged at the points with a rate")
    assert "requests beyond it" in one(found, "p99.9", "rate-1000").why
    few = measure_noise(summary_of(planned(blocks=5)))
    assert one(few, "rate").why == "5 blocks of both arms valid, 6 are needed"
    limits = measure_noise(summary_of(planned(), change=limited))
    assert one(limits, "rate").why.startswith("generator-limited") and one(limits, "cpu_per_request").why == ""
    lost = lose(lambda slot: slot.arm.role == "again" and slot.block > 7)
    both = {noise.aa.n for noise in measure_noise(summary_of(planned(), change=lost)) if noise.aa and not noise.why}
    assert both == {7}, "blocks that are valid in both arms"


def test_a_null_arm_that_is_not_the_same_is_claimed() -> None:
    """The count can be other than 0: one that costs 30 % more CPU by whatever mischance."""
    heavier = alter(lambda slot: slot.arm.name == "ingress-nginx-null-1", costing(1.3))
    found = measure_noise(summary_of(planned(), change=heavier))
    assert (one(found, "cpu_per_request").claimed, one(found, "cpu_per_request").compared) == (1, 2)
    assert one(found, "rate") == one(measure_noise(summary_of(planned())), "rate"), (
        "in another metric it is as the others"
    )


def test_the_record_of_a_variant_against_itself_has_nothing_to_apply(runs: Path) -> None:
    """No own knobs, no snippet, a metric that steady loads have; resumed like any run; its direct reference as ever."""
    path = runs / "tiny.toml"
    point = 'name = "ceiling"\ngenerator = "wrk"\nconnections = 4\nduration_s = 1\n'
    path.write_text(f'title = "T"\nquestion = "?"\nblocks = 6\n[[points]]\n{point}')
    request = BenchRequest(("keepalive",), str(path), blocks=7, seed=1, label="keepalive-aa", nulls=1)
    made = prepare(request, FakeTarget(), ())
    kept = made.record.variants["keepalive"]
    assert (kept.own_knobs, kept.snippet, kept.baseline) == ((), "", "keepalive") and kept.primary_metric is not None
    assert set(made.record.variants) == {"keepalive", "direct"} and "-keepalive-aa-tiny-" in made.record.id
    assert [arm.name for arm in made.plan.arms] == ["keepalive", "keepalive-again", "keepalive-null-1", "direct"]
    assert made.record.blocks == 7 and made.design.planned_for is None
    RunStore.create(made.record, {name: variant.manifests for name, variant in made.variants.items()})
    again, _ = resume(made.record.id, FakeTarget())
    assert again.plan == made.plan


def test_the_table_says_how_many_blocks_resolve_how_much(capsys: pytest.CaptureFixture[str]) -> None:
    """As power.blocks_for does, from the pooled spread, and how long that takes by this run's own bring-ups."""
    found = report_of(finished())
    cpu = one(found.noises, "cpu_per_request")
    assert cpu.sd is not None
    blocks = power.count_blocks_for_effect(cpu.sd, cpu.pilot_blocks, 0.05)
    assert blocks is not None and found.needed(cpu, 0.05) == blocks
    # three arms, each up in 0.4 s and measured at two points of 1 s warm-up, 5 s and the lab's own 0.6 s
    assert found.block_s == pytest.approx(3 * (0.4 + 2 * 6.6))
    assert found.lasts_s(8) - found.lasts_s(7) == pytest.approx(found.block_s) and found.once_s > 0.4 + 2 * 6.6
    lines = shown(found, capsys)
    line = next(line for line in lines if line.startswith("ceiling") and "CPU per request" in line)
    assert f"{blocks}, " in line and "µs" in line
    assert any(line.startswith("claimed ") and "null comparisons" in line for line in lines)
    assert any("pooled over 3 pairs of the same variant (27 degrees of freedom)" in line for line in lines)
    assert any(line == "not judged: rate at rate-1000: the rate is given here, not measured" for line in lines)
    assert lines[-1] == "do this"
    wild = report_of(finished(blocks=6, nulls=0, noise=1.0))
    out = "\n".join(shown(wild, capsys))
    assert "> 1000" in out and "null comparison" not in out and "of the A/A pair (5 degrees" in out
    example = NextMeasurement("just bench x --resolve {}", (one(wild.noises, "rate"),))
    assert noise_tables.advise(wild, example, "just aa").endswith("quieten this machine, then just aa")


def test_a_rate_that_the_generator_limited_is_shown_with_its_mark(capsys: pytest.CaptureFixture[str]) -> None:
    """How much it varies, without blocks that would resolve anything, and why; of too few blocks nothing."""
    found = report_of(finished(change=limited))
    lines = shown(found, capsys)
    (line,) = (line for line in lines if line.startswith("ceiling") and " rate† " in line)
    rate = one(found.noises, "rate")
    assert rate.level and rate.cv and rate.sd and rate.aa and rate.aa.interval
    itself = f"{find_metric('rate').change(rate.aa.effect)}{find_metric('rate').ends(*rate.aa.interval)}"
    said = f"ceiling rate† {format_rate(rate.level)}/s {rate.cv:.1%} {rate.sd:.1%} {itself} – – –"
    assert line.split() == said.split()
    assert "not judged: rate† at ceiling: generator-limited; only CPU per request carries the effect" in lines
    example = NextMeasurement("just bench x --resolve {}", tuple(select_judged_noise(found.noises, POINTS, "rate")))
    advice = noise_tables.advise(found, example, "just aa")
    assert advice.startswith("in CPU per request one block's comparison scatters by ")


def test_more_false_claims_than_chance_makes_are_called_so() -> None:
    """Where each may be false in 5 %: of 40 six (P(X ≥ 6) = 1.4 %, P(X ≥ 5) = 4.8 %), of 12 three."""
    assert [has_too_many_claims(claimed, 40) for claimed in (0, 5, 6, 40)] == [False, False, True, True]
    assert [has_too_many_claims(claimed, 12) for claimed in (2, 3)] == [False, True]
    cpu = one(measure_noise(summary_of(planned())), "cpu_per_request")
    told = [describe_null_claims([replace(cpu, compared=40, claimed=claimed)]) for claimed in (5, 6)]
    assert "claimed 5 of 40" in told[0] and told[0].endswith("may be)")
    assert "claimed 6 of 40" in told[1] and told[1].endswith("claim nothing here before the machine is quieter")


def test_the_methods_page_tells_what_was_claimed_of_null_arms() -> None:
    run = finished()
    found = read_reliability([Evidence(run.record.id, run, tuple(run.samples()), {})])
    assert found.nulls == noise_tables.describe_nulls(report_of(run)) and found.nulls.startswith("claimed ")
    assert {name for name, _ in found.noises} == {run.record.id} and found.untold == ()
    assert read_reliability([]).nulls == ""


def printed(
    run: RunStore, capsys: pytest.CaptureFixture[str], goes_on: bool = False, **options: Any
) -> tuple[int, str]:
    """What `aa` does about this run, by name or by --resume."""
    asked = {"subject": None if goes_on else f"made/{run.record.id}", "resume": run.record.id if goes_on else None}
    fields = dict.fromkeys(("target", "context", "sweep", "blocks", "nulls", "seed", "knee", "k6_out"))
    given = {**fields, "plan": False, "json": False, **asked, **options}
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(RunStore, "open", lambda _name: run)
        status = aa._run_aa(argparse.Namespace(**given), Console(stderr=True))  # pyright: ignore[reportPrivateUsage]
    return status, capsys.readouterr().out


def test_a_stored_run_is_printed_again_as_text_or_json_and_ends_in_something_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = finished(nulls=1)
    found = report_of(run)
    status, out = printed(run, capsys)
    last = " ".join(out.split())
    last = last[last.index("in CPU per request one block's") :]
    assert status == 0 and last.startswith("in CPU per request one block's comparison scatters by ")
    counts = [found.needed(noise, 0.02) for noise in found.judged if noise.metric == "cpu_per_request"]
    assert "`just bench " in last and "--resolve 2%`" in last
    assert f"would take {max(filter(None, counts))} blocks" in last
    told = json.loads(printed(run, capsys, json=True)[1])
    jsonschema.Draft202012Validator(schema.schemas()["aa"]).validate(told)
    assert told["nulls"]["arms"] == 1 and told["complete"] and told["advice"]
    rows = {row["point"]: row for row in told["rows"] if row["metric"] == "rate"}
    rate, given = rows["ceiling"], rows["rate-1000"]
    assert [each["effect"] for each in rate["resolve"]] == [0.02, 0.05, 0.1] and rate["resolve"][2]["blocks"] >= 6
    again = one(found.noises, "rate")
    assert again.aa is not None and again.aa.ratio_interval is not None
    expected = again.aa.ratio, *again.aa.ratio_interval
    assert (rate["aa_ratio"], rate["aa_low"], rate["aa_high"]) == pytest.approx(expected)
    assert given["why"] and given["resolve"][0]["blocks"] is None


def test_too_few_blocks_say_what_to_run_and_a_stored_run_is_asked_nothing_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = finished(blocks=2)
    status, out = printed(run, capsys)
    last = "nothing is known of the noise here yet: just aa ingress-nginx --blocks 10"
    assert (status, out.splitlines()[-1]) == (0, last)
    assert f"2 blocks of both arms valid, {stats.MIN_BLOCKS} are needed" in out
    assert "no null comparison was judged" in out
    asked: dict[str, Any] = {
        "blocks": 3,
        "nulls": 0,
        "sweep": "quick",
        "knee": "2000",
        "target": "local",
        "plan": True,
        "resume": "x",
    }
    for name, value in asked.items():
        with pytest.raises(UsageError, match="leave everything else out"):
            printed(run, capsys, **{name: value})


def test_a_run_without_a_pair_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    of = plan_samples([arm for arm in planned().arms if arm.role != "again"], POINTS, 6, 1)
    lonely = MadeStore(record("lonely", of), [], {})
    for goes_on in (False, True):
        with pytest.raises(UsageError, match="has no steady A/A pair: no variant in it was measured against itself"):
            printed(lonely, capsys, goes_on)
