"""One container as a process: its private folders, mounts, user and CPUs; start, enter, stop, read its output.

A container sees its own processes and the machine's files, save that these folders are its own and empty: `PRIVATE`.
Its volumes are bound over that, /etc/hosts names the Services, and it sees only its role's CPUs. Its main process is the
first of a process namespace and runs under an unprivileged id in a user namespace of its own, without capabilities,
whether the lab is root or not; `privileged: true` makes it the pod's root. Refuses to interpret commands: what is asked for is executed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from lab.base.errors import UsageError
from lab.base.files import readable
from lab.model.endpoint import Endpoint
from lab.systems.manifests.pods import Container
from lab.systems.rendering import rendered
from lab.systems.system import PRIVATE, WRITABLE, Realisation
from lab.targets.common import fetching
from lab.targets.common.process import composed
from lab.targets.common.sampler import thread_ids
from lab.targets.local.sandbox import cpus, network
from lab.targets.local.sandbox.cgroups import Group
from lab.targets.local.sandbox.namespaces import real_root
from lab.targets.local.sandbox.network import Place

ONLINE = "/sys/devices/system/cpu/online"

TAIL_BYTES = 8192
ASK_S = 2.0
"""For an answer of an interface on a pod's loopback."""

LEAST_S = 2.0
"""From the stop signal to SIGKILL at least, whatever the grace period (a kubelet's minimumGracePeriodInSeconds)."""

Bind = tuple[Path, str, bool]
"""Source, where it is mounted, and whether to be read only."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a container is started with, beyond its own description: `started`, and where."""

    hostname: str
    place: Place
    cpus: frozenset[int]
    hosts: str
    volumes: Mapping[str, Path]
    started: Realisation
    group: Group


class Process:
    """A container's process, or the one it will be. `start` may be called again after it ended."""

    def __init__(self, container: Container, setting: Setting, folder: Path) -> None:
        self.container, self.setting, self.folder = container, setting, folder
        self.stdout, self.stderr = folder / "stdout", folder / "stderr"
        self.popen: subprocess.Popen[bytes] | None = None
        """The parent that made the main process's namespaces; ends as the main process ends."""
        self._main: int | None = None
        self._stopping = threading.Lock()
        self._released = threading.Event()
        self._root = setting.started.root
        self._there = Path("/") if self._root is None else self._root.folder
        """What it sees where nothing of its own lies over it."""
        self._kept = PRIVATE if self._root is None else self._root.own
        for name in ("sysfs", "root"):
            (folder / name).mkdir(parents=True)
        private = self._private()
        self._binds = [*self._volumes(), *self._covers(), *private]
        for path, text in setting.started.files.items():
            file = self._made(path)
            if text.startswith("-> "):
                file.symlink_to(text.removeprefix("-> "))
            else:
                file.write_text(text, errors="surrogateescape")
        for path, program in setting.started.programs.items():
            file = self._made(path)
            file.touch()
            self._binds.insert(0, (program, str(file), False))

    @property
    def started(self) -> Realisation:
        """What it is started with."""
        return self.setting.started

    @property
    def pid(self) -> int | None:
        """The main process, as the lab sees it, while it runs."""
        return self._main if self.popen is not None and self.popen.returncode is None else None

    def start(self) -> None:
        setting, container = self.setting, self.container
        user = ["--user", f"--map-user={container.uid}", f"--map-group={container.gid}"]
        if self._root is not None:
            user += [f"--root={self.folder / 'root'}", f"--wd={self._root.working_dir}"]
        identity = [] if container.privileged else ["setpriv", "--no-new-privs", "--", "unshare", *user, "--"]
        command = ["taskset", "-c", cpus.as_list(setting.cpus), *identity, *self._environment, *setting.started.command]
        script = rendered(
            Path(__file__).with_name("container.sh.j2"),
            join=setting.group.join(),
            hostname=setting.hostname,
            real_root=real_root(),
            privileged=container.privileged,
            sysfs=self.folder / "sysfs",
            image=None if self._root is None else self._root.folder,
            root=self.folder / "root",
            limited=setting.group.seen(),
            binds=self._binds,
            command=shlex.join(command),
        )
        apart = ["unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]
        self._main = None  # of an earlier start
        # Appending, so that a log can be cut while it is being written.
        with self.stdout.open("ab") as stdout, self.stderr.open("ab") as stderr:
            self.popen = subprocess.Popen(
                [*setting.place.enter, *apart, "sh", "-euc", script],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                env=composed(),
            )
        self._main = _only_child(self.popen)

    def enter(self, argv: Sequence[str]) -> list[str]:
        """The command that runs `argv` inside: its network, mounts, /proc, hostname, user and environment. ProcessLookupError if it ended."""
        if self.pid is None:
            raise ProcessLookupError(errno.ESRCH, f"{self.container.place} is not running")
        user = [] if self.container.privileged else ["--user", "--preserve-credentials"]
        root = [] if self._root is None else ["--root", "--wd"]
        inside = ["nsenter", "--target", str(self.pid), "--mount", "--net", "--uts", "--pid", *root, *user, "--"]
        return [*inside, *self._environment, *argv]

    def run_pinned(self, argv: Sequence[str], output: int) -> subprocess.Popen[bytes]:
        """As `lab.systems.system.Process.run_pinned`."""
        pinned = self.enter(["taskset", "-c", cpus.as_list(self.setting.cpus), *argv])
        return subprocess.Popen(pinned, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def end_entered(self, popen: subprocess.Popen[bytes]) -> None:
        """SIGKILL to what `enter` started inside, which ends `popen` too.

        The other way round its child would be left to us, and hold its container's process namespace open until it is reaped.
        """
        while popen.poll() is None:
            for pid in tree(popen.pid)[1:]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                popen.wait(0.01)

    def ask(self, port: int, path: str) -> str:
        """As `lab.systems.system.Process.ask`."""
        return ask(self.setting.place, port, path)

    @property
    def _environment(self) -> list[str]:
        """The command that runs what follows in the container's own environment, and none of the lab's."""
        own = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOSTNAME": self.setting.hostname,
            **self.setting.started.env,
        }
        return ["env", "-i", *(f"{name}={value}" for name, value in own.items())]

    def processes(self) -> list[int]:
        """The main process and all its descendants that run; empty when it ended."""
        return tree(self.pid) if self.pid is not None else []

    def processes_but(self, name: str) -> list[int]:
        """Those of `processes` that the kernel calls otherwise."""
        return [pid for pid in self.processes() if readable(f"/proc/{pid}/comm").strip() != name]

    def confine(self) -> list[int]:
        """Cut CPU affinities back to the role's CPUs, as a cpuset would. Returns the threads that had others.

        A process that bound itself to one CPU keeps one: that of the role's to which the fewest others are bound.
        """
        own, strays, bound = self.setting.cpus, list[int](), dict[int, int]()
        pids = self.processes()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                if len(mask := os.sched_getaffinity(pid)) == 1 and mask <= own:
                    bound[pid] = min(mask)
        for pid in pids:
            for thread in thread_ids(pid):
                with contextlib.suppress(ProcessLookupError):
                    mask = os.sched_getaffinity(thread)
                    if mask <= own:
                        continue
                    if len(mask) == 1 and pid not in bound:
                        bound[pid] = min(sorted(own), key=[*bound.values()].count)
                    os.sched_setaffinity(thread, {bound[pid]} if len(mask) == 1 else (mask & own) or own)
                    strays.append(thread)
        return strays

    def stop(self, grace_s: float) -> bool:
        """preStop, the stop signal, then SIGKILL when the grace period is over. True if it ended by itself.

        As a kubelet does, the stop signal comes however long preStop takes, and leaves `LEAST_S` at least.
        """
        before_s, after_s = self.setting.started.waits
        with self._stopping:
            deadline, hook = time.monotonic() + grace_s, None
            if self.popen is None or self.popen.poll() is not None:
                return True
            if (argv := self.setting.started.pre_stop or self.container.pre_stop) and self.pid is not None:
                nothing = subprocess.DEVNULL
                hook = subprocess.Popen(self.enter(argv), stdin=nothing, stdout=nothing, stderr=nothing)
                _ends_within(hook, grace_s)
            deadline = max(deadline, time.monotonic() + LEAST_S)
            if before_s:
                _ends_within(self.popen, min(before_s, deadline - time.monotonic()))
            self._signal(self.setting.started.stop_signal)
            gracefully = _ends_within(self.popen, deadline - time.monotonic())
            # A hook that is still busy ends with the container's processes. Killed before, it would leave its child to us,
            # and the container's process namespace is not over until every process in there has been waited for.
            self.kill()
            if hook is not None:
                hook.wait()
            self._released.wait(min(after_s, max(0.0, deadline - time.monotonic())))
            return gracefully

    def release(self) -> None:
        """Nobody waits for its end any more."""
        self._released.set()

    def linger(self) -> None:
        """Returns when the container has ended, after its main process: a `stop` under way is over."""
        if self.setting.started.waits[1]:
            with self._stopping:
                pass

    def kill(self) -> None:
        """SIGKILL. The main process is the first of its process namespace: with it everything in there ends."""
        if self.popen is not None and self.popen.poll() is None:
            self._signal(signal.SIGKILL)
            self.popen.wait()

    def _signal(self, number: signal.Signals) -> None:
        """To the main process, which may just have ended."""
        assert self.popen is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._main or self.popen.pid, number)

    def tail(self, lines: int = 20, output_too: bool = True) -> str:
        """The last lines of its error output, or (unless told not to) of its output where that is empty."""
        for file in (self.stderr, self.stdout)[: 1 + output_too]:
            if file.exists():
                with file.open("rb") as stream:
                    stream.seek(max(0, file.stat().st_size - TAIL_BYTES))
                    text = stream.read().decode(errors="replace").strip()
                if text:
                    return "\n".join(text.splitlines()[-lines:])
        return ""

    def ended(self) -> str:
        """How the main process ended, in words. `unshare` passes every signal on as its own end, save SIGKILL."""
        assert self.popen is not None and self.popen.returncode is not None
        status = self.popen.returncode
        if status == 1 and self.tail(1).startswith("unshare: sigprocmask"):
            status = -signal.SIGKILL
        said = f"exited {status}" if status >= 0 else f"ended by signal {-status}"
        return ", ".join(filter(None, [said, self.setting.group.out_of_memory()]))

    def truncate(self, larger_than: int) -> None:
        """Cut the output files that are larger (bytes) to nothing, as a kubelet rotates them."""
        for file in (self.stdout, self.stderr):
            if file.exists() and file.stat().st_size > larger_than:
                os.truncate(file, 0)

    def _private(self) -> list[Bind]:
        found: list[Bind] = []
        for path in self._kept:
            there, own = self._there / path.strip("/"), self._own(path)
            if there.is_dir():
                own.parent.mkdir(parents=True, exist_ok=True)
                if self._root is None:
                    own.mkdir()
                else:
                    subprocess.run(["cp", "-r", "--preserve=mode,timestamps,links", there, own], check=True)
                found.append((own, self._over(path), False))
        if self._root is None:
            for path in WRITABLE:
                parent, _, name = path.rpartition("/")
                (self._own(parent) / name).mkdir()
            for link in Path("/run").iterdir():
                if link.is_symlink():
                    (self._own("/run") / link.name).symlink_to(link.readlink())
        return found

    def _volumes(self) -> list[Bind]:
        found: list[Bind] = []
        for mount in self.container.mounts:
            source, target = self.setting.volumes[mount.volume] / mount.sub_path, self.inside(mount.path)
            if not source.exists():
                fault = f"volume {mount.volume} has no {mount.sub_path!r}"
                raise UsageError(self.container.place, fault, "correct the mount's subPath")
            if target is None and not (self._there / mount.path.lstrip("/")).exists():
                fault = f"there is no {mount.path} here to mount over"
                raise UsageError(self.container.place, fault, f"mount it below one of {', '.join(self._kept)}")
            if target is not None and source.is_dir():
                target.mkdir(parents=True, exist_ok=True)
            elif target is not None:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.touch()
            # Below a folder of its own: there first.
            found.append((source, str(target or self._over(mount.path)), mount.read_only))
        return found

    def _covers(self) -> list[Bind]:
        texts = {"/etc/hosts": self.setting.hosts, ONLINE: cpus.as_list(self.setting.cpus) + "\n"}
        found: list[Bind] = []
        for path, text in texts.items():
            if path == ONLINE or (self._there / path.lstrip("/")).exists():
                own = self.folder / path.strip("/").replace("/", "-")
                own.write_text(text)
                found.append((own, self._over(path), False))
        return found

    def _over(self, path: str) -> str:
        """Where what lies at a container's path is mounted."""
        return path if self._root is None else f"{self.folder / 'root'}{path}"

    def _own(self, path: str) -> Path:
        """Where the lab keeps what is the container's own of a folder."""
        return self.folder / "private" / path.strip("/").replace("/", "-")

    def inside(self, path: str) -> Path | None:
        """Where a container's path lies for the lab; None if it is not in a folder of the container's own."""
        for prefix in self._kept:
            if path.startswith(prefix + "/") and (self._there / prefix.lstrip("/")).is_dir():
                return self._own(prefix) / path.removeprefix(prefix + "/")
        return None

    def _made(self, path: str) -> Path:
        """The same, its folder made. UsageError where there is none."""
        file = self.inside(path)
        if file is None:
            fault = f"{path} is not in a folder of the container's own"
            raise UsageError(self.container.place, fault, f"one of: {', '.join(self._kept)}")
        file.parent.mkdir(parents=True, exist_ok=True)
        return file


def ask(place: Place, port: int, path: str) -> str:
    """What listens on a pod's loopback answers to a GET, on a connection of its own. Raises OSError."""
    page = Endpoint(f"http://127.0.0.1:{port}", "localhost")
    connection = network.connect(place, fetching.place(page), ASK_S)
    return fetching.fetch(connection, page, path, None, ASK_S).body.decode(errors="replace")


def tree(root: int) -> list[int]:
    """A process and its descendants."""
    try:
        return [root, *(child.pid for child in psutil.Process(root).children(recursive=True))]
    except psutil.NoSuchProcess:
        return []


def reap_orphans() -> None:
    """Collect dead processes that were handed to us as PID 1: those that lead no session and are not of ours."""
    own = os.getsid(0)
    for child in psutil.Process().children():
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            if child.status() == psutil.STATUS_ZOMBIE and os.getsid(child.pid) not in (child.pid, own):
                os.waitpid(child.pid, os.WNOHANG)


def _only_child(popen: subprocess.Popen[bytes], within_s: float = 5.0) -> int | None:
    """The one child of a process, as soon as it is there; None if the process ended without."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline and popen.poll() is None:
        with contextlib.suppress(psutil.NoSuchProcess):
            if children := psutil.Process(popen.pid).children():
                return children[0].pid
        time.sleep(0.001)
    return None


def _ends_within(popen: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether a process ends by then."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        popen.wait(max(0.0, seconds))
    return popen.returncode is not None
