"""Limits on the local target from outside: what a killed lab leaves behind, and that the next one clears it away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.targets.common.sampler import HOST_PROC, OUTER_PID
from lab.targets.local.sandbox import cgroups
from lab.targets.local.sandbox.namespaces import unshare

ROOT = Path(__file__).parents[4]
LIMITS, WHY_NOT = cgroups.trial()


def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "LAB_RUNS": str(tmp_path)}


def folders() -> set[str]:
    """Every lab's folders of limits, wherever they are."""
    return {
        f"{root}/{name}" for root, names, _ in os.walk("/sys/fs/cgroup") for name in names if name.startswith("lab-")
    }


@pytest.mark.inside
def test_inside(tmp_path: Path) -> None:
    """All of test_limits_inside.py, in the namespaces that `enter` would make, with the host's /proc as there."""
    host_proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    file = Path(__file__).with_name("test_limits_inside.py")
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--basetemp={tmp_path}/inner", str(file)]
    inside = {"LAB_TEST_INSIDE": "1", HOST_PROC: str(host_proc), OUTER_PID: str(os.getpid())}
    try:
        done = subprocess.run(
            [*unshare(as_root=os.geteuid() == 0), *argv],
            cwd=ROOT,
            env={**environment(tmp_path), **inside},
            pass_fds=[host_proc],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        os.close(host_proc)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.skipif(not LIMITS, reason=f"no limits here: {WHY_NOT}")
def test_what_a_killed_lab_left_is_cleared_by_the_next(tmp_path: Path) -> None:
    """The folders of one that was killed outright stay until another starts, which leaves those of live ones alone."""

    def lab(*command: str) -> list[str]:
        return [sys.executable, "-m", "lab", "with", "backend-200m", *command]

    def of(process: subprocess.Popen[bytes]) -> set[str]:
        return {folder for folder in folders() if f"-{process.pid}-" in folder}

    def start() -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            lab("sh", "-c", "echo up; sleep 60"), cwd=ROOT, env=environment(tmp_path), stdout=subprocess.PIPE
        )
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        return process

    killed, live = start(), start()
    try:
        left, kept = of(killed), of(live)
        assert left and kept
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert of(killed) == left
        deadline = time.monotonic() + 5.0
        while any(Path(folder, "cgroup.procs").read_text() for folder in left):
            assert time.monotonic() < deadline, "its processes outlive it"
            time.sleep(0.02)
        assert subprocess.run(lab("true"), cwd=ROOT, env=environment(tmp_path), check=False).returncode == 0
        assert of(killed) == set() and of(live) == kept
    finally:
        for process in (killed, live):
            if process.poll() is None:
                process.terminate()
                process.wait(10.0)
    assert of(live) == set()
