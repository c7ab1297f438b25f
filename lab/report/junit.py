"""A gate's rows as JUnit XML, which CI systems show beside a change: a test case per row. Knows nothing of how they were judged.

regression   a failure with the sentence and what to do
cannot-tell  skipped; an error where the gate was told to be strict, as it fails then. So is whatever is missing
passed       a test case with the sentence as its output

Test cases have the same names in every run, so that CI can tell their history; the runs are named by the suite.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from lab.analysis.gate.advice import MEASURE_MISSING
from lab.analysis.gate.gate import Gate, Verdict

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
    place = f"gate.{base.sweep}"
    for one in gate.rows:
        _case(
            suite, (f"{place}.{one.row.point.name}", one.name), one.verdict, (one.said, one.do), strict and one.decides
        )
    for what in gate.missing:
        _case(suite, (place, what), "cannot-tell", (f"not in {other.id}", MEASURE_MISSING), strict)
    if notes := gate.footnotes:
        ET.SubElement(suite, "system-out").text = _printable("\n".join(notes))
    ET.indent(suites, " ")
    return ET.tostring(suites, "utf-8", xml_declaration=True) + b"\n"


def _case(suite: ET.Element, named: tuple[str, str], verdict: Verdict, told: tuple[str, str], strict: bool) -> None:
    """`named`: (class, name). `told`: (what is said, what to do)."""
    place, name = named
    about = {"classname": _printable(place.replace(" ", "_")), "name": _printable(name), "time": "0"}
    case = ET.SubElement(suite, "testcase", about)
    sentence = _printable("; ".join(told))
    if verdict == "passed":
        ET.SubElement(case, "system-out").text = sentence
        return
    kind = "failure" if verdict == "regression" else "error" if strict else "skipped"
    attributes = {"message": sentence} | ({"type": verdict} if kind != "skipped" else {})
    ET.SubElement(case, kind, attributes).text = _printable("\n".join((name, *told)))


def _printable(text: str) -> str:
    """Without what XML 1.0 has no way to say."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "�", text)
