"""A container as processes on this machine: how it is started, entered and stopped, and its folders, mounts and CPUs.

A container sees its own processes and the machine's files. The folders in `PRIVATE_FOLDERS` are private to the
container and empty at first. Volumes are mounted over the machine's files, /etc/hosts contains the names of the
Services, and the container sees only the CPUs of its role. If the lab has the files of the container's image, the
container sees these instead of the machine's files.

The main process is PID 1 of a process namespace. It runs under an unprivileged id in a separate user namespace, without
capabilities, even if the lab runs as root. With `privileged: true` the process is root of the pod. Commands are
executed unchanged.
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

from lab.base.errors import UsageError, refuse_if
from lab.base.files import read_text_if_readable
from lab.model.endpoint import Endpoint
from lab.systems.manifests.pods import Container
from lab.systems.rendering import render_template
from lab.systems.system import INITIAL_FOLDERS, PRIVATE_FOLDERS, Realisation
from lab.targets.common import fetching
from lab.targets.common.process import make_environment
from lab.targets.common.sampler import thread_ids
from lab.targets.local.sandbox import cpus, network
from lab.targets.local.sandbox.cgroups import ContainerGroup
from lab.targets.local.sandbox.namespaces import is_real_root

ONLINE = "/sys/devices/system/cpu/online"
"""The file from which programs read which CPUs are online."""

TAIL_BYTES = 8192
"""The bytes at the end of an output that `tail` reads."""
ASK_S = 2.0
"""The seconds that an HTTP interface on a pod's loopback has for its answer."""

MIN_STOP_S = 2.0
"""The least seconds from the stop signal to SIGKILL, whatever the grace period.

A kubelet calls it minimumGracePeriodInSeconds.
"""

Bind = tuple[Path, str, bool]
"""A bind mount: its source, its mount point, and whether it is read only."""


@dataclass(frozen=True, slots=True)
class ContainerSetting:
    """The values that a container is started with, in addition to its description in the manifest.

    Attributes:
        hostname: The container's hostname, which is the pod's name.
        place: The network namespace of the pod.
        cpus: The CPUs to which the container's role is pinned.
        hosts: The text of the container's /etc/hosts.
        volumes: Volume name → the folder with the volume's files.
        started: The command, environment and files that are used instead of the container's image.
        group: The container's cgroup.

    """

    hostname: str
    place: network.NetworkPlace
    cpus: frozenset[int]
    hosts: str
    volumes: Mapping[str, Path]
    started: Realisation
    group: ContainerGroup


class LocalContainerProcess:
    """The processes of a container on this machine; after they have ended, the container can be started again."""

    def __init__(self, container: Container, setting: ContainerSetting, folder: Path) -> None:
        """Create the container's private folders and files; nothing is started yet.

        Args:
            container: The container as the manifest describes it.
            setting: The further values that the container is started with.
            folder: A new folder for the container's files and output.

        """
        self.container, self.setting, self.folder = container, setting, folder
        self.stdout, self.stderr = folder / "stdout", folder / "stderr"
        self.popen: subprocess.Popen[bytes] | None = None
        """The parent that made the namespaces of the main process; it ends as the main process ends."""
        self._main: int | None = None
        self._stopping = threading.Lock()
        self._released = threading.Event()
        self._root = setting.started.root
        self._image = Path("/") if self._root is None else self._root.folder
        """The folder with the files that the container sees outside its private folders and mounts."""
        self._private_paths = PRIVATE_FOLDERS if self._root is None else self._root.own
        """The folders, as the container names them, of which it has private copies."""
        for name in ("sysfs", "root", "private"):
            (folder / name).mkdir(parents=True)
        private = self._make_private_folders()
        self._binds = [*self._bind_volumes(), *self._write_covers(), *private]
        for path, text in setting.started.files.items():
            file = self._locate_new_file(path)
            if text.startswith("-> "):
                file.symlink_to(text.removeprefix("-> "))
            else:
                file.write_text(text, errors="surrogateescape")
        for path, program in setting.started.programs.items():
            file = self._locate_new_file(path)
            file.touch()
            self._binds.insert(0, (program, str(file), False))

    @property
    def started(self) -> Realisation:
        """The command, environment and files that the container is started with."""
        return self.setting.started

    @property
    def pid(self) -> int | None:
        """The id of the container's main process, as seen from outside the container; None while the process does not run."""
        return self._main if self.popen is not None and self.popen.returncode is None else None

    def start(self) -> None:
        """Start the container's main process inside new namespaces, and wait until the process exists."""
        setting, container = self.setting, self.container
        user = ["--user", f"--map-user={container.uid}", f"--map-group={container.gid}"]
        if self._root is not None:
            user += [f"--root={self.folder / 'root'}", f"--wd={self._root.working_dir}"]
        identity = [] if container.privileged else ["setpriv", "--no-new-privs", "--", "unshare", *user, "--"]
        command = [
            "taskset",
            "-c",
            cpus.format_list(setting.cpus),
            *identity,
            *self._environment,
            *setting.started.command,
        ]
        script = render_template(
            Path(__file__).with_name("container.sh.j2"),
            join=setting.group.join(),
            hostname=setting.hostname,
            real_root=is_real_root(),
            privileged=container.privileged,
            sysfs=self.folder / "sysfs",
            image=None if self._root is None else self._root.folder,
            root=self.folder / "root",
            limited=setting.group.seen(),
            binds=self._binds,
            command=shlex.join(command),
        )
        namespaces = ["unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]
        self._main = None  # of an earlier start
        # Appending, so that a log can be cut while it is being written.
        with self.stdout.open("ab") as stdout, self.stderr.open("ab") as stderr:
            self.popen = subprocess.Popen(
                [*setting.place.enter, *namespaces, "sh", "-euc", script],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                env=make_environment(),
            )
        self._main = _wait_for_child(self.popen)

    def enter(self, argv: Sequence[str]) -> list[str]:
        """Return the command line with which a command runs inside the container.

        The command gets the container's network, mounts, /proc, hostname, user and environment.

        Args:
            argv: The command.

        Raises:
            ProcessLookupError: The container does not run.

        """
        if self.pid is None:
            raise ProcessLookupError(errno.ESRCH, f"{self.container.place} is not running")
        user = [] if self.container.privileged else ["--user", "--preserve-credentials"]
        root = [] if self._root is None else ["--root", "--wd"]
        inside = ["nsenter", "--target", str(self.pid), "--mount", "--net", "--uts", "--pid", *root, *user, "--"]
        return [*inside, *self._environment, *argv]

    def run_pinned(self, argv: Sequence[str], output: int) -> subprocess.Popen[bytes]:
        """Start a command inside the container, pinned to the CPUs of the container's role.

        Args:
            argv: The command.
            output: The file descriptor that gets the command's output and error output.

        """
        pinned = self.enter(["taskset", "-c", cpus.format_list(self.setting.cpus), *argv])
        return subprocess.Popen(pinned, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def end_entered(self, popen: subprocess.Popen[bytes]) -> None:
        """End a command that was started inside the container by a command line from `enter`.

        The descendants of `popen` are killed, until `popen` itself has ended. If `popen` were killed first, its child
        would become a child of this process. The container's process namespace would then exist until this process
        waits for the child.

        Args:
            popen: The process of the command line.

        """
        while popen.poll() is None:
            for pid in list_descendants(popen.pid)[1:]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                popen.wait(0.01)

    def ask(self, port: int, path: str) -> str:
        """Send a GET to a port on the pod's loopback, and return the body of the answer."""
        return ask(self.setting.place, port, path)

    @property
    def _environment(self) -> list[str]:
        """The start of a command line that runs an appended command with only the container's environment variables."""
        variables = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOSTNAME": self.setting.hostname,
            **self.setting.started.env,
        }
        return ["env", "-i", *(f"{name}={value}" for name, value in variables.items())]

    def processes(self) -> list[int]:
        """Return the ids of the main process and all its descendants, as seen from outside the container.

        The list is empty if the main process has ended.
        """
        return list_descendants(self.pid) if self.pid is not None else []

    def processes_but(self, name: str) -> list[int]:
        """Return the ids of the container's processes, without those whose command name is `name`."""
        return [pid for pid in self.processes() if read_text_if_readable(f"/proc/{pid}/comm").strip() != name]

    def confine(self) -> list[int]:
        """Move threads that have left the CPUs of the container's role back to these CPUs, as a cpuset cgroup would.

        A process that has bound itself to a single CPU is bound to a single CPU of the role. The chosen CPU is one to
        which the fewest other processes are bound.

        Returns:
            The ids of the threads that were moved back.

        """
        allowed, strays, bound = self.setting.cpus, list[int](), dict[int, int]()
        pids = self.processes()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                if len(mask := os.sched_getaffinity(pid)) == 1 and mask <= allowed:
                    bound[pid] = min(mask)
        for pid in pids:
            for thread in thread_ids(pid):
                with contextlib.suppress(ProcessLookupError):
                    mask = os.sched_getaffinity(thread)
                    if mask <= allowed:
                        continue
                    if len(mask) == 1 and pid not in bound:
                        bound[pid] = min(sorted(allowed), key=[*bound.values()].count)
                    os.sched_setaffinity(thread, {bound[pid]} if len(mask) == 1 else (mask & allowed) or allowed)
                    strays.append(thread)
        return strays

    def stop(self, grace_s: float) -> bool:
        """Run the preStop hook, send the stop signal, and send SIGKILL if the container has not ended after the grace period.

        As with a kubelet, the grace period includes the hook. The container has at least `MIN_STOP_S` seconds between
        the stop signal and SIGKILL, even if the hook has used up the grace period.

        Args:
            grace_s: The grace period in seconds.

        Returns:
            Whether the container ended without SIGKILL.

        """
        before_s, after_s = self.setting.started.waits
        with self._stopping:
            deadline, hook = time.monotonic() + grace_s, None
            if self.popen is None or self.popen.poll() is not None:
                return True
            if (argv := self.setting.started.pre_stop or self.container.pre_stop) and self.pid is not None:
                null = subprocess.DEVNULL
                hook = subprocess.Popen(self.enter(argv), stdin=null, stdout=null, stderr=null)
                _wait_for_end(hook, grace_s)
            deadline = max(deadline, time.monotonic() + MIN_STOP_S)
            _wait_for_end(self.popen, min(before_s, deadline - time.monotonic()))
            self._signal(self.setting.started.stop_signal)
            gracefully = _wait_for_end(self.popen, deadline - time.monotonic())
            # A hook that is still busy ends with the container's processes. If it were killed first, it would leave its
            # child to us, and the container's process namespace exists until every process in it has been waited for.
            self.kill()
            if hook is not None:
                hook.wait()
            self._released.wait(min(after_s, max(0.0, deadline - time.monotonic())))
            return gracefully

    def release(self) -> None:
        """Let the method `stop` return as soon as the container's main process has ended, without a further wait.

        In some images, a controller runs on for some seconds after its proxy has ended. The lab does not run this
        controller, so `stop` waits for these seconds instead (`Realisation.waits`). This call ends the wait, even if
        `stop` is already waiting in another thread.
        """
        self._released.set()

    def linger(self) -> None:
        """Wait until a call of the method `stop` in another thread has returned; for most images, return at once.

        For some images, `stop` returns only some seconds after the end of the main process (see `release`). Only for
        these images does this method wait.
        """
        if self.setting.started.waits[1]:
            with self._stopping:
                pass

    def kill(self) -> None:
        """Send SIGKILL to the main process and wait for its end, with which all other processes of the container end, too.

        The main process is PID 1 of the container's process namespace.
        """
        if self.popen is not None and self.popen.poll() is None:
            self._signal(signal.SIGKILL)
            self.popen.wait()

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to the main process; a process that has just ended is no error."""
        assert self.popen is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._main or self.popen.pid, number)

    def tail(self, lines: int = 20, output_too: bool = True) -> str:
        """Return the last lines of the container's error output.

        Args:
            lines: The number of lines at most.
            output_too: Whether the standard output is used instead if the error output is empty.

        """
        for file in (self.stderr, self.stdout)[: 1 + output_too]:
            if file.exists():
                with file.open("rb") as stream:
                    stream.seek(max(0, file.stat().st_size - TAIL_BYTES))
                    text = stream.read().decode(errors="replace").strip()
                if text:
                    return "\n".join(text.splitlines()[-lines:])
        return ""

    def ended(self) -> str:
        """Return how the main process ended, as a text such as `exited 1` or `ended by signal 9`.

        If the kernel has killed a process because of the memory limit, the text mentions that, too. The main process
        must have ended. Its parent, the program `unshare`, ends in the same way, so the exit status is read from the
        parent.
        """
        assert self.popen is not None and self.popen.returncode is not None
        status = self.popen.returncode
        if status == 1 and self.tail(1).startswith("unshare: sigprocmask"):
            status = -signal.SIGKILL
        message = f"exited {status}" if status >= 0 else f"ended by signal {-status}"
        return ", ".join(filter(None, [message, self.setting.group.out_of_memory()]))

    def truncate(self, larger_than: int) -> None:
        """Truncate the output files that are larger than a number of bytes; a kubelet would rotate the logs instead.

        Args:
            larger_than: The number of bytes.

        """
        for file in (self.stdout, self.stderr):
            if file.exists() and file.stat().st_size > larger_than:
                os.truncate(file, 0)

    def _make_private_folders(self) -> list[Bind]:
        """Create the container's private folders (such as /tmp), and return the bind mounts that put them in their places.

        If the lab has the files of the container's image, each folder is a copy of the image's folder. Otherwise it is
        empty, except for the folders in INITIAL_FOLDERS and the links in /run.
        """
        binds: list[Bind] = []
        for path in self._private_paths:
            original, private = self._image / path.strip("/"), self._locate_private(path)
            if original.is_dir():
                if self._root is None:
                    private.mkdir()
                else:
                    subprocess.run(["cp", "-r", "--preserve=mode,timestamps,links", original, private], check=True)
                binds.append((private, self._locate_mount_point(path), False))
        if self._root is None:
            for path in INITIAL_FOLDERS:
                parent, _, name = path.rpartition("/")
                (self._locate_private(parent) / name).mkdir()
            for link in Path("/run").iterdir():
                if link.is_symlink():
                    (self._locate_private("/run") / link.name).symlink_to(link.readlink())
        return binds

    def _bind_volumes(self) -> list[Bind]:
        """Create the mount points of the container's volumes, and return the bind mounts for the volumes.

        Raises:
            UsageError: A volume lacks the mount's subPath. Or a mount point is outside the container's private folders
                and does not exist.

        """
        binds: list[Bind] = []
        for mount in self.container.mounts:
            source, target = self.setting.volumes[mount.volume] / mount.sub_path, self.inside(mount.path)
            refuse_if(
                not source.exists(),
                self.container.place,
                f"volume {mount.volume} has no {mount.sub_path!r}",
                "correct the mount's subPath",
            )
            refuse_if(
                target is None and not (self._image / mount.path.lstrip("/")).exists(),
                self.container.place,
                f"there is no {mount.path} here to mount over",
                f"mount it below one of {', '.join(self._private_paths)}",
            )
            if target is not None and source.is_dir():
                target.mkdir(parents=True, exist_ok=True)
            elif target is not None:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.touch()
            # A mount point in a private folder is mounted there, before that folder itself is bound.
            binds.append((source, str(target or self._locate_mount_point(mount.path)), mount.read_only))
        return binds

    def _write_covers(self) -> list[Bind]:
        """Write the container's /etc/hosts and its list of online CPUs, and return bind mounts that put both in their places."""
        texts = {"/etc/hosts": self.setting.hosts, ONLINE: cpus.format_list(self.setting.cpus) + "\n"}
        binds: list[Bind] = []
        for path, text in texts.items():
            if path == ONLINE or (self._image / path.lstrip("/")).exists():
                cover = self.folder / path.strip("/").replace("/", "-")
                cover.write_text(text)
                binds.append((cover, self._locate_mount_point(path), False))
        return binds

    def _locate_mount_point(self, path: str) -> str:
        """Return the path at which the lab must mount something so that the container sees it at `path`."""
        return path if self._root is None else f"{self.folder / 'root'}{path}"

    def _locate_private(self, path: str) -> Path:
        """Return the path of the lab's folder that the container sees as its private folder `path`."""
        return self.folder / "private" / path.strip("/").replace("/", "-")

    def inside(self, path: str) -> Path | None:
        """Return the lab's path of the file that the container sees at `path`.

        The result is None if `path` is outside the container's private folders.
        """
        for prefix in self._private_paths:
            if path.startswith(prefix + "/") and (self._image / prefix.lstrip("/")).is_dir():
                return self._locate_private(prefix) / path.removeprefix(prefix + "/")
        return None

    def _locate_new_file(self, path: str) -> Path:
        """Return the lab's path for a new file that the container will see at `path`, and create the folder for it.

        Raises:
            UsageError: `path` is outside the container's private folders.

        """
        file = self.inside(path)
        if file is None:
            fault = f"{path} is not in a folder of the container's own"
            raise UsageError(self.container.place, fault, f"one of: {', '.join(self._private_paths)}")
        file.parent.mkdir(parents=True, exist_ok=True)
        return file


def ask(place: network.NetworkPlace, port: int, path: str) -> str:
    """Send a GET to a port on a pod's loopback, over a new connection, and return the body of the answer.

    Args:
        place: The pod's network namespace.
        port: The port.
        path: The path to request.

    Raises:
        OSError: Nothing answers in time.

    """
    page = Endpoint(f"http://127.0.0.1:{port}", "localhost")
    connection = network.connect(place, fetching.split_address(page), ASK_S)
    return fetching.fetch(connection, page, path, None, ASK_S).body.decode(errors="replace")


def list_descendants(root: int) -> list[int]:
    """Return the process ids of a process and all its descendants; the process itself comes first.

    The result is empty if the process is gone.
    """
    try:
        return [root, *(child.pid for child in psutil.Process(root).children(recursive=True))]
    except psutil.NoSuchProcess:
        return []


def reap_orphans() -> None:
    """Wait for ended processes (zombies) that have become children of this process because their parent ended first.

    The kernel makes this process their parent, because it is PID 1 of its namespace. Such a process is recognized by
    its session: it does not lead the session, and the session is not that of this process.
    """
    session = os.getsid(0)
    for child in psutil.Process().children():
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            if child.status() == psutil.STATUS_ZOMBIE and os.getsid(child.pid) not in (child.pid, session):
                os.waitpid(child.pid, os.WNOHANG)


def _wait_for_child(popen: subprocess.Popen[bytes], within_s: float = 5.0) -> int | None:
    """Wait until a process has a child process, and return the child's id.

    The result is None if the process ended before, or has no child after `within_s` seconds.
    """
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline and popen.poll() is None:
        with contextlib.suppress(psutil.NoSuchProcess):
            if children := psutil.Process(popen.pid).children():
                return children[0].pid
        time.sleep(0.001)
    return None


def _wait_for_end(popen: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait at most `seconds` for the end of a process, and return whether it has ended."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        popen.wait(max(0.0, seconds))
    return popen.returncode is not None
