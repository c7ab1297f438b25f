"""The local target from outside: its namespaces, as this user and as one without privileges, and what `kill -9` leaves."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from lab.tests.support.inside import run_inside
from lab.tests.support.waiting import PATIENCE_S, until

ROOT = Path(__file__).parents[4]
CONTAINER, WORKER, LOAD = "unshare --mount --uts", "nginx: worker process", "wrk -t1"
"""What a command line says of how far a run has come."""


def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "LAB_RUNS": str(tmp_path), "HOME": str(tmp_path)}


@pytest.mark.inside
@pytest.mark.parametrize("identity", ["this user", "nobody"])
def test_inside(identity: str) -> None:
    """All of test_inside.py, in the namespaces that `enter` would make; as root, what differs for root: nobody runs them all."""
    before = machine()
    selected = ("-k", "overlay or sysctl or take or says_why") if (identity, os.geteuid()) == ("this user", 0) else ()
    run_inside(str(Path(__file__).with_name("test_inside.py")), identity, selected)
    assert machine() == before


def long_sweep(tmp_path: Path) -> str:
    sweep = tmp_path / "long.toml"
    sweep.write_text(
        'title = "Long"\nquestion = "Does it end?"\nblocks = 1\n'
        '[[points]]\nname = "ceiling"\ngenerator = "wrk"\nconnections = 4\nduration_s = 600\n'
    )
    return str(sweep)


def lab(variant: str, tmp_path: Path, mark: str) -> subprocess.Popen[bytes]:
    """`lab bench VARIANT` under a load that would last; every process of it carries the mark in its environment."""
    return subprocess.Popen(
        [sys.executable, "-m", "lab", "bench", variant, "--sweep", long_sweep(tmp_path)],
        cwd=ROOT,
        env={**environment(tmp_path), "LAB_TEST_MARK": mark},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def command_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def marked(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("LAB_TEST_MARK") == mark:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def machine() -> tuple[list[str], list[str], str]:
    """What the lab must not change: mounts, interfaces, sysctls; without what comes and goes beside it: a Docker engine's, and the small disks that other tests fill (`lab-tiny`)."""
    links = subprocess.run(["ip", "-brief", "link"], capture_output=True, text=True, check=True).stdout
    names = ["net/core/somaxconn", "net/ipv4/ip_local_port_range", "net/ipv4/ip_unprivileged_port_start", "fs/file-max"]
    sysctls = "".join(Path("/proc/sys", name).read_text() for name in names)
    mounts = Path("/proc/self/mountinfo").read_text()
    return (
        [line for line in mounts.splitlines() if "docker" not in line and "lab-tiny" not in line],
        [line for line in links.splitlines() if not line.startswith(("docker", "br-", "veth"))],
        sysctls,
    )


def descendants(outer: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return psutil.Process(outer.pid).children(recursive=True)


def wait_for(outer: subprocess.Popen[bytes], command: str) -> list[psutil.Process]:
    """The lab's processes, as soon as one with this in its command line is among them."""
    deadline = time.monotonic() + 60
    family: list[psutil.Process] = []
    while not any(command in command_of(process) for process in family):
        assert time.monotonic() < deadline and outer.poll() is None, f"no {command} was started"
        time.sleep(0.005)
        family = descendants(outer)
    return family


def assert_gone(family: Sequence[psutil.Process], mark: str) -> None:
    def left() -> list[psutil.Process]:
        return [process for process in [*family, *marked(mark)] if alive(process)]

    until(lambda: not left(), lambda: f"still there: {left()}")


@pytest.mark.slow
@pytest.mark.parametrize("moment", [0.0, 0.05, 0.3, 0.8, CONTAINER, WORKER, LOAD])
def test_kill_9_leaves_nothing(moment: float | str, tmp_path: Path) -> None:
    """At once, while Python starts, while a system comes up, and under load."""
    before, mark = machine(), uuid.uuid4().hex
    outer = lab("backlog", tmp_path, mark)
    family: list[psutil.Process] = []
    if isinstance(moment, str):
        family = wait_for(outer, moment)
    else:
        time.sleep(moment)
        family = descendants(outer)
    outer.kill()
    outer.wait()
    assert_gone(family, mark)
    assert machine() == before


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["stopped inner", "unshare"])
def test_kill_9_leaves_nothing_of_a_stuck_lab(victim: str, tmp_path: Path) -> None:
    """The kernel's parent-death signals do what the lab itself cannot: the inner process is stopped, or loses its parent."""
    mark = uuid.uuid4().hex
    outer = lab("baseline", tmp_path, mark)
    family = wait_for(outer, LOAD)
    (parent,) = psutil.Process(outer.pid).children()
    (inner,) = parent.children()
    if victim == "stopped inner":
        inner.suspend()
        outer.kill()
    else:
        parent.kill()
    outer.wait(PATIENCE_S)
    assert_gone(family, mark)
    if victim == "unshare":
        assert outer.returncode == 128 + signal.SIGKILL


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_outer_process_ends_the_run_cleanly(number: signal.Signals, tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    outer = lab("baseline", tmp_path, mark)
    family = wait_for(outer, LOAD)
    outer.send_signal(number)
    assert outer.wait(PATIENCE_S) == 1
    assert_gone(family, mark)


@pytest.mark.slow
def test_a_third_interrupt_does_not_ask(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    outer = lab("baseline", tmp_path, mark)
    family = wait_for(outer, LOAD)
    (parent,) = psutil.Process(outer.pid).children()
    parent.children()[0].suspend()  # it cannot answer
    for _ in range(3):
        outer.send_signal(signal.SIGINT)
        time.sleep(0.05)
    assert outer.wait(PATIENCE_S) == 128 + signal.SIGKILL
    assert_gone(family, mark)


@pytest.mark.slow
def test_the_lab_ends_with_the_just_that_started_it(tmp_path: Path) -> None:
    """A stand-in called `just`, killed, cannot pass anything on."""
    mark = uuid.uuid4().hex
    just = tmp_path / "just"
    shutil.copy(sys.executable, just)  # the kernel goes by the name of the file
    argv = [sys.executable, "-m", "lab", "bench", "baseline", "--sweep", long_sweep(tmp_path)]
    code = f"import subprocess; subprocess.run({argv!r})"
    script = subprocess.Popen(
        [just, "-c", code],
        cwd=ROOT,
        env={**environment(tmp_path), "LAB_TEST_MARK": mark},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    family = wait_for(script, LOAD)
    assert Path(f"/proc/{script.pid}/comm").read_text() == "just\n"
    script.kill()
    script.wait()
    assert_gone(family, mark)


@pytest.mark.slow
def test_the_exit_status_comes_through(tmp_path: Path) -> None:
    outer = lab("nonsense", tmp_path, uuid.uuid4().hex)
    assert outer.wait(PATIENCE_S) == 2


@pytest.mark.parametrize(
    ("stub", "message"),
    [
        (
            "echo 'unshare: unshare failed: Operation not permitted' >&2; exit 1",
            "does not let the lab make its namespaces",
        ),
        (None, "not on PATH: "),
    ],
)
def test_a_machine_without_namespaces_says_so(stub: str | None, message: str, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    if stub is not None:
        for name in ("unshare", "setpriv"):
            (folder / name).write_text(f"#!/bin/sh\n{stub}\n")
            (folder / name).chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "lab", "bench", "baseline"],
        cwd=ROOT,
        env={**environment(tmp_path), "PATH": f"{folder}:{os.environ['PATH']}" if stub else str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr
