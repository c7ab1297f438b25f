"""A folder for a while: gone with whoever made it, at the latest when the next one is made, and never while its maker lives."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from lab.base.files import StoreError
from lab.targets.common.scratch import make_scratch_folder, sweep

HOLDING = "from lab.targets.common.scratch import make_scratch_folder\nwith make_scratch_folder() as folder: print(folder, flush=True); input()"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    sweep.cache_clear()
    return tmp_path


def test_scratch_is_where_tmpdir_says_and_goes(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with suppress(KeyError), make_scratch_folder() as folder:
        assert folder.parent == place
        (folder / "file").write_text("x")
        raise KeyError
    assert list(place.iterdir()) == []
    monkeypatch.setenv("TMPDIR", str(place / "none"))
    with pytest.raises(StoreError, match="none.*cannot be written: No such file"), make_scratch_folder():
        pass


def test_what_a_killed_one_left_goes_with_the_next_and_what_another_holds_stays(place: Path) -> None:
    (place / "lab-of-somebody").mkdir()
    argv, pipe = [sys.executable, "-c", HOLDING], subprocess.PIPE
    holders = [subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True) for _ in range(2)]
    try:
        killed, living = (Path((each.stdout or sys.stdin).readline().strip()) for each in holders)
        (killed / "stdout").write_text("what a generator said")
        holders[0].send_signal(signal.SIGKILL)
        holders[0].wait()
        with make_scratch_folder() as own:
            assert {each.name for each in place.iterdir()} == {"lab-of-somebody", living.name, own.name}
    finally:
        holders[1].communicate("\n", timeout=60)
    assert [each.name for each in place.iterdir()] == ["lab-of-somebody"]
