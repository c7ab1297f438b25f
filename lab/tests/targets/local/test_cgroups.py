"""Folders of limits: where they are made, what is said when they cannot be, whose are swept; on both layouts of cgroups, the same in the end."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Literal

import pytest

from lab.targets.common import cgroup
from lab.targets.common.cgroup import CONTROLLERS, CgroupPlace
from lab.targets.local.sandbox import cgroups
from lab.targets.local.sandbox.cgroups import ContainerGroup, Groups


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hierarchy of version 2 in which we are in user/scope; root gives its children both controllers."""
    (tmp_path / "user/scope").mkdir(parents=True)
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory pids")
    own = CgroupPlace(2, str(tmp_path), str(tmp_path / "user/scope"))
    monkeypatch.setattr(cgroups, "_find_places", lambda: dict.fromkeys(CONTROLLERS, own))
    return tmp_path


@pytest.fixture
def dead() -> int:
    """A process number that was somebody's."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


@pytest.fixture
def sleeper() -> Iterator[int]:
    process = subprocess.Popen(["sleep", "60"])
    yield process.pid
    process.kill()
    process.wait()


def test_a_folder_is_made_in_the_nearest_group_that_gives_its_children_the_controllers(tree: Path) -> None:
    group = Groups().make("backend", "backend-0-backend", "Deployment/backend", {"cpu": "200m", "memory": "64Mi"})
    (folder,) = {folder for _, folder in group.folders.values()}
    assert folder == tree / (cgroups.make_label() + "backend-0-backend") and group.unapplied == ()
    assert (folder / "cpu.max").read_text() == "20000 100000"
    assert (folder / "memory.max").read_text() == "67108864"
    assert group.join() == f"echo 0 >{folder}/cgroup.procs\n"
    (tree / "user/cgroup.subtree_control").write_text("cpu memory")
    nearer = Groups().make("backend", "b", "b", {"cpu": "1"})
    assert nearer.folders["cpu"][1].parent == tree / "user"


def test_where_nothing_is_enabled_nothing_is_applied_and_the_reason_is_said(tree: Path) -> None:
    (tree / "cgroup.subtree_control").write_text("cpu")
    groups = Groups()
    for pod in ("backend-0", "backend-1"):
        groups.make("backend", pod, "Deployment/backend", {"cpu": "200m", "memory": "64Mi", "nvidia.com/gpu": "1"})
    gpu, cpu, memory = groups.unapplied()  # once, not for every replica
    assert gpu == "limit not applied: Deployment/backend: nvidia.com/gpu 1: the local target limits cpu and memory only"
    assert cpu.startswith("limit not applied: Deployment/backend: cpu 200m: cgroup version 2: no group from")
    assert "memory 64Mi: cgroup version 2" in memory
    assert not list(tree.rglob("lab-*")) and (tree / "cgroup.subtree_control").read_text() == "cpu"


def test_what_is_no_quantity_or_the_kernel_keeps_otherwise_is_not_applied(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for asked in ("a lot", "0"):
        (said,) = Groups().make("backend", "b", "Deployment/backend", {"cpu": asked}).unapplied
        assert "expected a quantity" in said and not list(tree.rglob("lab-*"))
    monkeypatch.setattr(cgroups, "_read_limit", lambda *_: None)
    (said,) = Groups().make("backend", "b", "Deployment/backend", {"cpu": "200m"}).unapplied
    assert "the kernel keeps unlimited" in said


def test_only_what_dead_labs_left_is_swept(tree: Path, dead: int, sleeper: int) -> None:
    device = cgroups.make_label().split("-")[1]
    state = cgroups.process_state("/proc", sleeper)
    assert state is not None
    left, reused = f"lab-{device}-{dead}-1-proxy-0-proxy", f"lab-{device}-{sleeper}-{state[1] - 1}-leaf"
    live, elsewhere = f"lab-{device}-{sleeper}-{state[1]}-b", f"lab-{int(device) + 1}-{dead}-1-b"
    others = {live, elsewhere, "lab-x", cgroups.make_label() + "ours"}
    for name in (left, reused, *others):
        (tree / "user/scope" / name).mkdir()
    cgroups.sweep()
    assert {folder.name for folder in (tree / "user/scope").iterdir()} == others


def test_a_group_that_was_not_delegated_or_has_strangers_is_left_alone(
    tree: Path, sleeper: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scope = tree / "user/scope"
    (scope / "cgroup.controllers").write_text("cpu memory")
    (scope / "cgroup.procs").write_text("")
    cgroups.delegate()
    assert sorted(path.name for path in scope.iterdir()) == ["cgroup.controllers", "cgroup.procs"]
    scope, stranger = tree / "user/scope", 1
    monkeypatch.setattr(cgroups, "_is_delegated", lambda _: True)
    (scope / "cgroup.controllers").write_text("cpu memory")
    monkeypatch.setattr(cgroups.psutil.Process, "parents", lambda _: [])
    (scope / "cgroup.procs").write_text(f"{sleeper}\n{stranger}\n")
    cgroups.delegate()
    assert not list(scope.glob("lab-*"))
    (scope / "cgroup.procs").write_text(f"{sleeper}\n")
    cgroups.delegate()
    (leaf,) = scope.glob("lab-*-leaf")
    assert (leaf / "cgroup.procs").read_text() == str(sleeper)
    assert (scope / "cgroup.subtree_control").read_text() == "+memory"  # the last of two writes


def test_a_container_can_be_squeezed_or_why_not(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[Path] = []
    monkeypatch.setattr(
        cgroups.ContainerGroup, "remove", lambda group: removed.extend({at for _, at in group.folders.values()})
    )
    assert "cannot join" in cgroups.find_limit_fault({}, squeezed=True), (
        "a file of this name is no cgroup, and no process is in it"
    )
    (folder,) = removed
    assert folder.parent == tree and (folder / "cpu.max").read_text() == "10000 100000"
    monkeypatch.setattr(cgroups, "_try_to_join", lambda _: "")
    shutil.rmtree(folder)
    assert cgroups.find_limit_fault({"cpu": "2"}, squeezed=True) == ""
    (tree / "cgroup.subtree_control").write_text("cpu")
    why = cgroups.find_limit_fault({"memory": "64Mi"}, squeezed=True)
    assert "gives cpu and memory to its children: start the lab by `systemd-run --user --scope -p Delegate=yes`" in why


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
def layout(request: pytest.FixtureRequest, tree: Path, monkeypatch: pytest.MonkeyPatch) -> Literal[1, 2]:
    """A tree in which we are in user/scope of one hierarchy, or of one for each controller."""
    if request.param == 1:
        own = {name: CgroupPlace(1, str(tree / name), str(tree / name / "user/scope")) for name in CONTROLLERS}
        for place in own.values():
            Path(place.folder).mkdir(parents=True)
        monkeypatch.setattr(cgroups, "_find_places", lambda: own)
    return request.param


def kept(group: ContainerGroup) -> dict[str, Fraction | None]:
    return {
        key: cgroup.parse_actual_limit(
            key, " ".join((folder / name).read_text() for name in cgroup.LIMIT_FILES[version, key])
        )
        for key, (version, folder) in group.folders.items()
    }


def test_a_limit_holds_on_either_and_is_taken_away_with_its_folders(layout: Literal[1, 2], tmp_path: Path) -> None:
    groups = Groups()
    group = groups.make("backend", "backend-0", "Deployment/backend", LIMITS)
    assert group.unapplied == ()
    assert kept(group) == {"cpu": Fraction(1, 5), "memory": 64 * 2**20}
    group.squeeze("100m")
    assert kept(group)["cpu"] == Fraction(1, 10)
    group.squeeze(None)
    assert kept(group)["cpu"] == Fraction(1, 5)
    assert len({folder for _, folder in group.folders.values()}) == {1: 2, 2: 1}[layout]


def test_what_was_throttled_and_ended_is_counted_alike_and_summed_over_a_role(layout: Literal[1, 2]) -> None:
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
