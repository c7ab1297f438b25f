"""A gate's verdicts for people: a terminal table, and Markdown for a pull request or a step's summary."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from lab.analysis.comparison.rows import change_text
from lab.analysis.gate.advice import MEASURE_MISSING
from lab.analysis.gate.gate import Gate, Gated
from lab.base.text import aligned

WORDS = {"regression": "REGRESSION", "cannot-tell": "cannot tell", "passed": "passed"}
STYLES = {"regression": "bold red", "cannot-tell": "yellow", "passed": "green"}
HEADERS = ("point", "arm", "metric", "change", "bound", "verdict")


def print_table(console: Console, gate: Gate, strict: bool) -> None:
    """The rows, a sentence for each that has not passed, and the verdict last. One line per row unless it is a terminal's edge."""
    grid = [[Text(text, style="bold") for text in HEADERS]]
    grid += [[*map(Text, _cells(one)), Text(WORDS[one.verdict], style=STYLES[one.verdict])] for one in gate.rows]
    lines = [Text(runs_text(gate)), Text(""), *aligned(grid, frozenset({0, 1, 2, 3, 5}), 2), Text("")]
    for one in (*gate.of("regression"), *gate.of("cannot-tell")):
        lines += [
            Text.assemble((f"{WORDS[one.verdict]}: ", STYLES[one.verdict]), f"{one.name}: {one.said}"),
            Text(f"  → {one.do}"),
        ]
    if gate.missing:
        lines += [
            Text.assemble((f"{WORDS['cannot-tell']}: ", STYLES["cannot-tell"]), missing_text(gate)),
            Text(f"  → {MEASURE_MISSING}"),
        ]
    lines += [Text(note, style="dim") for note in gate.footnotes]
    lines.append(Text(conclusion(gate, strict), style="bold"))
    for line in lines:
        line.rstrip()
        console.print(line, soft_wrap=not console.is_terminal, highlight=False)


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
        known = "nothing is known of this change" if unsure == len(gate.rows) else "not all is known of this change"
        return f"{counts}: {known}: {'refused (--strict)' if strict else 'let through, as --strict was not asked for'}"
    worst = max(gate.rows, key=_share)
    said = change_text(worst.row, worst.row.estimate) if worst.row.estimate else ""
    return f"{counts}: nothing to do; the nearest to its bound is {worst.name}, {said} of {worst.bound}"


def as_markdown(gate: Gate, strict: bool) -> str:
    """A heading, the table, and a list of what has not passed; for $GITHUB_STEP_SUMMARY or a comment."""
    heads = {"regression": "Regression", "cannot-tell": "Cannot tell of all", "passed": "Passed"}
    lines = [
        f"### {heads[gate.verdict]}",
        "",
        runs_text(gate),
        "",
        f"| {' | '.join(HEADERS)} |",
        "|---|---|---|---|---:|---|",
    ]
    for one in gate.rows:
        word = f"**{WORDS[one.verdict]}**" if one.verdict == "regression" else WORDS[one.verdict]
        lines.append(f"| {' | '.join(_cell(text) for text in (*_cells(one), word))} |")
    lines.append("")
    lines += [
        f"- **{WORDS[one.verdict]}**: {one.name}: {one.said}. {_sentence(one.do)}"
        for one in (*gate.of("regression"), *gate.of("cannot-tell"))
    ]
    if gate.missing:
        lines.append(f"- **{WORDS['cannot-tell']}**: {missing_text(gate)}. {_sentence(MEASURE_MISSING)}")
    lines += [f"- {note}" for note in gate.footnotes]
    return "\n".join([*lines, "", conclusion(gate, strict), ""])


def _share(one: Gated) -> float:
    """Of the bound, how much its interval reaches; without an interval, or a bound of 0, the least."""
    return one.worst / one.limit if one.worst is not None and one.limit else float("-inf")


def _cells(one: Gated) -> list[str]:
    base, other = one.row.pair
    change = change_text(one.row, one.row.estimate) if one.row.estimate else "–"
    return [
        one.row.point.name,
        other if base == other else f"{other} against {base}",
        one.metric,
        change,
        one.bound,
    ]


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _cell(text: str) -> str:
    return text.replace("|", r"\|")
