"""A run says whether its order changed a result, and samples that are invalid by it are the outcome."""

from __future__ import annotations

from itertools import groupby

from lab.analysis.aggregate.order import find_missing_by_order, label_by_predecessor
from lab.analysis.explain.run import make_verdicts
from lab.analysis.summary import Summary, summarise_run
from lab.model.leftovers import Leftovers
from lab.model.plan import Plan, Slot
from lab.model.samples import Reason
from lab.tests.support.factories import alter, answering, lose, make_plan, make_sample, of_slot
from lab.tests.support.made_runs import MadeStore, made

PLAN = make_plan(blocks=12, reference=None)


def predecessors(plan: Plan) -> dict[str, str]:
    """Sample id → the point before it in its bring-up, or empty."""
    found, before = dict[str, str](), dict[tuple[object, ...], str]()
    for slot in plan.slots:
        found[slot.sample_id(1)] = before.get(slot.bring_up, "")
        before[slot.bring_up] = slot.point.name
    return found


BEFORE = predecessors(PLAN)


def summary(run: MadeStore) -> Summary:
    return summarise_run(run.record, run.samples(), run.histogram)


def order_line(run: MadeStore) -> str:
    return next(note for note in summary(run).notes if note.startswith("order: "))


def test_half_as_many_answers_after_another_point_are_found() -> None:
    later = alter(
        lambda slot: slot.arm.name == "keepalive" and slot.point.name == "ceiling" and BEFORE[slot.sample_id(1)],
        answering(0.5),
    )
    assert order_line(made(planned=PLAN)).startswith("order: no metric depends on what was measured before (smallest")
    line = order_line(made(planned=PLAN, noise=0.1, change=later))
    assert line.startswith("order: what was measured before changes a result: ")
    for words in ("of keepalive at ceiling", "after rate-1000 (6 blocks)", "when first (6 blocks)"):
        assert words in line


def missing_after_ceiling(reason: Reason) -> MadeStore:
    def bad(slot: Slot) -> bool:
        return (
            slot.point.name == "rate-1000" and slot.arm.name == "keepalive" and BEFORE[slot.sample_id(1)] == "ceiling"
        )

    return made(planned=PLAN, change=lose(bad, reason))


def test_samples_that_are_invalid_by_order_are_the_outcome_and_nothing_is_judged_there() -> None:
    told = summary(missing_after_ceiling(Reason.DROPPED))
    row = next(row for row in told.rows if (row.arm.name, row.point.name) == ("keepalive", "rate-1000"))
    assert row.missing is not None
    assert "6 of 6 after ceiling, 0 of 6 when first (dropped; Fisher's exact test p 0.002)" in row.missing.text
    assert row.missing.text in row.notes
    assert not any(effect.decision.judged for effect in row.effects)
    (verdict,) = make_verdicts(told)
    assert verdict.text.startswith("keepalive: at rate-1000 samples are invalid by what was measured before: 6 of 6")
    assert told.complete, "a pattern is an outcome"
    # what the machine spoiled, and what never came up, is no pattern
    for reason in (Reason.OTHER_PROCESSES, Reason.BRING_UP_FAILED):
        told = summary(missing_after_ceiling(reason))
        assert all(row.missing is None for row in told.rows) and not told.complete


def test_thirteen_of_thirteen_against_none_of_seventeen_is_found_over_arms() -> None:
    slots = [slot for slot in make_plan(blocks=30, reference=None).slots if slot.arm.name == "keepalive"]
    ups = [list(group) for _, group in groupby(slots, key=lambda slot: slot.bring_up)]
    after = [up for up in ups if up[-1].point.name == "rate-1000"][:13]
    first = [up for up in ups if up[0].point.name == "rate-1000"][:15]
    samples = [
        make_sample(**of_slot(slot), reason=Reason.DROPPED if slot.point.name == "rate-1000" and up in after else None)
        for up in after + first
        for slot in up
    ]
    found = find_missing_by_order(samples)["rate-1000"]
    assert found.shares == {"ceiling": (13, 13), "": (0, 15)} and found.p_value < 1e-6


def test_a_retry_follows_the_sample_that_it_repeats_and_many_connections_are_those_of_a_minute() -> None:
    opened = {"proxy/ActiveOpens": 20_000}
    first = make_sample(id="a", order=1, counters=opened)
    retry = make_sample(id="b", order=1, attempt=2, started_at="2026-11-21T12:00:30Z")
    late = make_sample(id="c", order=2, started_at="2026-11-21T12:02:00Z")
    other = make_sample(id="d", order=3, arm="keepalive", started_at="2026-11-21T12:02:10Z")
    found = label_by_predecessor([late, other, retry, first])
    assert [found[name].point for name in "abcd"] == ["", "rate-1000", "rate-1000", ""]
    assert [found[name].many for name in "abcd"] == [False, True, False, False]
    waiting = Leftovers(time_wait={"proxy": {"10.0.0.1:80": 2000}}, port_range={"proxy": 28_232})
    counted = late.model_copy(update={"leftovers": {"before": waiting}})
    assert label_by_predecessor([first, counted])["c"].many, "counted sockets decide where there are some"
