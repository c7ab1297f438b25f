"""One closing line over the JUnit files of several test runners: `12 passed, 0 failed, 1 skipped`.

    python -m lab.tests.summary FOLDER

Exit status 1 when something failed, or when nothing was run.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from pathlib import Path


def count(folder: Path) -> tuple[int, int, int]:
    """Passed, failed, skipped test cases in all the XML files below a folder."""
    passed = failed = skipped = 0
    for report in folder.rglob("*.xml"):
        for case in ET.parse(report).iter("testcase"):
            outcomes = {child.tag for child in case}
            failed += bool(outcomes & {"failure", "error"})
            skipped += "skipped" in outcomes
            passed += not outcomes & {"failure", "error", "skipped"}
    return passed, failed, skipped


if __name__ == "__main__":
    passed, failed, skipped = count(Path(sys.argv[1]))
    print(f"{passed} passed, {failed} failed, {skipped} skipped")  # noqa: T201  (a program of the tests)
    sys.exit(1 if failed or not passed else 0)
