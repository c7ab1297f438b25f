"""The ledger: rules as data, and verdicts of runs whose answers are known."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from lab.analysis import evidence
from lab.analysis.evidence import Evidence
from lab.base.errors import UsageError
from lab.commands import print_page
from lab.model.plan import Arm
from lab.model.sweeps import LoadPoint
from lab.model.variants.knobs import load_knob
from lab.model.variants.variants import load_chain
from lab.records.sweep_files import load_sweep
from lab.report.json.shape import dumps
from lab.report.markdown import render_markdown
from lab.studies import claims, ledger
from lab.studies.claims import Claim, ClaimRule, ClaimTest, Other
from lab.studies.claims.judging import ClaimVerdict, judge_claim
from lab.studies.ledger import list_verdicts
from lab.tests.support import disturbed
from lab.tests.support.committed import RATE_RPS, Story, run_of
from lab.tests.support.unpacked import unpacked

pytestmark = pytest.mark.committed

ROOT = Path(__file__).resolve().parents[4]
CLAIM = Claim("ND-12", "nds", "stated", "about 30 s of outage", "30", "s", "")
PAIRS = [("grace-period-30+host-port", "ingress-nginx+grace-period-30")]
Judge = Callable[..., ClaimVerdict]
Bound = dict[str, Any]
MOST_BYTES, MOST_BYTES_OF_A_FILE = 90_000_000, 5_000_000
"""Of data/reference."""


def gone(seconds: Callable[[str, int], float]) -> Story:
    """Every arm fails for `seconds(variant, block)`, and its A/A twin as its baseline."""

    def story(arm: Arm, point: LoadPoint, block: int) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        out = None if point.control else (5.0, 5.0 + seconds(arm.variant, block))
        log = disturbed.requests(RATE_RPS, point.duration_s, out=out)
        told = disturbed.events() if point.control else disturbed.killed(5.0, 1.0)
        return log, told, disturbed.usage([2] * 5)

    return story


@pytest.fixture
def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Judge:
    """Verdict of a rule on runs of kill-quick, each made by a story."""

    def verdict(rule: ClaimRule, *stories: Story, blocks: int = 6, target: str = "local") -> ClaimVerdict:
        for number, story in enumerate(stories):
            name = f"reference-kill-quick-{target}{f'-{number}' if number else ''}"
            run_of(tmp_path, monkeypatch, "kill-quick", PAIRS, story, blocks, name, target=target)
        monkeypatch.setenv("LAB_REFERENCE", str(tmp_path))
        runs, damaged = evidence.load_references()
        return judge_claim(CLAIM, [rule], runs, damaged)

    return verdict


def rule(*tests: ClaimTest, given: tuple[ClaimTest, ...] = ()) -> ClaimRule:
    return ClaimRule(rule="r", sweeps=["kill-quick"], variant=PAIRS[0][0], tests=list(tests), given=list(given))


ABOUT = ClaimTest(metric="failing_s", within=(15, 25))
MANY_FAIL = ClaimTest(metric="failed", above=10_000)
COMMAND = "just bench grace-period-30+host-port --sweep kill-quick --blocks 10"
LONGER = ClaimTest(metric="failing_s", minus=Other(variant="ingress-nginx+grace-period-30"), above=0)


@pytest.mark.parametrize(
    ("asked", "out_s", "more_s", "blocks", "answer", "why"),
    [
        (rule(ABOUT), 20, 0.1, 6, "reproduced", "rests on 6 blocks"),
        (rule(ABOUT), 20, 0, claims.SUGGESTED_BLOCKS, "reproduced", ""),
        (rule(ABOUT), 2, 0.1, 6, "contradicted", ".*"),
        (rule(ABOUT), 12, 1, 6, "inconclusive", "the interval leaves both open; .*"),
        (rule(ABOUT), 20, 0, 5, "inconclusive", "no interval: 5 blocks, 6 are needed"),
        (rule(ABOUT, ClaimTest(metric="failing_s", within=(100, 200))), 20, 0, 6, "contradicted", ".*"),
        (rule(ABOUT, given=(MANY_FAIL,)), 20, 0, 6, "inconclusive", "the load was not what the claim .*failed req.*"),
    ],
    ids=["inside", "of ten blocks", "outside", "across", "of five blocks", "one of two fails", "another load"],
)
def test_where_an_interval_lies_decides(
    asked: ClaimRule, out_s: float, more_s: float, blocks: int, answer: str, why: str, judge: Judge
) -> None:
    """All of it, of six blocks, of all tests, and of the load that was meant (`given`); the verdict has effect and run."""
    found = judge(asked, gone(lambda _, block: out_s + block * more_s), blocks=blocks)
    assert (found.answer, found.runs) == (answer, ("reference-kill-quick-local",))
    assert re.fullmatch(why, found.why)
    assert more_s != 0.1 or out_s != 20 or found.effect.startswith("first to last failure 20.3 s [20.1, 20.6]")


def test_what_is_open_says_how_many_blocks_would_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The farther from the bound of 15 s the fewer; at it no number would."""
    needed: list[str] = []
    for middle in (15.0, 15.2, 16.0):
        place = tmp_path / str(middle)
        out = gone(lambda _, block, middle=middle: middle + (block - 3.5) / 2)
        run_of(place, monkeypatch, "kill-quick", PAIRS, out, 6, "a")
        monkeypatch.setenv("LAB_REFERENCE", str(place))
        found = judge_claim(CLAIM, [rule(ABOUT)], *evidence.load_references())
        needed += found.why.removeprefix("the interval leaves both open; ").split()[-4:-3]
    assert needed[0] == "1000" and int(needed[1]) > 2 * int(needed[2]) > 12


@pytest.mark.parametrize(
    ("own", "theirs", "answer"), [(6, 2, "reproduced"), (2, 2, "inconclusive"), (2, 6, "contradicted")]
)
def test_a_difference_lies_beyond_what_the_load_resolves(own: float, theirs: float, answer: str, judge: Judge) -> None:
    out = gone(lambda variant, block: (own if variant == PAIRS[0][0] else theirs) + block / 10)
    found, said = judge(rule(LONGER), out), f"first to last failure +4 s [4, 4] against {PAIRS[0][1]}"
    assert found.answer == answer and (answer != "reproduced" or found.effect == said)


def test_runs_that_disagree_leave_it_open(judge: Judge) -> None:
    found = judge(rule(ABOUT), gone(lambda _, block: 20), gone(lambda _, block: 2))
    names = ("reference-kill-quick-local", "reference-kill-quick-local-1")
    assert (found.answer, found.runs) == ("inconclusive", names)
    assert found.why == f"runs disagree ({names[0]}: reproduced, {names[1]}: contradicted)"
    assert [part.partition(": ")[0] for part in found.effect.split("; ")] == [*names]
    ledger.assert_settled([found])


def test_a_run_for_its_shape_alone_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One block of the first rule's sweep, six of the second's; and of one rule's runs the longer one is shown."""
    run_of(tmp_path, monkeypatch, "kill-held", PAIRS, gone(lambda _, block: 20), 1, "a")
    monkeypatch.setenv("LAB_REFERENCE", str(tmp_path))
    full = rule(ABOUT).model_copy(update={"sweeps": ["kill-held"]})
    assert judge_claim(CLAIM, [full, rule(ABOUT)], *evidence.load_references()).runs == ("a",)
    run_of(tmp_path, monkeypatch, "kill-quick", PAIRS, gone(lambda _, block: 20 + block / 10), 6, "b")
    found = judge_claim(CLAIM, [full, rule(ABOUT)], *evidence.load_references())
    assert (found.answer, found.runs) == ("reproduced", ("b",))
    both = rule(ClaimTest(metric="failing_s", within=(20.3, 40)))
    found = judge_claim(
        CLAIM, [both.model_copy(update={"sweeps": ["kill-held", "kill-quick"]})], *evidence.load_references()
    )
    assert (found.answer, found.runs) == ("inconclusive", ("b",)) and "[" in found.effect


@pytest.mark.parametrize(
    ("name", "sweep", "arms"),
    [
        ("HW-04", "events-many", ["envoy-grpc+envoy-circuit-breakers-65536", "envoy+envoy-grpc"]),
        ("EE-04", "http2-upload-quick", ["envoy+gateway-tls++envoy-h2-window-64k", "envoy+gateway-tls"]),
        ("TF-03", "grpc", ["traefik-grpc+traefik-fast-proxy", "traefik+traefik-grpc"]),
    ],
)
def test_claims_about_http2_name_the_load_and_the_points_that_decide_them(
    name: str, sweep: str, arms: list[str]
) -> None:
    (decides,) = claims.rules()[name]
    assert (decides.sweeps[0], decides.named()) == (sweep, arms)
    points = {point.name for point in load_sweep(sweep)[1].load_points}
    assert {test.points for test in (*decides.tests, *decides.shown_only)} <= points


MANY, ONE = "okd-150m+okd-routes-1000", "okd-150m+okd-routes-1"
LIMITS = {MANY: "proxy", ONE: "proxy"}
"""Arm → its `limited_by`, where a test says nothing else."""
Retold = Callable[..., Evidence]


@pytest.fixture
def retold(monkeypatch: pytest.MonkeyPatch) -> Retold:
    """A committed run of a closed loop in which every block's value, who was the limit, and dropped connections are as given by arm."""

    def run(values: Mapping[str, float], limits: Mapping[str, str], **dropped: int) -> Evidence:
        def same(own: Evidence, arm: str, point: str, metric: str) -> dict[int, float]:
            return dict.fromkeys(own.blocks(arm, point), values.get(arm, 1.0))

        monkeypatch.setattr(Evidence, "values", same)
        (found,) = (each for each in evidence.load_references()[0] if each.name == "route-scale-150m")
        counted = dict(found.counted)
        for key, sample in counted.items():
            counters = {"proxy/ListenOverflows": dropped.get(sample.arm, 0)}
            update = {"limited_by": limits.get(sample.arm, "proxy"), "counters": counters}
            counted[key] = sample.model_copy(update=update)
        return replace(found, counted=counted)

    return run


def of_routes(metric: str, alone: bool = False, **bound: Any) -> ClaimRule:
    other = {} if alone else {"ratio_to": {"variant": ONE}}
    asked = ClaimTest.model_validate({"metric": metric, "points": "keep-alive", **other, **bound})
    return ClaimRule(rule="r", sweeps=["route-scale"], variant=MANY, tests=[asked])


@pytest.mark.parametrize(
    ("mine", "theirs", "bound", "answer"),
    [
        ("proxy", "proxy", {"above": 0.5}, "reproduced"),
        ("proxy", "generator", {"above": 0.5}, "inconclusive"),
        ("proxy", "generator", {"below": 0.9}, "reproduced"),
        ("proxy", "generator", {"above": 0.9}, "contradicted"),
        ("proxy", "generator", {"within": (0.3, 0.6)}, "inconclusive"),
        ("generator", "proxy", {"above": 0.5}, "reproduced"),
        ("generator", "proxy", {"below": 0.5}, "contradicted"),
        ("generator", "proxy", {"above": 0.9}, "inconclusive"),
        ("generator", "generator", {"within": (0.5, 0.9)}, "inconclusive"),
        ("waiting", "errors", {"within": (0.5, 0.9)}, "reproduced"),
    ],
)
def test_a_rate_that_the_generator_limited_is_a_bound(
    mine: str, theirs: str, bound: Bound, answer: str, retold: Retold
) -> None:
    """0.7 times the other side's, which could be more on a side whose limit was the generator; so is a latency, the other way."""
    run = retold({MANY: 700.0, ONE: 1000.0}, {MANY: mine, ONE: theirs})
    found = judge_claim(CLAIM, [of_routes("rate", **bound)], [run])
    assert found.answer == answer
    assert ("generator-limited: rate" in found.why) == ("generator" in (mine, theirs))
    assert ("a generator that is not the limit would decide" in found.why) == (answer == "inconclusive")
    run = retold({MANY: 0.007, ONE: 0.01}, {MANY: theirs, ONE: mine})
    assert judge_claim(CLAIM, [of_routes("p99", **bound)], [run]).answer == answer
    costs = judge_claim(CLAIM, [of_routes("cpu_per_request", **bound)], [run])
    assert costs.answer in ("reproduced", "contradicted"), "what a request costs is no matter of who was the limit"


@pytest.mark.parametrize(
    ("ratio", "bound", "answer"),
    [
        (0.45, {"below": 0.6}, "reproduced"),  # below 0.48
        (0.45, {"below": 0.5}, "inconclusive"),  # between 0.4 and 0.625
        (0.45, {"above": 0.6}, "contradicted"),
        (3.5, {"above": 3}, "inconclusive"),  # between 2.4 and 3.75
        (4.0, {"above": 3}, "reproduced"),
        (4.0, {"below": 3}, "contradicted"),
    ],
)
def test_a_ratios_bound_moves_by_the_guard_as_a_factor(ratio: float, bound: Bound, answer: str, retold: Retold) -> None:
    """Two arms of the same are 1.25 times each other: so is every ratio in doubt, however far from 1."""
    run = retold({MANY: ratio, "okd-150m-again": 1.25}, LIMITS)
    found = judge_claim(CLAIM, [of_routes("cpu_per_request", **bound)], [run])
    assert found.answer == answer
    assert ("not even 1000 blocks would decide" in found.why) == (answer == "inconclusive")


@pytest.mark.parametrize(("dropped", "answer"), [(0, "inconclusive"), (9, "reproduced")])
def test_dropped_connections_are_no_doing_of_the_generators(dropped: int, answer: str, retold: Retold) -> None:
    """2 s against 0.1 s: the kernel sent them again, whoever was the limit."""
    values, limits = {MANY: 0.1, ONE: 2.0}, dict.fromkeys(LIMITS, "generator")
    run = retold(values, limits, **{ONE: dropped})
    assert judge_claim(CLAIM, [of_routes("p99", below=0.5)], [run]).answer == answer


@pytest.mark.parametrize(
    ("bound", "compared", "there", "bare", "answer"),
    [
        ({"above": 2}, True, 3.0, 2.5, "inconclusive"),  # it rises as far without a proxy
        ({"above": 2}, True, 3.0, 1.2, "reproduced"),
        ({"above": 2}, True, 1.2, 3.0, "contradicted"),  # what did not rise needs no explanation
        ({"within": (0.5, 1.5)}, True, 3.0, 2.5, "inconclusive"),
        ({"within": (0.5, 1.5)}, True, 3.0, 0.4, "contradicted"),
        ({"within": (0.5, 1.5)}, True, 0.3, 0.4, "inconclusive"),  # it falls as far without one
        ({"within": (0.5, 1.5)}, True, 1.0, 1.0, "reproduced"),  # that nothing changes, too
        ({"below": 0.8}, True, 0.3, 0.4, "inconclusive"),
        ({"below": 0.8}, True, 0.3, 1.0, "reproduced"),
        ({"below": 1.25}, False, 3.0, 2.5, "inconclusive"),
        ({"below": 1.25}, False, 3.0, 1.1, "contradicted"),
        ({"below": 1.25}, False, 1.1, 1.1, "reproduced"),
        ({"above": 2}, True, 3.0, None, "inconclusive"),
        ({"below": 1.25}, False, 3.0, None, "inconclusive"),
    ],
)
def test_a_latency_that_needs_no_proxy_is_none_of_its_doing(
    bound: Bound, compared: bool, there: float, bare: float | None, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`there` at 1000 connections, 1 at 100, and `bare` against 1 at a direct connection (None: not measured)."""

    def same(own: Evidence, arm: str, point: str, metric: str) -> dict[int, float]:
        if arm == "direct" and bare is None:
            return {}
        value = 1.0 if point == "k6-c100" else bare if arm == "direct" else there
        return dict.fromkeys(own.blocks(arm, point), float(value or 0.0))

    monkeypatch.setattr(Evidence, "values", same)
    runs = [each for each in evidence.load_references()[0] if each.name == "digitalocean-claims"]

    def found(metric: str) -> ClaimVerdict:
        other = {"ratio_to": {"points": "k6-c100"}} if compared else {}
        asked = ClaimTest.model_validate({"metric": metric, "points": "k6-c1000", **other, **bound})
        own = ClaimRule(rule="r", sweeps=["digitalocean-claims"], variant="ingress-nginx", tests=[asked])
        return judge_claim(CLAIM, [own], runs)

    verdict = found("spread")
    assert verdict.answer == answer
    assert ("without a proxy" in verdict.why) == (answer == "inconclusive")
    if bare == 2.5:
        said = f"a proxy: p99 as a multiple of p50 2.5 ×{' against k6-c100' * compared} at k6-c1000;"
        assert verdict.why.endswith(f"{said} a machine that serves that load faster without a proxy would decide")
    assert found("cpu_per_request").answer != "inconclusive", "no generator's CPU is in it"


def test_only_runs_of_the_rules_target_count(judge: Judge) -> None:
    on_kind = rule(ABOUT).model_copy(update={"target": "kind"})
    found = judge(on_kind, gone(lambda _, block: 20))
    assert (found.answer, found.runs, found.findings) == ("inconclusive", (), ())
    assert found.why == f"no run of it in data/reference yet: {COMMAND} --target kind"
    found = judge(on_kind, gone(lambda _, block: 2), target="kind")
    assert (found.answer, found.runs) == ("contradicted", ("reference-kill-quick-kind",))
    found = judge(rule(ABOUT))
    assert (found.answer, found.runs) == ("reproduced", ("reference-kill-quick-local",))


def test_what_a_run_could_not_show_is_not_measurable_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [("ingress-nginx+grace-period-30", "ingress-nginx")]
    run_of(tmp_path, monkeypatch, "kill-quick", pairs, gone(lambda _, block: 2), name="a")
    path = tmp_path / "a" / "run.json"
    missing = {"variant": "grace-period-30+host-port", "what": "cores", "why": "it wants 4 and there are 2"}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"not_measurable": [missing]}))
    monkeypatch.setenv("LAB_REFERENCE", str(tmp_path))
    found = judge_claim(CLAIM, [rule(ABOUT)], *evidence.load_references())
    why = "grace-period-30+host-port: cores: it wants 4 and there are 2"
    assert (found.answer, found.why) == ("not measurable here", why)
    assert (found.runs, found.findings, found.rule) == (("a",), (), "r")
    ledger.assert_settled([found])
    run_of(tmp_path, monkeypatch, "kill-quick", PAIRS, gone(lambda _, block: 20), name="b")
    found = judge_claim(CLAIM, [rule(ABOUT)], *evidence.load_references())
    assert (found.answer, found.runs) == ("reproduced", ("b",))


def damaged(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


@pytest.mark.parametrize("file", ["sample.json", "raw.zst", "usage.parquet"])
def test_a_run_that_cannot_be_read_leaves_its_claims_open(file: str, judge: Judge, tmp_path: Path) -> None:
    """A record or its verbatim output cut off, a file gone: the claims that it would be judged by name it, others do not."""
    judge(rule(ABOUT), gone(lambda _, block: 20 + block / 10))
    (path,) = tmp_path.glob(f"*/samples/*-b03-grace-period-30+host-port-delete/{file}")
    lost = file == "usage.parquet"
    if lost:
        path.unlink()
    else:
        damaged(path)
    found = judge(rule(ABOUT))
    ledger.assert_settled([found], [found])  # no notebook ends there
    said = f"is damaged: {path.parent if lost else path}: "
    remedy = "restore data/reference/reference-kill-quick-local from a copy"
    assert found.answer == "inconclusive" and all(each in found.why for each in (said, remedy, file))
    assert (found.runs, found.effect) == ((), "")
    other = judge(rule(ABOUT).model_copy(update={"target": "kind"}))
    assert other.why == f"no run of it in data/reference yet: {COMMAND} --target kind"


def test_a_damaged_run_is_told_in_every_form_and_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("outage", "kind-qinng"):
        unpacked(ROOT / "data" / "reference" / name, tmp_path / name)
    monkeypatch.setenv("LAB_REFERENCE", str(tmp_path))
    before, known_before = ledger.judge_claims(), ledger.judge_checks()
    path = next((tmp_path / "outage" / "samples").glob("*-b02-baseline-outage")) / "sample.json"
    damaged(path)
    verdicts, known = ledger.judge_claims(), ledger.judge_checks()
    assert verdicts == before
    changed = [now for now, was in zip(known, known_before, strict=True) if now != was]
    assert [verdict.claim.id for verdict in changed] == ["outage"]
    ledger.assert_settled(verdicts, known)
    print_page("ledger.txt", ledger=ledger, verdicts=verdicts, checks=known, rules=False)
    text = " ".join(capsys.readouterr().out.split())
    forms = text, render_markdown(ledger.page(verdicts, known)), dumps(list_verdicts(verdicts, known))
    assert all(f"outage is damaged: {path}: " in form for form in forms)


def test_the_committed_runs_are_whole() -> None:
    """Damage would be a gap in the ledger, and end nothing: it is found here. A repository carries all of them for ever, but for a cache of histograms."""
    runs, broken = evidence.load_references()
    assert runs and broken == []
    assert not [
        found.why
        for each in (*ledger.judge_claims(), *ledger.judge_checks())
        for found in each.findings
        if found.damaged
    ]
    folder = ROOT / "data" / "reference"
    sizes = {path: path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.name != "hist.parquet"}
    assert max(sizes.values()) <= MOST_BYTES_OF_A_FILE, max(sizes, key=lambda path: sizes[path])
    assert sum(sizes.values()) <= MOST_BYTES


def test_a_cell_is_like_another_machines_by_its_ratio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds about the published ratio, computed from claims.csv when the rules are read; a check's as a claim's."""
    ((test,),) = [rule.tests for rule in claims.rules()["OK-03"]]
    published = {claim.id: float(claim.published) for claim in claims.read_claims() if claim.id in ("OK-01", "OK-03")}
    ratio = published["OK-03"] / published["OK-01"]
    assert test.within == pytest.approx((ratio / claims.NEAR_FACTOR, ratio * claims.NEAR_FACTOR)) and test.met(ratio)
    compared = "metric='rate',ratio_to={variant='okd'},like=['OK-03','OK-01']"
    form = f"rule='r'\nsweeps=['okd']\nvariant='okd-edge'\ntests=[{{{compared}}}]\n"
    (tmp_path / "okd.toml").write_text(f"[edge]\ntext='t'\n[[edge.rules]]\n{form}")
    monkeypatch.setattr(claims, "CHECKS", tmp_path)
    ((_, (made,)),) = claims.checks()
    assert made.tests[0].within == test.within


def test_every_claim_is_in_the_ledger(capsys: pytest.CaptureFixture[str]) -> None:
    """All, in their order, each judged, here and by its own data. A check is none, and judged alike. No line of Markdown's table is broken."""
    verdicts = ledger.judge_claims()
    counted = ledger.count_answers(verdicts)
    assert [verdict.claim.id for verdict in verdicts] == [claim.id for claim in claims.read_claims()]
    assert len(verdicts) == len({verdict.claim.id for verdict in verdicts}) > 102
    assert {verdict.claim.id for verdict in verdicts} == set(claims.rules())
    assert {verdict.claim.kind for verdict in verdicts} == set(claims.KINDS)
    found = {verdict.claim.id: verdict for verdict in ledger.judge_checks("nds")}
    assert {"outage", "too-large"} <= set(found) and not found.keys() & claims.rules().keys()
    assert "- check outage, **" in render_markdown(ledger.page(ledger.judge_claims("nds"), list(found.values())))
    linked = render_markdown(ledger.page(verdicts, linked=True))  # also a run that could not show what it was asked for
    assert any(verdict.unable for verdict in verdicts)
    assert not [line for line in linked.splitlines() if line.startswith("| [") and line.endswith("` |")]
    for verdict in verdicts:
        assert verdict.own is not None and verdict.own.sentence
        assert verdict.why or verdict.runs, "every verdict without a run says why"
        assert verdict.answer not in ("reproduced", "contradicted") or (verdict.runs and verdict.effect)
    assert counted.startswith(f"{len(verdicts)} claims: ")
    assert sum(int(part.split()[0]) for part in counted.partition(": ")[2].split(", ")) == len(verdicts)
    print_page("ledger.txt", ledger=ledger, verdicts=verdicts, checks=(), rules=True)
    plain = capsys.readouterr().out
    assert all(len(line) <= 110 for line in plain.splitlines() if "just bench " not in line)
    text, told = render_markdown(ledger.page(verdicts)), dumps(list_verdicts(verdicts))
    assert all(f"| {name} | " in text and name in plain for name in claims.rules())
    assert counted in " ".join(plain.split()) and counted in text and json.loads(told)["counts"] == counted
    assert all(line.count(" | ") == 6 for line in text.splitlines() if line.startswith("| ND"))


RULES = [
    *((name, rule) for name, rules in claims.rules().items() for rule in rules if rule.tests),
    *((claim.id, rule) for claim, rules in claims.checks() for rule in rules),
]


@pytest.mark.parametrize(("name", "rule"), RULES, ids=[f"{name}-{rule.sweeps[0]}" for name, rule in RULES])
def test_the_points_of_a_rule_are_in_each_of_its_sweeps(name: str, rule: ClaimRule) -> None:
    """Else a run of that sweep would leave the claim open for ever."""
    for sweep in rule.sweeps:
        points = load_sweep(sweep)[1].load_points
        for test in (*rule.given, *rule.tests, *rule.shown_only):
            own = [point for point in points if point.control is test.control]
            meant = [point for point in own if fnmatchcase(point.name, test.points)]
            assert meant
            logged = all(point.disturbance is not None for point in meant)
            assert logged or test.metric != "answered_while_failing", f"{name}: no request of {sweep} is logged"
            for other in (test.minus, test.ratio_to):
                if other is not None and other.points is not None:
                    found = [point for point in points if fnmatchcase(point.name, other.points) and not point.control]
                    assert len(found) == 1, f"{name}: {other.points} in {sweep}"


@pytest.mark.parametrize(("name", "rule"), RULES, ids=[f"{name}-{rule.sweeps[0]}" for name, rule in RULES])
def test_every_variant_of_a_rule_can_run_on_its_target(name: str, rule: ClaimRule) -> None:
    """Otherwise the ledger prints a command that is refused, and no run can ever judge the claim."""
    for variant in rule.named():
        chain = load_chain(variant)
        parts = [*chain, *(load_knob(knob) for overlay in chain for knob in overlay.own_knobs)]
        assert all(rule.target in part.only_on.split() for part in parts if part.only_on), f"{name}: {variant}"


def test_a_notebook_ends_where_a_rule_asks_for_what_its_run_has_not(judge: Judge) -> None:
    """A point that is not there is a gap; what the interval leaves open is none."""
    ledger.assert_settled([judge(rule(ABOUT), gone(lambda _, block: 12 + block))])
    for where in ({"points": "held"}, {"minus": Other(points="held")}):
        asked = ClaimTest.model_validate({"metric": "failing_s", "above": 0, **where})
        with pytest.raises(AssertionError, match="does not have what its rule asks for"):
            ledger.assert_settled([judge(rule(asked))])
    ledger.assert_settled([judge(ClaimRule(rule="r", sweeps=["reload"], variant="okd", tests=[ABOUT]))])


RULE = "[ND-11]\nrule='r'\nsweeps=['kill']\nvariant='grace-period-30+host-port'\n"
LIKE = "tests=[{metric='gap_s',ratio_to={variant='ingress-nginx+grace-period-30'},like=['OK-03','OK-01']}]"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[ND-99]\nbackground = 'x'", "no such claim\n  did you mean"),
        ("[ND-11]\nbackgroud = 'x'", "unknown key: did you mean 'background'"),
        ("[ND-11]\nbackground = 'x'\nnot_measurable = 'y'", "one of tests, not_measurable and background"),
        (RULE.replace("'kill'", "'kil'") + "tests=[{metric='gap_s',above=1}]", "there is no 'kil'"),
        (RULE.replace(PAIRS[0][0], "kilnds") + "tests=[{metric='gap_s',above=1}]", "there is no 'kilnds'"),
        (RULE + "tests=[{metric='gaps',above=1}]", "unknown metric 'gaps'"),
        (RULE + "tests=[{metric='gap_s'}]", "each needs above, below, within or like"),
        ("[ND-11]\ntests=[{metric='gap_s',above=1}]", "tests need all three"),
        (RULE + "tests=[{metric='gap_s',like=['OK-03','OK-01']}]", "ratio_to says to what"),
        (RULE + LIKE.replace("OK-01", "OK-99"), "there is no claim 'OK-99'"),
        (RULE + LIKE.replace("OK-01", "OK-17"), "OK-17 published no number"),
        (RULE + "target='knd'\ntests=[{metric='gap_s',above=1}]", "there is no 'knd'\n  did you mean 'kind'?"),
        ("[ND-11", "not TOML"),
    ],
)
def test_a_faulty_rule_is_told(text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nds.toml").write_text(text)
    monkeypatch.setattr(claims, "FOLDER", tmp_path)
    with pytest.raises(UsageError, match="lab/studies/claims/nds.toml") as caught:
        claims.rules()
    assert said in str(caught.value)
