"""Limits of containers (`resources.limits`: cpu, memory) as cgroups, version 1 or 2: made, joined, counted, taken away.

Folders are made below the lab's own group, so that what bounds the lab bounds them too. On version 2 a group with processes
cannot give its children controllers: there it is the nearest folder above whose children already have them.
Every folder is called `lab-<device of /proc>-<outer process>-<its start>-…`: what a killed lab left is known by its owner
being dead, and swept at the next start; process numbers are compared only where they are of one /proc.
Refuses to touch what is not the lab's own, and to enable anything for it (a group that systemd delegated to us is ours:
`delegate`); what cannot be applied is not applied, with the reason.
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
from lab.base.files import readable
from lab.targets.common import cgroup
from lab.targets.common.cgroup import CONTROLLERS, Controller
from lab.targets.common.sampler import host_proc, parse_stat

REMOVE_WITHIN_S = 2.0
_LABEL = re.compile(r"lab-(\d+)-(\d+)-(\d+)-")
_DELEGATE = "start the lab by `systemd-run --user --scope -p Delegate=yes`, or as root where the host has enabled it"


@dataclass(frozen=True, slots=True)
class Group:
    """One container's folders, by controller (on version 2 the same one), and what could not be applied, with the reason.

    `limits`: what the manifests say. `no_room`: why it has no folder for CPU that it was to have.
    """

    role: str
    name: str
    limits: Mapping[str, str] = field(default_factory=dict[str, str])
    folders: Mapping[Controller, tuple[int, Path]] = field(default_factory=dict[Controller, tuple[int, Path]])
    unapplied: tuple[str, ...] = ()
    no_room: str = ""

    def join(self) -> str:
        """Shell commands after which the shell, and so what it becomes and starts, is inside: 0 stands for the writer."""
        folders = dict.fromkeys(folder for _, folder in self.folders.values())
        return "".join(f"echo 0 >{shlex.quote(str(folder / 'cgroup.procs'))}\n" for folder in folders)

    def seen(self) -> tuple[tuple[Path, str], ...]:
        """(folder, what it is to lie over) for a container that sees its own limits, as a runtime shows them to it."""
        there = _places()
        return tuple(dict.fromkeys((folder, there[key].mount) for key, (_, folder) in self.folders.items()))

    def counts(self) -> dict[str, int]:
        """`lab.targets.common.cgroup.counted` of its controllers; {} once it is gone."""
        found: dict[str, int] = {}
        for controller, (version, folder) in self.folders.items():
            if folder.is_dir():
                found |= cgroup.counted(version, controller, lambda name, at=folder: readable(at / name))
        return found

    def squeeze(self, cpu: str | None) -> None:
        """Another limit of CPU from now on; None = as the manifests say. MeasuringError when it does not hold."""
        place = f"CPU limit of {self.name}"
        if "cpu" not in self.folders:
            raise MeasuringError(place, self.no_room or "it has no cgroup for CPU", _DELEGATE)
        version, folder = self.folders["cpu"]
        text = self.limits.get("cpu") if cpu is None else cpu
        try:
            _apply("cpu", version, folder, None if text is None else cgroup.wanted("cpu", text))
        except (OSError, ValueError) as error:
            raise MeasuringError(place, str(error), "`just doctor` tries limits") from None

    def out_of_memory(self) -> str:
        """In words, "" as long as the kernel has ended none of its processes for want of memory."""
        if not self.counts().get("oom_kills"):
            return ""
        limit = cgroup.spelled("memory", _limit("memory", *self.folders["memory"]))
        return f"out of memory: the kernel ended processes of it at the limit of {limit}"

    def remove(self, within_s: float = REMOVE_WITHIN_S) -> None:
        """Its processes must have been ended. What the kernel does not let go in time is left to the next start's `sweep`."""
        deadline = time.monotonic() + within_s
        for folder in {folder for _, folder in self.folders.values()}:
            while folder.is_dir():
                with contextlib.suppress(OSError):
                    folder.rmdir()
                    break
                if time.monotonic() > deadline:
                    break
                time.sleep(0.005)


class Groups:
    """All groups of one bring-up."""

    def __init__(self) -> None:
        self._groups: list[Group] = []

    def make(self, role: str, name: str, place: str, limits: Mapping[str, str], room: bool = False) -> Group:
        """The group of one container of a pod, `name` unique. Never raises for a limit that does not hold here.

        `room`: a folder for CPU in any case, so that `Group.squeeze` can be asked for later.
        """
        known: dict[Controller, str] = {key: limits[key] for key in CONTROLLERS if key in limits}
        only = f"the local target limits {' and '.join(CONTROLLERS)} only"
        faults = [f"limit not applied: {place}: {key} {limits[key]}: {only}" for key in limits if key not in known]
        controllers: list[Controller] = [key for key in CONTROLLERS if key in known or (room and key == "cpu")]
        folders: dict[Controller, tuple[int, Path]] = {}
        reason = ""
        try:
            wanted: list[tuple[Controller, Fraction]] = [(key, cgroup.wanted(key, known[key])) for key in known]
            own, there = label() + name, _places()
            for key in controllers:
                if key not in there:
                    raise LookupError(f"no cgroup hierarchy with the controller {key} is mounted here")
                folder = _parent(there[key], controllers) / own
                if all(folder != made for _, made in folders.values()):
                    folder.mkdir()
                folders[key] = there[key].version, folder
            for key, value in wanted:
                _apply(key, *folders[key], value)
        except OSError as error:
            reason = f"{error.strerror}: {error.filename}"
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                reason += f": {_DELEGATE}"
        except (LookupError, ValueError) as error:
            reason = str(error.args[0])
        if reason:
            faults += [f"limit not applied: {place}: {key} {value}: {reason}" for key, value in known.items()]
        group = Group(role, name, limits, folders, tuple(faults), reason)
        self._groups.append(group)
        return group

    def unapplied(self) -> list[str]:
        """What was asked for and does not hold, each once, however many replicas."""
        return list(dict.fromkeys(fault for group in self._groups for fault in group.unapplied))

    def counters(self) -> dict[str, int]:
        """`<role>/<count>`, summed over the role's containers that have a limit; OOM kills are told in words instead."""
        found = Counter[str]()
        for group in self._groups:
            counts = group.counts()
            counts.pop("oom_kills", None)
            found.update({f"{group.role}/{name}": count for name, count in counts.items()})
        return found

    def deaths(self) -> list[tuple[str, str]]:
        """(container, what happened) of those that ran out of memory."""
        return [(group.name, said) for group in self._groups if (said := group.out_of_memory())]

    def remove(self) -> None:
        for group in self._groups:
            group.remove()


def label() -> str:
    """How this lab's folders begin: the device of the host's /proc, its outer process and that one's start."""
    proc, pid = host_proc()
    state = process_state(proc, pid)
    if state is None:
        raise LookupError(f"the lab's own process {pid} is not in its /proc")
    return f"lab-{Path(proc).stat().st_dev}-{pid}-{state[1]}-"


def sweep() -> list[Path]:
    """Remove the folders of labs of this machine that have died; those of live ones, and everybody else's, stay."""
    proc, _ = host_proc()
    device, removed = Path(proc).stat().st_dev, list[Path]()
    for mount in {found.mount for found in _places().values()}:
        below = sorted((Path(root, name) for root, names, _ in os.walk(mount) for name in names), reverse=True)
        for folder, owner in ((folder, _LABEL.match(folder.name)) for folder in below):
            if owner is None:
                continue
            of, pid, start = (int(number) for number in owner.groups())
            state = process_state(proc, pid)
            if of == device and (state is None or state[1] != start or state[0] in "ZX"):
                with contextlib.suppress(OSError):  # a process of it is still ending, or it is another user's
                    folder.rmdir()
                    removed.append(folder)
    return removed


def delegate() -> None:
    """Version 2, in a group that was delegated to us and holds nobody else: make room for children with controllers.

    A group with processes cannot, so ours, and those we descend from, move into a leaf of it. To be called outside the
    lab's namespaces, where all of them can be seen. Anywhere else nothing is done.
    """
    found = set(_places().values())
    if len(found) != 1 or (own := found.pop()).version != 2 or own.folder == own.mount:
        return
    folder, me = Path(own.folder), psutil.Process()
    family = {process.pid for process in [me, *me.parents(), *me.children(recursive=True)]}
    try:
        if not _delegated(folder) or not set(CONTROLLERS) <= set(readable(folder / "cgroup.controllers").split()):
            return
        members = {int(pid) for pid in (folder / "cgroup.procs").read_text().split()}
        if not members <= family:
            return
        leaf = folder / f"{label()}leaf"
        leaf.mkdir()
        for pid in members:
            (leaf / "cgroup.procs").write_text(str(pid))
        for controller in CONTROLLERS:
            (folder / "cgroup.subtree_control").write_text(f"+{controller}")
    except OSError:
        return  # what follows finds no room, and says why


def trial() -> tuple[bool, str]:
    """Really limit a process of ours for a moment: (True, by which version), or (False, why not)."""
    delegate()
    if why_not := unheld({"cpu": "100m", "memory": "64Mi"}):
        return False, why_not
    versions = dict.fromkeys(f"version {place.version}" for place in _places().values())
    return True, f"{' and '.join(versions)}, tried with {' and '.join(CONTROLLERS)}"


def unheld(limits: Mapping[str, str], squeezed: bool = False) -> str:
    """Why these limits of a container would not hold here, or it could not be `squeezed` while it runs; empty when it can. Tried; nothing stays."""
    group = Groups().make("lab", "trial", "trial", limits, room=squeezed)
    try:
        if squeezed:
            group.squeeze("100m")
        elif group.unapplied:
            return group.unapplied[0].removeprefix("limit not applied: trial: ")
        return _kept_out(group)
    except MeasuringError as error:
        return error.fault
    finally:
        group.remove()


def _kept_out(group: Group) -> str:
    """Why a process of ours cannot join; empty when it can."""
    argv = ["sh", "-euc", f"{group.join()}cat /proc/self/cgroup"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode or not all(folder.name in done.stdout for _, folder in group.folders.values()):
        return f"a process cannot join: {done.stderr.strip() or done.stdout.strip()}"
    return ""


def _parent(own: cgroup.Place, controllers: Sequence[Controller]) -> Path:
    """Where a child gets the controllers."""
    folder = Path(own.folder)
    if own.version == 1:
        return folder
    for parent in (folder, *folder.parents):
        if set(controllers) <= set(readable(parent / "cgroup.subtree_control").split()):
            return parent
        if str(parent) == own.mount:
            break
    fault = f"no group from {folder} up gives {' and '.join(controllers)} to its children"
    raise LookupError(f"cgroup version 2: {fault}: {_DELEGATE}")


def _apply(controller: Controller, version: int, folder: Path, value: Fraction | None) -> None:
    for name, text in cgroup.settings(version, controller, value):
        if name not in cgroup.OPTIONAL or (folder / name).exists():
            (folder / name).write_text(text)
    found = _limit(controller, version, folder)
    if not cgroup.holds(controller, value, found):
        raise ValueError(f"the kernel keeps {cgroup.spelled(controller, found)} in {folder}")


def _limit(controller: Controller, version: int, folder: Path) -> Fraction | None:
    texts = [(folder / name).read_text() for name in cgroup.LIMIT_FILES[version, controller]]
    return cgroup.limit(controller, " ".join(texts))


def _places() -> dict[Controller, cgroup.Place]:
    """Our own groups, of the controllers that are mounted here."""
    found: dict[Controller, cgroup.Place] = {}
    for controller in CONTROLLERS:
        with contextlib.suppress(LookupError, OSError):
            texts = Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text()
            found[controller] = cgroup.place(controller, *texts)
    return found


def _delegated(folder: Path) -> bool:
    """systemd marks what it gave away: trusted.delegate, and since version 251 user.delegate."""
    for name in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            return os.getxattr(folder, name) == b"1"
    return False


def process_state(proc: str, pid: int) -> tuple[str, int] | None:
    """(state, start in clock ticks since boot) of a process, None when there is none."""
    try:
        _, fields = parse_stat(Path(proc, str(pid), "stat").read_bytes())
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ESRCH):
            raise
        return None
    return fields[0].decode(), int(fields[19])
