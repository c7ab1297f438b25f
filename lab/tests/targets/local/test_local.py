"""The local target from outside: its namespaces, as this user and as one without privileges, and what `kill -9` leaves."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from lab.targets.local.sandbox import cgroups
from lab.tests.support.inside import run_inside
from lab.tests.support.waiting import PATIENCE_S, until

ROOT = Path(__file__).parents[4]
LIMITS, WHY_NOT = cgroups.try_limits()
CONTAINER, WORKER, LOAD = "unshare --mount --uts", "nginx: worker process", "wrk -t1"
"""What a command line says of how far a run has come."""


def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "LAB_RUNS": str(tmp_path), "HOME": str(tmp_path)}


FILES = sorted(Path(__file__).parent.glob("*_inside.py"))
ROOTS_OWN = {"test_inside": ("-k", "says_why"), "test_limits_inside": ()}
LONG = {"test_successors_inside", "test_router_inside", "test_changes_inside"}
"""Those that bring many systems up, minutes in all."""
"""What this user runs every time, as root too: what differs for root. A user without privileges runs all but limits, which root alone may set."""


def turns() -> Iterator[Any]:
    for file in FILES:
        own = ROOTS_OWN.get(file.stem) if os.geteuid() == 0 else ()
        yield pytest.param("this user", file, own or (), marks=[pytest.mark.long] * (own is None), id=file.stem)
        if file.stem != "test_limits_inside":
            marks = [pytest.mark.long] * (file.stem in LONG)
            yield pytest.param("nobody", file, (), marks=marks, id=f"{file.stem}-nobody")


@pytest.mark.inside
@pytest.mark.parametrize(("identity", "file", "selected"), turns())
def test_inside(identity: str, file: Path, selected: tuple[str, ...]) -> None:
    before = machine()[2]
    run_inside(str(file), identity, selected)
    assert machine()[2] == before


class Lab:
    """`lab bench VARIANT` under a load that would last; every process of it carries the mark in its environment."""

    def __init__(self, variant: str, tmp_path: Path, before: Sequence[str | Path] = ()) -> None:
        self.mark = uuid.uuid4().hex
        sweep = tmp_path / "long.toml"
        sweep.write_text(
            'title = "Long"\nquestion = "Does it end?"\nblocks = 1\n'
            '[[points]]\nname = "ceiling"\ngenerator = "wrk"\nconnections = 4\nduration_s = 600\n'
        )
        argv = [sys.executable, "-m", "lab", "bench", variant, "--sweep", str(sweep)]
        if before:
            argv = [*map(str, before), f"import subprocess; subprocess.run({argv!r})"]
        env, nowhere = {**environment(tmp_path), "LAB_TEST_MARK": self.mark}, subprocess.DEVNULL
        self.outer = subprocess.Popen(argv, cwd=ROOT, env=env, stdout=nowhere, stderr=nowhere)
        self.family: list[psutil.Process] = []

    def look(self) -> None:
        self.family = psutil.Process(self.outer.pid).children(recursive=True)

    def wait_for(self, command: str = LOAD) -> Lab:
        """Until one of its processes has this in its command line."""
        deadline = time.monotonic() + 60
        while not any(command in command_of(process) for process in self.family):
            assert time.monotonic() < deadline and self.outer.poll() is None, f"no {command} was started"
            time.sleep(0.005)
            self.look()
        return self

    def parents(self) -> tuple[psutil.Process, psutil.Process]:
        """`unshare`, and the inner process."""
        (parent,) = psutil.Process(self.outer.pid).children()
        (inner,) = parent.children()
        return parent, inner

    def kill(self) -> None:
        self.outer.kill()
        self.outer.wait()

    def assert_gone(self) -> None:
        def left() -> list[psutil.Process]:
            return [process for process in [*self.family, *marked(self.mark)] if alive(process)]

        until(lambda: not left(), lambda: f"still there: {left()}")


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
    steering = "".join(path.read_text() for path in Path("/sys/class/net").glob("e*/queues/rx-*/rps_cpus"))
    mounts = Path("/proc/self/mountinfo").read_text()
    return (
        [line for line in mounts.splitlines() if "docker" not in line and "lab-tiny" not in line],
        [line for line in links.splitlines() if not line.startswith(("docker", "br-", "veth"))],
        sysctls + steering,
    )


@pytest.mark.slow
@pytest.mark.parametrize("moment", [0.0, 0.05, 0.3, 0.8, CONTAINER, WORKER, LOAD])
def test_kill_9_leaves_nothing(moment: float | str, tmp_path: Path) -> None:
    """At once, while Python starts, while a system comes up, and under load."""
    before, lab = machine(), Lab("backlog", tmp_path)
    if isinstance(moment, str):
        lab.wait_for(moment)
    else:
        time.sleep(moment)
        lab.look()
    lab.kill()
    lab.assert_gone()
    assert machine() == before


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["stopped inner", "unshare"])
def test_kill_9_leaves_nothing_of_a_stuck_lab(victim: str, tmp_path: Path) -> None:
    """The kernel's parent-death signals do what the lab itself cannot: the inner process is stopped, or loses its parent."""
    lab = Lab("baseline", tmp_path).wait_for()
    parent, inner = lab.parents()
    if victim == "unshare":
        parent.kill()
        assert lab.outer.wait(PATIENCE_S) == 128 + signal.SIGKILL
    else:
        inner.suspend()
        lab.kill()
    lab.assert_gone()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_outer_process_ends_the_run_cleanly(number: signal.Signals, tmp_path: Path) -> None:
    lab = Lab("baseline", tmp_path).wait_for()
    lab.outer.send_signal(number)
    assert lab.outer.wait(PATIENCE_S) == 1
    lab.assert_gone()


@pytest.mark.slow
def test_a_third_interrupt_does_not_ask(tmp_path: Path) -> None:
    lab = Lab("baseline", tmp_path).wait_for()
    lab.parents()[1].suspend()  # it cannot answer
    for _ in range(3):
        lab.outer.send_signal(signal.SIGINT)
        time.sleep(0.05)
    assert lab.outer.wait(PATIENCE_S) == 128 + signal.SIGKILL
    lab.assert_gone()


@pytest.mark.slow
def test_the_lab_ends_with_the_just_that_started_it(tmp_path: Path) -> None:
    """A stand-in called `just`, killed, cannot pass anything on."""
    just = tmp_path / "just"
    shutil.copy(sys.executable, just)  # the kernel goes by the name of the file
    lab = Lab("baseline", tmp_path, before=[just, "-c"]).wait_for()
    assert Path(f"/proc/{lab.outer.pid}/comm").read_text() == "just\n"
    lab.kill()
    lab.assert_gone()


def test_a_machine_without_namespaces_says_so(tmp_path: Path) -> None:
    fails = "#!/bin/sh\necho 'unshare: unshare failed: Operation not permitted' >&2; exit 1\n"
    for stubs, path, message in (
        ((), str(tmp_path), "not on PATH: "),
        (("unshare", "setpriv"), f"{tmp_path}:{os.environ['PATH']}", "does not let the lab make its namespaces"),
    ):
        for name in stubs:
            (tmp_path / name).write_text(fails)
            (tmp_path / name).chmod(0o755)
        argv = [sys.executable, "-m", "lab", "bench", "baseline"]
        env = {**environment(tmp_path), "PATH": path}
        done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr


def limits_of(lab: int) -> set[str]:
    """The folders of limits of the lab that is or was this process, wherever they are."""
    made = (f"{root}/{name}" for root, names, _ in os.walk("/sys/fs/cgroup") for name in names if name[:4] == "lab-")
    return {folder for folder in made if f"-{lab}-" in folder}


@pytest.mark.slow
@pytest.mark.skipif(not LIMITS, reason=f"no limits here: {WHY_NOT}")
def test_what_a_killed_lab_left_is_cleared_by_the_next(tmp_path: Path) -> None:
    """Its folders of limits stay until another starts."""
    lab, env = [sys.executable, "-m", "lab", "with", "backend-200m"], environment(tmp_path)
    killed = subprocess.Popen([*lab, "sh", "-c", "echo up; sleep 60"], cwd=ROOT, env=env, stdout=subprocess.PIPE)
    try:
        assert killed.stdout is not None and killed.stdout.readline() == b"up\n"
        left = limits_of(killed.pid)
    finally:
        killed.kill()
        killed.wait()
    assert left and limits_of(killed.pid) == left
    until(lambda: not any(Path(folder, "cgroup.procs").read_text() for folder in left), "its processes outlive it")
    assert subprocess.run([*lab, "true"], cwd=ROOT, env=env, check=False).returncode == 0
    assert limits_of(killed.pid) == set()
