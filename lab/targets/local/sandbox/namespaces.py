"""Functions that run a command of the lab a second time, inside new Linux namespaces, where it can measure.

A verb (a command of the lab, such as `bench`) calls `lab.commands.measuring.enter_target`, which calls the target's
`enter`. On the targets `local` and `apiserver` this happens twice:

    just bench ─ outer python ─ unshare ─ inner python: PID 1 of new pid, mount and network namespaces
                 main                     main → arrive
                 verb                     verb
                 Target.enter             Target.enter
                 └ enter: starts the      └ attach: watches the outer process, covers /run,
                   inner, waits for it      returns; the verb continues here and measures

1. The outer process finds no `LAB_INSIDE` in its environment. `enter` starts `python -m lab` with the same arguments
   in new namespaces, waits for its end, and returns its exit status as that of the verb. So the outer process does only
   work that needs no running system, such as parsing the arguments.
2. The inner process runs `lab.__main__` from the beginning. `report_arrival` notifies the outer process that the
   namespaces exist. If the inner process fails without this notification, the machine does not allow the namespaces.
   `enter` then raises an error with this reason.
3. The same verb calls `enter` of the same target, which now finds `LAB_INSIDE`. `attach` starts a thread that watches
   the outer process, covers /run by an empty tmpfs, brings the loopback interface up and raises the limit of open
   files. Then the verb measures.

The environment contains these values; a descriptor or a socket is given by its number:

    LAB_INSIDE     socket. inner → outer: `+`, arrived. outer → inner: `I` and `T`, SIGINT and SIGTERM;
                   end of file: the outer process is gone
    LAB_OUTSIDE    socket. inner → outer: a script of the project to run, as JSON; outer → inner: its exit status
    LAB_HOST_PROC  the host's /proc (`lab.targets.common.sampler`)
    LAB_OUTER_PID  the id of the outer process in the host's /proc; its descendants there are the lab's processes
    LAB_HANDED     a ConfigMap that was read from a pipe, which can be read only once (`lab.base.handing`)
    LAB_HANDED_TRAFFIC  an access log, likewise

If the outer process ends, everything ends. The outer process forwards each signal to the inner process; a third
interrupt kills the inner process. If the outer process is killed, the inner process reads the end of file and exits. If
the inner process is stuck, the kernel's parent-death signals kill it. When PID 1 ends, the kernel removes every
process, mount and interface of its namespaces. Only cgroups and folders on a disk may remain
(`lab.targets.local.sandbox.cgroups`, `disk`); the next lab process removes them.

Only the outer process can reach the network. The function `lab.systems.programs.run_outside` makes it run one of the
project's scripts, for example to download a proxy. Other programs cannot be run in this way. If there is no outer
process, the script runs in this process's namespaces.

The host's files stay unchanged: its /run is only covered by another filesystem.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from lab.base import handing
from lab.base.errors import refuse_if
from lab.base.files import read_text_if_readable
from lab.model.names import INSIDE
from lab.systems.programs import OUTSIDE, SCRIPTS
from lab.targets.common.sampler import HOST_PROC, OUTER_PID
from lab.targets.local.sandbox import cgroups

STATE = Path("/run/lab")
"""The folder of everything that the local target writes, on the private tmpfs over /run."""

SCRATCH = STATE / "scratch"
"""The TMPDIR inside the namespaces; the folder disappears when the lab ends."""

OPEN_FILES = 1_048_576
"""The hard and soft limit of open files: as containerd and Docker start containers (and the kernel's fs.nr_open)."""

KILL_AFTER = 3
"""The number of interrupts (SIGINT) at which the inner process is killed."""

_FORWARDED = {signal.SIGINT: b"I", signal.SIGTERM: b"T", signal.SIGHUP: b"T"}
"""The byte that the outer process sends for each signal that it forwards."""
_PR_SET_PDEATHSIG = 1
"""The number of prctl's option that sets the parent-death signal."""


def enter(argv: Sequence[str]) -> int:
    """Run `python -m lab ARGV` inside new namespaces, and return its exit status (128 + n if signal n ended it).

    This process (the outer process) then only waits for the process inside (the inner process). It forwards SIGINT and
    SIGTERM to the inner process, each once, whether a terminal or `kill` has sent them. The programs of
    `make_unshare_command` must be on PATH.

    Args:
        argv: The arguments of the lab's command.

    Raises:
        UsageError: The machine does not allow the namespaces.

    """
    outer_end, inner_end = socket.socketpair()
    host_proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    _end_with_just()
    cgroups.delegate()
    interrupts = 0
    process: subprocess.Popen[bytes] | None = None

    def forward(number: int, _frame: FrameType | None) -> None:
        nonlocal interrupts
        interrupts += number == signal.SIGINT
        try:
            outer_end.send(_FORWARDED[signal.Signals(number)], socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError:
            interrupts = KILL_AFTER  # the inner process does not read any more
        if interrupts >= KILL_AFTER and process is not None:
            process.kill()

    before = {number: signal.signal(number, forward) for number in _FORWARDED}
    try:
        # The inner process gets a new session: a terminal's Ctrl-C reaches this process only, which passes it on.
        with serving_scripts() as channel:
            numbers = {INSIDE: inner_end.fileno(), OUTSIDE: channel, HOST_PROC: host_proc, OUTER_PID: os.getpid()}
            process = subprocess.Popen(
                [*make_unshare_command(as_root=os.geteuid() == 0), sys.executable, "-m", "lab", *argv],
                env={**os.environ, **{name: str(number) for name, number in numbers.items()}},
                pass_fds=[inner_end.fileno(), channel, host_proc, *handing.inherited_descriptors()],
                start_new_session=True,
            )
        inner_end.close()
        status = process.wait()
        arrived = b""
        with suppress(OSError):
            arrived = outer_end.recv(1, socket.MSG_DONTWAIT)
        fault = "this machine does not let the lab make its namespaces (the line above says which)"
        remedy = "`just doctor` shows why; as root (sudo) it works everywhere, and --target kind needs none"
        refuse_if(status > 0 and arrived != b"+", "local target", fault, remedy)
        return status if status >= 0 else 128 - status
    finally:
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()
        outer_end.close()
        os.close(host_proc)
        for number, handler in before.items():
            signal.signal(number, handler)


def report_arrival() -> None:
    """Notify the process outside the namespaces that this process has started inside them.

    Without this message, the outer process would blame a later failure on the creation of the namespaces.
    """
    os.write(int(os.environ[INSIDE]), b"+")


def attach() -> None:
    """Prepare new namespaces for measurements, and start a thread that watches the process outside them.

    A target calls this first, inside the namespaces. The thread passes on the signals of the outer process, and ends
    this process when the outer one is gone.
    """
    outer = socket.socket(fileno=int(os.environ.pop(INSIDE)))
    outer.set_inheritable(False)
    os.set_inheritable(int(os.environ[OUTSIDE]), False)
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's `&` has SIGINT ignored, and a PID 1 ignores SIGTERM
        signal.signal(number, signal.default_int_handler)
    threading.Thread(target=_watch, args=(outer,), name="outer", daemon=True).start()
    prepare()
    SCRATCH.mkdir()
    os.environ["TMPDIR"], tempfile.tempdir = str(SCRATCH), None


@contextmanager
def serving_scripts() -> Iterator[int]:
    """Start a thread that runs the project's scripts for a process inside the namespaces, and yield its request socket.

    Inside the namespaces there is no network, so a script that downloads something must run in this process. The thread
    goes on after the `with` block, as long as the process inside the namespaces has the socket open.

    Yields:
        The number of a file descriptor (a socket) over which scripts are requested. The `with` block must start the
        inner process with this descriptor open, and with the number in the environment variable LAB_OUTSIDE.

    """
    server_end, client_end = socket.socketpair()
    threading.Thread(target=_serve_scripts, args=(server_end,), name="outside", daemon=True).start()
    try:
        yield client_end.fileno()
    finally:
        client_end.close()


def _serve_scripts(server_end: socket.socket) -> None:
    """Run one of the project's scripts for each line that arrives on a socket, and send back the script's exit status.

    A line is a JSON list of the script's name and its arguments. The loop ends when the other end of the socket is
    closed.
    """
    with server_end, server_end.makefile("r") as requests:
        for line in requests:
            script, *argv = json.loads(line)
            program = SCRIPTS / Path(script).name
            status = subprocess.run([program, *argv], stdin=subprocess.DEVNULL, check=False).returncode
            with suppress(BrokenPipeError):  # the inner process was interrupted, and needs no status
                server_end.sendall(f"{status}".encode())


def prepare() -> None:
    """Mount an empty /run, bring the loopback interface up, and raise the limit of open files; call it inside the namespaces."""
    # NixOS finds its tools through a link in /run.
    links = [(path, path.readlink()) for path in Path("/run").iterdir() if path.is_symlink()]
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "lab", "/run"], check=True)
    for path, destination in links:
        path.symlink_to(destination)
    STATE.mkdir(mode=0o755)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The limit of container runtimes if we may set it (root with CAP_SYS_RESOURCE), else the highest allowed one.
    for limit in (max(hard, OPEN_FILES), hard):
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
            return


def is_real_root() -> bool:
    """Return whether this process is root on the machine itself, not only in a user namespace."""
    return os.geteuid() == 0 and Path("/proc/self/uid_map").read_text().split()[1] == "0"


def set_namespace(path: Path, kind: int = 0x40000000) -> None:
    """Move the calling thread into a namespace (setns(2)); other threads of the process stay where they are.

    Args:
        path: The file of the namespace, such as /run/netns/NAME.
        kind: The kind of namespace, as a flag of clone(2); the default is CLONE_NEWNET.

    Raises:
        OSError: The kernel refuses.

    """
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(descriptor, kind) != 0:
            raise OSError(ctypes.get_errno(), "setns", str(path))
    finally:
        os.close(descriptor)


def make_unshare_command(as_root: bool) -> list[str]:
    """Return the beginning of a command line that runs a command as PID 1 in new namespaces.

    The command is killed when its parent dies (by a parent-death signal). The kernel clears this signal when a process
    makes a user namespace. So the user namespace is made first, by a separate program.

    Args:
        as_root: Whether the caller is root, so that no user namespace is needed.

    """
    user = [] if as_root else ["unshare", "--user", "--map-root-user", "--"]
    namespaces = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--net", "--"]
    return [*user, "setpriv", "--pdeathsig", "KILL", "--", *namespaces]


def _watch(outer: socket.socket) -> None:
    """Pass the signals of the outer process on to this process's main thread, and end when the outer process is gone.

    The outer process is the one that has made the namespaces. This process is PID 1 inside them. When it exits, the
    kernel ends everything in the namespaces.

    Args:
        outer: The socket to the outer process. It may break (ConnectionError) if the outer process ends suddenly,
            which counts as its end.

    """
    main = threading.main_thread().ident
    assert main is not None
    with suppress(ConnectionError):
        while message := outer.recv(1):
            number = signal.SIGINT if message == b"I" else signal.SIGTERM
            if signal.getsignal(number) in (signal.SIG_DFL, signal.SIG_IGN, None):
                os._exit(128 + number)  # PID 1 without a handler would never see it
            signal.pthread_kill(main, number)
    os._exit(128 + signal.SIGKILL)


def _end_with_just() -> None:
    """Ask the kernel to send SIGTERM to this process when its parent ends, if the parent is the command runner `just`.

    Otherwise the lab would go on after `just` was killed.
    """
    parent = os.getppid()
    if read_text_if_readable(f"/proc/{parent}/comm").strip() == "just":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # the parent ended before prctl was called
            os.kill(os.getpid(), signal.SIGTERM)
