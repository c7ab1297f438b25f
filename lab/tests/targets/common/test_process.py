"""A generator's process: what it says is bounded, what it leaves is ended, and the lab's own lacks are its own."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from lab.base.files import StoreError
from lab.model.load import GeneratorLoad
from lab.model.variants.variants import Check
from lab.targets.common import process
from lab.targets.common.process import GeneratorJob, GeneratorOutcome, prepare_generators, run_generators
from lab.targets.readback import read_back
from lab.tests.support.fakes import FakeGenerator, FakeSystem

LOAD = GeneratorLoad(url="http://x/", host="h", connections=1, duration_s=5.0)


class FullSystem(FakeSystem):
    """Everything it is asked fails with one OSError."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def popen(self, *_: Any, **__: Any) -> subprocess.Popen[bytes]:
        raise OSError(self.number, os.strerror(self.number))

    def exec(self, role: Any, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        raise OSError(self.number, os.strerror(self.number))


@pytest.fixture(autouse=True)
def limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """1 MiB instead of 128, 1 kB of which is kept."""
    monkeypatch.setattr(process, "OUTPUT_LIMIT_BYTES", 2**20)
    monkeypatch.setattr(process, "CUT_OUTPUT_BYTES", 1000)


def ended(tmp_path: Path, script: str) -> GeneratorOutcome:
    (seen,) = run_generators([GeneratorJob(FakeSystem(), FakeGenerator(script), FakeGenerator.binary, LOAD, tmp_path)])
    return seen


@pytest.mark.parametrize(
    ("script", "stream"),
    [
        ("import os; os.execvp('yes', ['yes', 'garbage'])", "stdout"),
        ("import subprocess; subprocess.run(['yes', 'garbage'])", "stdout"),
        ("import sys\ntry:\n  while True: print('garbage')\nexcept OSError: sys.stdout = None", "stdout"),
        ("import os; os.dup2(2, 1); os.execvp('yes', ['yes', 'garbage'])", "stderr"),
    ],
)
def test_a_flood_is_cut_and_never_good(tmp_path: Path, script: str, stream: str) -> None:
    seen = ended(tmp_path, script)
    assert (tmp_path / stream).stat().st_size == 2**20
    assert seen.exit_status != 0 and not seen.hung
    assert seen.stderr.startswith(f"the lab allows 1 MiB of {stream}: more was cut off\n") and len(seen.stderr) < 1100
    assert "garbage\n" in (seen.stdout if stream == "stdout" else seen.stderr) and len(seen.stdout) <= 1000


def test_up_to_the_limit_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = ended(tmp_path, "print('x' * (2**20 - 2))")
    assert (len(seen.stdout), seen.exit_status, seen.stderr) == (2**20 - 1, 0, "")

    def full(self: Path, text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(StoreError, match="(?s)load.py: cannot be written: No space left.*--resume"):
        ended(tmp_path, "")


@pytest.mark.slow
def test_what_a_generator_leaves_behind_is_ended_and_what_it_said_is_read(tmp_path: Path) -> None:
    """A child in its group does not outlive it; the lab reads from its own descriptors, though their files are gone."""
    code = (
        "import os, subprocess; os.remove('stdout'); os.remove('stderr'); print(subprocess.Popen(['sleep', '60']).pid)"
    )
    seen = ended(tmp_path, code)
    assert seen.exit_status == 0
    with suppress(psutil.NoSuchProcess):
        psutil.Process(int(seen.stdout)).wait(50)  # whoever adopted it may take a moment to collect it


def test_what_is_held_is_started_by_its_call(tmp_path: Path) -> None:
    began = tmp_path / "began"
    generator = FakeGenerator(f"open({str(began)!r}, 'w')")
    with ExitStack() as lasting:
        run = prepare_generators([GeneratorJob(FakeSystem(), generator, FakeGenerator.binary, LOAD, tmp_path)], lasting)
        assert not began.exists()
        (done,) = run()
    assert began.exists() and done.exit_status == 0


def test_the_labs_own_lack_blames_no_one_else_and_what_is_not_its_own_stays_a_reading(tmp_path: Path) -> None:
    for number in (errno.EMFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOSPC):
        with pytest.raises(StoreError, match="this machine"):
            run_generators([GeneratorJob(FullSystem(number), FakeGenerator(), "wrk", LOAD, tmp_path)])
        with pytest.raises(StoreError, match="this machine"):
            read_back(FullSystem(number), [Check(kind="backlog", port=80, value="1")])
    (seen,) = run_generators([GeneratorJob(FullSystem(errno.ENOENT), FakeGenerator(), "wrk", LOAD, tmp_path)])
    assert seen.exit_status == process.NOT_STARTED
    (reading,) = read_back(FullSystem(errno.ENOENT), [Check(kind="backlog", port=80, value="1")])
    assert (reading.ok, reading.observed) == (False, "unreadable")
