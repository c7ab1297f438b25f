"""The judgement of claims by the lab's runs: a claim's rule and the committed runs give a verdict with its effect and its run.

A claim is reproduced if every test of its rule holds at every load point that the test names. It is contradicted if a test does
not hold. It is inconclusive in all other cases: an interval leaves the answer open, there are too few blocks for an interval,
there is no run, or a file of a run is damaged. If a run has recorded why it could not measure a variant of the rule, the claim is
not measurable here, with this reason.

Runs are never pooled. Only runs on the rule's target count, and each run is judged separately. If runs disagree, the claim is
inconclusive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lab.analysis.applied import describe_kept_defaults
from lab.analysis.evidence import Damaged, Evidence, describe_damage, select_runs
from lab.base.errors import LabError
from lab.stats.paired import MIN_BLOCKS
from lab.stats.power import MAX_BLOCKS
from lab.stats.units import format_blocks
from lab.studies.claims import SUGGESTED_BLOCKS, Answer, Claim, ClaimRule
from lab.studies.claims.measuring import MeasuredTest, measure_test
from lab.studies.claims.publications import OwnJudgement


@dataclass(frozen=True, slots=True)
class RunFinding:
    """The result of judging one claim (a published sentence) by one run.

    Attributes:
        run: The run's id.
        name: The name of the run's folder.
        target: The run's target.
        answer: The answer to the claim by this run.
        effect: The measured effects in words.
        why: The reason for the answer; empty if it needs none. For a damaged run it names the damaged file.
        measured: The results of all tests of the claim's rule, first those of the preconditions (`given`).
        damaged: Whether a file that the rule needs cannot be read.
        given: The number of results at the beginning of `measured` that are preconditions. They show whether the load was what the claim is
            about.

    """

    run: str
    name: str
    target: str
    answer: Literal["reproduced", "contradicted", "inconclusive"]
    effect: str
    why: str
    measured: tuple[MeasuredTest, ...]
    damaged: bool = False
    given: int = 0

    @property
    def measurements(self) -> set[tuple[str, str, str, frozenset[str]]]:
        """The measured numbers on which a run's answer to a claim rests: those that contradict the claim, or else all numbers.

        A number is identified by (run's id, metric, load point, set of the two sides that are compared). A side is a variant or a
        load point. A set has no order, so A against B and B against A are one measurement.
        """
        judged = [part for part in self.measured[self.given :] if part.test.bounded and part.value is not None]
        deciding = [part for part in judged if part.holds is False] or judged
        return {(self.run, part.test.metric, part.point, frozenset({part.arm, part.other})) for part in deciding}

    @property
    def gaps(self) -> list[str]:
        """The tests of a claim for which a run lacks the load point, the variant or the metric, in words.

        Tests without a bound are left out, since their numbers are only shown. For a damaged run the list is empty.
        """
        return [part.text for part in self.measured if part.gap and part.test.bounded]


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """A claim (a published sentence) with two judgements: by our runs, and by the publication's own data. The ledger lists these.

    Attributes:
        claim: The claim.
        answer: The answer by our runs.
        effect: The measured effects in words.
        why: The reason for the answer, and other remarks.
        rule: The rule in words.
        runs: The ids of the runs that the answer rests on.
        findings: The results of all runs by which the rule was judged.
        own: The judgement by the publication's own data; None for a check (a fact known beforehand), which no publication claims.

    """

    claim: Claim
    answer: Answer
    effect: str
    why: str
    rule: str
    runs: tuple[str, ...]
    findings: tuple[RunFinding, ...] = ()
    own: OwnJudgement | None = None
    unable: str = ""
    """The name of the folder of a run that was made for the claim and could not show it; empty: there is none."""

    @property
    def measurements(self) -> set[tuple[str, str, str, frozenset[str]]]:
        """The measured numbers on which the answer to a claim rests, in the form of `RunFinding.measurements`.

        Two claims with such a number in common rest on one measurement.
        """
        return {number for finding in self.findings if finding.answer == self.answer for number in finding.measurements}


def judge_claim(
    claim: Claim, rules: Sequence[ClaimRule], runs: Sequence[Evidence], damaged: Sequence[Damaged] = ()
) -> ClaimVerdict:
    """Judge a claim (a published sentence) by the first of its rules for which there is a run.

    A rule whose longest run has enough blocks (repetitions) for an interval comes before a rule with only shorter runs. Without any run the
    claim is inconclusive. It is `not measurable here` instead if a run has recorded why a variant that a rule needs could not be measured.

    Args:
        claim: The claim.
        rules: The claim's rules.
        runs: The committed runs, in the order of `lab.analysis.evidence.load_references`.
        damaged: The committed runs that cannot be read.

    """
    if not rules:
        return ClaimVerdict(claim, "not judged yet", "", "no rule is written yet", "", ())
    first = rules[0]
    blank = ClaimVerdict(claim, "background", "", first.background, "", ())
    if first.background:
        return blank
    if first.not_measurable:
        return replace(blank, answer="not measurable here", why=first.not_measurable)
    unread = [run.said for run in damaged if run.record is None]  # runs of which even the record is damaged
    candidates: list[tuple[bool, ClaimRule, list[Evidence], list[Damaged]]] = []
    for rule in rules:
        able = [run for run in select_runs(runs, rule.sweeps, target=rule.target) if all(map(run.arms, rule.named()))]
        lost = [run for run in damaged if run.of(rule.sweeps, rule.named(), rule.target)]
        records = [*(run.run.record for run in able), *(run.record for run in lost if run.record is not None)]
        if records:
            candidates.append((max(record.blocks for record in records) >= MIN_BLOCKS, rule, able, lost))
    if candidates:
        _, rule, able, lost = max(candidates, key=lambda candidate: candidate[0])
        verdict = _combine(replace(blank, rule=rule.rule), [_judge_run(rule, run) for run in able], lost)
        return replace(verdict, why="; ".join(filter(None, [verdict.why, *unread])))
    for rule, run in (
        (candidate, run) for candidate in rules for run in select_runs(runs, candidate.sweeps, target=candidate.target)
    ):
        if missing := [item for item in run.run.record.not_measurable if item.variant in rule.named()]:
            reason = "; ".join(f"{item.variant}: {item.what}: {item.why}" for item in missing)
            unable = replace(blank, rule=rule.rule, runs=(run.run.record.id,), unable=run.name)
            return replace(unable, answer="not measurable here", why=reason)
    reason = "; ".join([f"no run of it in data/reference yet: {first.command}", *unread])
    return replace(blank, answer="inconclusive", why=reason, rule=first.rule)


def _combine(blank: ClaimVerdict, run_findings: Sequence[RunFinding], lost: Sequence[Damaged]) -> ClaimVerdict:
    """Combine the results of several runs into one verdict on a claim.

    The answer is that of the runs that decide the claim (`reproduced` or `contradicted`). It is `inconclusive` if these runs
    disagree, if no run decides, or if a run is damaged. The run with the most blocks (repetitions) is reported first.

    Args:
        blank: The verdict without an answer.
        run_findings: The results of the rule's runs.
        lost: Runs of the rule that cannot be read at all.

    """
    findings = tuple(
        sorted(
            run_findings,
            key=lambda finding: max((part.blocks for part in finding.measured), default=0),
            reverse=True,
        )
    )
    decided = [finding for finding in findings if finding.answer != "inconclusive"]
    reported = tuple(decided) or findings[:1]
    blank = replace(blank, findings=findings, runs=tuple(finding.run for finding in reported))
    if damages := [*(finding.why for finding in findings if finding.damaged), *(run.said for run in lost)]:
        intact = [finding for finding in findings if not finding.damaged]
        reason = "; ".join([*damages, *(f"{finding.name} alone: {finding.answer}" for finding in intact)])
        effect, ids = next((finding.effect for finding in intact), ""), tuple(finding.run for finding in findings)
        return replace(blank, answer="inconclusive", effect=effect, why=reason, runs=ids)
    if len({finding.answer for finding in decided}) > 1:
        answers = ", ".join(f"{finding.name}: {finding.answer}" for finding in decided)
        effect = "; ".join(f"{finding.name}: {finding.effect}" for finding in decided)
        return replace(blank, answer="inconclusive", effect=effect, why=f"runs disagree ({answers})")
    first, further = reported[0], [finding.name for finding in reported[1:]]
    reason = "; ".join(filter(None, [first.why, f"the same in {', '.join(further)}" if further else ""]))
    return replace(blank, answer=first.answer, effect=first.effect, why=reason)


def _judge_run(rule: ClaimRule, run: Evidence) -> RunFinding:
    """Judge a claim by one run: measure what the claim's rule tests, and compare it with the rule's bounds."""
    record = run.run.record
    blank = RunFinding(record.id, run.name, record.target, "inconclusive", "", "", ())
    try:
        given, tested, unjudged = (
            tuple(part for test in tests for part in measure_test(test, rule.variant, run, rule.sustained))
            for tests in (rule.given, rule.tests, rule.shown_only)
        )
    except LabError as error:
        return replace(blank, why=describe_damage(run.name, error).said, damaged=True)
    effect = "; ".join(dict.fromkeys(part.text for part in (*tested, *unjudged)))
    blank = replace(blank, effect=effect, measured=(*given, *tested, *unjudged), given=len(given))
    for part in given:
        if part.holds is False or part.gap:
            required = "" if part.test.above is None else f", to be above {part.test.above:,g}"
            return replace(blank, why=f"the load was not what the claim is about: {part.text}{required}")
        if part.holds is None:
            reason = "; ".join(filter(None, [part.text, _join_reasons([part]), _describe_need([part])]))
            return replace(blank, why=f"whether the load was what the claim is about is open: {reason}")
    against = [part for part in tested if part.holds is False]
    if against or all(part.holds for part in tested):
        least = min(part.blocks for part in against or tested)
        rests = f"rests on {format_blocks(least)}" if least < SUGGESTED_BLOCKS else ""
        defaults = describe_kept_defaults(run.run, {arm for part in tested for arm in (part.arm, part.other)})
        reason = "; ".join(filter(None, [_join_reasons(tested), rests, defaults]))
        return replace(blank, answer="contradicted" if against else "reproduced", why=reason)
    undecided = any(part.holds is None and part.value is not None for part in tested)
    reason = _join_reasons(tested) or ("the interval leaves both open" if undecided else "")
    return replace(blank, why="; ".join(filter(None, [reason, _describe_need(tested)])))


def _describe_need(tested: Sequence[MeasuredTest]) -> str:
    """Return in words what would decide the undecided tests of a claim's rule: a remedy, or a number of blocks (repetitions).

    The text is empty if the tests have no interval or no usable block, since their reasons already say what is needed.

    Args:
        tested: The results of the rule's tests.

    """
    undecided = [part for part in tested if part.holds is None]
    needed = max((part.more for part in undecided), default=0)
    blocks = f"not even {MAX_BLOCKS} blocks" if needed > MAX_BLOCKS else f"about {format_blocks(needed)}"
    remedies = dict.fromkeys(part.remedy for part in undecided if part.remedy)
    return "; ".join(remedies) or (f"{blocks} would decide" if needed else "")


def _join_reasons(tested: Sequence[MeasuredTest]) -> str:
    """Return the reasons of all tests that have a value, joined by semicolons, without repetitions."""
    return "; ".join(dict.fromkeys(part.why for part in tested if part.why and part.value is not None))
