"""Read-backs of limits, CPUs, environment and replicas against a system that answers as told."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from lab.model.variants.variants import Check
from lab.targets.readback import read_back

V1 = {
    "/proc/1/cgroup": "4:memory:/pod/b\n1:cpu:/pod/b\n0::/\n",
    "/proc/1/mountinfo": (
        "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
        "35 31 0:32 /pod/b /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
    ),
    "/sys/fs/cgroup/cpu/pod/b/cpu.cfs_quota_us": "20000\n",
    "/sys/fs/cgroup/cpu/pod/b/cpu.cfs_period_us": "100000\n",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes": "67108864\n",
    "/sys/fs/cgroup/memory": "cgroup.procs\nmemory.limit_in_bytes\n",
}
V2 = {
    "/proc/1/cgroup": "0::/\n",
    "/proc/1/mountinfo": "31 23 0:28 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
    "/sys/fs/cgroup": "cgroup.procs\ncpu.max\nmemory.max\n",
    "/sys/fs/cgroup/cpu.max": "20000 100000\n",
    "/sys/fs/cgroup/memory.max": "67108864\n",
}
STATUS = "Name:\tnginx\nCpus_allowed:\t3\nCpus_allowed_list:\t{}\n"


class Answers:
    """A System of which only `exec` and `pods` matter: files by path, folders' listings by theirs."""

    def __init__(self, files: Mapping[str, str | None], pods: int = 1) -> None:
        self.files, self.ready = files, pods

    def exec(self, role: str, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        if argv[0] == "sh":
            workers = [path.split("/")[2] for path in self.files if path.endswith("/status")] or ["7", "8"]
            titles = "".join(f"{pid}\tnginx: worker process\n" for pid in workers)
            return subprocess.CompletedProcess(list(argv), 0, f"1\thaproxy -f x\n{titles}", "")
        texts = [self.files.get(path) for path in argv[1:]]
        if None in texts:
            return subprocess.CompletedProcess(list(argv), 1, "", f"cat: {argv[-1]}: No such file or directory\n")
        return subprocess.CompletedProcess(list(argv), 0, "".join(filter(None, texts)), "")

    def pods(self, role: str) -> Sequence[Mapping[str, Any]]:
        return [{"spec": {}}] * self.ready


def observed(files: Mapping[str, str | None], pods: int = 1, **check: Any) -> tuple[bool, str, str]:
    system: Any = Answers(files, pods)
    (reading,) = read_back(system, [Check(**check)])
    return reading.ok, reading.observed, reading.detail


@pytest.mark.parametrize("files", [V1, V2])
@pytest.mark.parametrize(
    ("name", "value", "ok", "found"),
    [
        ("cpu", "200m", True, "200m"),
        ("cpu", "0.2", True, "200m"),
        ("cpu", "201m", False, "200m"),
        ("cpu", "unlimited", False, "200m"),
        ("memory", "64Mi", True, "64Mi"),
        ("memory", "65536Ki", True, "64Mi"),
        ("memory", "64M", False, "64Mi"),
    ],
)
def test_a_limit_is_compared_as_a_quantity(
    files: Mapping[str, str | None], name: str, value: str, ok: bool, found: str
) -> None:
    """Either version, where the group is a part of the mount or the mount a part of the group."""
    assert observed(files, kind="quota", name=name, value=value)[:2] == (ok, found)


@pytest.mark.parametrize(
    "changed",
    [
        {**V1, "/sys/fs/cgroup/cpu/pod/b/cpu.cfs_quota_us": "-1\n"},
        {**V2, "/sys/fs/cgroup/cpu.max": "max 100000\n"},
        {**V2, "/sys/fs/cgroup": "cgroup.procs\n", "/sys/fs/cgroup/cpu.max": None},  # the root of all groups
    ],
)
def test_no_limit_is_read_as_none(changed: Mapping[str, str | None]) -> None:
    """A container without the limit that its variant sets is caught; one that is to have none is right."""
    ok, found, detail = observed(changed, kind="quota", name="cpu", value="200m")
    assert (ok, found, detail) == (False, "unlimited", "expected '200m', found 'unlimited'")
    assert observed(changed, kind="quota", name="cpu", value="unlimited")[0]


@pytest.mark.parametrize(
    ("changed", "name", "detail"),
    [
        ({**V1, "/proc/1/cgroup": "0::/\n"}, "cpu", "not mounted here"),
        ({**V2, "/sys/fs/cgroup/cpu.max": "soon\n"}, "cpu", "ValueError"),
        ({**V1, "/sys/fs/cgroup/cpu/pod/b/cpu.cfs_period_us": None}, "cpu", "No such file"),
        (V2, "disk", "expected a name of cpu or memory"),
    ],
)
def test_a_limit_that_cannot_be_read_is_not_ok(changed: Mapping[str, str | None], name: str, detail: str) -> None:
    """No mount, no file, no number, no such limit: each says what it is."""
    ok, _, said = observed(changed, kind="quota", name=name, value="200m")
    assert not ok and detail in said


@pytest.mark.parametrize(
    ("cpus", "value", "ok", "found"),
    [
        (("0", "1"), "0, 1", True, "0, 1"),
        (("1", "0"), "0, 1", True, "0, 1"),
        (("10", "9"), "9, 10", True, "9, 10"),
        (("0-1", "0-1"), "0-1, 0-1", True, "0-1, 0-1"),
        (("0", "0"), "0, 1", False, "0, 0"),
        (("0-1", "0-1"), "0, 1", False, "0-1, 0-1"),
        (("0", "1"), "own", True, "0, 1"),
        (("0", "0"), "own", True, "0, 0"),
        (("0-1", "0-1"), "own", False, "0-1, 0-1"),
        (("0", "0", "0", "1"), "own", False, "0, 0, 0, 1"),
    ],
)
def test_the_cpus_of_every_process_are_listed(cpus: tuple[str, ...], value: str, ok: bool, found: str) -> None:
    """One entry per process, sorted by number; `own` asks for one CPU each, whichever they are."""
    files = {f"/proc/{pid}/status": STATUS.format(text) for pid, text in enumerate(cpus, 7)}
    assert observed(files, kind="affinity", process="nginx: worker", value=value)[:2] == (ok, found)


def test_an_affinity_of_nobody_is_not_ok() -> None:
    """No such process, or one that ended while it was asked, is no agreement."""
    assert "no process is called" in observed({}, kind="affinity", process="haproxy2", value="own")[2]
    assert observed({}, kind="affinity", process="nginx: worker", value="own")[0] is False


@pytest.mark.parametrize(
    ("environ", "ok", "found"),
    [
        ("A=1\0LAB_THREADS=4\0", True, "4"),
        ("A=1\0LAB_THREADS=44\0", False, "44"),
        ("A=LAB_THREADS=4\0", False, "absent"),
        ("x.conf -g daemon off;\0\0\0", False, "unreadable"),
        ("", False, "unreadable"),
    ],
)
def test_a_variable_is_that_of_the_main_process(environ: str, ok: bool, found: str) -> None:
    """Absent is absent; an environment that a process's title was written over is not taken for empty."""
    assert observed({"/proc/1/environ": environ}, kind="environment", name="LAB_THREADS", value="4")[:2] == (ok, found)


@pytest.mark.parametrize(("ready", "ok"), [(3, True), (2, False), (0, False)])
def test_pods_that_are_ready_are_counted(ready: int, ok: bool) -> None:
    """One that is missing or not ready is caught."""
    assert observed({}, ready, kind="pods", role="backend", value="3")[:2] == (ok, str(ready))
