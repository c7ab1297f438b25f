"""Volumes on a disk (`lab/targets/local/sandbox/disk.py`)."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from lab.base.errors import UsageError
from lab.systems.manifests.pods import Volume
from lab.targets.common import cgroup
from lab.targets.local.sandbox import disk
from lab.targets.local.sandbox.disk import DiskVolumes
from lab.tests.support.waiting import until

MOUNTS = (
    "22 1 8:1 / / rw,relatime - ext4 /dev/vda rw\n31 22 8:1 /x /var/log/lab rw,noatime shared:1 - ext4 /dev/sda1 rw\n"
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "disk"
    monkeypatch.setenv(disk.PLACE_VARIABLE, str(folder))
    monkeypatch.setattr(disk, "filesystem", lambda path: "ext4")
    monkeypatch.setattr(disk, "NEEDED_BYTES", 0)
    return folder


def test_a_folder_goes_with_its_bring_up_and_a_dead_labs_is_swept(place: Path) -> None:
    DiskVolumes().remove()
    assert not place.exists()
    one, other = DiskVolumes(), DiskVolumes()
    mine, theirs = one.folder("proxy-0", "log"), other.folder("proxy-0", "log")
    assert mine != theirs and mine.is_relative_to(place) and mine.stat().st_mode & 0o777 == 0o777
    (mine / "access.log").write_text("x")
    one.remove()
    assert not mine.exists() and theirs.exists()
    other.remove()
    assert list(place.iterdir()) == []
    dead, living = place / "lab-dead", place / "lab-living"
    for folder in (dead, living):
        (folder / "proxy-0/log").mkdir(parents=True)
        (folder / "proxy-0/log/access.log").write_text("x")
    lock = os.open(living, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    disk.sweep()
    assert not dead.exists() and (living / "proxy-0/log/access.log").exists()
    os.close(lock)


def test_a_log_that_grows_is_cut(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "CUT_EVERY_S", 0.01)
    monkeypatch.setattr(disk, "CUT_BYTES", 100)
    disks = DiskVolumes()
    with (disks.folder("proxy-0", "log") / "access.log").open("ab") as log:
        log.write(b"x" * 101)
        log.flush()
        until(lambda: not os.fstat(log.fileno()).st_size, "the log was not cut")
        log.write(b"y")
        log.flush()
        assert os.fstat(log.fileno()).st_size == 1
    disks.remove()


def test_a_place_in_memory_or_without_space_or_right_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("tmpfs", "ramfs"):
        monkeypatch.setattr(disk, "filesystem", lambda path, kind=kind: kind)
        said = f"no disk but {kind}, which is memory\n  name a folder on a disk with LAB_DISK="
        with pytest.raises(UsageError, match=said):
            disk.check()
    monkeypatch.setattr(disk, "filesystem", lambda path: "ext4")
    monkeypatch.setattr(disk, "NEEDED_BYTES", 2**60)
    with pytest.raises(UsageError, match="GiB are free"):
        disk.check()
    monkeypatch.setenv(disk.PLACE_VARIABLE, "/proc/nowhere")
    with pytest.raises(UsageError, match="cannot be made"):
        disk.check()


def test_an_empty_dir_is_on_disk_unless_it_asks_for_memory() -> None:
    assert Volume("log").on_disk and Volume("log", size="1Gi").on_disk
    assert not Volume("run", memory=True).on_disk and not Volume("conf", ("ConfigMap", "nginx")).on_disk


def test_the_deepest_and_last_mount_holds_a_path() -> None:
    found = list(cgroup.parse_mounts(MOUNTS + "32 22 8:2 / /var/log/lab ro - xfs /dev/sdb rw,sync\n"))
    assert cgroup.find_mount(found, "/var/log/lab/a") == found[2] and found[2].super_options == ("rw", "sync")
    assert cgroup.find_mount(found, "/var/log/labels") == found[0] and found[0].options == {"rw", "relatime"}
    assert disk.filesystem(Path("/dev/shm")) == "tmpfs" and disk.filesystem(Path("/proc/self")) == "proc"
