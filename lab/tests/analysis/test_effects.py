"""Effects where arms were paired: the pair's ratio leads where it tells, the arms alone where it does not, and one family for all claims."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lab.analysis.aggregate.cells import build_cells, estimate_effect
from lab.analysis.comparison.comparison import compare_runs
from lab.analysis.explain.run import NOISY, explain_inconclusive, format_difference, make_verdicts
from lab.analysis.judge import effects
from lab.analysis.judge.decision import Decision
from lab.analysis.judge.effects import Effect
from lab.analysis.judge.rows import BACKEND, SummaryRow
from lab.analysis.summary import Summary, summarise_run
from lab.model.design import ABSOLUTE_VALUE_BLOCKS, NOISE_FLOOR_BLOCKS, choose_shape, find_solo_places
from lab.model.pairs import SIDES
from lab.model.plan import Plan, Slot, list_arms, plan_samples
from lab.model.samples import Reason, Sample
from lab.stats import paired as stats
from lab.tests.support.factories import alter, costing, lose, make_plan, make_point
from lab.tests.support.made_runs import MadeStore, made, paired_plan, with_variant

POINTS = [make_point("ceiling", rate_rps=None), make_point()]
BLOCKS = 8
Change = Callable[[Slot, Sample], Sample | None]


def planned(shared: bool = False, close: bool = False) -> Plan:
    arms = list_arms([("keepalive", "baseline")], None)
    loads = [point.model_copy(update={"keepalive": not close}) for point in POINTS]
    return paired_plan(loads, BLOCKS, find_solo_places(arms, loads, {"keepalive": (shared, "cpu_per_request")}))


def run(
    factor: float = 1.0,
    shared: bool = False,
    change: Change = lambda _, sample: sample,
    of: Plan | None = None,
    primary: str = "cpu_per_request",
    noise: float = 0.05,
    margin: float = 0.02,
) -> MadeStore:
    """A run of `keepalive` against `baseline`, with pairs; the pairs' noise is a tenth of that of the arms alone."""
    store = made("run-1", {"keepalive": factor}, of or planned(shared), noise, 1, change, margin=margin)
    return with_variant(store, primary_metric=primary, shared_cost=shared)


def summary(store: MadeStore) -> Summary:
    return summarise_run(store.record, store.samples(), store.histogram)


def row(store: MadeStore, arm: str = "keepalive", point: str = "ceiling") -> SummaryRow:
    return next(each for each in summary(store).rows if (each.arm.name, each.point.name) == (arm, point))


def effect(store: MadeStore, metric: str = "cpu_per_request", point: str = "ceiling", arm: str = "keepalive") -> Effect:
    return next(each for each in row(store, arm, point).effects if each.metric == metric)


def only_pairs(_slot: Slot, sample: Sample) -> Sample | None:
    return sample if sample.pair else None


@pytest.mark.parametrize(("point", "scheme"), [("ceiling", "slices"), ("rate-1000", "together")])
def test_where_the_two_were_a_pair_its_ratio_is_the_effect(point: str, scheme: str) -> None:
    found = effect(run(1.05), point=point)
    assert (found.scheme, found.pair_estimate) == (scheme, None)
    assert found.estimate is not None and found.estimate.n == BLOCKS
    assert found.estimate.ratio == pytest.approx(1.05, abs=0.01)
    assert found.estimate == effect(run(1.05, change=only_pairs), point=point).estimate
    assert found.claimed and found.decision is Decision.WORSE


def test_a_cost_that_a_pair_shares_is_told_by_the_arms_alone_and_the_pair_stands_beside() -> None:
    found = effect(run(1.5, shared=True))
    assert found.scheme is None and found.note == effects.SHARED
    assert found.estimate is not None and found.estimate.n == BLOCKS
    alone = effect(run(1.5, shared=True, change=lambda _, sample: None if sample.pair else sample))
    assert found.estimate == alone.estimate
    assert (
        found.pair_estimate is not None
        and found.pair_estimate == effect(run(1.5, shared=True, change=only_pairs)).pair_estimate
    )
    assert found.pair_estimate.n < stats.MIN_BLOCKS, "for a look only"
    opened = effect(run(1.5, of=planned(close=True)))
    assert opened.scheme is None and opened.pair_estimate is not None and opened.note == effects.SHARED


def test_slices_tell_no_latency() -> None:
    found = effect(run(1.5), "p99")
    assert found.scheme is None and found.pair_estimate is None
    assert found.estimate is not None and found.estimate.n == ABSOLUTE_VALUE_BLOCKS
    assert not found.decision.judged
    given = effect(run(1.5), "p99", "rate-1000")
    assert given.scheme == "together" and given.estimate is not None and given.estimate.n == BLOCKS


def more_in(longer: bool, factor: float) -> Change:
    def change(slot: Slot, sample: Sample) -> Sample:
        hit = slot.layout and slot.layout.longer is longer and slot.arm.name == "keepalive" and sample.untimed
        return sample.model_copy(update={"requests": round((sample.requests or 0) * factor)}) if hit else sample

    return change


def test_a_rate_is_told_where_both_lengths_of_slice_show_the_same() -> None:
    same = effect(run(1.05, primary="rate"), "rate")
    assert same.scheme == "slices" and same.estimate is not None and same.estimate.n == BLOCKS
    for longer in (True, False):
        apart = effect(run(1.05, primary="rate", change=more_in(longer, 1.2)), "rate")
        assert apart.scheme is None and apart.estimate is not None and apart.estimate.n == ABSOLUTE_VALUE_BLOCKS
    assert effect(run(1.05, change=more_in(True, 1.2))).scheme == "slices", "CPU per request is told all the same"


@pytest.mark.parametrize(("factor", "scheme"), [(1.0, "slices"), (1.2, None)])
def test_of_three_lengths_the_shorter_are_held_against_the_longer(factor: float, scheme: str | None) -> None:
    def change(slot: Slot, sample: Sample) -> Sample | None:
        if sample.pair and sample.pair.slice_s == 0.1 and slot.block <= 3:
            sample = sample.model_copy(update={"pair": sample.pair.model_copy(update={"slice_s": 0.25})})
        return more_in(True, factor)(slot, sample)

    made = run(1.05, primary="rate", change=change)
    assert {sample.pair.slice_s for sample in made.samples() if sample.untimed and sample.pair} == {0.05, 0.1, 0.25}
    assert effect(made, "rate").scheme == scheme


def test_no_rate_is_told_of_one_length_alone_nor_where_many_answers_came_in_the_other_sides_slices() -> None:
    def one_length(slot: Slot, sample: Sample) -> Sample | None:
        return None if slot.layout and slot.layout.longer else sample

    def late(_slot: Slot, sample: Sample) -> Sample:
        pair = sample.pair and sample.pair.model_copy(update={"in_flight": 0.03})
        return sample.model_copy(update={"pair": pair}) if sample.untimed else sample

    assert effect(run(change=late), "rate").scheme is effect(run(change=one_length), "rate").scheme is None
    assert effect(run(change=late)).scheme == "slices"


def test_levels_come_from_the_arms_alone_only() -> None:
    slower = alter(lambda slot: slot.other, costing(9))
    for arm in ("baseline", "keepalive"):
        plain, changed = (row(run(change=each), arm).cell for each in (lambda _, one: one, slower))
        assert (plain.valid_blocks, plain.planned_blocks) == (ABSOLUTE_VALUE_BLOCKS, ABSOLUTE_VALUE_BLOCKS)
        assert plain.known("cpu_per_request") == changed.known("cpu_per_request")
        assert plain.shown("rate") == changed.shown("rate")
    assert effect(run(change=only_pairs)).estimate is not None
    assert row(run(change=only_pairs)).cell.shown("rate") is None, "without them there is no level"


def test_a_pair_of_which_one_side_is_invalid_is_no_block() -> None:
    lost = lose(lambda slot: slot.other and slot.arm.name == "baseline" and slot.block == 3, Reason.UNEVEN)
    store = run(1.05, change=lost)
    found = effect(store)
    assert found.estimate is not None and found.estimate.n == BLOCKS - 1
    assert not summary(store).complete and summary(run()).complete


def test_claims_are_one_family_and_everything_else_another() -> None:
    """Holm over the run's primary effects of variants at all points; and over all that is judged beside them."""
    found = summary(run(1.01))
    judged = [each for line in found.rows for each in line.effects if each.decision.judged]
    for primary in (True, False):
        family = [each for each in judged if each.primary is primary]
        p_values = [each.estimate.p_value for each in family if each.estimate and each.estimate.p_value is not None]
        assert len(p_values) == len(family) > 1
        assert [each.holm_p for each in family] == pytest.approx(stats.adjust_by_holm(p_values))
    again = [each for line in found.rows if line.arm.role == "again" for each in line.effects]
    assert again and all(each.holm_p is None for each in again), "what guards is no claim"


def test_the_guard_is_the_baselines_pair_with_itself() -> None:
    uneven = alter(lambda slot: slot.arm.role == "again" and slot.other, costing(1.08))
    guard = effect(run(change=uneven), arm="baseline-again")
    assert guard.decision is Decision.A_A and guard.estimate is not None and guard.estimate.n == NOISE_FLOOR_BLOCKS
    assert guard.estimate.interval is not None and guard.estimate.interval[0] > 0
    small, large = (effect(run(factor, change=uneven)) for factor in (1.05, 1.3))
    assert small.size.noise_floor == large.size.noise_floor == pytest.approx(guard.estimate.interval[1])
    assert small.decision is Decision.INCONCLUSIVE and small.holm_p is not None and small.holm_p < 0.05
    assert any("the baseline against itself shows up to" in note for note in row(run(1.05, change=uneven)).notes)
    assert large.decision is Decision.WORSE
    assert effect(run(1.05)).size.noise_floor == 0.0


def test_a_solo_effect_claims_no_noise_floor_where_the_baseline_has_no_second_solo_arm() -> None:
    """What its pair shows against itself is a lower bound there, as solo samples have the noise that pairs cancel."""
    arms = list_arms([("keepalive", "baseline"), ("backlog", "baseline")], None)
    solo = find_solo_places(
        arms, POINTS, {arm: (arm == "keepalive", "cpu_per_request") for arm in ("keepalive", "backlog")}
    )
    plan = plan_samples(arms, POINTS, BLOCKS, 1, choose_shape(arms, POINTS, BLOCKS, SIDES, solo))
    uneven = alter(lambda slot: slot.arm.role == "again" and slot.other, costing(1.3))
    even, disturbed = (
        run(1.5, True, change, plan, noise=0.02) for change in (alter(lambda _: False, costing(1)), uneven)
    )
    found = effect(even)
    assert found.scheme is None and found.claimed and found.size.noise_floor == 0 and not found.size.floor_measured
    assert effect(disturbed).size.noise_floor == effect(disturbed, arm="backlog").size.noise_floor > 0.2
    small = effect(run(1.2, True, uneven, plan, noise=0.02))
    assert small.decision is Decision.INCONCLUSIVE and explain_inconclusive(small) == NOISY
    wide = effect(run(1.5, True, uneven, plan, noise=0.6))
    assert wide.decision is Decision.INCONCLUSIVE and explain_inconclusive(wide) == "", "its own interval is the reason"
    assert (
        effect(even, arm="backlog").size.floor_measured
        and effects.NO_FLOOR not in effect(disturbed, arm="backlog").remark
    )
    verdict = next(verdict for verdict in make_verdicts(summary(even)) if verdict.arm == "keepalive")
    assert f"{effects.SHARED}; {effects.NO_FLOOR})" in verdict.text
    assert f"{effects.SHARED}; {effects.NO_FLOOR}" in row(even).notes
    (compared,) = (
        line
        for line in compare_runs(even, None, "keepalive").rows
        if (line.metric, line.point.name) == ("cpu_per_request", "ceiling")
    )
    assert compared.decision is found.decision and effects.NO_FLOOR in compared.notes
    alone = effect(run(1.5, of=make_plan(points=POINTS, blocks=BLOCKS, reference=None)))
    assert alone.size.floor_measured and alone.remark == "", "a second solo arm of the baseline is measured there"


def test_a_pair_says_same_only_of_what_it_is_known_to_recover(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def recovers(metric: str, scheme: str) -> bool:
        asked.append((metric, scheme))
        return scheme == "slices"

    monkeypatch.setattr(effects, "recovers", recovers)
    store = run()
    assert effect(store).decision is Decision.EQUIVALENT
    assert effect(store, point="rate-1000").decision is Decision.INCONCLUSIVE
    assert ("cpu_per_request", "slices") in asked and ("cpu_per_request", "together") in asked
    alone = effect(run(shared=True, noise=0.002))
    assert alone.scheme is None and alone.decision is Decision.EQUIVALENT


def test_backends_that_cost_more_on_one_side_are_told() -> None:
    def backend(factor: Callable[[Slot], float]) -> Change:
        def change(slot: Slot, sample: Sample) -> Sample:
            if not slot.other:
                return sample
            used = sample.usage["backend"]
            more = used.model_copy(update={"cpu_s": factor(slot) * used.cpu_s})
            return sample.model_copy(update={"usage": sample.usage | {"backend": more}})

        return change

    costly = run(change=backend(lambda slot: 1.2 + slot.block / 1000 if slot.arm.name == "keepalive" else 1.0))
    sign = {"keepalive": 0.01}
    noisy = run(change=backend(lambda slot: 1 + (slot.block % 3 - 1) * sign.get(slot.arm.name, -0.01)))
    for store, told in ((costly, True), (noisy, False)):
        assert any("the knob reaches it, or the sides differ" in note for note in row(store).notes) is told
    pair = build_cells(costly.record.plan(), costly.samples(), costly.histogram).pair("keepalive", POINTS[0])
    assert pair is not None
    control = estimate_effect(pair.own, pair.base, BACKEND)
    assert control is not None and control.ratio == pytest.approx(1.2, abs=0.01)


@pytest.mark.parametrize("blocks", [6, BLOCKS])
def test_what_a_side_costs_whoever_is_there_is_told_and_is_in_no_effect(blocks: int) -> None:
    """The left side costs 10 % more: half of the blocks have it for the variant, half for the baseline."""
    left_costs = alter(lambda slot: slot.layout and slot.layout.side == "left", costing(1.1))
    store = run(1.0, change=left_costs, of=paired_plan(POINTS[:1], blocks), noise=0.001)
    found = effect(store).estimate
    assert found is not None and found.effect == pytest.approx(0, abs=0.002)
    (told,) = (note for note in summary(store).notes if note.startswith("the left side against the right one"))
    assert "CPU per request +10.0 % [" in told.replace("\xa0", " "), told


def test_what_a_request_costs_has_a_time_beside_its_share() -> None:
    """At the level of the baseline alone, of a pair's where nothing was measured alone; nothing but a cost has one."""
    both = effect(run(0.8, change=alter(lambda slot: slot.other, costing(2)), noise=0.001))
    assert both.level_s == pytest.approx(25e-6, rel=0.01)
    assert format_difference(both).endswith("] = −5.0 µs")
    pairs = effect(run(0.8, change=only_pairs, noise=0.001))
    assert pairs.level_s == pytest.approx(25e-6, rel=0.01)
    rate = effect(run(0.8, noise=0.001), "p99", "rate-1000")
    assert rate.level_s is None and "µs" not in format_difference(rate)
