"""Read-backs of limits, CPUs, environment and replicas against a system that answers as told."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from lab.tests.targets.local.test_disk import MOUNTS
from lab.tests.targets.readback.answers import Answers, observed

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


HAPROXY = "1\thaproxy -f x\n"
TWO = f"{HAPROXY}7\tnginx: worker process\n8\tnginx: worker process\n"


@pytest.mark.parametrize("files", [V1, V2])
@pytest.mark.parametrize(
    ("name", "value", "ok", "found"),
    [
        ("cpu", "200m", True, "200m"),
        ("cpu", "201m", False, "200m"),
        ("cpu", "unlimited", False, "200m"),
        ("memory", "64Mi", True, "64Mi"),
        ("memory", "64M", False, "64Mi"),
    ],
)
def test_limits_are_quantities(files: Mapping[str, str | None], name: str, value: str, ok: bool, found: str) -> None:
    assert observed(Answers(files), kind="quota", name=name, value=value)[:2] == (ok, found)


def test_no_limit_is_read_as_none() -> None:
    for changed in (
        {**V1, "/sys/fs/cgroup/cpu/pod/b/cpu.cfs_quota_us": "-1\n"},
        {**V2, "/sys/fs/cgroup/cpu.max": "max 100000\n"},
        {**V2, "/sys/fs/cgroup": "cgroup.procs\n", "/sys/fs/cgroup/cpu.max": None},  # the root of all groups
    ):
        ok, found, detail = observed(Answers(changed), kind="quota", name="cpu", value="200m")
        assert (ok, found, detail) == (False, "unlimited", "expected '200m', found 'unlimited'")
        assert observed(Answers(changed), kind="quota", name="cpu", value="unlimited")[0]
    for changed, name, detail in (
        ({**V1, "/proc/1/cgroup": "0::/\n"}, "cpu", "not mounted here"),
        ({**V2, "/sys/fs/cgroup/cpu.max": "soon\n"}, "cpu", "ValueError"),
        ({**V1, "/sys/fs/cgroup/cpu/pod/b/cpu.cfs_period_us": None}, "cpu", "No such file"),
        (V2, "disk", "expected a name of cpu or memory"),
    ):
        ok, _, said = observed(Answers(changed), kind="quota", name=name, value="200m")
        assert not ok and detail in said


def test_the_cpus_of_every_process_are_listed() -> None:
    for cpus, value, ok, found in (
        (("0", "1"), "0, 1", True, "0, 1"),
        (("1", "0"), "0, 1", True, "0, 1"),
        (("10", "9"), "9, 10", True, "9, 10"),
        (("0", "0"), "0, 1", False, "0, 0"),
        (("0-1", "0-1"), "0, 1", False, "0-1, 0-1"),
        (("0", "1"), "own", True, "0, 1"),
        (("0", "0"), "own", True, "0, 0"),
        (("0", "0", "0", "1"), "own", False, "0, 0, 0, 1"),
    ):
        files = {f"/proc/{pid}/status": STATUS.format(text) for pid, text in enumerate(cpus, 7)}
        titles = "".join(f"{pid}\tnginx: worker process\n" for pid, _ in enumerate(cpus, 7))
        assert observed(
            Answers({**files, "sh": HAPROXY + titles}), kind="affinity", process="nginx: worker", value=value
        )[:2] == (ok, found)
    assert "no process is called" in observed(Answers({"sh": TWO}), kind="affinity", process="haproxy2", value="own")[2]
    assert observed(Answers({"sh": TWO}), kind="affinity", process="nginx: worker", value="own")[0] is False


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
    answers = Answers({"/proc/1/environ": environ})
    assert observed(answers, kind="environment", name="LAB_THREADS", value="4")[:2] == (ok, found)


@pytest.mark.parametrize(("ready", "ok"), [(3, True), (2, False), (0, False)])
def test_pods_that_are_ready_are_counted(ready: int, ok: bool) -> None:
    assert observed(Answers({}, ready), kind="pods", role="backend", value="3")[:2] == (ok, str(ready))


ON_DISK = {
    "readlink": "/var/log/lab/access.log\n",
    "stat -f": "ext2/ext3\n",
    "stat": "regular file\n",
    "cat": MOUNTS,
    "lsattr": "--------------e---- /var/log/lab/access.log\n",
}


def test_how_a_path_is_written_is_read_back() -> None:
    for changed, found in (
        ({}, "buffered"),
        ({"stat -f": "tmpfs\n"}, "memory"),
        ({"lsattr": "--S-----------e---- /var/log/lab/access.log\n"}, "sync"),
        ({"cat": MOUNTS.replace("/dev/sda1 rw", "/dev/sda1 rw,sync")}, "sync"),
        ({"cat": MOUNTS.replace("/dev/vda rw", "/dev/vda rw,sync")}, "buffered"),  # another mount's
        ({"readlink": None}, "unreadable"),
        # A folder only passes it on.
        ({"stat": "directory\n", "lsattr": "--S-----------e---- /var/log/lab\n"}, "buffered"),
        ({"stat": None}, "unreadable"),
        ({"lsattr": None}, "unreadable"),
        ({"cat": ""}, "unreadable"),
    ):
        for wanted in ("memory", "buffered", "sync"):
            check = {"kind": "disk", "name": "/var/log/lab/access.log", "value": wanted}
            assert observed(Answers({**ON_DISK, **changed}), **check)[:2] == (found == wanted, found)
