"""The page of a gate, and its JUnit XML, which CI systems show next to a change.

The page is for a terminal, for a pull request and for the summary of a CI step. In the XML a row is a test case with the same name in
every run, so that CI can show its history; the suite names the runs:

    regression   a failure with the sentence and what to do
    inconclusive  skipped; an error where the gate is strict, since the gate fails then. Everything that is missing is reported likewise
    passed       a test case with the sentence as its output
"""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from rich.text import Text

from lab.analysis.explain.gate import MEASURE_MISSING, conclude, format_missing
from lab.analysis.judge.comparison import format_change
from lab.analysis.judge.gate import Gate, GateVerdict
from lab.report.grid import Grid, Part, Sentences, TableCell, TableRow, make_columns, make_row, make_sentence

WORDS = {"regression": "REGRESSION", "inconclusive": "inconclusive", "passed": "passed"}
HEADS = {"regression": "Regression", "inconclusive": "Inconclusive in part", "passed": "Passed"}
STYLES = {"regression": "bold red", "inconclusive": "yellow", "passed": "green"}
UNCHANGED = b'<?xml version=\'1.0\' encoding=\'utf-8\'?>\n<testsuites name="lab gate" tests="0" failures="0" errors="0" time="0" />\n'
"""The XML for a change that altered no rendered manifest, so that nothing was measured."""


def page(gate: Gate, strict: bool) -> list[Part]:
    """Return the page of a gate (a comparison that fails on a regression): a table, what did not pass, and the verdict.

    In Markdown, which a CI job shows as its summary or a comment, the page begins with a heading.

    Args:
        gate: The judged comparison.
        strict: Whether the gate also fails if something is inconclusive.

    """
    rows: list[TableRow] = []
    for gated in gate.rows:
        base, other = gated.row.pair
        change = format_change(gated.row, gated.row.estimate) if gated.row.estimate else "–"
        arms = other if base == other else f"{other} against {base}"
        text = WORDS[gated.verdict] if gated.decides else "does not decide"
        verdict = TableCell(text, STYLES[gated.verdict], strong=gated.verdict == "regression")
        rows.append(make_row(gated.row.point.name, arms, gated.metric, change, gated.bound, verdict))
    unpassed: list[tuple[GateVerdict, str, str]] = [
        (gated.verdict, f"{gated.name}: {gated.said}", gated.do)
        for gated in (*gate.of("regression"), *gate.of("inconclusive"))
    ]
    if gate.missing:
        unpassed.append(("inconclusive", format_missing(gate), MEASURE_MISSING))
    lines: list[Text] = []
    list_items: list[str] = []
    for verdict, text, remedy in unpassed:
        lines += [Text.assemble((f"{WORDS[verdict]}: ", STYLES[verdict]), text), Text(f"  → {remedy}")]
        list_items.append(f"- **{WORDS[verdict]}**: {text}. {remedy[0].upper()}{remedy[1:]}.")
    lines += [Text(note, style="dim") for note in gate.footnotes]
    list_items += [f"- {note}" for note in gate.footnotes]
    base, other = gate.comparison.base, gate.comparison.other
    runs = f"{base.id}: paired by block" if gate.comparison.paired else f"{base.id} → {other.id}: two runs, unpaired"
    heads = make_columns(("point", "arm", "metric", "change", "bound", "verdict"), left=(0, 1, 2, 3, 5))
    return [
        Sentences((), (f"### {HEADS[gate.verdict]}",)),
        make_sentence(f"gate {runs}"),
        Grid(heads, tuple(rows), blank=True),
        Sentences(tuple(lines), tuple(list_items), blank=True),
        make_sentence(conclude(gate, strict), "bold"),
    ]


def make_junit_xml(gate: Gate, strict: bool) -> bytes:
    """Return the result of a gate (a comparison that fails on a regression) as JUnit XML, with a test case for each row.

    Jenkins (by its schema junit-10.xsd), GitHub's actions and GitLab can read it.

    Args:
        gate: The judged comparison.
        strict: Whether something inconclusive is an error; otherwise its test case is skipped.

    """
    base, other = gate.comparison.base, gate.comparison.other
    unsure = len(gate.of("inconclusive")) + len(gate.missing)
    counts = {
        "tests": str(len(gate.rows) + len(gate.missing)),
        "failures": str(len(gate.of("regression"))),
        "errors": str(unsure if strict else 0),
        "time": "0",
    }
    suites = ET.Element("testsuites", {"name": "lab gate", **counts})  # which may not have `skipped`
    attributes = {"name": f"gate {base.id} {other.id}", "timestamp": other.created_at[:19], **counts}
    attributes["skipped"] = str(sum(not gated.decides for gated in gate.rows) + (0 if strict else unsure))
    suite = ET.SubElement(suites, "testsuite", {name: _replace_unprintable(text) for name, text in attributes.items()})

    def case(place: str, name: str, verdict: GateVerdict, said: str, remedy: str, decides: bool = True) -> None:
        attributes = {
            "classname": _replace_unprintable(place.replace(" ", "_")),
            "name": _replace_unprintable(name),
            "time": "0",
        }
        element, sentence = ET.SubElement(suite, "testcase", attributes), _replace_unprintable(f"{said}; {remedy}")
        if verdict == "passed":
            ET.SubElement(element, "system-out").text = sentence
            return
        kind = "failure" if verdict == "regression" else "error" if strict and decides else "skipped"
        details = {"message": sentence} | ({"type": verdict} if kind != "skipped" else {})
        ET.SubElement(element, kind, details).text = _replace_unprintable(f"{name}\n{said}\n{remedy}")

    for gated in gate.rows:
        case(
            f"gate.{base.sweep}.{gated.row.point.name}",
            gated.name,
            gated.verdict,
            gated.said,
            gated.do,
            gated.decides,
        )
    for missing in gate.missing:
        case(f"gate.{base.sweep}", missing, "inconclusive", f"not in {other.id}", MEASURE_MISSING)
    if notes := gate.footnotes:
        ET.SubElement(suite, "system-out").text = _replace_unprintable("\n".join(notes))
    ET.indent(suites, " ")
    return ET.tostring(suites, "utf-8", xml_declaration=True) + b"\n"


def _replace_unprintable(text: str) -> str:
    """Return a text in which each character that XML 1.0 cannot contain is replaced by `�`."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "�", text)
