"""Comparisons as text, Markdown and JSON, and the sentence each arm ends with. The golden tables live in `testdata/comparisons/`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from math import exp
from pathlib import Path
from typing import Any

import pytest

from lab.analysis.comparison.comparison import compare_runs
from lab.analysis.explain.comparison import Advice, advise
from lab.analysis.judge.comparison import Comparison
from lab.analysis.noise import make_aa_arms
from lab.model.plan import Arm, plan_samples
from lab.model.run import AtKnee, KneeSearch
from lab.model.samples import Reason
from lab.model.sweeps import LoadPoint
from lab.records.sweep_files import load_sweep
from lab.report.json.runs import COMPARISON
from lab.report.markdown import render_markdown
from lab.report.tables.comparison import make_page
from lab.tests.support.factories import alter, answering, costing, lose, make_plan, make_point
from lab.tests.support.golden import assert_golden, print_page
from lab.tests.support.made_runs import FACTS, MadeStore, made, made_disturbed

GOLDEN = Path(__file__).parents[1] / "testdata" / "comparisons"
BOTH = (("keepalive", "baseline"), ("backlog", "baseline"))
SEARCH = KneeSearch(p99_s=0.02, min_achieved=0.99, max_generator_core=0.8, start_rps=100, least_rps=1, precision=0.1)
ASKED = ("lab", "knee", "--target=kind", "--p99=20ms", "--precision=10%", "--close", "--json", "--", "keepalive")
BY_K6 = {"name": "k6", "version": "1.8.1", "stand_in_for": "wrk2", "out": "csv"}
WITH_ROWS = {"ceiling": BY_K6, "rate-1000": BY_K6}
LIMITED = {"limited_by": "generator"}
KILL = [point for point in load_sweep("kill")[1].load_points if point.name == "delete" or point.control]


def printed(found: Comparison, width: int | None = None) -> str:
    return print_page(make_page(found), width)


def one() -> Comparison:
    stolen = lose(lambda slot: (slot.arm.name, slot.block, slot.point.name) == ("backlog", 3, "rate-1000"))
    return compare_runs(made(planned=make_plan(BOTH), effects={"keepalive": 0.8}, change=stolen), None)


def two() -> Comparison:
    faster = {"keepalive": 0.7, "baseline": 1.03}
    return compare_runs(made(), made("run-2", faster, seed=2, facts=FACTS | {"cpu": "EPYC", "kernel": "6.18"}))


def gone(seconds: Mapping[str, float]) -> MadeStore:
    def outcome(arm: Arm, point: LoadPoint, block: int) -> dict[str, float | None]:
        out_s = 0.0 if point.control else seconds[arm.variant] + (block * 7 % 5 + (arm.role == "again")) / 10
        return {"requests": 5200.0, "failed": round(100 * out_s), "gap_s": out_s, "rss_bytes": 3e7 + block}

    return made_disturbed("run-1", KILL, outcome, sweep="kill")


@pytest.mark.parametrize(
    ("name", "got"),
    [
        ("one.txt", lambda: printed(one())),
        ("one-100.txt", lambda: printed(one(), 100)),
        ("one.md", lambda: render_markdown(make_page(one()))),
        ("two-100.txt", lambda: printed(two(), 100)),
        ("disturbed-100.txt", lambda: printed(compare_runs(gone({"baseline": 30.0, "keepalive": 1.0}), None), 100)),
    ],
)
def test_comparisons_look_as_agreed(name: str, got: Callable[[], str]) -> None:
    assert_golden(GOLDEN / name, got())


@pytest.mark.parametrize("comparison", [one, two])
def test_json_says_the_same(comparison: Callable[[], Comparison]) -> None:
    found = comparison()
    told = json.loads(json.dumps(COMPARISON.plain(found), allow_nan=False))
    assert [row["decision"] for row in told["rows"]] == [row.decision.value for row in found.rows]
    for row, has in zip(told["rows"], found.rows, strict=True):
        assert row["effect"] == (exp(has.estimate.effect) if has.estimate else None)
        assert row["base"]["median"] == (has.base.level.value if has.base.level else None)
    assert told["paired"] is found.paired
    assert [verdict["text"] for verdict in told["verdicts"]] == [advice.text for advice in advise(found)]


def advice_of(found: Comparison, arm: str = "keepalive") -> Advice:
    return next(advice for advice in advise(found) if advice.other_arm == arm)


@pytest.mark.parametrize("factor", [0.8, 1.3])
def test_what_is_only_to_measure_by_is_not_applied_whatever_it_showed(factor: float) -> None:
    store = changed(made(effects={"keepalive": factor}), only_to_measure_by="what Lua costs")
    advice = advice_of(compare_runs(store, None))
    assert (advice.kind, advice.snippet) == ("instrument", "")
    assert advice.text.endswith(": only to measure by, nothing to apply: what Lua costs")


def test_what_is_mixed_has_what_to_apply_and_when() -> None:
    """Better here and worse there, or faster where it worked and dead in some blocks."""
    change = alter(lambda slot: slot.arm.name == "keepalive", answering(0.5))
    advice = advice_of(compare_runs(made(effects={"keepalive": 0.8}, change=change), None))
    assert advice.kind == "mixed" and advice.snippet == "data:\n  keep-alive-requests: '10000'\n"
    assert ": better in p99 at rate-1000, worse in rate at ceiling: apply only if the first matters" in advice.text
    second = changed(made("run-2", {"keepalive": 0.8}, seed=2, change=change))
    advice = advice_of(compare_runs(made(), second))
    assert (advice.kind, advice.snippet) == ("mixed", ""), "what differs is not in the snippet"
    assert advice.text.endswith("apply manifests/keepalive.yaml of run-2 only if the first matters more to you")
    dying = lose(lambda slot: slot.arm.role == "variant" and slot.block > 6, Reason.PROXY_DIED)
    planned = make_plan(blocks=10)
    advice = advice_of(compare_runs(made(planned=planned, effects={"keepalive": 0.8}, change=dying), None))
    assert advice.kind == "mixed" and advice.snippet
    assert ", in the blocks that worked (6 of 10 blocks, proxy-died 4): apply only once all of them do:" in advice.text
    worse = advice_of(compare_runs(made(planned=planned, effects={"keepalive": 1.5}, change=dying), None))
    assert worse.kind == "keep"


def test_what_is_not_resolved_ends_in_a_bound_another_load_or_how_many_blocks() -> None:
    found = compare_runs(made(), None)
    advice = advice_of(found)
    row = next(row for row in found.rows if (row.point.name, row.metric) == ("rate-1000", "p99"))
    assert row.estimate is not None and row.estimate.interval is not None
    bound = max(map(abs, row.estimate.interval))
    assert advice.kind == "inconclusive"
    assert f"no change needed unless {100 * (exp(bound) - 1):.1f} % in p99 at rate-1000" in advice.text
    store = changed(made(), hypothesis_sweep="port-churn")
    assert advice_of(compare_runs(store, None)).text.endswith("just bench keepalive --sweep port-churn")
    store.record = store.record.model_copy(update={"target": "kind"})
    assert advice_of(compare_runs(store, None)).text.endswith("--sweep port-churn --target kind")
    advice = advice_of(compare_runs(made(planned=make_plan(blocks=3)), None))
    assert advice.kind == "nothing"
    assert advice.text.endswith(
        "no interval (3 blocks, 6 are needed), so nothing is resolved: just bench keepalive --blocks 6, or more"
    )
    lost = lose(lambda slot: slot.arm.name == "keepalive" and slot.block in (1, 2))
    advice = advice_of(compare_runs(made(change=lost, target="kind"), None))
    assert advice.text.endswith("just bench keepalive --target kind --blocks 8, or more")
    apart = lose(lambda slot: slot.block in {"baseline": (1, 2), "variant": (7, 8)}.get(slot.arm.role, ()))
    advice = advice_of(compare_runs(made(planned=make_plan(blocks=8), change=apart), None))
    assert advice.text.endswith("just bench keepalive --blocks 10, or more"), "only four pairs"


@pytest.mark.parametrize(
    ("record", "command"),
    [
        ({"target": "remote"}, "just bench keepalive --target remote --context NAME --blocks 6, or more"),
        (
            {"sweep": "tiny", "command": ("lab", "bench", "--sweep=my loads/tiny.toml", "--", "keepalive")},
            "just bench keepalive --sweep 'my loads/tiny.toml' --blocks 6, or more",
        ),
        (
            {"knee": SEARCH, "sweep": "knee", "target": "kind", "command": ASKED},
            "just knee keepalive --p99=20ms --precision=10% --close --target kind",
        ),
        (
            {"sweep": "at-knee", "at_knee": AtKnee(rate_rps=2001.5, run="gone", variant="baseline")},
            "just bench keepalive --sweep at-knee --knee 2001.5 --blocks 6, or more",
        ),
        ({"generators": WITH_ROWS}, "just bench keepalive --k6-out csv --blocks 6, or more"),
        (
            {"manifests": "mine/manifests", "command": ("lab", "ablate", "--blocks=3", "--json", "--", "keepalive")},
            "just ablate keepalive --blocks 6, or more",
        ),
    ],
)
def test_the_command_at_the_end_can_be_run_as_it_stands(record: dict[str, Any], command: str) -> None:
    """By the verb that made the run and what it was asked for; a search takes no blocks."""
    advice = advice_of(compare_runs(made(planned=make_plan(blocks=3), **record), None))
    assert advice.kind == "nothing" and advice.text.endswith(f": {command}")


def test_what_could_not_be_judged_ends_in_what_to_do() -> None:
    """Of a rate that was not served once more would not show who was the limit; but where the base did not serve it either, nothing is known."""
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "just bench --resume run-1"),
        ({"target": "remote"}, "just bench --resume run-1 --context NAME"),
        ({"knee": SEARCH}, "just knee --resume run-1"),
    ]
    for record, command in cases:
        advice = advice_of(compare_runs(made(change=lambda _slot, _sample: None, **record), None))
        assert advice.kind == "nothing" and advice.text.endswith(command)
    change = alter(lambda _: True, lambda _: {"generator": "oha", "stand_in_for": None})
    advice = advice_of(compare_runs(made(), made("run-2", seed=2, change=change)))
    assert advice.kind == "nothing" and advice.text.endswith("measure both with one generator")

    def advised(*roles: str) -> str:
        slow = lose(lambda slot: slot.arm.role in roles, Reason.RATE_NOT_ACHIEVED)
        store = made(planned=make_plan(points=[make_point()]), change=slow, target="kind")
        return advice_of(compare_runs(store, None)).text

    said = (
        "keepalive: nothing to judge: the base served rate-1000 and this did not: `just knee keepalive --target kind`"
    )
    assert advised("variant").startswith(said) and advised("variant").endswith("or compare closed loops")
    assert "measure again: just bench keepalive --target kind" in advised("variant", "baseline")


def test_settings_of_one_name_in_two_runs_are_a_finding_only_where_they_differ() -> None:
    """A baseline's second name is no variant to measure: `bench` knows variants, not the arms of a run."""
    second = made("run-2", {"baseline": 1.3}, seed=2)
    advice = advice_of(compare_runs(made(), second), "baseline")
    assert advice.kind == "moved" and "no setting did this" in advice.text and "just bench baseline" in advice.text
    again = advice_of(compare_runs(made(), second, "baseline", "baseline-again"), "baseline-again")
    assert again.text.endswith("(just bench baseline), not across these two")
    second = changed(made("run-2", {"keepalive": 0.7}, seed=2), snippet="data: {a: b}\n")
    advice = advice_of(compare_runs(made(), second))
    assert (advice.kind, advice.snippet) == ("apply", "data: {a: b}\n") and advice.text.endswith(": apply:")
    advice = advice_of(compare_runs(made(), changed(made("run-2", {"keepalive": 0.7}, seed=2))))
    assert advice.text.endswith("apply manifests/keepalive.yaml of run-2"), "what differs is not in the snippet"
    worse = advice_of(compare_runs(made(), changed(made("run-2", {"keepalive": 1.5}, seed=2))))
    assert worse.kind == "keep" and worse.text.endswith("keep the manifests of run-1")


def changed(store: MadeStore, **update: Any) -> MadeStore:
    """The same run with other settings under the variant's name."""
    variants = store.record.variants
    mine = variants["keepalive"].model_copy(update={"manifests_sha256": "another", **update})
    store.record = store.record.model_copy(update={"variants": variants | {"keepalive": mine}})
    return store


def test_an_effect_no_larger_than_the_baselines_move_is_measured_again_in_one_run() -> None:
    both = made("run-2", {"keepalive": 1.3, "baseline": 1.3}, planned=make_plan(BOTH), seed=2)
    advice = advice_of(compare_runs(made(planned=make_plan(BOTH)), changed(both)))
    assert advice.kind == "moved" and "measure both in one run: just bench A B" in advice.text
    arms = compare_runs(made(planned=make_plan(BOTH)), both, "backlog", "keepalive")
    assert "measure both in one run: just bench backlog keepalive" in advice_of(arms).text
    second = changed(made("run-2", {"keepalive": 1.0, "baseline": 1.3}, seed=2))
    advice = advice_of(compare_runs(made(), second))
    assert advice.kind == "inconclusive" and "their common baseline moved between the runs" in advice.text


@pytest.mark.parametrize("arms", [(None, None), ("keepalive-again", "keepalive-null-1")])
@pytest.mark.parametrize("factor", [0.7, 1.4])
def test_the_same_variant_under_two_names_is_a_false_claim(factor: float, arms: tuple[str | None, str | None]) -> None:
    change = alter(lambda slot: slot.arm.name == "keepalive-null-1", costing(factor))
    store = made(planned=plan_samples(make_aa_arms("keepalive", 1, "direct"), make_plan().points, 6, 1), change=change)
    (advice,) = advise(compare_runs(store, None if arms[0] is None else store, *arms))
    assert (advice.kind, advice.snippet) == ("moved", "")
    assert advice.text.endswith(": a false claim, as it is the same variant: `just aa` counts them")


def test_two_systems_have_nothing_to_apply_and_nothing_that_says_what_drifted() -> None:
    first = made("run-1", planned=make_plan([("nginx", None)]))
    second = made("run-2", {"okd": 0.5}, make_plan([("okd", None)]), seed=2)
    advice = advice_of(compare_runs(first, second, "nginx", "okd"), "okd")
    drifted = "no common baseline says what drifted between the runs; measure both in one run: just bench nginx okd"
    assert advice.kind == "apply" and not advice.snippet and drifted in advice.text
    assert advice.text.endswith("there is no setting to apply: choose okd")
    back = compare_runs(made(effects={"keepalive": 1.5}), None, "keepalive", "baseline")
    assert advice_of(back, "baseline").text.endswith("there is no setting to apply: choose baseline")
    elsewhere = made("run-2", {"okd": 0.5}, make_plan([("okd", None)]), seed=2, facts=FACTS | {"cpu": "EPYC"})
    assert advice_of(compare_runs(first, elsewhere, "nginx", "okd"), "okd").kind == "moved"


def test_a_disturbances_bound_is_in_its_own_unit() -> None:
    advice = advice_of(compare_runs(gone({"baseline": 30.0, "keepalive": 30.0}), None))
    assert advice.kind == "equivalent" and "no change needed: a difference of 0" in advice.text
    assert " s in longest gap at delete" in advice.text or " in failed requests at delete" in advice.text
    of_arm = alter(lambda slot: (slot.arm.name, slot.point.rate_rps) == ("keepalive", None), lambda _: LIMITED)
    text = advice_of(compare_runs(made(effects={"keepalive": 0.5}, change=of_arm), None)).text
    assert "rate at ceiling +" in text and "] (at least)" in text
