"""One container's limits on both layouts of cgroups, version 1 (a hierarchy a controller) and 2 (one for all): the same in the end."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Literal

import pytest

from lab.targets.common import cgroup
from lab.targets.common.cgroup import CONTROLLERS, Controller, Place
from lab.targets.local.sandbox import cgroups
from lab.targets.local.sandbox.cgroups import Group, Groups

LIMITS = {"cpu": "200m", "memory": "64Mi"}
COUNTED: Mapping[int, Mapping[str, str]] = {
    1: {
        "cpu.stat": "nr_periods 10\nnr_throttled 4\nthrottled_time 900000\n",
        "memory.failcnt": "3\n",
        "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
    },
    2: {"cpu.stat": "nr_periods 10\nnr_throttled 4\nthrottled_usec 900\n", "memory.events": "max 3\noom_kill 1\n"},
}


@pytest.fixture(params=[1, 2], ids=["version-1", "version-2"])
def layout(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Literal[1, 2]:
    """A tree in which we are in user/scope, found as /proc tells it."""
    version: Literal[1, 2] = request.param
    if version == 1:
        mounts = "".join(
            f"3{n} 31 0:3{n} / {tmp_path}/{name} rw - cgroup cgroup rw,{name}\n" for n, name in enumerate(CONTROLLERS)
        )
        own = "".join(f"{n}:{name}:/user/scope\n" for n, name in enumerate(CONTROLLERS, 1)) + "0::/user/scope\n"
        folders = [tmp_path / name / "user/scope" for name in CONTROLLERS]
    else:
        mounts, own = f"31 23 0:28 / {tmp_path} rw - cgroup2 cgroup2 rw\n", "0::/user/scope\n"
        folders = [tmp_path / "user/scope"]
    for folder in folders:
        folder.mkdir(parents=True)
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory")
    found: dict[Controller, Place] = {name: cgroup.place(name, own, mounts) for name in CONTROLLERS}
    assert {place.version for place in found.values()} == {version}
    monkeypatch.setattr(cgroups, "_places", lambda: found)
    return version


def made(groups: Groups) -> Group:
    return groups.make("backend", "backend-0", "Deployment/backend", LIMITS)


def kept(group: Group) -> dict[str, Fraction | None]:
    return {
        key: cgroup.limit(key, " ".join((folder / name).read_text() for name in cgroup.LIMIT_FILES[version, key]))
        for key, (version, folder) in group.folders.items()
    }


def test_a_limit_holds_on_either_and_is_taken_away_with_its_folders(layout: Literal[1, 2], tmp_path: Path) -> None:
    groups = Groups()
    group = made(groups)
    assert group.unapplied == ()
    assert kept(group) == {"cpu": Fraction(1, 5), "memory": 64 * 2**20}
    group.squeeze("100m")
    assert kept(group)["cpu"] == Fraction(1, 10)
    group.squeeze(None)
    assert kept(group)["cpu"] == Fraction(1, 5)
    assert len({folder for _, folder in group.folders.values()}) == {1: 2, 2: 1}[layout]


def test_what_was_throttled_and_ended_is_counted_alike_and_summed_over_the_pods_of_a_role(
    layout: Literal[1, 2],
) -> None:
    """Replicas count together; OOM kills are told in words, with the limit."""
    groups = Groups()
    for pod in ("backend-0", "backend-1"):
        group = groups.make("backend", pod, "Deployment/backend", LIMITS)
        for name, text in COUNTED[layout].items():
            for _, folder in group.folders.values():
                (folder / name).write_text(text.replace("oom_kill 1", f"oom_kill {pod[-1]}"))
    groups.make("proxy", "proxy-0", "Deployment/proxy", {})
    assert groups.counters() == {
        "backend/cpu_periods": 20,
        "backend/cpu_throttled_periods": 8,
        "backend/cpu_throttled_us": 1800,
        "backend/memory_limit_hits": 6,
    }
    assert groups.deaths() == [("backend-1", "out of memory: the kernel ended processes of it at the limit of 64Mi")]
