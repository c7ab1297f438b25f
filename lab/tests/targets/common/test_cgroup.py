"""Quantities and the files of cgroups, version 1 and 2, as texts."""

from __future__ import annotations

from fractions import Fraction

import pytest

from lab.base.quantities import parse_quantity
from lab.targets.common import cgroup
from lab.targets.common.cgroup import CgroupController, CgroupPlace

V1_MOUNTS = """\
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:4 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
"""
V1_OWN = "4:memory:/user/x\n1:cpu,cpuacct:/\n0::/user\n"
V2_MOUNTS = "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
CPU: CgroupController = "cpu"
MEMORY: CgroupController = "memory"
IN_DOCKER = "32 31 0:29 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n"


def test_a_quantity_is_read_as_kubernetes_reads_it() -> None:
    """Decimal and binary suffixes, exponents and fractions, without rounding. What the API server refuses is no number here either."""
    read = {"200m": "1/5", ".5": "1/2", "64Mi": 2**26, "64M": 64_000_000, "1e3": 1000, "1E": 10**18, "100n": "1e-7"}
    assert {text: parse_quantity(text) for text in read} == {text: Fraction(value) for text, value in read.items()}
    for text in ("", "m", "64MB", "1.5.0", "200 m", "1_000", "0x10"):
        with pytest.raises(ValueError, match="expected a quantity"):
            parse_quantity(text)
    for text in ("0", "-1", "many"):
        with pytest.raises(ValueError, match="expected a quantity"):
            cgroup.parse_requested_limit("cpu", text)


def test_a_group_is_found_where_it_is_mounted() -> None:
    places: tuple[tuple[CgroupController, str, str, CgroupPlace], ...] = (
        (CPU, V1_OWN, V1_MOUNTS, CgroupPlace(1, "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct")),
        (MEMORY, V1_OWN, V1_MOUNTS, CgroupPlace(1, "/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory/user/x")),
        (CPU, "0::/user/x\n", V2_MOUNTS, CgroupPlace(2, "/sys/fs/cgroup", "/sys/fs/cgroup/user/x")),
        (CPU, "0::/\n", V2_MOUNTS, CgroupPlace(2, "/sys/fs/cgroup", "/sys/fs/cgroup")),
        (CPU, "1:cpu:/docker/abc\n", IN_DOCKER, CgroupPlace(1, "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu")),
        (CPU, "1:cpu:/docker/abc/y\n", IN_DOCKER, CgroupPlace(1, "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu/y")),
    )
    for controller, own, mounts, found in places:
        assert cgroup.find_group(controller, own, mounts) == found
    for own, mounts in (("0::/x\n", ""), ("", V2_MOUNTS), ("1:cpu:/other\n", IN_DOCKER), ("0::/../x\n", V2_MOUNTS)):
        with pytest.raises(LookupError):
            cgroup.find_group(CPU, own, mounts)


def test_a_limit_is_written_as_a_kubelet_writes_it() -> None:
    written_by: tuple[tuple[int, CgroupController, str, list[tuple[str, str]]], ...] = (
        (1, CPU, "200m", [("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "20000")]),
        (2, CPU, "200m", [("cpu.max", "20000 100000")]),
        (2, CPU, "2", [("cpu.max", "200000 100000")]),
        (2, CPU, "1m", [("cpu.max", "1000 100000")]),
        (2, CPU, "100.1m", [("cpu.max", "10100 100000")]),
        (1, MEMORY, "64Mi", [("memory.limit_in_bytes", "67108864"), ("memory.memsw.limit_in_bytes", "67174400")]),
        (2, MEMORY, "64Mi", [("memory.max", "67108864"), ("memory.swap.max", "0"), ("memory.oom.group", "1")]),
    )
    for version, controller, asked, written in written_by:
        assert cgroup.list_limit_writes(version, controller, cgroup.parse_requested_limit(controller, asked)) == written


def test_a_limit_is_spelled_as_kubernetes_does_and_holds_when_the_kernel_keeps_it() -> None:
    spellings: tuple[tuple[CgroupController, str, str], ...] = (
        (CPU, "20000 100000", "200m"),
        (CPU, "-1 100000", "unlimited"),
        (CPU, "max 100000", "unlimited"),
        (CPU, "12345 100000", "123.45m"),
        (MEMORY, "67108864", "64Mi"),
        (MEMORY, "9223372036854771712", "unlimited"),
        (MEMORY, "1000", "1000"),
    )
    for controller, text, spelled in spellings:
        assert cgroup.format_limit(controller, cgroup.parse_actual_limit(controller, text)) == spelled
    assert cgroup.is_same_limit(MEMORY, Fraction(1_000_000), Fraction(999_424))
    assert not cgroup.is_same_limit(MEMORY, Fraction(1_000_000), Fraction(2_000_000))
    assert not cgroup.is_same_limit(MEMORY, Fraction(1_000_000), Fraction(900_000))
    assert not cgroup.is_same_limit(CPU, Fraction(1, 5), Fraction(1, 4))
    assert not cgroup.is_same_limit(CPU, Fraction(1, 5), None)


@pytest.mark.parametrize(
    ("version", "controller", "files", "counts"),
    [
        (1, "cpu", {"cpu.stat": "nr_periods 33\nnr_throttled 32\nthrottled_time 1954310698\n"}, {"cpu_periods": 33, "cpu_throttled_periods": 32, "cpu_throttled_us": 1954310}),
        (2, "cpu", {"cpu.stat": "usage_usec 9\nnr_periods 3\nnr_throttled 2\nthrottled_usec 160000\n"}, {"cpu_periods": 3, "cpu_throttled_periods": 2, "cpu_throttled_us": 160000}),
        (1, "memory", {"memory.failcnt": "7\n", "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"}, {"memory_limit_hits": 7, "oom_kills": 1}),
        (1, "memory", {"memory.failcnt": "0\n", "memory.oom_control": "oom_kill 2\n"}, {"memory_limit_hits": 2, "oom_kills": 2}),
        (2, "memory", {"memory.events": "low 0\nhigh 0\nmax 7\noom 1\noom_kill 1\noom_group_kill 0\n"}, {"memory_limit_hits": 7, "oom_kills": 1}),
        (2, "memory", {}, {"memory_limit_hits": 0, "oom_kills": 0}),
    ],
)  # fmt: skip
def test_versions_are_alike(
    version: int, controller: CgroupController, files: dict[str, str], counts: dict[str, int]
) -> None:
    assert cgroup.read_counts(version, controller, lambda name: files.get(name, "")) == counts
