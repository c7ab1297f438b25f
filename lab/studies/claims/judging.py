"""A rule and the committed runs → a verdict with its effect and the run that it rests on.

A claim is reproduced when every test holds at every point it names, contradicted when one does not, and not resolved
otherwise: when an interval leaves both open, when there are too few blocks for one, when there is no run, or when a file of a run that
the rule needs is damaged: it could say otherwise. Where a run was asked for a variant that the rule needs and put down why it could not
show it, it is not measurable here, in the run's words. Refuses to pool runs: only those of the rule's target count, each is judged by
itself, and runs that disagree leave the claim open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lab.analysis.applied import describe_kept_defaults
from lab.analysis.evidence import Damaged, Evidence, damage, matching
from lab.base.errors import LabError
from lab.stats.paired import MIN_BLOCKS
from lab.stats.power import MAX_BLOCKS
from lab.stats.units import format_blocks
from lab.studies.claims import RESTS_ON, Answer, Claim, Rule
from lab.studies.claims.measuring import Measured, measured
from lab.studies.claims.publications import Own


@dataclass(frozen=True, slots=True)
class Finding:
    """What one run says of one claim. `damaged`: a file that the rule needs cannot be read, and `why` names it."""

    run: str
    name: str
    target: str
    answer: Literal["reproduced", "contradicted", "not resolved"]
    effect: str
    why: str
    measured: tuple[Measured, ...]
    damaged: bool = False

    @property
    def gaps(self) -> list[str]:
        """What the rule asks for and the run, which it names, does not have; what is only told, or damaged, may be missing."""
        return [found.text for found in self.measured if found.gap and found.test.bounded]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line of the ledger. `effect`: what was measured, in words; `why`: what else is to say; `runs`: their ids.

    `own`: whether the publication's own data bear the claim out; None for what no publication claims.
    """

    claim: Claim
    answer: Answer
    effect: str
    why: str
    rule: str
    runs: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    own: Own | None = None
    unable: str = ""
    """Folder of the run that was asked for it and could not show it."""


def judged(claim: Claim, rules: Sequence[Rule], runs: Sequence[Evidence], damaged: Sequence[Damaged] = ()) -> Verdict:
    """By the first of the claim's rules that there is a run for with blocks enough for an interval, else a run at all: one that was
    made for its shape alone hides no other. `runs` as `lab.analysis.evidence.references` orders them.
    """
    if not rules:
        return Verdict(claim, "not judged yet", "", "no rule is written yet", "", ())
    first = rules[0]
    blank = Verdict(claim, "background", "", first.background, "", ())
    if first.background:
        return blank
    if first.not_measurable:
        return replace(blank, answer="not measurable here", why=first.not_measurable)
    unread = [each.said for each in damaged if each.record is None]  # nobody can tell what it measured
    there: list[tuple[bool, Rule, list[Evidence], list[Damaged]]] = []
    for rule in rules:
        able = [each for each in matching(runs, rule.sweeps, target=rule.target) if all(map(each.arms, rule.named()))]
        lost = [each for each in damaged if each.of(rule.sweeps, rule.named(), rule.target)]
        records = [*(each.run.record for each in able), *(each.record for each in lost if each.record is not None)]
        if records:
            there.append((max(record.blocks for record in records) >= MIN_BLOCKS, rule, able, lost))
    if there:
        _, rule, able, lost = max(there, key=lambda each: each[0])
        found = _together(replace(blank, rule=rule.rule), [_finding(rule, each) for each in able], lost)
        return replace(found, why="; ".join(filter(None, [found.why, *unread])))
    for rule, run in ((each, run) for each in rules for run in matching(runs, each.sweeps, target=each.target)):
        if missing := [item for item in run.run.record.not_measurable if item.variant in rule.named()]:
            why = "; ".join(f"{item.variant}: {item.what}: {item.why}" for item in missing)
            asked = replace(blank, rule=rule.rule, runs=(run.run.record.id,), unable=run.name)
            return replace(asked, answer="not measurable here", why=why)
    why = "; ".join([f"no run of it in data/reference yet: {first.command}", *unread])
    return replace(blank, answer="not resolved", why=why, rule=first.rule)


def _together(blank: Verdict, each_run: Sequence[Finding], lost: Sequence[Damaged]) -> Verdict:
    """What several runs say: the same, or nothing; the longest speaks first. `lost`: runs of the rule's that could not be read at all."""
    findings = tuple(
        sorted(each_run, key=lambda found: max((part.blocks for part in found.measured), default=0), reverse=True)
    )
    decided = [found for found in findings if found.answer != "not resolved"]
    shown = tuple(decided) or findings[:1]
    blank = replace(blank, findings=findings, runs=tuple(found.run for found in shown))
    if hurt := [*(found.why for found in findings if found.damaged), *(each.said for each in lost)]:
        whole = [found for found in findings if not found.damaged]
        why = "; ".join([*hurt, *(f"{found.name} alone: {found.answer}" for found in whole)])
        effect, ids = next((found.effect for found in whole), ""), tuple(found.run for found in findings)
        return replace(blank, answer="not resolved", effect=effect, why=why, runs=ids)
    if len({found.answer for found in decided}) > 1:
        said = ", ".join(f"{found.name}: {found.answer}" for found in decided)
        effect = "; ".join(f"{found.name}: {found.effect}" for found in decided)
        return replace(blank, answer="not resolved", effect=effect, why=f"runs disagree ({said})")
    first, others = shown[0], [found.name for found in shown[1:]]
    why = "; ".join(filter(None, [first.why, f"the same in {', '.join(others)}" if others else ""]))
    return replace(blank, answer=first.answer, effect=first.effect, why=why)


def _finding(rule: Rule, run: Evidence) -> Finding:
    record = run.run.record
    blank = Finding(record.id, run.name, record.target, "not resolved", "", "", ())
    try:
        given, tested, told = (
            tuple(found for test in tests for found in measured(test, rule.variant, run, rule.sustained))
            for tests in (rule.given, rule.tests, rule.told)
        )
    except LabError as error:
        return replace(blank, why=damage(run.name, error).said, damaged=True)
    effect = "; ".join(dict.fromkeys(found.text for found in (*tested, *told)))
    blank = replace(blank, effect=effect, measured=(*given, *tested, *told))
    for found in given:
        if found.holds is False or found.gap:
            wanted = "" if found.test.above is None else f", to be above {found.test.above:,g}"
            return replace(blank, why=f"the load was not what the claim is about: {found.text}{wanted}")
        if found.holds is None:
            why = "; ".join(filter(None, [found.text, _why([found]), _takes([found])]))
            return replace(blank, why=f"whether the load was what the claim is about is open: {why}")
    against = [found for found in tested if found.holds is False]
    if against or all(found.holds for found in tested):
        least = min(found.blocks for found in against or tested)
        rests = f"rests on {format_blocks(least)}" if least < RESTS_ON else ""
        arms = {arm for found in tested for arm in (found.arm, found.other)}
        kept = describe_kept_defaults(run.run, arms)
        why = "; ".join(filter(None, [_why(tested), rests, kept]))
        return replace(blank, answer="contradicted" if against else "reproduced", why=why)
    known = any(found.holds is None and found.value is not None for found in tested)
    why = _why(tested) or ("the interval leaves both open" if known else "")
    return replace(blank, why="; ".join(filter(None, [why, _takes(tested)])))


def _takes(tested: Sequence[Measured]) -> str:
    """What it would take to tell; empty where `why` says it: too few blocks for an interval, or none that counts."""
    left = [found for found in tested if found.holds is None]
    most = max((found.more for found in left), default=0)
    blocks = f"not even {MAX_BLOCKS} blocks" if most > MAX_BLOCKS else f"about {format_blocks(most)}"
    remedies = dict.fromkeys(found.remedy for found in left if found.remedy)
    return "; ".join(remedies) or (f"{blocks} would tell" if most else "")


def _why(tested: Sequence[Measured]) -> str:
    return "; ".join(dict.fromkeys(found.why for found in tested if found.why and found.value is not None))
