"""The ledger as people read it: every claim that is judged with both judgements, what is not judged yet, and how claims are judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lab.analysis.boots import ONE_BOOT
from lab.analysis.claims import KINDS, Answer
from lab.analysis.claims.judging import Verdict
from lab.analysis.claims.ledger import counts, judged_at_all, left, own_counts, sentences
from lab.analysis.claims.publications import OwnAnswer
from lab.report.grid import Cell, Notes, Part, plain, texts

STYLES: dict[Answer | OwnAnswer, str] = {
    "reproduced": "green",
    "contradicted": "red",
    "not resolved": "yellow",
    "not judged yet": "dim",
    "borne out": "green",
    "not borne out": "red",
    "no data": "dim",
}
COLUMNS = ("claim", "says", "published", "its own data", "here", "measured", "run")


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
            said.append(f"\npublished: {_published(verdict)}", style="dim")
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
    table = texts(COLUMNS, [list(_cells(verdict, folders, linked)) for verdict in judged_at_all(verdicts)])
    below = [*left(verdicts), counts(verdicts), own_counts(verdicts), *_kinds(verdicts)]
    below += [line.replace("- ", "check ", 1) for line in sentences(known).splitlines()]
    return [plain(f"{ONE_BOOT}."), table, Notes(tuple(map(Text, below)))]


def _cells(verdict: Verdict, folders: dict[str, str], linked: bool) -> Iterator[str | Cell]:
    claim, own = verdict.claim, verdict.own
    yield f"[{claim.id}](notebooks/{claim.study}.ipynb)" if linked else claim.id
    yield claim.text
    yield _published(verdict)
    yield Cell(own.answer, strong=True, tail=f": {own.sentence}") if own else ""
    yield Cell(verdict.answer, strong=True)
    yield "; ".join(filter(None, [verdict.effect, verdict.why]))
    places = [(run, folders.get(run) if linked else None) for run in verdict.runs]
    targets = {found.run: f" on {found.target}" for found in verdict.findings}
    linked_runs = ((run, f"[{name}](data/reference/{name})" if name else f"`{run}`") for run, name in places)
    yield ", ".join(f"{shown}{targets.get(run, '')}" for run, shown in linked_runs)


def _published(verdict: Verdict) -> str:
    return f"{verdict.claim.published} {verdict.claim.unit}".strip()


def _kinds(verdicts: Sequence[Verdict]) -> list[str]:
    """How claims of the kinds that are among these are judged."""
    among = {verdict.claim.kind for verdict in verdicts}
    return [f"how a claim of kind `{kind}` is judged: {text}" for kind, text in KINDS.items() if kind in among]
