"""The ledger: every published claim with two judgements side by side.

What the publication's own data say of it (`lab.studies.claims.publications`), and what our runs do, with the effect and the run that it
rests on. As text, as a table, as JSON, and as the sentences of a notebook. Refuses to leave a claim out: what has no rule yet is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lab.analysis import evidence
from lab.report.grid import Cell, Notes, Part, plain, texts
from lab.studies import claims
from lab.studies.boots import ONE_BOOT
from lab.studies.claims import ANSWERS, KINDS, Answer
from lab.studies.claims.judging import Verdict, judged
from lab.studies.claims.publications import OWN_ANSWERS, OwnAnswer, owned

STYLES: dict[Answer | OwnAnswer, str] = {
    "reproduced": "green",
    "contradicted": "red",
    "not resolved": "yellow",
    "not judged yet": "dim",
    "borne out": "green",
    "not borne out": "red",
    "no data": "dim",
}
OPENINGS: dict[Answer, str] = {
    "reproduced": "**It holds here** that",
    "contradicted": "**It does not hold here** that",
    "not resolved": "**It stays open** whether",
    "not measurable here": "**This machine cannot show** whether",
}
"""Answer of a claim → how a sentence of its text begins."""


def ledger(study: str | None = None) -> list[Verdict]:
    """Every claim in the order of claims.csv, or one study's, by its own data and on data/reference. UsageError for a faulty rule."""
    runs, damaged = evidence.references()
    known, own = claims.rules(), owned()
    return [
        replace(judged(claim, known.get(claim.id, []), runs, damaged), own=own.get(claim.id))
        for claim in claims.claims()
        if study in (None, claim.study)
    ]


def checks(study: str | None = None) -> list[Verdict]:
    """What is known beforehand (lab/studies/claims/checks), judged on data/reference; `reproduced` says that it came out so."""
    runs, damaged = evidence.references()
    return [judged(claim, known, runs, damaged) for claim, known in claims.checks() if study in (None, claim.study)]


def counts(verdicts: Sequence[Verdict]) -> str:
    """`102 claims: 3 reproduced, 12 not resolved, …`, without what there is none of."""
    return f"{len(verdicts)} claims: {_counted([verdict.answer for verdict in verdicts], ANSWERS)}"


def own_counts(verdicts: Sequence[Verdict]) -> str:
    """`by the publications' own data: 40 borne out, …`, likewise."""
    told = _counted([verdict.own.answer for verdict in verdicts if verdict.own is not None], OWN_ANSWERS)
    return f"by the publications' own data: {told or 'none judged'}"


def _counted(found: Sequence[str], order: Iterable[str]) -> str:
    return ", ".join(f"{found.count(answer)} {answer}" for answer in order if answer in found)


def sentences(verdicts: Sequence[Verdict]) -> str:
    """Markdown: what these came to here, a line each."""
    lines: list[str] = []
    for verdict in judged_at_all(verdicts):
        said = f"- {verdict.claim.id}, **{verdict.answer}**: {verdict.claim.text}."
        told = "; ".join(filter(None, [verdict.effect, verdict.why]))
        parts = [said, f"{told}." if told else "", ", ".join(f"`{run}`" for run in verdict.runs)]
        lines.append(" ".join(filter(None, parts)))
    return "\n".join(lines)


def settled(verdicts: Sequence[Verdict], known: Sequence[Verdict] = ()) -> None:
    """What a notebook asserts at its end. AssertionError where a claim that has a run is a gap (nothing there of what its rule
    asks for), where one without a run has a verdict, and where a check (`known`) did not come out as it must. A damaged file is told
    in its claim's verdict and ends no notebook.
    """
    for verdict in (*verdicts, *known):
        name, answer = verdict.claim.id, verdict.answer
        gaps = [gap for found in verdict.findings for gap in found.gaps]
        assert not gaps, f"{name}: {', '.join(verdict.runs)} does not have what its rule asks for: {'; '.join(gaps)}"
        decided = answer in ("reproduced", "contradicted")
        assert verdict.findings or (verdict.why and not decided), f"{name}: {answer} without a run"
        told = verdict.runs and (verdict.effect or any(found.damaged for found in verdict.findings))
        assert told or not verdict.findings, f"{name}: {answer} without its run or effect"
    for verdict in known:
        for part in (part for found in verdict.findings for part in found.measured if part.test.bounded):
            assert part.value is not None and part.test.met(part.value), f"{verdict.claim.id}: {part.text}"


def answer(verdicts: Sequence[Verdict], *ids: str) -> str:
    """Markdown, one paragraph for the head of a notebook: what these claims came to here, each with the number that decides; and all in numbers."""
    known = {verdict.claim.id: verdict for verdict in verdicts}
    said: dict[str, list[str]] = {opening: [] for opening in OPENINGS.values()}
    for verdict in (known[name] for name in ids):
        text = verdict.claim.text
        deciding = [part for found in verdict.findings for part in found.measured if part.test.bounded]
        deciding = [part for part in deciding if part.holds is False] or deciding
        lowered = text[0].lower() + text[1:] if text[1:2].islower() or text[:2] == "A " else text
        that = f"{lowered} ({deciding[0].text if deciding else verdict.why})"
        said.setdefault(OPENINGS.get(verdict.answer, ""), []).append(that)
    whole = [f"{opening} {'; '.join(those)}." for opening, those in said.items() if opening and those]
    return " ".join([*whole, f"Of all {counts(verdicts)}."])


def judged_at_all(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Without those that have no rule yet."""
    return [verdict for verdict in verdicts if verdict.answer != "not judged yet"]


def left(verdicts: Sequence[Verdict]) -> list[str]:
    """Per study, the claims that have no rule yet."""
    found: dict[str, list[str]] = {}
    for verdict in verdicts:
        if verdict.answer == "not judged yet":
            found.setdefault(verdict.claim.study, []).append(verdict.claim.id)
    return [f"{study}: not judged yet: {', '.join(ids)}" for study, ids in found.items()]


# -- as people read it, and as data -------------------------------------------------------------------------


def show(console: Console, verdicts: Sequence[Verdict], rules_too: bool = False, known: Sequence[Verdict] = ()) -> None:
    """What is judged, each with its text, both judgements, effect and run; by study what is not yet; checks (`known`) after it.

    `rules_too`: also both rules of each, and how a claim of each kind is judged.
    """
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for verdict in (*judged_at_all(verdicts), *known):
        name = f"check {verdict.claim.id}" if verdict in known else verdict.claim.id
        said = Text(verdict.claim.text)
        if verdict.claim.published:
            said.append(f"\npublished: {verdict.claim.value}", style="dim")
        if verdict.own is not None:
            said.append("\nits own data: ", style="dim").append(verdict.own.answer, style=STYLES[verdict.own.answer])
            said.append(f": {verdict.own.sentence}", style="dim")
        both = [("rule of its own data", verdict.own.rule if verdict.own else ""), ("rule", verdict.rule)]
        lines = [f"{what}: {rule}" for what, rule in both if rule and rules_too]
        targets = {found.run: f" on {found.target}" for found in verdict.findings}
        lines += [verdict.effect, verdict.why, ", ".join(f"{run}{targets.get(run, '')}" for run in verdict.runs)]
        said.append("".join(f"\n{line}" for line in lines if line), style="dim")
        grid.add_row(Text.assemble((name, "bold"), "\n", (verdict.answer, STYLES.get(verdict.answer, ""))), said)
        grid.add_row("", "")
    console.print(Text(f"{ONE_BOOT}.", style="dim"), soft_wrap=True)
    console.print(grid)
    for line in [*left(verdicts), *(_kinds(verdicts) if rules_too else [])]:
        console.print(Text(line, style="dim"), soft_wrap=True)
    for line in (counts(verdicts), own_counts(verdicts)):
        console.print(line, highlight=False, soft_wrap=True)


def page(verdicts: Sequence[Verdict], known: Sequence[Verdict] = (), linked: bool = False) -> list[Part]:
    """As Markdown has it, in README and at the notebooks' ends; below the table how kinds of claims are judged, and the checks (`known`).

    `linked`: from the checkout's top, to the notebooks that show the claims and to the runs' folders.
    """
    folders = {found.run: found.name for verdict in verdicts for found in verdict.findings}
    folders |= {run: verdict.unable for verdict in verdicts if verdict.unable for run in verdict.runs}
    heads = ("claim", "says", "published", "its own data", "here", "measured", "run")
    table = texts(heads, [list(_cells(verdict, folders, linked)) for verdict in judged_at_all(verdicts)])
    below = [*left(verdicts), counts(verdicts), own_counts(verdicts), *_kinds(verdicts)]
    below += [line.replace("- ", "check ", 1) for line in sentences(known).splitlines()]
    return [plain(f"{ONE_BOOT}."), table, Notes(tuple(map(Text, below)))]


def _cells(verdict: Verdict, folders: dict[str, str], linked: bool) -> Iterator[str | Cell]:
    claim, own = verdict.claim, verdict.own
    yield f"[{claim.id}](notebooks/{claim.study}.ipynb)" if linked else claim.id
    yield claim.text
    yield claim.value
    yield Cell(own.answer, strong=True, tail=f": {own.sentence}") if own else ""
    yield Cell(verdict.answer, strong=True)
    yield "; ".join(filter(None, [verdict.effect, verdict.why]))
    places = [(run, folders.get(run) if linked else None) for run in verdict.runs]
    targets = {found.run: f" on {found.target}" for found in verdict.findings}
    linked_runs = ((run, f"[{name}](data/reference/{name})" if name else f"`{run}`") for run, name in places)
    yield ", ".join(f"{shown}{targets.get(run, '')}" for run, shown in linked_runs)


def _kinds(verdicts: Sequence[Verdict]) -> list[str]:
    """How claims of the kinds that are among these are judged."""
    among = {verdict.claim.kind for verdict in verdicts}
    return [f"how a claim of kind `{kind}` is judged: {text}" for kind, text in KINDS.items() if kind in among]


def list_verdicts(verdicts: Sequence[Verdict], checks: Sequence[Verdict] = ()) -> dict[str, Any]:
    """Return what `ledger --json` prints: every claim, judged or not, what its answers mean, how kinds are judged, and the checks."""
    return {
        "answers": ANSWERS,
        "own_answers": OWN_ANSWERS,
        "kinds": KINDS,
        "counts": counts(verdicts),
        "own_counts": own_counts(verdicts),
        "claims": verdicts,
        "checks": checks,
    }
