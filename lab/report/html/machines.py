"""The runs of the report: what each measured, on which machine, and which pages rest on it.

Refuses to leave a folder out: one that cannot be read is listed with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab.analysis.claims.evidence import Evidence
from lab.analysis.claims.judging import Verdict
from lab.report.exhibits.exhibits import Run
from lab.report.exhibits.exploring import overview
from lab.report.html import markdown
from lab.report.html.pages import Page


@dataclass(frozen=True, slots=True)
class Machine:
    """One run. `used`: key and title of the pages that show it; `claims`: ids that rest on it; `about`: HTML."""

    id: str
    name: str
    said: str
    used: tuple[tuple[str, str], ...]
    claims: tuple[str, ...]
    about: str
    facts: Mapping[str, str]


def machines(runs: Sequence[Evidence], pages: Sequence[Page], verdicts: Sequence[Verdict]) -> list[Machine]:
    """In the order of `lab.analysis.claims.evidence.references`."""
    return [_machine(run, pages, verdicts) for run in runs]


def shared(found: Sequence[Machine]) -> dict[str, str]:
    """Fact of the machine → the value that most of the runs have."""
    names = ("cpu", "cpus", "kernel", "os")
    told = {name: Counter(each.facts[name] for each in found if name in each.facts) for name in names}
    return {name.replace("_", " "): counts.most_common(1)[0][0] for name, counts in told.items() if counts}


def _machine(run: Evidence, pages: Sequence[Page], verdicts: Sequence[Verdict]) -> Machine:
    record = run.run.record
    used = tuple((page.key, page.title) for page in pages if page.shows(record.id))
    claims = tuple(verdict.claim.id for verdict in verdicts if record.id in verdict.runs)
    shown: Run = run
    return Machine(record.id, run.name, run.said, used, claims, markdown.html(overview(shown)), record.facts)
