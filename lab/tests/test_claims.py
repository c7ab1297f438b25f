"""The ledger: rules as data, and verdicts of runs whose answers are known."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from lab import claims, evidence
from lab.claims import Claim, Other, Rule, Test, ledger
from lab.claims.judging import Verdict, judged
from lab.errors import UsageError
from lab.knobs import load_knob
from lab.plan import Arm
from lab.sweeps import Point, load_sweep
from lab.tests import disturbed
from lab.tests.committed import RATE_RPS, Story, run_of
from lab.variants import chain

ROOT = Path(__file__).resolve().parents[2]
CLAIM = Claim("ND-12", "nds", "stated", "about 30 s of outage", "30", "s", "")
Judge = Callable[..., Verdict]


def gone(seconds: Callable[[str, int], float]) -> Story:
    """Every arm fails for `seconds(variant, block)`, and its A/A twin as its baseline."""

    def story(arm: Arm, point: Point, block: int) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        out = None if point.control else (5.0, 5.0 + seconds(arm.variant, block))
        log = disturbed.requests(RATE_RPS, point.duration_s, out=out)
        told = disturbed.events() if point.control else disturbed.killed(5.0, 1.0)
        return log, told, disturbed.usage([2] * 5)

    return story


@pytest.fixture
def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Judge:
    """Verdict of a rule on runs of kill-quick, each made by a story."""

    def verdict(rule: Rule, *stories: Story, blocks: int = 6, target: str = "local") -> Verdict:
        for number, story in enumerate(stories):
            name = f"reference-kill-quick-{target}{f'-{number}' if number else ''}"
            pairs = [("kill-nds", "kill-grace-30")]
            run_of(tmp_path, monkeypatch, "kill-quick", pairs, story, blocks, name, target=target)
        monkeypatch.setenv("LAB_REFERENCE", str(tmp_path))
        runs, damaged = evidence.references()
        return judged(CLAIM, [rule], runs, damaged)

    return verdict


def rule(*tests: Test, given: tuple[Test, ...] = ()) -> Rule:
    return Rule(rule="r", sweeps=["kill-quick"], variant="kill-nds", tests=list(tests), given=list(given))


ABOUT = Test(metric="failing_s", within=(15, 25))
LONGER = Test(metric="failing_s", minus=Other(variant="kill-grace-30"), above=0)


def test_an_interval_inside_reproduces(judge: Judge) -> None:
    """With the effect, its interval and the run."""
    found = judge(rule(ABOUT), gone(lambda _, block: 20 + block / 10))
    assert (found.answer, found.runs) == ("reproduced", ("reference-kill-quick-local",))
    assert found.effect.startswith("first to last failure 20.3 s [20.1, 20.6]")


def test_an_interval_outside_contradicts(judge: Judge) -> None:
    """All of it."""
    assert judge(rule(ABOUT), gone(lambda _, block: 2 + block / 10)).answer == "contradicted"


def test_an_interval_across_the_bound_leaves_it_open(judge: Judge) -> None:
    """Some blocks inside, some not."""
    found = judge(rule(ABOUT), gone(lambda _, block: 12 + block))
    assert (found.answer, found.why) == ("not resolved", "the interval leaves both open")


def test_fewer_than_six_blocks_decide_nothing(judge: Judge) -> None:
    """There is no interval."""
    found = judge(rule(ABOUT), gone(lambda _, block: 20), blocks=5)
    assert (found.answer, found.why) == ("not resolved", "no interval: 5 blocks, 6 are needed")


def test_a_difference_must_lie_beyond_the_floor(judge: Judge) -> None:
    """The variant fails for 4 s more in every block: reproduced; for less than a request's distance more: not."""
    more = gone(lambda variant, block: (6 if variant == "kill-nds" else 2) + block / 10)
    found = judge(rule(LONGER), more)
    assert found.answer == "reproduced"
    assert found.effect == "first to last failure +4 s [4, 4] against kill-grace-30"


def test_no_difference_contradicts_nothing_by_itself(judge: Judge) -> None:
    """Both sides the same: what the load resolves leaves a small difference open."""
    assert judge(rule(LONGER), gone(lambda _, block: 2 + block / 10)).answer == "not resolved"


def test_the_other_direction_contradicts(judge: Judge) -> None:
    """The variant fails for less."""
    less = gone(lambda variant, block: (2 if variant == "kill-nds" else 6) + block / 10)
    assert judge(rule(LONGER), less).answer == "contradicted"


def test_one_test_that_fails_is_enough(judge: Judge) -> None:
    """All must hold."""
    longer = Test(metric="failing_s", within=(100, 200))
    assert judge(rule(ABOUT, longer), gone(lambda _, block: 20)).answer == "contradicted"


def test_what_the_load_did_not_do_decides_nothing(judge: Judge) -> None:
    """`given` must hold first."""
    given = Test(metric="failed", above=10_000)
    found = judge(rule(ABOUT, given=(given,)), gone(lambda _, block: 20))
    assert found.answer == "not resolved"
    assert found.why.startswith("the load was not what the claim is about: failed requests")


def test_runs_that_disagree_leave_it_open(judge: Judge) -> None:
    """Never pooled: one says so, the other not."""
    found = judge(rule(ABOUT), gone(lambda _, block: 20), gone(lambda _, block: 2))
    names = ("reference-kill-quick-local", "reference-kill-quick-local-1")
    assert (found.answer, found.runs) == ("not resolved", names)
    assert found.why == f"runs disagree ({names[0]}: reproduced, {names[1]}: contradicted)"


def test_runs_that_agree_are_all_named(judge: Judge) -> None:
    """With the effect of the first, and in which it was the same."""
    found = judge(rule(ABOUT), gone(lambda _, block: 20), gone(lambda _, block: 21))
    assert (found.answer, len(found.runs)) == ("reproduced", 2)
    assert found.why == "the same in reference-kill-quick-local-1"


def test_only_runs_of_the_rules_target_count(judge: Judge) -> None:
    """Whatever another target's say: there the claim is as without a run, and the command names the target."""
    on_kind = rule(ABOUT).model_copy(update={"target": "kind"})
    found = judge(on_kind, gone(lambda _, block: 20))
    assert (found.answer, found.runs, found.findings) == ("not resolved", (), ())
    assert found.why == "no run of it in data/reference yet: just bench kill-nds --sweep kill-quick --target kind"
    found = judge(on_kind, gone(lambda _, block: 2), target="kind")
    assert (found.answer, found.runs) == ("contradicted", ("reference-kill-quick-kind",))
    found = judge(rule(ABOUT))
    assert (found.answer, found.runs, found.why) == ("reproduced", ("reference-kill-quick-local",), "")


def test_claims_about_the_real_controller_are_judged_on_kind() -> None:
    """The local target's stand-in has no Lua; its runs of the same sweep say nothing of it."""
    known = claims.rules()
    assert {name for name, every in known.items() for each in every if each.target == "kind"} == {"QN-16", "QN-17"}
    runs, _ = evidence.references()
    for claim in (claim for claim in claims.claims() if claim.id in ("QN-16", "QN-17")):
        found = judged(claim, known[claim.id], [run for run in runs if run.run.record.target != "kind"])
        assert (found.answer, found.runs) == ("not resolved", ())
        assert found.why.endswith("--sweep quick --target kind")


def test_a_metric_that_a_block_cannot_tell_decides_nothing(judge: Judge) -> None:
    """In one block no change was ever seen: how long it took is unknown there, and not short."""

    def story(arm: Arm, point: Point, block: int) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        shown = [f"backend {9000 + (number > 200 and block > 1)} -" for number in range(720)]
        log = disturbed.requests(RATE_RPS, point.duration_s, answers=shown)
        told = disturbed.events((5.0, "lab", "", "", "Begin", ""), (6.0, "lab", "", "1", "Change", "endpoints"))
        return log, disturbed.events() if point.control else told, disturbed.usage([2] * 5)

    found = judge(rule(Test(metric="correct_s", within=(0, 60))), story)
    assert (found.answer, found.effect) == ("not resolved", "time until correct: not told in 1 of 6 blocks")


def test_without_a_run_the_command_is_said(judge: Judge) -> None:
    """And nothing is decided."""
    found = judge(rule(ABOUT))
    assert (found.answer, found.effect, found.runs) == ("not resolved", "", ())
    assert found.why == "no run of it in data/reference yet: just bench kill-nds --sweep kill-quick"


def test_a_block_without_its_control_does_not_count(judge: Judge, tmp_path: Path) -> None:
    """A failed control run takes its block away: five are left."""

    def story(arm: Arm, point: Point, block: int) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        return gone(lambda _, block: 20)(arm, point, block)

    assert judge(rule(ABOUT), story).answer == "reproduced"
    for path in tmp_path.glob("*/samples/*b01-kill-nds-control/sample.json"):
        told = json.loads(path.read_text()) | {"verdict": "invalid", "reason": "control-failed"}
        path.write_text(json.dumps(told))
    found = judge(rule(ABOUT))
    assert (found.answer, found.why) == ("not resolved", "no interval: 5 blocks, 6 are needed")


def test_what_a_run_could_not_show_is_not_measurable_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the run's own words, with its id; a run that did measure it counts instead."""
    run_of(tmp_path, monkeypatch, "kill-quick", [("kill-grace-30", "baseline")], gone(lambda _, block: 2), name="a")
    path = tmp_path / "a" / "run.json"
    missing = {"variant": "kill-nds", "what": "cores", "why": "it wants 4 and there are 2"}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"not_measurable": [missing]}))
    monkeypatch.setenv("LAB_REFERENCE", str(tmp_path))
    found = judged(CLAIM, [rule(ABOUT)], *evidence.references())
    assert (found.answer, found.why) == ("not measurable here", "kill-nds: cores: it wants 4 and there are 2")
    assert (found.runs, found.findings, found.rule) == (("a",), (), "r")
    ledger.settled([found])
    pairs = [("kill-nds", "kill-grace-30")]
    run_of(tmp_path, monkeypatch, "kill-quick", pairs, gone(lambda _, block: 20), name="b")
    found = judged(CLAIM, [rule(ABOUT)], *evidence.references())
    assert (found.answer, found.runs) == ("reproduced", ("b",))


WITH_DAMAGE = [
    ("raw.zst", "answered_while_failing"),
    ("events.parquet", "least_reload_spacing_s"),
    ("usage.parquet", "busiest_second"),
    ("hist.parquet", "p75_s"),
]
"""A file beside sample.json, and a metric that is read from it."""


def damaged(path: Path) -> None:
    """Cut off in the middle."""
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


def has_told(found: Verdict, path: Path) -> bool:
    """Whether the claim is open because of this file, with what is to be done, and no notebook ends there."""
    ledger.settled([found], [found])
    remedy = "restore data/reference/reference-kill-quick-local from a copy"
    return found.answer == "not resolved" and f"is damaged: {path}: " in found.why and remedy in found.why


@pytest.mark.parametrize(("file", "metric"), WITH_DAMAGE, ids=[file for file, _ in WITH_DAMAGE])
def test_a_damaged_file_leaves_open_what_is_read_from_it(file: str, metric: str, judge: Judge, tmp_path: Path) -> None:
    """In one sample of many; a claim that rests on other files of the run is judged as before."""
    story = gone(lambda _, block: 20 + block / 10)
    before = judge(rule(ABOUT), story)
    (path,) = tmp_path.glob(f"*/samples/*-b03-kill-nds-delete/{file}")
    damaged(path)
    found = judge(rule(Test(metric=metric, above=0)))
    assert has_told(found, path)
    assert found.runs == ("reference-kill-quick-local",)
    assert judge(rule(ABOUT)) == before
    assert before.answer == "reproduced"


def test_manifests_that_are_not_those_that_were_applied_leave_open_what_is_read_from_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a YAML file is YAML, too: of 1000 routes it has some; and what is no YAML any more."""
    shutil.copytree(ROOT / "data" / "reference" / "new-route", tmp_path / "run")
    monkeypatch.setenv("LAB_REFERENCE", str(tmp_path))
    path = tmp_path / "run" / "manifests" / "okd.yaml"
    asked = Rule(
        rule="r", sweeps=["new-route"], variant="okd", tests=[Test(metric="routes", points="new-route", above=0)]
    )
    assert judged(CLAIM, [asked], *evidence.references()).answer == "reproduced"
    whole = path.read_text()
    for text in (
        whole.rpartition("\n---\n")[0] + "\n",
        whole.replace("host: ", "ghost: "),
        whole + "\n\t",
        "2026-99-99",
    ):
        path.write_text(text)
        found = judged(CLAIM, [asked], *evidence.references())
        ledger.settled([found])
        assert (found.answer, found.effect) == ("not resolved", "")
        assert f"run is damaged: {path}: " in found.why


@pytest.mark.parametrize("file", ["sample.json", "usage.parquet"])
def test_a_run_that_cannot_be_read_leaves_its_claims_open(file: str, judge: Judge, tmp_path: Path) -> None:
    """A record cut off, a file gone: the claims that it would be judged by name it, others do not."""
    judge(rule(ABOUT), gone(lambda _, block: 20 + block / 10))
    (path,) = tmp_path.glob(f"*/samples/*-b03-kill-nds-delete/{file}")
    if file == "sample.json":
        damaged(path)
    else:
        path.unlink()
    found = judge(rule(ABOUT))
    assert has_told(found, path if file == "sample.json" else path.parent)
    assert file in found.why
    assert (found.runs, found.effect) == ((), "")
    other = judge(rule(ABOUT).model_copy(update={"target": "kind"}))
    assert other.why == "no run of it in data/reference yet: just bench kill-nds --sweep kill-quick --target kind"


def test_a_run_without_a_record_is_named_where_a_run_is_missing(judge: Judge, tmp_path: Path) -> None:
    """Nobody can tell what it measured."""
    judge(rule(ABOUT), gone(lambda _, block: 20))
    path = tmp_path / "reference-kill-quick-local" / "run.json"
    damaged(path)
    found = judge(rule(ABOUT))
    assert has_told(found, path)
    assert "just bench kill-nds --sweep kill-quick; reference-kill-quick-local is damaged: " in found.why


def test_a_damaged_run_beside_a_whole_one_leaves_the_claim_open(judge: Judge, tmp_path: Path) -> None:
    """It could disagree; what the whole one says by itself is told."""
    judge(rule(ABOUT), gone(lambda _, block: 20 + block / 10), gone(lambda _, block: 21 + block / 10))
    (path,) = tmp_path.glob("reference-kill-quick-local/samples/*-b03-kill-nds-delete/sample.json")
    damaged(path)
    found = judge(rule(ABOUT))
    assert has_told(found, path)
    assert found.runs == ("reference-kill-quick-local-1",)
    assert found.effect.startswith("first to last failure 21.3 s")
    assert found.why.endswith("; reference-kill-quick-local-1 alone: reproduced")


def test_a_damaged_run_is_told_in_every_form_of_the_ledger_and_hides_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All claims are there; those that no damaged run has to do with as without the damage."""
    for name in ("outage", "kind-lua"):
        shutil.copytree(ROOT / "data" / "reference" / name, tmp_path / name)
    monkeypatch.setenv("LAB_REFERENCE", str(tmp_path))
    before, known_before = ledger.ledger(), ledger.checks()
    path = next((tmp_path / "outage" / "samples").glob("*-b02-baseline-outage")) / "sample.json"
    damaged(path)
    verdicts, known = ledger.ledger(), ledger.checks()
    assert verdicts == before
    changed = [now for now, was in zip(known, known_before, strict=True) if now != was]
    assert [verdict.claim.id for verdict in changed] == ["outage"]
    ledger.settled(verdicts, known)
    console = Console(width=10_000, record=True, file=io.StringIO())
    ledger.print_ledger(console, verdicts, known=known)
    forms = console.export_text(), ledger.as_markdown(verdicts, known), json.dumps(ledger.as_json(verdicts, known))
    assert all(f"outage is damaged: {path}: " in form for form in forms)


def test_the_committed_runs_are_whole() -> None:
    """Damage would be a gap in the ledger, and end nothing: it is found here."""
    runs, broken = evidence.references()
    assert runs
    assert broken == []
    assert not [found.why for each in (*ledger.ledger(), *ledger.checks()) for found in each.findings if found.damaged]


def test_a_cell_is_like_another_machines_by_its_ratio() -> None:
    """Bounds about the published ratio, computed from claims.csv when the rules are read."""
    (cell,) = claims.rules()["OK-03"]
    published = {claim.id: float(claim.published) for claim in claims.claims() if claim.id in ("OK-01", "OK-03")}
    ratio = published["OK-03"] / published["OK-01"]
    assert cell.tests[0].within == pytest.approx((ratio / claims.NEAR, ratio * claims.NEAR))
    assert cell.tests[0].met(ratio)


def test_averages_and_busiest_seconds_are_told_of_a_steady_load() -> None:
    """Of a committed run: each where the percentiles on either side say that it must lie."""
    (run,) = (each for each in evidence.references()[0] if each.name == "quick-keepalive")
    names = ("mean_s", "p50", "p75_s", "p90", "p95_s", "p99", "busiest_second")
    told = {name: list(run.values("keepalive", "ceiling", name).values()) for name in names}
    for mean_s, p50, p75_s, p90, p95_s, p99, busiest in zip(*told.values(), strict=True):
        assert mean_s and p50 and p75_s and p90 and p95_s and p99 and busiest
        assert p50 <= p75_s <= p90 <= p95_s <= p99
        assert p50 / 2 < mean_s < p99
        assert 0 < busiest <= 1.05, "one worker, one thread"


def test_every_claim_is_in_the_ledger() -> None:
    """All 102, in their order; each is judged, here and by its own data, and how its kind is judged is said."""
    verdicts = ledger.ledger()
    assert [verdict.claim.id for verdict in verdicts] == [claim.id for claim in claims.claims()]
    assert len(verdicts) == len({verdict.claim.id for verdict in verdicts}) == 102
    assert {verdict.answer for verdict in verdicts} <= set(claims.ANSWERS)
    assert {verdict.claim.id for verdict in verdicts} == set(claims.rules())
    assert all(verdict.own is not None and verdict.own.sentence for verdict in verdicts)
    assert {verdict.claim.kind for verdict in verdicts} == set(claims.KINDS)
    assert ledger.counts(verdicts).startswith("102 claims: ")
    assert sum(int(part.split()[0]) for part in ledger.counts(verdicts).partition(": ")[2].split(", ")) == 102


RULES = [
    *((name, rule) for name, rules in claims.rules().items() for rule in rules if rule.tests),
    *((claim.id, rule) for claim, rules in claims.checks() for rule in rules),
]
judged_by = pytest.mark.parametrize(("name", "rule"), RULES, ids=[f"{name}-{rule.sweeps[0]}" for name, rule in RULES])


@judged_by
def test_the_points_of_a_rule_are_in_each_of_its_sweeps(name: str, rule: Rule) -> None:
    """Else a run of that sweep would leave the claim open for ever."""
    for sweep in rule.sweeps:
        points = load_sweep(sweep)[1].expanded()
        for test in (*rule.given, *rule.tests, *rule.told):
            meant = [
                point for point in points if claims.fits(test.points, point.name) and point.control is test.control
            ]
            assert meant
            logged = all(point.disturbance is not None for point in meant)
            assert logged or test.metric != "answered_while_failing", f"{name}: no request of {sweep} is logged"
            for other in (test.minus, test.ratio_to):
                if other is not None and other.points is not None:
                    found = [point for point in points if claims.fits(other.points, point.name) and not point.control]
                    assert len(found) == 1, f"{name}: {other.points} in {sweep}"


ABOUT_SEVERAL = {"AW-01", "AW-02", "AW-05", "AW-07", "DO-22", "QN-15"}
"""Claims that speak of several settings at once."""


@judged_by
def test_what_a_rule_compares_differs_by_what_the_claim_is_about(name: str, rule: Rule) -> None:
    """One knob: one side has it and the other has not, or both set the same thing to different values. Else another system, cells
    of a table, which differ by whatever that varies, or all of several settings against none of them.
    """
    for test in (*rule.given, *rule.tests, *rule.told):
        other = test.minus or test.ratio_to
        if other is None or other.variant is None or any(test.like for test in rule.tests):
            continue
        one, two = (chain(of) for of in (test.variant or rule.variant, other.variant))
        if one[0].name != two[0].name:
            continue
        mine, theirs = ({knob for overlay in of for knob in overlay.own_knobs} for of in (one, two))
        more, less = mine - theirs, theirs - mine
        assert more | less, f"{name}: {test.variant or rule.variant} against itself"
        if name in ABOUT_SEVERAL and not less:
            continue
        assert len(more) <= 1 and len(less) <= 1, f"{name}: {more} against {less}"
        if not more or not less:
            continue
        one_sets, other_sets = ({check.subject for check in load_knob(knob).readback} for (knob,) in (more, less))
        assert one_sets & other_sets, f"{name}: {more} and {less} set different things"


def test_a_check_is_no_claim_and_is_judged_alike() -> None:
    """An outage of known length and bodies too large: in the ledger, not among the 102."""
    found = {verdict.claim.id: verdict for verdict in ledger.checks("nds")}
    assert {"outage", "too-large"} <= set(found)
    assert not found.keys() & claims.rules().keys()
    assert "- check outage, **" in ledger.as_markdown(ledger.ledger("nds"), list(found.values()))
    assert ledger.checks("okd") == []


def test_a_notebook_ends_where_a_rule_asks_for_what_its_run_has_not(judge: Judge) -> None:
    """A point that is not there is a gap; what the interval leaves open is none."""
    ledger.settled([judge(rule(ABOUT), gone(lambda _, block: 12 + block))])
    for asked in (
        Test(metric="failing_s", points="held", above=0),
        Test(metric="failing_s", minus=Other(points="held"), above=0),
    ):
        with pytest.raises(AssertionError, match="does not have what its rule asks for"):
            ledger.settled([judge(rule(asked))])
    ledger.settled([judge(Rule(rule="r", sweeps=["reload"], variant="okd", tests=[ABOUT]))])


def test_a_notebook_ends_where_a_known_answer_did_not_come_out(judge: Judge) -> None:
    """With however few blocks: 20 s is 20 s within 5, and not within 0.1."""
    found = judge(rule(ABOUT), gone(lambda _, block: 20.5), blocks=2)
    assert found.answer == "not resolved"
    ledger.settled([], [found])
    with pytest.raises(AssertionError, match="first to last failure 20.5 s"):
        ledger.settled([], [judge(rule(Test(metric="failing_s", within=(19.9, 20.1))))])


def test_413_of_every_body_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check as it is written, on a run in which that came out, and on one in which a large body passed."""

    def story(passed: int) -> Story:
        def told(arm: Arm, point: Point, block: int) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
            log, used = disturbed.requests(RATE_RPS, point.duration_s), disturbed.usage([2] * 5)
            sent = [200] * 4 if point.name == "allowed" else [413] * (4 - passed) + [200] * passed
            ends = (
                (4.0 + number / 10, "k6", "", "", "Transfer", f"upload 1000000 bytes 0.1 s first 0.1 s status {status}")
                for number, status in enumerate(sent)
            )
            return log, disturbed.events(*(() if point.control else ends)), used

        return told

    (claim, checked) = next(each for each in claims.checks() if each[0].id == "too-large")
    for passed, answer in ((0, "reproduced"), (1, "contradicted")):
        folder = tmp_path / answer
        run_of(folder, monkeypatch, "upload-limit", [("upload", "baseline")], story(passed))
        monkeypatch.setenv("LAB_REFERENCE", str(folder))
        found = judged(claim, checked, *evidence.references())
        assert found.answer == answer
        assert "large bodies refused with 413" in found.effect


def test_every_verdict_without_a_run_says_why() -> None:
    """Not measurable, background and not resolved alike."""
    for verdict in ledger.ledger():
        assert verdict.why or verdict.runs
        if verdict.answer in ("reproduced", "contradicted"):
            assert verdict.runs
            assert verdict.effect


def test_markdown_and_json_have_what_the_table_has() -> None:
    """Each with the counts, and no line of Markdown's table broken."""
    verdicts = ledger.ledger()
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115 - closed with the process
    ledger.print_ledger(console, verdicts, rules_too=True)
    plain, text, told = console.export_text(), ledger.as_markdown(verdicts), ledger.as_json(verdicts)
    for name in claims.rules():
        assert f"| {name} | " in text
        assert name in plain
    assert ledger.counts(verdicts) in plain
    assert ledger.counts(verdicts) in text
    assert json.loads(json.dumps(told))["counts"] == ledger.counts(verdicts)
    assert all(line.count(" | ") == 6 for line in text.splitlines() if line.startswith("| ND"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[ND-99]\nbackground = 'x'", "no such claim\n  did you mean"),
        ("[ND-11]\nbackgroud = 'x'", "unknown key: did you mean 'background'"),
        ("[ND-11]\nbackground = 'x'\nnot_measurable = 'y'", "one of tests, not_measurable and background"),
        (
            "[ND-11]\nrule='r'\nsweeps=['kil']\nvariant='kill-nds'\ntests=[{metric='gap_s',above=1}]",
            "there is no 'kil'",
        ),
        (
            "[ND-11]\nrule='r'\nsweeps=['kill']\nvariant='kilnds'\ntests=[{metric='gap_s',above=1}]",
            "there is no 'kilnds'",
        ),
        (
            "[ND-11]\nrule='r'\nsweeps=['kill']\nvariant='kill-nds'\ntests=[{metric='gaps',above=1}]",
            "unknown metric 'gaps'",
        ),
        (
            "[ND-11]\nrule='r'\nsweeps=['kill']\nvariant='kill-nds'\ntests=[{metric='gap_s'}]",
            "each needs above, below, within or like",
        ),
        ("[ND-11]\ntests=[{metric='gap_s',above=1}]", "tests need all three"),
        (
            "[ND-11]\nrule='r'\nsweeps=['kill']\nvariant='kill-nds'\ntests=[{metric='gap_s',like=['OK-03','OK-01']}]",
            "ratio_to says to what",
        ),
        (
            "[ND-11]\nrule='r'\nsweeps=['kill']\nvariant='kill-nds'\n"
            "tests=[{metric='gap_s',ratio_to={variant='kill-grace-30'},like=['OK-03','OK-99']}]",
            "there is no claim 'OK-99'",
        ),
        (
            "[ND-11]\nrule='r'\nsweeps=['kill']\nvariant='kill-nds'\n"
            "tests=[{metric='gap_s',ratio_to={variant='kill-grace-30'},like=['OK-03','OK-17']}]",
            "OK-17 published no number",
        ),
        (
            "[ND-11]\nrule='r'\nsweeps=['kill']\nvariant='kill-nds'\ntarget='knd'\ntests=[{metric='gap_s',above=1}]",
            "there is no 'knd'\n  did you mean 'kind'?",
        ),
        ("[ND-11", "not TOML"),
    ],
)
def test_a_faulty_rule_is_told(text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With file, claim and what is wrong."""
    (tmp_path / "nds.toml").write_text(text)
    monkeypatch.setattr(claims, "FOLDER", tmp_path)
    with pytest.raises(UsageError, match="lab/claims/nds.toml") as caught:
        claims.rules()
    assert said in str(caught.value)


def test_a_claim_is_judged_in_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by two files."""
    for name in ("a.toml", "b.toml"):
        (tmp_path / name).write_text("[ND-11]\nbackground = 'x'\n")
    monkeypatch.setattr(claims, "FOLDER", tmp_path)
    with pytest.raises(UsageError, match="b.toml: ND-11: another file judges it"):
        claims.rules()
