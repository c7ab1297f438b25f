"""A gate's rows as JUnit XML, which CI systems show beside a change: a test case per row. Knows nothing of how they were judged.

regression   a failure with the sentence and what to do
cannot-tell  skipped; an error where the gate was told to be strict, as it fails then. So is whatever is missing
passed       a test case with the sentence as its output

Test cases have the same names in every run, so that CI can tell their history; the runs are named by the suite.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from lab.analysis.explain.gate import MEASURE_MISSING
from lab.analysis.judge.gate import Gate, Verdict

UNCHANGED = b'<?xml version=\'1.0\' encoding=\'utf-8\'?>\n<testsuites name="lab gate" tests="0" failures="0" errors="0" time="0" />\n'
"""Where no rendered manifest changed, and nothing was measured."""


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
