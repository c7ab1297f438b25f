"""A gate's verdicts for people: for a terminal, and for a pull request or a step's summary."""

from __future__ import annotations

from rich.text import Text

from lab.analysis.explain.gate import MEASURE_MISSING, conclusion, missing_text
from lab.analysis.judge.comparison import change_text
from lab.analysis.judge.gate import Gate, Gated, Verdict
from lab.report.grid import Cell, Grid, Part, Row, Words, columns, plain, row

WORDS = {"regression": "REGRESSION", "cannot-tell": "cannot tell", "passed": "passed"}
HEADS = {"regression": "Regression", "cannot-tell": "Cannot tell of all", "passed": "Passed"}
UNDECIDING = "does not decide"
STYLES = {"regression": "bold red", "cannot-tell": "yellow", "passed": "green"}
HEADERS = ("point", "arm", "metric", "change", "bound", "verdict")


def page(gate: Gate, strict: bool) -> list[Part]:
    """The rows, a sentence for each that has not passed, and the verdict last; in Markdown (for $GITHUB_STEP_SUMMARY or a comment) its
    heading first.
    """
    unpassed: list[tuple[Verdict, str, str]] = [
        (one.verdict, f"{one.name}: {one.said}", one.do) for one in (*gate.of("regression"), *gate.of("cannot-tell"))
    ]
    if gate.missing:
        unpassed.append(("cannot-tell", missing_text(gate), MEASURE_MISSING))
    whys = [f"- **{WORDS[verdict]}**: {said}. {do[0].upper()}{do[1:]}." for verdict, said, do in unpassed]
    lines = [
        line
        for verdict, said, do in unpassed
        for line in (Text.assemble((f"{WORDS[verdict]}: ", STYLES[verdict]), said), Text(f"  → {do}"))
    ]
    notes, base, other = gate.footnotes, gate.comparison.base, gate.comparison.other
    runs = f"{base.id}: paired by block" if gate.comparison.paired else f"{base.id} → {other.id}: two runs, unpaired"
    return [
        Words((), (f"### {HEADS[gate.verdict]}",)),
        plain(f"gate {runs}"),
        Grid(columns(HEADERS, left=(0, 1, 2, 3, 5)), tuple(map(_row, gate.rows)), blank=True),
        Words(
            (*lines, *(Text(note, style="dim") for note in notes)),
            (*whys, *(f"- {note}" for note in notes)),
            blank=True,
        ),
        plain(conclusion(gate, strict), "bold"),
    ]


def _row(one: Gated) -> Row:
    base, other = one.row.pair
    change = change_text(one.row, one.row.estimate) if one.row.estimate else "–"
    arms = other if base == other else f"{other} against {base}"
    verdict = Cell(
        WORDS[one.verdict] if one.decides else UNDECIDING, STYLES[one.verdict], strong=one.verdict == "regression"
    )
    return row(one.row.point.name, arms, one.metric, change, one.bound, verdict)
