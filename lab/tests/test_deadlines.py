"""No test can hang: pytest's have a limit (`support.deadlines`), bats' wait with a deadline."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from lab.tests import everyday_record
from lab.tests.long import ROOT

HANGING = """
import os, subprocess, threading
import pytest

@pytest.mark.ends_within(1)
def test_a_writer_without_a_reader(tmp_path):
    os.mkfifo(tmp_path / "go")
    open(tmp_path / "go", "w")

@pytest.mark.ends_within(1)
def test_a_process_that_never_ends():
    subprocess.run(["sleep", "1000"])

@pytest.mark.ends_within(1)
def test_a_lock_that_nobody_gives_back():
    with threading.Lock() as lock, threading.Condition() as one:
        one.wait()

@pytest.fixture
def slow_to_clean_up():
    yield
    threading.Event().wait()

@pytest.mark.ends_within(1)
def test_that_passes_but_is_never_cleaned_up(slow_to_clean_up):
    pass

def test_that_ends():
    pass
"""
BATS = sorted((ROOT / "lab/tests").rglob("*.bats")) + sorted((ROOT / "lab/tests").rglob("*.bash"))


@pytest.mark.slow
def test_a_test_that_hangs_fails_and_prints_what_it_waited_for(tmp_path: Path) -> None:
    (tmp_path / "test_hanging.py").write_text(HANGING)
    configured = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), "-p", "no:cacheprovider"]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *configured, "-p", "lab.tests.support.deadlines", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "3 failed, 2 passed, 1 error" in ended.stdout
    assert 'open(tmp_path / "go", "w")' in ended.stdout, "the line that it was at"
    assert re.search(
        r"the test did not end within 1 s.*processes that it had started: \d+ \(\w+\) sleep 1000", ended.stdout
    )
    assert "one.wait()" in ended.stdout
    assert "the teardown did not end within 1 s" in ended.stdout and "threading.Event().wait()" in ended.stdout


@pytest.mark.parametrize("path", BATS, ids=lambda path: path.name)
def test_bats_files_wait_with_a_deadline_and_leave_nobody_who_keeps_their_output_open(path: Path) -> None:
    """A process that is left with bats' descriptor 3 keeps bats from ending; who opens a FIFO waits for a reader that may have died."""
    text = path.read_text()
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    assert [line for line in lines if re.search(r"(?<!&) &$", line) and "3>&-" not in line] == []
    assert [line for line in lines if re.search(r"^\s*wait\b", line) and path.name != "waiting.bash"] == []
    assert [line for line in lines if "mkfifo" in line] == []
    loops = re.findall(r"^( *)((?:until|while) .*)\n((?:.*\n)*?)\1done", text, flags=re.MULTILINE)
    assert [head for _, head, body in loops if not re.search(r"deadline|\bread\b", head + body)] == []


def test_a_run_of_the_everyday_tests_adds_its_line_to_the_record(tmp_path: Path) -> None:
    (tmp_path / "pytest.xml").write_text("<testsuite><testcase/><testcase><failure/></testcase></testsuite>")
    record = tmp_path / "long" / "everyday.txt"
    for busy in (0, 2):
        everyday_record.append(record, everyday_record.line(tmp_path, busy, 281, 1))
    head, first, second = record.read_text().splitlines()
    assert head.startswith("# `just test --record")
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d UTC, \S+, \d+ CPUs, 0 busy beside, load [\d.]+, 281 s: 1 passed, 1 failed, 0 skipped, exit status 1",
        first,
    )
    assert "2 busy beside" in second
