"""The page of a gate (a comparison that fails on a regression), and its JUnit XML, which CI systems show next to a change.

The page is for a terminal, for a pull request and for the summary of a CI step. In the XML, each row of the comparison is a test
case. Its name is the same in every run, so that CI can show its history. The test suite has the names of the runs. A test case
depends on the verdict:

    regression    a failure, with the sentence and what to do
    inconclusive  skipped; an error if the gate is strict. A row that is missing in the second run is reported in the same way
    passed        a test case with the sentence as its output
"""

from __future__ import annotations

import re
from collections import Counter
from xml.etree import ElementTree as ET

from rich.text import Text

from lab.analysis.explain.gate import MEASURE_MISSING, conclude, format_missing
from lab.analysis.judge.comparison import format_change
from lab.analysis.judge.gate import Gate, GateVerdict
from lab.report.grid import (
    Fold,
    Grid,
    Heading,
    Notes,
    Part,
    Sentences,
    TableCell,
    TableRow,
    make_columns,
    make_row,
    make_sentence,
)

WORDS = {"regression": "REGRESSION", "inconclusive": "inconclusive", "passed": "passed"}
HEADS = {"regression": "Regression", "inconclusive": "Inconclusive in part", "passed": "Passed"}
STYLES = {"regression": "bold red", "inconclusive": "yellow", "passed": "green"}
UNCHANGED = b'<?xml version=\'1.0\' encoding=\'utf-8\'?>\n<testsuites name="lab gate" tests="0" failures="0" errors="0" time="0" />\n'
"""The XML for a change that altered no rendered manifest, so that nothing was measured."""


def page(gate: Gate, strict: bool) -> list[Part]:
    """Return the page of a gate (a comparison that fails on a regression): the verdict, a table, and the rows that did not pass.

    Each of these rows has a reason and a remedy. In Markdown, the page begins with a heading.

    Args:
        gate: The judged comparison.
        strict: Whether the gate also fails if something is inconclusive.

    """
    base, other = gate.comparison.base, gate.comparison.other
    usual = Counter(gated.row.pair[0] for gated in gate.rows).most_common(1)[0][0]
    narrow: list[TableRow] = []
    wide: list[TableRow] = []
    for gated in gate.rows:
        change = format_change(gated.row, gated.row.estimate) if gated.row.estimate else "–"
        text = WORDS[gated.verdict] if gated.decides else "does not decide"
        verdict = TableCell(text, STYLES[gated.verdict], strong=gated.verdict == "regression")
        arm = _shorten(gated.row.arms, usual)
        point, cells = Heading(gated.row.point.name), (gated.metric, change, gated.bound, verdict)
        narrow.append(make_row(*cells, under=[point, Heading(arm, inner=True)]))
        wide.append(make_row(arm, *cells, under=[point]))
    unpassed: dict[tuple[GateVerdict, str], list[str]] = {}
    for gated in (*gate.of("regression"), *gate.of("inconclusive")):
        unpassed.setdefault((gated.verdict, gated.do), []).append(_shorten(f"{gated.name}: {gated.said}", usual))
    if gate.missing:
        unpassed.setdefault(("inconclusive", MEASURE_MISSING), []).append(format_missing(gate))
    lines: list[Text] = []
    list_items: list[str] = []
    for (kind, remedy), texts in unpassed.items():
        lines += [Text.assemble((f"{WORDS[kind]}: ", STYLES[kind]), text) for text in texts]
        lines.append(Text(f"  → {remedy}"))
        list_items += [f"- **{WORDS[kind]}**: {text}." for text in texts]
        list_items[-1] += f" {remedy[0].upper()}{remedy[1:]}."
    how = f"{base.id}: paired by block" if gate.comparison.paired else f"{base.id} → {other.id}: two runs, unpaired"
    runs = " ".join(dict.fromkeys((base.id, other.id)))
    notes = [_shorten(note, usual) for note in gate.footnotes]
    always = len(gate.comparison.notes) + len(gate.left_out)  # what differs between the runs, and what is not judged
    heads = ("metric", "change", "bound", "verdict")
    columns, wide_columns = make_columns(heads, left=(0, 1, 3)), make_columns(("arm", *heads), left=(0, 1, 2, 4))
    status = gate.exit_status(strict)
    return [
        Sentences((), (f"### {HEADS[gate.verdict]}",)),
        make_sentence(conclude(gate, strict), "bold"),
        make_sentence(f"gate {how}; baseline {usual} where no other is named"),
        Grid(columns, tuple(narrow), Fold((0, 1), (2, 3)), indent=4, blank=True, wide=Grid(wide_columns, tuple(wide))),
        Sentences(tuple(lines), tuple(list_items), blank=True),
        Sentences(tuple(Text(note, "dim") for note in notes[:always]), tuple(f"- {note}" for note in notes[:always])),
        Notes(tuple(Text(note, "dim") for note in notes[always:]), elsewhere=f"just compare {runs}"),
        *([make_sentence(f"exit status {status}: {HEADS[gate.verdict].lower()}", "bold")] if status else []),
    ]


def _shorten(text: str, base: str) -> str:
    """Remove ` against BASE` from a text and return the rest, since the page names the usual baseline only once."""
    return re.sub(rf" against {re.escape(base)}(?= at |$)", "", text)


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
