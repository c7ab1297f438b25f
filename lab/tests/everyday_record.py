"""One line about a run of the everyday tests, appended to its record: whether they pass, and end, on many days and beside others.

    python -m lab.tests.everyday_record REPORTS BUSY SECONDS STATUS      as scripts/test --record calls it

REPORTS is the folder of the JUnit files, BUSY the number of busy processes beside, STATUS how the tests ended.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from lab.tests.long import RECORDS, ROOT, commit
from lab.tests.summary import count

RECORD = RECORDS / "everyday.txt"
HEAD = "# `just test --record [BUSY]`, a line each time: when it ended, commit, CPUs, busy processes beside, load average, seconds, outcome\n"


def line(reports: Path, busy: int, seconds: int, status: int) -> str:
    passed, failed, skipped = count(reports)
    outcome = f"{passed} passed, {failed} failed, {skipped} skipped, exit status {status}"
    beside = f"{os.cpu_count()} CPUs, {busy} busy beside, load {os.getloadavg()[2]:.1f}"
    return f"{datetime.now(UTC):%F %H:%M} UTC, {commit()}, {beside}, {seconds} s: {outcome}"


def append(record: Path, text: str) -> None:
    record.parent.mkdir(parents=True, exist_ok=True)
    with record.open("a") as stream:
        if not stream.tell():
            stream.write(HEAD)
        stream.write(text + "\n")


if __name__ == "__main__":
    folder, *numbers = sys.argv[1:]
    text = line(Path(folder), *map(int, numbers))
    append(ROOT / RECORD, text)
    print(f"{RECORD}: {text}")  # noqa: T201  (a program of the tests)
