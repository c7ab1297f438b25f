"""A gate's verdicts for people, on a terminal and for a pull request or a step's summary, and as JUnit XML, which CI systems show beside a change.

Of the XML a row is a test case, whose name is the same in every run, so that CI can tell its history; the runs are named by the suite:

    regression   a failure with the sentence and what to do
    cannot-tell  skipped; an error where the gate was told to be strict, as it fails then. So is whatever is missing
    passed       a test case with the sentence as its output
"""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from rich.text import Text

from lab.analysis.explain.gate import MEASURE_MISSING, conclusion, missing_text
from lab.analysis.judge.comparison import change_text
from lab.analysis.judge.gate import Gate, Verdict
from lab.report.grid import Cell, Grid, Part, Row, Words, columns, plain, row

WORDS = {"regression": "REGRESSION", "cannot-tell": "cannot tell", "passed": "passed"}
HEADS = {"regression": "Regression", "cannot-tell": "Cannot tell of all", "passed": "Passed"}
STYLES = {"regression": "bold red", "cannot-tell": "yellow", "passed": "green"}
UNCHANGED = b'<?xml version=\'1.0\' encoding=\'utf-8\'?>\n<testsuites name="lab gate" tests="0" failures="0" errors="0" time="0" />\n'
"""Where no rendered manifest changed, and nothing was measured."""


def page(gate: Gate, strict: bool) -> list[Part]:
    """The rows, a sentence for each that has not passed, and the verdict last; in Markdown (for $GITHUB_STEP_SUMMARY or a comment) its
    heading first.
    """
    rows: list[Row] = []
    for one in gate.rows:
        base, other = one.row.pair
        change = change_text(one.row, one.row.estimate) if one.row.estimate else "–"
        arms = other if base == other else f"{other} against {base}"
        said = WORDS[one.verdict] if one.decides else "does not decide"
        verdict = Cell(said, STYLES[one.verdict], strong=one.verdict == "regression")
        rows.append(row(one.row.point.name, arms, one.metric, change, one.bound, verdict))
    unpassed: list[tuple[Verdict, str, str]] = [
        (one.verdict, f"{one.name}: {one.said}", one.do) for one in (*gate.of("regression"), *gate.of("cannot-tell"))
    ]
    if gate.missing:
        unpassed.append(("cannot-tell", missing_text(gate), MEASURE_MISSING))
    lines: list[Text] = []
    whys: list[str] = []
    for verdict, said, do in unpassed:
        lines += [Text.assemble((f"{WORDS[verdict]}: ", STYLES[verdict]), said), Text(f"  → {do}")]
        whys.append(f"- **{WORDS[verdict]}**: {said}. {do[0].upper()}{do[1:]}.")
    lines += [Text(note, style="dim") for note in gate.footnotes]
    whys += [f"- {note}" for note in gate.footnotes]
    base, other = gate.comparison.base, gate.comparison.other
    runs = f"{base.id}: paired by block" if gate.comparison.paired else f"{base.id} → {other.id}: two runs, unpaired"
    heads = columns(("point", "arm", "metric", "change", "bound", "verdict"), left=(0, 1, 2, 3, 5))
    return [
        Words((), (f"### {HEADS[gate.verdict]}",)),
        plain(f"gate {runs}"),
        Grid(heads, tuple(rows), blank=True),
        Words(tuple(lines), tuple(whys), blank=True),
        plain(conclusion(gate, strict), "bold"),
    ]


def xml(gate: Gate, strict: bool) -> bytes:
    """One `testsuite` in `testsuites`, in the shape that Jenkins' schema (junit-10.xsd), GitHub's actions and GitLab read."""
    base, other = gate.comparison.base, gate.comparison.other
    unsure = len(gate.of("cannot-tell")) + len(gate.missing)
    counts = {
        "tests": str(len(gate.rows) + len(gate.missing)),
        "failures": str(len(gate.of("regression"))),
        "errors": str(unsure if strict else 0),
        "time": "0",
    }
    suites = ET.Element("testsuites", {"name": "lab gate", **counts})  # which may not have `skipped`
    about = {"name": f"gate {base.id} {other.id}", "timestamp": other.created_at[:19], **counts}
    about["skipped"] = str(sum(not one.decides for one in gate.rows) + (0 if strict else unsure))
    suite = ET.SubElement(suites, "testsuite", {name: _printable(text) for name, text in about.items()})

    def case(place: str, name: str, verdict: Verdict, said: str, do: str, decides: bool = True) -> None:
        named = {"classname": _printable(place.replace(" ", "_")), "name": _printable(name), "time": "0"}
        found, sentence = ET.SubElement(suite, "testcase", named), _printable(f"{said}; {do}")
        if verdict == "passed":
            ET.SubElement(found, "system-out").text = sentence
            return
        kind = "failure" if verdict == "regression" else "error" if strict and decides else "skipped"
        attributes = {"message": sentence} | ({"type": verdict} if kind != "skipped" else {})
        ET.SubElement(found, kind, attributes).text = _printable(f"{name}\n{said}\n{do}")

    for one in gate.rows:
        case(f"gate.{base.sweep}.{one.row.point.name}", one.name, one.verdict, one.said, one.do, one.decides)
    for what in gate.missing:
        case(f"gate.{base.sweep}", what, "cannot-tell", f"not in {other.id}", MEASURE_MISSING)
    if notes := gate.footnotes:
        ET.SubElement(suite, "system-out").text = _printable("\n".join(notes))
    ET.indent(suites, " ")
    return ET.tostring(suites, "utf-8", xml_declaration=True) + b"\n"


def _printable(text: str) -> str:
    """Without what XML 1.0 has no way to say."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "�", text)
