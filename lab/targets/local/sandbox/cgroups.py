"""Functions that apply the CPU and memory limits of containers (`resources.limits`) by cgroups of version 1 or 2.

The folders of the cgroups are made below the lab's own group, so that the lab's own limits apply, too. On version 2, a
group that contains processes cannot give controllers to its children. There the parent is the nearest folder above
whose children already have the controllers.

A folder's name is `lab-<device of /proc>-<outer process>-<its start>-…`. If this process of the lab has ended, the next
start of the lab removes the folder. Process ids are compared only within one /proc.

Groups of other programs are never changed, and no controller is enabled in them. (A group that systemd has delegated to
the lab counts as the lab's: `delegate`.) A limit that cannot be applied is left out, and the reason is recorded.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shlex
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import psutil

from lab.base.errors import MeasuringError
from lab.base.files import read_text_if_readable
from lab.targets.common import cgroup
from lab.targets.common.cgroup import CONTROLLERS, CgroupController
from lab.targets.common.sampler import find_host_proc, parse_stat

REMOVE_WITHIN_S = 2.0
"""The seconds within which the kernel must allow the removal of a group's folder."""
_LABEL = re.compile(r"lab-(\d+)-(\d+)-(\d+)-")
_DELEGATE = "start the lab by `systemd-run --user --scope -p Delegate=yes`, or as root where the host has enabled it"


@dataclass(frozen=True, slots=True)
class ContainerGroup:
    """The cgroup of one container.

    Attributes:
        role: The role of the container's pod, such as `proxy`.
        name: The name of the group, unique among those of one start of a system.
        limits: Resource (`cpu`, `memory`) → limit as the manifest writes it, such as `200m`.
        folders: Cgroup controller (`cpu`, `memory`) → (cgroup version, folder). On version 2, both have the same
            folder.
        unapplied: The limits that could not be applied, each as a text with the reason.
        no_room: The reason why a folder could not be made or a limit not be written; empty if nothing failed.

    """

    role: str
    name: str
    limits: Mapping[str, str] = field(default_factory=dict[str, str])
    folders: Mapping[CgroupController, tuple[int, Path]] = field(
        default_factory=dict[CgroupController, tuple[int, Path]]
    )
    unapplied: tuple[str, ...] = ()
    no_room: str = ""

    def join(self) -> str:
        """Return shell commands that move the shell that runs them into the group.

        Processes that the shell starts later are in the group, too. The commands write 0 for the process id, which
        means the writing process.
        """
        folders = dict.fromkeys(folder for _, folder in self.folders.values())
        return "".join(f"echo 0 >{shlex.quote(str(folder / 'cgroup.procs'))}\n" for folder in folders)

    def seen(self) -> tuple[tuple[Path, str], ...]:
        """Return the bind mounts through which a container sees its own limits, as in a container runtime.

        Each bind mount is a tuple (folder of the group, mount point of the cgroup hierarchy).
        """
        places = _find_places()
        return tuple(dict.fromkeys((folder, places[key].mount) for key, (_, folder) in self.folders.items()))

    def counts(self) -> dict[str, int]:
        """Return the group's cumulative counts by name, such as `oom_kills`; empty once the group is gone.

        `lab.targets.common.cgroup.read_counts` lists the names.
        """
        counts: dict[str, int] = {}
        for controller, (version, folder) in self.folders.items():
            if folder.is_dir():
                counts |= cgroup.read_counts(
                    version, controller, lambda name, folder=folder: read_text_if_readable(folder / name)
                )
        return counts

    def squeeze(self, cpu: str | None) -> None:
        """Change the CPU limit of the running container.

        Args:
            cpu: The limit as a manifest writes it, such as `20m`. None restores the limit that the manifest sets.

        Raises:
            MeasuringError: The limit cannot be applied.

        """
        place = f"CPU limit of {self.name}"
        if "cpu" not in self.folders:
            raise MeasuringError(place, self.no_room or "it has no cgroup for CPU", _DELEGATE)
        text = self.limits.get("cpu") if cpu is None else cpu
        try:
            _apply("cpu", *self.folders["cpu"], None if text is None else cgroup.parse_requested_limit("cpu", text))
        except (OSError, ValueError) as error:
            raise MeasuringError(place, str(error), "`just doctor` tries limits") from None

    def out_of_memory(self) -> str:
        """Return a message if the kernel has killed a process of the group because of its memory limit; else an empty text."""
        if not self.counts().get("oom_kills"):
            return ""
        limit = cgroup.format_limit("memory", _read_limit("memory", *self.folders["memory"]))
        return f"out of memory: the kernel ended processes of it at the limit of {limit}"

    def remove(self, within_s: float = REMOVE_WITHIN_S) -> None:
        """Remove the group's folders; its processes must have ended.

        The kernel may refuse this for some time after the end of a process. A folder that it still refuses to remove
        after `within_s` seconds stays. A later run removes it by `sweep`.

        Args:
            within_s: The seconds to try for, over all folders.

        """
        deadline = time.monotonic() + within_s
        for folder in {folder for _, folder in self.folders.values()}:
            while folder.is_dir():
                with contextlib.suppress(OSError):
                    folder.rmdir()
                    break
                if time.monotonic() > deadline:
                    break
                time.sleep(0.005)


@dataclass(slots=True, eq=False)
class Groups:
    """The cgroups of all containers of one bring-up (one start of a system from nothing)."""

    _groups: list[ContainerGroup] = field(default_factory=list[ContainerGroup])

    def make(self, role: str, name: str, place: str, limits: Mapping[str, str], room: bool = False) -> ContainerGroup:
        """Create the cgroup of one container, with its limits.

        A limit that cannot be applied raises no error: it is noted in `ContainerGroup.unapplied`.

        Args:
            role: The role of the container's pod, such as `proxy`.
            name: A unique name of the group.
            place: The text that names the container in messages.
            limits: Resource (`cpu`, `memory`) → limit as the manifest writes it.
            room: Whether to make a folder for CPU even without a CPU limit, so that `ContainerGroup.squeeze` works
                later.

        """
        supported: dict[CgroupController, str] = {key: limits[key] for key in CONTROLLERS if key in limits}
        only = f"the local target limits {' and '.join(CONTROLLERS)} only"
        faults = [f"limit not applied: {place}: {key} {limits[key]}: {only}" for key in limits if key not in supported]
        controllers: list[CgroupController] = [
            key for key in CONTROLLERS if key in supported or (room and key == "cpu")
        ]
        folders: dict[CgroupController, tuple[int, Path]] = {}
        reason = ""
        try:
            values: list[tuple[CgroupController, Fraction]] = [
                (key, cgroup.parse_requested_limit(key, supported[key])) for key in supported
            ]
            folder_name, places = make_label() + name, _find_places()
            for key in controllers:
                if key not in places:
                    raise LookupError(f"no cgroup hierarchy with the controller {key} is mounted here")
                folder = _find_parent(places[key], controllers) / folder_name
                if all(folder != existing for _, existing in folders.values()):
                    folder.mkdir()
                folders[key] = places[key].version, folder
            for key, value in values:
                _apply(key, *folders[key], value)
        except OSError as error:
            reason = f"{error.strerror}: {error.filename}"
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                reason += f": {_DELEGATE}"
        except (LookupError, ValueError) as error:
            reason = str(error.args[0])
        if reason:
            faults += [f"limit not applied: {place}: {key} {value}: {reason}" for key, value in supported.items()]
        group = ContainerGroup(role, name, limits, folders, tuple(faults), reason)
        self._groups.append(group)
        return group

    def unapplied(self) -> list[str]:
        """Return one text for each limit that could not be applied, with the reason; equal texts of replicas appear once."""
        return list(dict.fromkeys(fault for group in self._groups for fault in group.unapplied))

    def counters(self) -> dict[str, int]:
        """Return the cumulative counts of all groups by `role/name`, summed over the containers of a role.

        OOM kills are left out, because `deaths` reports them in words.
        """
        counters = Counter[str]()
        for group in self._groups:
            counts = group.counts()
            counts.pop("oom_kills", None)
            counters.update({f"{group.role}/{name}": count for name, count in counts.items()})
        return counters

    def deaths(self) -> list[tuple[str, str]]:
        """Return a (group name, message) for each container that has run out of memory."""
        return [(group.name, message) for group in self._groups if (message := group.out_of_memory())]

    def remove(self) -> None:
        """Remove all groups; their processes must have ended."""
        for group in self._groups:
            group.remove()


def make_label() -> str:
    """Return the prefix of the names of all cgroup folders that this run of the lab makes.

    The prefix is `lab-DEVICE-PID-START-`: the device number of the machine's /proc, and the id and start time of the
    lab's outermost process. So `sweep` can see whether this run of the lab still goes on.

    Raises:
        LookupError: The machine's /proc does not show the lab's outermost process.

    """
    proc, pid = find_host_proc()
    state = process_state(proc, pid)
    if state is None:
        raise LookupError(f"the lab's own process {pid} is not in its /proc")
    return f"lab-{Path(proc).stat().st_dev}-{pid}-{state[1]}-"


def sweep() -> None:
    """Remove the cgroup folders that ended lab processes have left on this machine.

    Folders of lab processes that still run, and folders that the lab has not made, stay.
    """
    proc, _ = find_host_proc()
    device = Path(proc).stat().st_dev
    for mount in {place.mount for place in _find_places().values()}:
        folders = sorted((Path(root, name) for root, names, _ in os.walk(mount) for name in names), reverse=True)
        for folder, owner in ((folder, _LABEL.match(folder.name)) for folder in folders):
            if owner is None:
                continue
            owner_device, pid, start = (int(number) for number in owner.groups())
            state = process_state(proc, pid)
            if owner_device == device and (state is None or state[1] != start or state[0] in "ZX"):
                with contextlib.suppress(OSError):  # a process in it is still ending, or it belongs to another user
                    folder.rmdir()


def delegate() -> None:
    """Make it possible to create cgroups with CPU and memory limits below the lab's own cgroup, if systemd allows it.

    This needs three conditions: systemd has delegated the group to this user, the group is of version 2, and it
    contains only this process, its descendants and its ancestors. Otherwise nothing is done. A version 2 group with
    processes cannot give controllers to child groups, so its processes are first moved into a new child group (leaf).
    Call this outside the lab's namespaces, where all those processes are visible.
    """
    places = set(_find_places().values())
    if len(places) != 1 or (place := places.pop()).version != 2 or place.folder == place.mount:
        return
    folder, me = Path(place.folder), psutil.Process()
    family = {process.pid for process in [me, *me.parents(), *me.children(recursive=True)]}
    try:
        if not _is_delegated(folder) or not set(CONTROLLERS) <= set(
            read_text_if_readable(folder / "cgroup.controllers").split()
        ):
            return
        members = {int(pid) for pid in (folder / "cgroup.procs").read_text().split()}
        if not members <= family:
            return
        leaf = folder / f"{make_label()}leaf"
        leaf.mkdir()
        for pid in members:
            (leaf / "cgroup.procs").write_text(str(pid))
        for controller in CONTROLLERS:
            (folder / "cgroup.subtree_control").write_text(f"+{controller}")
    except OSError:
        return  # making a group will find no room and give the reason


def try_limits() -> tuple[bool, str]:
    """Limit the CPU and memory of a process for a moment, to find out whether limits work on this machine.

    Before that, `delegate` prepares the lab's own cgroup for limits. This preparation is not undone.

    Returns:
        True and a text with the cgroup versions that were used; or False and the reason why limits do not work.

    """
    delegate()
    if why_not := find_limit_fault({"cpu": "100m", "memory": "64Mi"}):
        return False, why_not
    versions = dict.fromkeys(f"version {place.version}" for place in _find_places().values())
    return True, f"{' and '.join(versions)}, tried with {' and '.join(CONTROLLERS)}"


def find_limit_fault(limits: Mapping[str, str], squeezed: bool = False) -> str:
    """Return the reason why a container's limits would not work on this machine; empty if they work.

    A cgroup with the limits is made as a test, and removed again.

    Args:
        limits: Resource (`cpu`, `memory`) → limit as the manifest writes it.
        squeezed: True tests something else: whether the CPU limit of a running container can be changed.

    """
    group = Groups().make("lab", "trial", "trial", limits, room=squeezed)
    try:
        if squeezed:
            group.squeeze("100m")
        elif group.unapplied:
            return group.unapplied[0].removeprefix("limit not applied: trial: ")
        return _try_to_join(group)
    except MeasuringError as error:
        return error.fault
    finally:
        group.remove()


def _try_to_join(group: ContainerGroup) -> str:
    """Start a process that joins a group, and return the reason why this fails; empty if it succeeds."""
    argv = ["sh", "-euc", f"{group.join()}cat /proc/self/cgroup"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode or not all(folder.name in done.stdout for _, folder in group.folders.values()):
        return f"a process cannot join: {done.stderr.strip() or done.stdout.strip()}"
    return ""


def _find_parent(place: cgroup.CgroupPlace, controllers: Sequence[CgroupController]) -> Path:
    """Return the folder in which a new child group would have the given controllers.

    Args:
        place: The cgroup of this process.
        controllers: The cgroup controllers that the new group needs.

    Raises:
        LookupError: No group, from this one upwards, gives these controllers to its children.

    """
    folder = Path(place.folder)
    if place.version == 1:
        return folder
    for parent in (folder, *folder.parents):
        if set(controllers) <= set(read_text_if_readable(parent / "cgroup.subtree_control").split()):
            return parent
        if str(parent) == place.mount:
            break
    fault = f"no group from {folder} up gives {' and '.join(controllers)} to its children"
    raise LookupError(f"cgroup version 2: {fault}: {_DELEGATE}")


def _apply(controller: CgroupController, version: int, folder: Path, value: Fraction | None) -> None:
    """Write a limit into the folder of a cgroup, and check that the kernel has stored this limit.

    Args:
        controller: `cpu` or `memory`.
        version: The cgroup version, 1 or 2.
        folder: The folder of the group.
        value: The limit in CPUs or bytes; None removes a CPU limit.

    Raises:
        OSError: A file cannot be written or read.
        ValueError: The kernel shows another limit afterwards.

    """
    for name, text in cgroup.list_limit_writes(version, controller, value):
        if name not in cgroup.OPTIONAL or (folder / name).exists():
            (folder / name).write_text(text)
    actual = _read_limit(controller, version, folder)
    if not cgroup.is_same_limit(controller, value, actual):
        raise ValueError(f"the kernel keeps {cgroup.format_limit(controller, actual)} in {folder}")


def _read_limit(controller: CgroupController, version: int, folder: Path) -> Fraction | None:
    texts = [(folder / name).read_text() for name in cgroup.LIMIT_FILES[version, controller]]
    return cgroup.parse_actual_limit(controller, " ".join(texts))


def _find_places() -> dict[CgroupController, cgroup.CgroupPlace]:
    """Return the cgroup of this process for each controller (`cpu`, `memory`) whose hierarchy is mounted here."""
    places: dict[CgroupController, cgroup.CgroupPlace] = {}
    for controller in CONTROLLERS:
        with contextlib.suppress(LookupError, OSError):
            texts = Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text()
            places[controller] = cgroup.find_group(controller, *texts)
    return places


def _is_delegated(folder: Path) -> bool:
    """Return whether systemd has delegated a cgroup to its user, as an extended attribute of the folder shows.

    The attribute is `trusted.delegate`, or `user.delegate` since systemd 251.
    """
    for name in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            return os.getxattr(folder, name) == b"1"
    return False


def process_state(proc: str, pid: int) -> tuple[str, int] | None:
    """Return the state and the start time of a process; None if there is no such process.

    Args:
        proc: The path of the /proc folder to read, such as `/proc`.
        pid: The process id.

    Returns:
        The letter of the state, such as `Z` for a zombie, and the start time in clock ticks since the boot.

    Raises:
        OSError: The process cannot be read for another reason.

    """
    try:
        _, fields = parse_stat(Path(proc, str(pid), "stat").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return None
    return fields[0].decode(), int(fields[19])
