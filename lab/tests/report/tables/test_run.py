"""Samples to rows, rows to tables and verdicts. The golden tables live in `testdata/tables/`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import expm1
from pathlib import Path
from typing import Any

import pytest

from lab.analysis.aggregate.cells import select_counted_samples
from lab.analysis.explain import run as verdicts
from lab.analysis.explain.conclusion import conclude_run, describe_noise
from lab.analysis.judge.decision import Decision
from lab.analysis.judge.effects import Effect, RunQuestions
from lab.analysis.judge.rows import SummaryRow
from lab.analysis.judge.rulings import LIMITED
from lab.analysis.summary import Summary, summarise, summarise_run
from lab.base.errors import MeasuringError
from lab.model.plan import Plan, Slot
from lab.model.samples import Reason, Sample
from lab.report.markdown import render_markdown
from lab.report.result import RunResult
from lab.report.tables.run import make_tables
from lab.stats import paired as stats
from lab.stats import power, units
from lab.stats.histogram import Histogram
from lab.studies.results import RESULT
from lab.tests.support.factories import alter, costing, lose, made_invalid, make_plan, make_point, make_run, make_sample
from lab.tests.support.golden import assert_golden, print_page
from lab.tests.support.made_runs import made, made_record

GOLDEN = Path(__file__).parents[1] / "testdata" / "tables"
PRIMARY: Mapping[str, str | None] = {"keepalive": "p99", "backlog": "rate"}
BOTH = (("keepalive", "baseline"), ("backlog", "baseline"))
OTHER_LOAD = "measure a load that can show it: just bench keepalive --sweep S (S: one of `just list`)"
Change = Callable[[Slot, Sample], Sample | None]


def summary_of(run: Plan, primary: Mapping[str, str | None] = PRIMARY, **made: Any) -> Summary:
    samples, histograms = make_run(run, **made)
    return summarise(run, samples, lambda sample: histograms.get(sample.id), RunQuestions(primary))


def row_of(summary: Summary, arm: str, point: str = "rate-1000") -> SummaryRow:
    return next(row for row in summary.rows if (row.arm.name, row.point.name) == (arm, point))


def effect_of(summary: Summary, arm: str, metric: str, point: str = "rate-1000") -> Effect:
    return next(effect for effect in row_of(summary, arm, point).effects if effect.metric == metric)


def printed(summary: Summary, width: int | None = None) -> str:
    return print_page(make_tables(summary, absolute=False, every=False), width)


def typical() -> Summary:
    where = ("keepalive", 3, "rate-1000")
    stolen = lose(lambda slot: (slot.arm.name, slot.block, slot.point.name) == where, errors={"timeout": 3})
    return summary_of(make_plan(BOTH, blocks=7), effects={"keepalive": 0.8}, change=stolen)


@pytest.mark.parametrize(
    ("name", "got"),
    [
        ("wide.txt", lambda: printed(typical())),
        ("columns-80.txt", lambda: printed(typical(), 80)),
        ("table.md", lambda: render_markdown(make_tables(typical()))),
        ("baseline-alone.txt", lambda: printed(summary_of(make_plan([("baseline", None)])))),
    ],
)
def test_tables_look_as_agreed(name: str, got: Callable[[], str]) -> None:
    assert_golden(GOLDEN / name, got())
    assert all(max(map(len, printed(typical(), width).splitlines())) <= width for width in (80, 100, 120))


def test_a_claim_of_a_stored_run_ends_in_what_to_apply() -> None:
    run = made(effects={"keepalive": 0.8})
    summary = summarise_run(run.record, run.samples(), run.histogram)
    effect = effect_of(summary, "keepalive", "p99")
    assert effect.claimed and effect.primary and effect.better and summary.complete
    (verdict,) = verdicts.make_verdicts(summary)
    assert (verdict.kind, verdict.snippet) == ("apply", "data:\n  keep-alive-requests: '10000'\n")
    assert verdict.text.startswith("keepalive: p99 at rate-1000 (k6 for wrk2) −2")
    assert verdict.text.endswith(": apply it") and verdict.headline == "keepalive: better; apply it"
    printed_page = print_page([*RunResult(run).page(report="file:///report.html")])
    assert "To apply keepalive:\n  data:\n    keep-alive-requests: '10000'\n" in printed_page


@pytest.mark.parametrize(("role", "complete"), [("reference", True), ("baseline", False), ("variant", False)])
def test_a_run_is_complete_when_every_verdict_has_its_samples(role: str, complete: bool) -> None:
    lost = lose(lambda slot: slot.arm.role == role, Reason.OTHER_PROCESSES)
    assert summary_of(make_plan(), change=lost).complete is complete


def test_what_died_in_some_blocks_is_not_applied_as_it_is() -> None:
    """However fast it was where it worked; blocks that the machine took are nothing against it."""

    def lost(reason: Reason) -> verdicts.Verdict:
        change = lose(lambda slot: slot.arm.role == "variant" and slot.block > 6, reason)
        summary = summary_of(make_plan(blocks=10), effects={"keepalive": 0.8}, change=change)
        return verdicts.make_verdicts(replace(summary, snippets={"keepalive": "data: {a: b}"}))[0]

    dying = lost(Reason.PROXY_DIED)
    assert (dying.kind, dying.snippet) == ("mixed", "data: {a: b}")
    blocks = "6 of 10 blocks at ceiling, proxy-died 4"
    assert dying.text.endswith(f", in the blocks that worked ({blocks}): apply it only once all of them do")
    assert lost(Reason.STEAL).kind == "apply"


@pytest.mark.parametrize(
    ("factor", "systems", "purpose", "kind", "ending"),
    [
        (1.3, [], "", "worse", ": do not apply it"),
        (0.7, ["keepalive"], "", "better-system", ": better than baseline: choose it if its behaviour suits you"),
        (1.3, ["keepalive"], "", "worse-system", ": worse than baseline: plan for that if you choose it"),
        (1.3, [], "what Lua costs", "instrument", ": only to measure by, nothing to apply: what Lua costs"),
    ],
)
def test_what_is_no_gain_of_a_setting_is_not_applied(
    factor: float, systems: list[str], purpose: str, kind: str, ending: str
) -> None:
    run = made(effects={"keepalive": factor})
    variants = run.record.variants
    mine = variants["keepalive"].model_copy(update={"only_to_measure_by": purpose})
    record = run.record.model_copy(update={"variants": variants | {"keepalive": mine}})
    summary = summarise_run(record, run.samples(), run.histogram)
    (verdict,) = verdicts.make_verdicts(replace(summary, systems=frozenset(systems)))
    assert (verdict.kind, verdict.snippet) == (kind, "") and verdict.text.endswith(ending)


@pytest.mark.parametrize(
    ("own", "theirs", "system"), [((), (), True), (("cpu",), ("cpu",), True), (("cpu",), (), False)]
)
def test_what_no_knob_tells_apart_is_a_system(own: tuple[str, ...], theirs: tuple[str, ...], system: bool) -> None:
    record = made_record("r", make_plan())
    changes = {"keepalive": {"knobs": own, "own_knobs": own, "snippet": ""}, "baseline": {"knobs": theirs}}
    variants = {name: each.model_copy(update=changes.get(name, {})) for name, each in record.variants.items()}
    assert record.model_copy(update={"variants": variants}).systems == (frozenset({"keepalive"}) if system else set())


def test_a_sentence_ends_in_a_bound_or_in_what_to_apply_and_when() -> None:
    summary = summary_of(make_plan())
    effect = effect_of(summary, "keepalive", "p99")
    assert effect.decision is Decision.INCONCLUSIVE and verdicts.format_effect(effect).startswith("? p99 ")
    (verdict,) = verdicts.make_verdicts(summary)
    assert effect.estimate is not None and effect.estimate.interval is not None
    bound = 100 * expm1(max(map(abs, effect.estimate.interval)))
    assert verdict.kind == "inconclusive" and f"no change needed unless {bound:.1f} % matters to you" in verdict.text
    (named,) = verdicts.make_verdicts(replace(summary, target="kind", elsewhere={"keepalive": "digitalocean"}))
    assert named.kind == "inconclusive" and named.text.endswith("--sweep digitalocean --target kind")
    change = alter(lambda slot: (slot.arm.name, slot.point.name) == ("keepalive", "ceiling"), costing(2))
    made: dict[str, Any] = {"effects": {"keepalive": 0.8}, "change": change}
    summary = summary_of(make_plan(), {"keepalive": "cpu_per_request"}, **made)
    (verdict,) = verdicts.make_verdicts(replace(summary, snippets={"keepalive": "data: {a: b}"}))
    assert (verdict.kind, verdict.snippet) == ("mixed", "data: {a: b}")
    where = "in CPU per request at {} (k6 for wrk2)"
    both = f": better {where.format('rate-1000')}, worse {where.format('ceiling')}"
    assert verdict.text.endswith(f"{both}: apply it only if the first matters more to you")
    (other,) = verdicts.make_verdicts(replace(summary, systems=frozenset({"keepalive"})))
    assert other.kind == "mixed" and other.text.endswith(": choose it only if the first matters more to you")


@pytest.mark.parametrize(("blocks", "count"), [(1, "1 block"), (5, "5 blocks")])
def test_fewer_than_six_blocks_give_no_interval(blocks: int, count: str) -> None:
    summary = summary_of(make_plan(blocks=blocks), effects={"keepalive": 0.5})
    effect = effect_of(summary, "keepalive", "p99")
    assert effect.decision is Decision.NO_INTERVAL
    assert verdicts.format_effect(effect) == f"p99 no interval ({count})"
    assert stats.NEED_BLOCKS in row_of(summary, "keepalive").notes
    assert describe_noise(summary) == f"noise check: none, {count} with the baseline twice, 6 are needed"
    row = next(row for row in RESULT.plain(summary)["rows"] if row["arm"] == "keepalive")
    assert {(effect["ratio_low"], effect["p_value"]) for effect in row["effects"]} == {(None, None)}


def test_without_enough_a_a_blocks_nothing_guards() -> None:
    lost = lose(lambda slot: slot.arm.role == "again" and slot.block == 1)
    summary = summary_of(make_plan(), effects={"keepalive": 0.5}, change=lost)
    effect = effect_of(summary, "keepalive", "p99")
    assert (effect.decision, effect.size.noise_floor) == (Decision.BETTER, 0.0)
    assert verdicts.make_verdicts(summary)[0].kind == "apply"
    assert describe_noise(summary).startswith("noise check: none, 5 blocks")


def small(factor: float = 0.99) -> Summary:
    """An effect of 1 % with hardly any noise."""
    return summary_of(make_plan(), effects={"keepalive": factor}, noise=0.001)


def test_what_is_real_and_too_small_to_be_worth_knowing_is_not_to_be_bothered_with() -> None:
    effect = effect_of(small(), "keepalive", "p99")
    assert effect.decision is Decision.EQUIVALENT and effect.holm_p is not None and effect.holm_p < 0.05
    assert not effect.claimed and verdicts.format_effect(effect).startswith("equivalent: p99 −1.1 % [")
    unled = replace(effect, estimate=None, decision=Decision.NOT_JUDGED, pair_estimate=effect.estimate)
    assert verdicts.format_effect(unled).startswith("p99 – (as a pair −1.1 % [")
    assert verdicts.format_effect(replace(unled, pair_estimate=None)) == "p99 –"
    (verdict,) = verdicts.make_verdicts(small())
    assert (verdict.kind, verdict.snippet) == ("equivalent", "")
    said = "keepalive: real, but only 1.1 % in p99 at rate-1000 (k6 for wrk2) (−1.1 % ["
    assert verdict.text.startswith(said)
    assert verdict.text.endswith("smaller than the equivalence margin of 2.0 %): no change needed")
    (none,) = verdicts.make_verdicts(small(1.0))
    assert none.kind == "equivalent" and none.text.startswith("keepalive: no difference in p99 at rate-1000")


def test_what_cannot_be_told_says_how_many_blocks_would_do() -> None:
    """As `power.count_blocks_for_effect` has it of this run's own scatter; what a thousand would not do is said, too."""
    summary = summary_of(make_plan(BOTH), noise=0.03)
    effect = effect_of(summary, "keepalive", "p99")
    assert effect.decision is Decision.INCONCLUSIVE and effect.estimate is not None
    blocks = power.count_blocks_for_effect(effect.estimate.sd or 0, 6, 0.02)
    assert verdicts.suggest_blocks(effect, 1) == f"--blocks {blocks} would detect 2.0 %"
    family = sum(one.decision.judged for row in summary.rows for one in row.shown)
    more = power.count_blocks_for_effect(effect.estimate.sd or 0, 6, 0.02, 0.05 / family)
    assert family > 1 and more and blocks and more > blocks, "the first step of Holm's method asks for more"
    assert verdicts.make_verdicts(summary)[0].text.endswith(f"; --blocks {more} would detect 2.0 %")
    wild = effect_of(summary_of(make_plan(), noise=1.0), "keepalive", "p99")
    assert verdicts.suggest_blocks(wild, 1) == "not even 1000 blocks would detect 2.0 %"
    few = effect_of(summary_of(make_plan(blocks=5)), "keepalive", "p99")
    assert verdicts.suggest_blocks(few, 1) == ""


def test_what_the_generator_limited_is_judged_by_cpu_per_request() -> None:
    """The rate cannot show an effect there, so it neither claims nor is marked; CPU per request takes its place."""
    limited = alter(
        lambda slot: slot.point.rate_rps is None and slot.block == 2 and slot.arm.name == "baseline",
        lambda _: {"limited_by": "generator"},
    )
    summary = summary_of(make_plan(), {"keepalive": "rate"}, effects={"keepalive": 0.7}, change=limited)
    rate = effect_of(summary, "keepalive", "rate", "ceiling")
    cpu = effect_of(summary, "keepalive", "cpu_per_request", "ceiling")
    assert (rate.decision, rate.primary, cpu.claimed, cpu.primary) == (Decision.NOT_JUDGED, False, True, True)
    assert LIMITED in row_of(summary, "keepalive", "ceiling").notes
    assert effect_of(summary, "keepalive", "p50", "ceiling").decision is Decision.NOT_JUDGED
    (verdict,) = verdicts.make_verdicts(summary)
    assert "CPU per request at ceiling (k6 for wrk2) (generator-limited) −3" in verdict.text
    assert not re.search("rate [+−]", describe_noise(summary))


def test_the_rate_is_not_judged_where_it_is_given_nor_latency_at_a_ceiling() -> None:
    summary = summary_of(make_plan(BOTH), effects={"keepalive": 0.5, "backlog": 0.5})
    assert effect_of(summary, "backlog", "rate").decision is Decision.NOT_JUDGED
    assert effect_of(summary, "backlog", "rate", "ceiling").claimed
    assert effect_of(summary, "keepalive", "p99", "ceiling").decision is Decision.NOT_JUDGED
    closed = make_plan(points=[make_point("ceiling", rate_rps=None)])
    alone = summary_of(closed, effects={"keepalive": 0.5})
    assert effect_of(alone, "keepalive", "p99", "ceiling").claimed, "there is no other point to judge it"

    gone = {("keepalive", 1), ("baseline", 2)}
    summary = summary_of(
        make_plan(blocks=8), change=lambda slot, one: None if (slot.arm.name, slot.block) in gone else one
    )
    estimate, row = effect_of(summary, "keepalive", "p99").estimate, row_of(summary, "keepalive")
    assert estimate is not None and estimate.n == 6
    assert (row.cell.valid_blocks, row.cell.planned_blocks) == (7, 8)
    assert "1 block not measured" in row.notes and not summary.complete


def test_a_percentile_without_ten_requests_beyond_it_has_no_effect_and_says_so() -> None:
    """5 s at 150 req/s: seven requests beyond p99 in a sample, 45 in six merged ones."""
    summary = summary_of(make_plan(points=[make_point(rate_rps=150.0)]))
    row = row_of(summary, "keepalive")
    assert row.cell.shown("p99") is not None and row.cell.shown("p99.9") is None
    assert effect_of(summary, "keepalive", "p99").decision is Decision.NOT_AVAILABLE
    assert "p99 needs 10 requests beyond it in every sample" in row.notes
    (verdict,) = verdicts.make_verdicts(summary)
    assert verdict.kind == "not-measurable" and "p99 needs 10 requests" in verdict.text
    assert verdict.text.endswith(f": {OTHER_LOAD}")
    (own,) = verdicts.make_verdicts(replace(summary, elsewhere={"keepalive": "connect-burst"}, target="kind"))
    assert own.text.endswith("just bench keepalive --sweep connect-burst --target kind")
    run = make_plan(blocks=6)
    samples, _ = make_run(run)
    late = Histogram.of_values([0.001] * 5000 + [500.0])
    assert "≥120,0" in print_page(make_tables(summarise(run, samples, lambda _: late, RunQuestions(PRIMARY))))


def test_the_last_valid_attempt_counts_and_an_interrupted_block_never() -> None:
    first, second = make_sample(id="a", attempt=1, reason=Reason.STEAL), make_sample(id="b", attempt=2)
    third = make_sample(id="c", attempt=3, reason=Reason.OTHER_PROCESSES)
    old = make_sample(id="d", attempt=3, reason=Reason.BLOCK_INTERRUPTED)
    later = make_sample(id="e", attempt=1, generation=1)
    key = (1, "baseline", "rate-1000", "", 0, 0)
    assert select_counted_samples([third, second, first, old])[key] is second
    assert select_counted_samples([later, second])[key] is later
    assert select_counted_samples([first, old]) == {}


def test_errors_are_summed_and_tls_is_told_once_where_it_is_the_same() -> None:
    def failing(slot: Slot, sample: Sample) -> Sample:
        if slot.arm.name != "keepalive" or slot.block > 2:
            return sample
        if slot.block == 1:
            return made_invalid(sample, Reason.NON_2XX, errors={"404": 40, "502": 2})
        return sample.model_copy(update={"errors": {"timeout": 5}})

    summary = summary_of(make_plan(), change=failing)
    row = row_of(summary, "keepalive")
    assert (row.cell.errors, row.cell.errors_invalid) == ({"timeout": 5}, {"404": 40, "502": 2})
    assert "5 (+42)" in print_page(make_tables(summary))
    assert "1 invalid: non-2xx" in row.notes

    reasons = {1: Reason.STEAL, 2: Reason.STEAL, 3: Reason.PROXY_DIED}
    summary = summary_of(
        make_plan(), change=lambda slot, one: made_invalid(one, reasons[slot.block]) if slot.block in reasons else one
    )
    assert "3 invalid: proxy-died 1, steal 2" in row_of(summary, "keepalive").notes
    key = {"key": "RSA 2048", "version": "TLSv1.3", "cipher": "AES"}  # of a run before groups were recorded
    same = alter(lambda slot: slot.arm.role != "reference", lambda _: {"tls": key})
    newer = alter(lambda slot: slot.arm.name == "keepalive", lambda _: {"tls": {**key, "group": "P-256"}})

    def another(slot: Slot, sample: Sample) -> Sample:
        return newer(slot, same(slot, sample))

    so = "as a canary's handshake came to it: TLSv1.3, AES"
    assert f"TLS, {so}, RSA 2048" in summary_of(make_plan(), change=same).notes
    told = [note for note in summary_of(make_plan(), change=another).notes if note.startswith("TLS")]
    assert told == [f"TLS of baseline, baseline-again, {so}, RSA 2048", f"TLS of keepalive, {so}, P-256, RSA 2048"]
    assert not any(note.startswith("TLS") for note in summary_of(make_plan()).notes)


def test_what_can_have_no_ratio_is_left_out_and_errors_are_counted_not_compared() -> None:
    idle = alter(lambda _: True, costing(0))
    effect = effect_of(summary_of(make_plan(), change=idle), "keepalive", "cpu_per_request")
    assert (effect.estimate, effect.decision) == (None, Decision.NOT_AVAILABLE)
    bare = alter(lambda slot: slot.arm.name != "nginx", lambda sample: {"usage": {"backend": sample.usage["proxy"]}})
    run = make_plan([("nginx", "direct")], reference=None)
    effect = effect_of(summary_of(run, {"nginx": "cpu_per_request"}, change=bare), "nginx", "cpu_per_request")
    assert effect.decision is Decision.NOT_JUDGED and "not comparable" in effect.note
    summary = summary_of(make_plan(), {"keepalive": "errors"})
    said = f"keepalive: nothing to judge: errors are counted, not compared: {OTHER_LOAD}"
    assert verdicts.make_verdicts(summary)[0].text == said
    summary = summary_of(make_plan(), {}, effects={"keepalive": 0.5})
    (verdict,) = verdicts.make_verdicts(summary)
    assert verdict.kind == "not-measurable" and "lab/primary-metric in its overlay" in verdict.text
    assert effect_of(summary, "keepalive", "p99").marked


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"target": "kind"}, "different targets: kind, local"),
        ({"generator": "oha", "stand_in_for": None}, "different generators: k6 1.8.1, oha 1.8.1"),
        ({"generator_version": "2.2.0"}, "different generators: k6 1.8.1, k6 2.2.0"),
        ({"point": make_point(connections=99)}, "not in the run's plan"),
        ({"arm": "somebody"}, "not in the run's plan"),
    ],
)
def test_what_does_not_belong_together_is_refused(fields: dict[str, Any], fault: str) -> None:
    run = make_plan()
    samples, _ = make_run(run)
    last = next(sample for sample in reversed(samples) if sample.point.name == "rate-1000")
    changed = [sample.model_copy(update=fields) if sample is last else sample for sample in samples]
    with pytest.raises(MeasuringError, match=fault):
        summarise(run, changed, lambda _: None, RunQuestions(PRIMARY))


def test_every_arm_has_its_row_in_plan_order_with_each_a_a_arm_behind_its_baseline() -> None:
    run = make_plan([("v2", "v1"), ("v1", "root"), ("w", "root")])
    summary = summary_of(run, {"v1": "p99", "v2": "p99", "w": "p99"})
    order = ["direct", "root", "root-again", "v2", "v1", "v1-again", "w"]
    assert [row.arm.name for row in summary.rows] == order * 2
    assert [row.point.name for row in summary.rows] == ["ceiling"] * 7 + ["rate-1000"] * 7
    assert effect_of(summary, "v2", "p99").against == "v1"
    assert effect_of(summary, "v1", "p99").against == "root"
    empty: dict[str, Any] = {"achieved_rps": None, "requests": None, "usage": {}, "histogram": None}
    dead = lose(lambda slot: slot.arm.name == "keepalive", Reason.BRING_UP_FAILED, **empty)
    summary = summary_of(make_plan(), change=dead)
    cell = row_of(summary, "keepalive").cell
    assert cell.valid_blocks == 0 and {*map(cell.shown, ("rate", "cpu_per_request", "slowest_s"))} == {None}
    (verdict,) = verdicts.make_verdicts(summary)
    assert verdict.kind == "not-measurable"
    assert verdict.text.endswith(": mend what its rows' notes say, and measure it again")
    assert "0/6" in printed(summary)
    summary = summarise(make_plan(BOTH), [], lambda _: None, RunQuestions(PRIMARY))
    assert "6 blocks not measured" in printed(summary)
    assert not summary.complete
    assert json.loads(json.dumps(RESULT.plain(summary), allow_nan=False))["target"] is None


@pytest.mark.parametrize(
    ("written", "value", "text"),
    [
        (units.format_seconds, None, "–"),
        (units.format_seconds, 0.00021, "210 µs"),
        (units.format_seconds, 0.0036149, "3.61 ms"),
        (units.format_seconds, 0.0123, "12.3 ms"),
        (units.format_seconds, 0.99999, "1.00 s"),
        (units.format_rate, None, "–"),
        (units.format_rate, 999.84, "999.8"),
        (units.format_rate, 1000.0, "1,000"),
        (units.format_rate, 23456.7, "23,457"),
        (units.format_bytes, 999, "999 B"),
        (units.format_bytes, 61_234, "61.2 kB"),
        (units.format_bytes, 123e9, "123 GB"),
        (units.format_duration, 44.6, "45 s"),
        (units.format_duration, 310, "5 min 10 s"),
        (units.format_duration, 7500, "2 h 5 min"),
    ],
)
def test_numbers_are_for_people(written: Callable[[Any], str], value: float | None, text: str) -> None:
    assert written(value) == text


def first_three(slot: Slot, sample: Sample) -> Sample | None:
    return sample if slot.block <= 3 else None


@pytest.mark.parametrize(
    ("planned", "change", "advice"),
    [
        (6, first_three, "not all of it was measured, go on with: just bench --resume run-1"),
        (5, first_three, "measure with --blocks 6 or more"),
        (5, lambda _slot, sample: sample, "measure with --blocks 6 or more"),
        (6, lose(lambda slot: slot.block == 2), "measure with --blocks 7 or more"),
    ],
)
def test_too_few_blocks_end_in_what_gives_more(planned: int, change: Change, advice: str) -> None:
    """Where an interruption left some out, that is to go on, unless even all would be too few; of a run that lost a block, more than were planned."""
    run = made(planned=make_plan(blocks=planned), change=change)
    (verdict,) = verdicts.make_verdicts(summarise_run(run.record, run.samples(), run.histogram))
    assert verdict.kind == "no-interval" and verdict.text.endswith(f": {advice}")


def lines_of(summary: Summary, run: Plan) -> list[str]:
    return [line for line, _ in conclude_run(summary, made_record("run-1", run))]


def test_the_conclusion_of_one_variant_is_at_most_seven_lines_with_every_load_in_words() -> None:
    """With the line of the report eight. More variants have a line each, and one load each."""
    plan = make_plan(BOTH[:1], points=[make_point(f"rate-{n}", rate_rps=100.0 * n) for n in range(1, 7)])
    lines = lines_of(summary_of(plan, effects={"keepalive": 0.8}), plan)
    assert lines[0] == "keepalive: better; apply it" and len(lines) <= 7
    loads = [line for line in lines if line.startswith("  rate-")]
    assert len(loads) == 3 and all(line.endswith(": better") and "p99 −" in line and "[" in line for line in loads)
    assert "  and 3 more loads, in the table" in lines
    noise = next(line for line in lines if line.startswith("noise check"))
    differs = "noise check: baseline against itself differs, p99 +1.3 % [+0.1, +2.5] at rate-4: no difference up to its far end is claimed there"
    assert noise == differs
    many = make_plan([(f"v{n}", "baseline") for n in range(5)])
    grouped = lines_of(summary_of(many, {f"v{n}": "p99" for n in range(5)}, effects={"v3": 0.8}), many)
    assert len(grouped) <= 7 and grouped[0] == "better, apply it: v3"


def test_a_conclusion_names_the_blocks_that_would_decide_with_their_time() -> None:
    """And a baseline alone says what this machine finds, and what to do next."""
    plan = make_plan()
    lines = lines_of(summary_of(plan, noise=0.03), plan)
    (more,) = [line for line in lines if line.startswith("to find 2 % at ")]
    assert "just bench keepalive" in more and " --blocks " in more and "(about " in more
    alone = make_plan([("baseline", None)])
    lines = lines_of(summary_of(alone, {}), alone)
    assert lines[0].startswith("noise check passed: baseline against itself, ")
    assert lines[1].startswith("this machine finds differences from ") and lines[1].endswith(
        "; next: just bench keepalive"
    )


def test_absolute_values_stand_apart_and_not_for_what_is_inconclusive_unless_asked() -> None:
    """No row has a difference and an absolute value."""
    summary = summary_of(make_plan(), noise=0.03)
    assert effect_of(summary, "keepalive", "p99").decision is Decision.INCONCLUSIVE
    text = printed(summary)
    differences, absolutes = text.split("Absolute values of each alone")
    assert (
        "Do not compare rows" in absolutes and "whose difference is inconclusive are left out (keepalive)" in absolutes
    )
    rows = [line for line in absolutes.splitlines() if line.startswith("keepalive")]
    assert len(rows) == 1, "at the ceiling, where its primary metric is not judged"
    assert "more rows" not in text, "all fit"
    assert not any("%" in line for line in absolutes.splitlines() if line.startswith(("baseline", "keepalive")))
    assert "req/s" not in differences.split("\n\n")[0]
    every = print_page(make_tables(summary))
    assert len([line for line in every.split("Absolute values")[1].splitlines() if line.startswith("keepalive")]) == 2
    assert "p99.9" in every and "p99.9" not in text
