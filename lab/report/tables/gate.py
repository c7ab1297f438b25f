"""A gate's verdicts for people: for a terminal, and for a pull request or a step's summary."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from lab.analysis.comparison.rows import change_text
from lab.analysis.gate.advice import MEASURE_MISSING
from lab.analysis.gate.gate import Gate, Gated, Verdict
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
    unpassed = list(_unpassed(gate))
    whys = [f"- **{WORDS[verdict]}**: {said}. {do[0].upper()}{do[1:]}." for verdict, said, do in unpassed]
    lines = [
        line
        for verdict, said, do in unpassed
        for line in (Text.assemble((f"{WORDS[verdict]}: ", STYLES[verdict]), said), Text(f"  → {do}"))
    ]
    notes = gate.footnotes
    return [
        Words((), (f"### {HEADS[gate.verdict]}",)),
        plain(runs_text(gate)),
        Grid(columns(HEADERS, left=(0, 1, 2, 3, 5)), tuple(map(_row, gate.rows)), blank=True),
        Words(
            (*lines, *(Text(note, style="dim") for note in notes)),
            (*whys, *(f"- {note}" for note in notes)),
            blank=True,
        ),
        plain(conclusion(gate, strict), "bold"),
    ]


def runs_text(gate: Gate) -> str:
    base, other = gate.comparison.base, gate.comparison.other
    if gate.comparison.paired:
        return f"gate {base.id}: paired by block"
    return f"gate {base.id} → {other.id}: two runs, unpaired"


def missing_text(gate: Gate) -> str:
    """`not in run-2: arm keepalive, point rate-1000, metric gap_s`."""
    return f"not in {gate.comparison.other.id}: {', '.join(gate.missing)}"


def conclusion(gate: Gate, strict: bool) -> str:
    """How many of what, and what to do now."""
    failed, unsure, passed = (len(gate.of(verdict)) for verdict in ("regression", "cannot-tell", "passed"))
    counts = f"{failed} regression{'' if failed == 1 else 's'}, {unsure} cannot tell, {passed} passed"
    if gate.missing:
        counts += f", {missing_text(gate)}"
    if failed:
        comparison = gate.comparison
        same = comparison.paired and all(comparison.same_settings(one.row.pair) for one in gate.of("regression"))
        return f"{counts}: {'of the same variant, so no change is to blame' if same else 'do not take this change as it is'}"
    if gate.verdict == "cannot-tell":
        known = "nothing is known of this change" if not passed else "not all is known of this change"
        return f"{counts}: {known}: {'refused (--strict)' if strict else 'let through, as --strict was not asked for'}"
    worst = max((one for one in gate.rows if one.decides), key=_share)
    said = change_text(worst.row, worst.row.estimate) if worst.row.estimate else ""
    return f"{counts}: nothing to do; the nearest to its bound is {worst.name}, {said} of {worst.bound}"


def _unpassed(gate: Gate) -> Iterator[tuple[Verdict, str, str]]:
    """(verdict, what it is about and why, what to do) of all that has not passed, the worst first."""
    for one in (*gate.of("regression"), *gate.of("cannot-tell")):
        yield one.verdict, f"{one.name}: {one.said}", one.do
    if gate.missing:
        yield "cannot-tell", missing_text(gate), MEASURE_MISSING


def _share(one: Gated) -> float:
    """Of the bound, how much its interval reaches; without an interval, or a bound of 0, the least."""
    return one.worst / one.limit if one.worst is not None and one.limit else float("-inf")


def _row(one: Gated) -> Row:
    base, other = one.row.pair
    change = change_text(one.row, one.row.estimate) if one.row.estimate else "–"
    arms = other if base == other else f"{other} against {base}"
    verdict = Cell(
        WORDS[one.verdict] if one.decides else UNDECIDING, STYLES[one.verdict], strong=one.verdict == "regression"
    )
    return row(one.row.point.name, arms, one.metric, change, one.bound, verdict)
