"""What takes longer than all the lanes together: run by hand, one at a time, each leaving a record to commit.

    python -m lab.tests.long         lists them: what would be run, how long it takes, where its record goes
    python -m lab.tests.long NAME    runs that one and writes its record

Exit status: that of what was run; 2 for an unknown name.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[2]
RECORDS = Path("data/long")


@dataclass(frozen=True, slots=True)
class Soak:
    """One of them: `command` begins with `python` or a program of the lab's."""

    about: str
    takes: str
    command: tuple[str, ...]


SOAKS = {
    "kills": Soak(
        "`kill -9` of twenty runs on local, apiserver and kind (after `just up kind`), and of one of every system",
        "about half an hour",
        ("python", "-m", "pytest", "-v", "-m", "long", "lab/tests/commands/test_kills.py"),
    ),
    "tests": Soak(
        "every other test marked long",
        "about an hour",
        ("python", "-m", "pytest", "-q", "-m", "long", "--durations=20", "--ignore=lab/tests/commands/test_kills.py"),
    ),
    "shell": Soak(
        "every bats test tagged long, those on kind where there is a Docker engine",
        "half an hour",
        ("bats", "--recursive", "--timing", "--filter-tags", "long", "lab/tests"),
    ),
    "controllers": Soak(
        "the slow and inside tests of targets and systems, with Contour and Envoy Gateway, without which some skip",
        "half an hour, a quarter of it to build the two",
        (
            *("python", "-m", "pytest", "-q", "-m", "(slow or inside) and not (measures or long)", "--durations=20"),
            *("lab/tests/targets", "lab/tests/systems", "lab/tests/experiments/migration"),
        ),
    ),
    "sabotage": Soak(
        "every overlay without each of its knobs", "about half an hour", ("python", "-m", "lab", "sabotage")
    ),
    "soak": Soak(
        "the lab's own memory, file descriptors and time per sample over an hour of one run",
        "an hour",
        ("python", "-m", "lab.tests.support.soak", "3600"),
    ),
    "by-hand": Soak(
        "the lab's rate against the same load typed by hand, on the same pods of kind (after `just up kind`)",
        "three minutes",
        ("python", "-m", "lab.tests.support.by_hand"),
    ),
    "gates": Soak(
        "ten gates of an unchanged tree and ten of one that became 5 % dearer",
        "an hour and a half",
        ("python", "-m", "lab.tests.support.gates"),
    ),
}


def listed() -> str:
    lines: list[str] = []
    for name, soak in SOAKS.items():
        record = RECORDS / f"{name}.txt"
        last = (ROOT / record).read_text().partition("\n")[0] if (ROOT / record).exists() else "not run yet"
        lines += [f"{name:10} {soak.about}: {soak.takes}", f"{'':10} {' '.join(soak.command)}"]
        lines += [f"{'':10} record: {record} ({last})"]
    return "\n".join([*lines, "", "run one by: just test --long NAME; then commit its record"])


def run(name: str) -> int:
    """Runs it; the record holds when, of which commit, on what machine, how it ended, and all that it printed."""
    soak, began, printed = SOAKS[name], datetime.now(UTC), list[str]()
    program, *arguments = soak.command
    command = [sys.executable if program == "python" else program, *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            printed.append(line.rstrip())
            sys.stderr.write(line)
    minutes = (datetime.now(UTC) - began).total_seconds() / 60
    head = [f"{began:%F %H:%M} UTC, {minutes:.0f} minutes, exit status {process.returncode}"]
    head += [f"commit {commit()}", f"machine {platform.platform()}", " ".join(soak.command)]
    (ROOT / RECORDS).mkdir(parents=True, exist_ok=True)
    (ROOT / RECORDS / f"{name}.txt").write_text("\n".join([*head, "", *printed]) + "\n")
    return process.returncode


def commit() -> str:
    """With `-dirty` where the tree is another one; `unknown` outside of git."""
    told = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return told.stdout.strip() or "unknown"


def main(names: list[str]) -> int:
    if not names:
        print(listed())  # noqa: T201  (a program of the tests)
        return 0
    if len(names) == 1 and names[0] in SOAKS:
        return run(names[0])
    print(f"--long: one of {', '.join(SOAKS)}, got {' '.join(names)}", file=sys.stderr)  # noqa: T201
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
