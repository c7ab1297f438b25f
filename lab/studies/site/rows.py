"""Steps and claims as rows of a page: what is said of each, its strip, and what folds out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log

from lab.studies.claims.judging import Verdict
from lab.studies.steps import Finding, Step, published_ratio
from lab.model.metrics import about
from lab.report.html.rendering import kind_of
from lab.studies.site import strips
from lab.studies.site.strips import Strip

ANSWERED: Mapping[str, tuple[str, str]] = {
    "apply": ("Yes", "better"),
    "worse": ("No, it does harm", "worse"),
    "mixed": ("It depends", "cannot-tell"),
    "same": ("No, nothing worth having", "same"),
    "differs": ("It is another system", "same"),
    "false": ("No", "same"),
    "unresolved": ("Cannot be told here", "cannot-tell"),
    "bimodal": ("It is one of two things", "cannot-tell"),
    "no-interval": ("Not measured enough", "cannot-tell"),
    "not-measurable": ("Cannot be shown here", "cannot-tell"),
    "not-steady": ("It does not hold its rate", "cannot-tell"),
    "instrument": ("It is there to measure by", "same"),
}
"""Kind of a verdict → the answer to a question whether a step helps, and its colour."""


@dataclass(frozen=True, slots=True)
class StepRow:
    """`kind`: its decision as a class of CSS; `published`: the same effect as it was claimed, in words."""

    step: Step
    kind: str
    metric: str
    strip: Strip | None
    published: str


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """`strip` is of the first number that decides, `text` says it."""

    verdict: Verdict
    published: str
    strip: Strip | None
    text: str
    rest: str




def step_rows(steps: Sequence[Step]) -> list[StepRow]:
    return [
        StepRow(step, kind_of(step.decision.value), about(step.metric).title, strips.of_step(step), _told(step))
        for step in steps
    ]


def _told(step: Step) -> str:
    change = about(step.metric).change
    return ", ".join(dict.fromkeys(f"{change(log(each.ratio))} ({each.claim})" for each in step.published))


def claim_row(verdict: Verdict) -> ClaimRow:
    parts = [
        part for found in verdict.findings for part in found.measured if part.test.bounded and part.value is not None
    ]
    deciding = [part for part in parts if part.holds is False] or parts
    strip, text = None, ""
    if deciding:
        strip, text = strips.of_measured(deciding[0], published_ratio(verdict, deciding[0])), deciding[0].text
    rest = "; ".join(filter(None, [verdict.effect if verdict.effect != text else "", verdict.why]))
    return ClaimRow(
        verdict, f"{verdict.claim.published} {verdict.claim.unit}".strip(), strip, text or verdict.why, rest
    )


def answered(finding: Finding) -> tuple[str, str]:
    """(the answer in words, its colour)"""
    if not finding.boots.agree:
        return "It depends on the boot", "cannot-tell"
    return ANSWERED[finding.verdict.kind]
