"""The ledger's lines as the report shows them: each claim with both judgements, and the notebook's cell that speaks of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab.analysis.claims import ANSWERS
from lab.analysis.claims.judging import Verdict
from lab.report.html.pages import Page


@dataclass(frozen=True, slots=True)
class Entry:
    """`cell`: the anchor of what shows it; empty where no notebook does. `check`: known beforehand, no study's claim."""

    verdict: Verdict
    cell: str
    check: bool = False

    @property
    def told(self) -> str:
        """What was measured, and what else is to be said."""
        return "; ".join(filter(None, (self.verdict.effect, self.verdict.why)))

    @property
    def published(self) -> str:
        return f"{self.verdict.claim.published} {self.verdict.claim.unit}".strip()


def entries(verdicts: Sequence[Verdict], pages: Sequence[Page], check: bool = False) -> list[Entry]:
    """In the ledger's order."""
    by_study = {page.key: page for page in pages}
    return [_entry(verdict, by_study.get(verdict.claim.study), check) for verdict in verdicts]


def _entry(verdict: Verdict, page: Page | None, check: bool) -> Entry:
    return Entry(verdict, page.spoken(verdict.claim.id) if page else "", check)


def tally(verdicts: Sequence[Verdict]) -> Mapping[str, Mapping[str, int]]:
    """Study → answer → how many claims, for every answer that is given at all."""
    found: dict[str, Counter[str]] = {}
    for verdict in verdicts:
        found.setdefault(verdict.claim.study, Counter())[verdict.answer] += 1
    given = [answer for answer in ANSWERS if any(counts[answer] for counts in found.values())]
    return {study: {answer: counts[answer] for answer in given} for study, counts in found.items()}
