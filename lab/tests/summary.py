"""One closing line over the JUnit files of several test runners: `12 passed, 0 failed, 1 skipped`.

    python -m lab.tests.summary FOLDER [EVERYDAY]

Exit status 1 when something failed, or when nothing was run. What failed is named again on stderr, with the last line of its
reason, for it may stand thousands of lines above. Of the reports in EVERYDAY the tests that took long are named there, too: by the
clock, which a busy machine stretches, so they fail nothing.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

LONG_S = 2.0


def cases(folder: Path) -> Iterator[ET.Element]:
    """The test cases in all the XML files below a folder."""
    for report in sorted(folder.rglob("*.xml")):
        yield from ET.parse(report).iter("testcase")


def count(folder: Path) -> tuple[int, int, int]:
    """Passed, failed, skipped test cases in all the XML files below a folder."""
    passed = failed = skipped = 0
    for case in cases(folder):
        outcomes = {child.tag for child in case}
        failed += bool(outcomes & {"failure", "error"})
        skipped += "skipped" in outcomes
        passed += not outcomes & {"failure", "error", "skipped"}
    return passed, failed, skipped


def failures(folder: Path) -> Iterator[str]:
    """`file: test: last line of its reason` for each test case that failed, in all the XML files below a folder."""
    for case in cases(folder):
        for child in case:
            if child.tag in {"failure", "error"}:
                lines = (child.text or child.get("message") or "no reason given").strip().splitlines()
                yield f"{name_of(case)}: {lines[-1].strip()}"


def slow(folder: Path) -> Iterator[tuple[float, str]]:
    """(seconds, file: test) of those that took long, of one report's folder."""
    for case in cases(folder):
        if (took := float(case.get("time", 0))) > LONG_S:
            yield took, name_of(case)


def name_of(case: ET.Element) -> str:
    return f"{Path(case.get('classname', '')).name}: {case.get('name')}"


def main(folder: Path, everyday: Path | None) -> int:
    for took, name in sorted(slow(everyday), reverse=True) if everyday else ():
        print(f"{took:.1f} s  {name}", file=sys.stderr)  # noqa: T201  (a program of the tests)
    for line in failures(folder):
        print(f"failed: {line}", file=sys.stderr)  # noqa: T201
    passed, failed, skipped = count(folder)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")  # noqa: T201
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None))
