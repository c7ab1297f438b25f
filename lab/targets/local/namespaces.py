"""The lab's own namespaces: `enter` re-executes the lab inside them, `attach` is its first act there.

outer python ── unshare ── inner python, PID 1 of its own pid, mount and network namespaces.
Whatever ends the outer process ends everything: the inner one is told through a socket (end of file), the
kernel's parent-death signals do the same should it be stuck, and the death of a PID 1 takes every process,
mount and interface with it. Refuses to touch anything outside: the host's /run is covered, not written.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

from lab.base import handing
from lab.base.errors import UsageError
from lab.targets.common.sampler import HOST_PROC, OUTER_PID
from lab.targets.local import cgroups, outside

INSIDE = "LAB_INSIDE"
"""Environment variable: the number of the socket to the outer process. Set = we are inside."""

STATE = Path("/run/lab")
"""Everything the local target writes, on the private tmpfs over /run."""

SCRATCH = STATE / "scratch"
"""TMPDIR inside: nothing of it is left, however the lab ends."""

OPEN_FILES = 1_048_576
"""Hard and soft limit of open files that containerd and Docker start containers with (and the kernel's fs.nr_open)."""

KILL_AFTER = 3
"""The third interrupt does not ask any more."""

_FORWARDED = {signal.SIGINT: b"I", signal.SIGTERM: b"T", signal.SIGHUP: b"T"}
_PR_SET_PDEATHSIG = 1


def enter(argv: Sequence[str]) -> int:
    """Run `python -m lab ARGV` inside fresh namespaces; return its exit status (128 + n if signal n ended it).

    SIGINT and SIGTERM are passed on, once each, whether they came from a terminal or from `kill`.
    UsageError when the machine does not allow the namespaces.
    """
    ours, theirs = socket.socketpair()
    host_proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    _end_with_just()
    cgroups.delegate()
    interrupts = 0
    process: subprocess.Popen[bytes] | None = None

    def forward(number: int, _frame: FrameType | None) -> None:
        nonlocal interrupts
        interrupts += number == signal.SIGINT
        try:
            ours.send(_FORWARDED[signal.Signals(number)], socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError:
            interrupts = KILL_AFTER  # nobody listens
        if interrupts >= KILL_AFTER and process is not None:
            process.kill()

    before = {number: signal.signal(number, forward) for number in _FORWARDED}
    try:
        # A session of its own: a terminal's Ctrl-C reaches this process only, which passes it on.
        try:
            with outside.serving() as channel:
                process = subprocess.Popen(
                    [*unshare(as_root=os.geteuid() == 0), sys.executable, "-m", "lab", *argv],
                    env={
                        **os.environ,
                        INSIDE: str(theirs.fileno()),
                        outside.CHANNEL: str(channel),
                        HOST_PROC: str(host_proc),
                        OUTER_PID: str(os.getpid()),
                    },
                    pass_fds=[theirs.fileno(), channel, host_proc, *handing.descriptors()],
                    start_new_session=True,
                )
        except FileNotFoundError as error:
            raise UsageError(
                "local target", f"not on PATH: {error.filename}", "Debian: apt install util-linux"
            ) from None
        theirs.close()
        status = process.wait()
        if status > 0 and not _arrived(ours):
            raise UsageError(
                "local target",
                "this machine does not let the lab make its namespaces (the line above says which)",
                "`just doctor` tells why; as root (sudo) it works everywhere, and --target kind needs none",
            )
        return status if status >= 0 else 128 - status
    finally:
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()
        ours.close()
        os.close(host_proc)
        for number, handler in before.items():
            signal.signal(number, handler)


def arrive() -> None:
    """Tell the outer process, if there is one, that the namespaces are there: whatever fails from now on is no fault of theirs."""
    if INSIDE in os.environ:
        os.write(int(os.environ[INSIDE]), b"+")


def attach() -> None:
    """First act of a target inside: watch the outer process, then `prepare`."""
    outer = socket.socket(fileno=int(os.environ.pop(INSIDE)))
    outer.set_inheritable(False)
    os.set_inheritable(int(os.environ[outside.CHANNEL]), False)
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's `&` has SIGINT ignored, and a PID 1 ignores SIGTERM
        signal.signal(number, signal.default_int_handler)
    threading.Thread(target=_watch, args=(outer,), name="outer", daemon=True).start()
    prepare()
    SCRATCH.mkdir()
    os.environ["TMPDIR"], tempfile.tempdir = str(SCRATCH), None


def prepare() -> None:
    """Inside the namespaces: cover /run, bring the loopback up, raise the file limit."""
    _cover_run()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    _raise_open_files()


def _raise_open_files() -> None:
    """What container runtimes give, where we may (root with CAP_SYS_RESOURCE); else all that this process may have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limit in (max(hard, OPEN_FILES), hard):
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
            return


def _cover_run() -> None:
    """A private tmpfs over /run, keeping only its symbolic links (NixOS finds its tools through one)."""
    links = [(path, path.readlink()) for path in Path("/run").iterdir() if path.is_symlink()]
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "lab", "/run"], check=True)
    for path, destination in links:
        path.symlink_to(destination)
    STATE.mkdir(mode=0o755)


def real_root() -> bool:
    """Whether we are root of the machine, and not of a user namespace only."""
    return os.geteuid() == 0 and Path("/proc/self/uid_map").read_text().split()[1] == "0"


def set_namespace(path: Path, kind: int = 0x40000000) -> None:
    """setns(2) for the calling thread only; the default kind is CLONE_NEWNET. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(descriptor, kind) != 0:
            raise OSError(ctypes.get_errno(), "setns", str(path))
    finally:
        os.close(descriptor)


def unshare(as_root: bool) -> list[str]:
    """The command that runs what follows in the lab's namespaces, as PID 1, and kills it when its parent dies.

    The user namespace comes first, and alone: making one would clear the parent-death signal set before.
    """
    user = [] if as_root else ["unshare", "--user", "--map-root-user", "--"]
    rest = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--net", "--"]
    return [*user, "setpriv", "--pdeathsig", "KILL", "--", *rest]


def _arrived(ours: socket.socket) -> bool:
    ours.setblocking(False)
    try:
        return ours.recv(1) == b"+"
    except OSError:
        return False


def _watch(outer: socket.socket) -> None:
    """Passes the outer's signals to the main thread; ends PID 1, and so everything, when the outer is gone."""
    main = threading.main_thread().ident
    assert main is not None
    while message := _received(outer):
        number = signal.SIGINT if message == b"I" else signal.SIGTERM
        if signal.getsignal(number) in (signal.SIG_DFL, signal.SIG_IGN, None):
            os._exit(128 + number)  # PID 1 without a handler would never see it
        signal.pthread_kill(main, number)
    os._exit(128 + signal.SIGKILL)


def _received(outer: socket.socket) -> bytes:
    """The next message; nothing when the outer process is gone, even if it went without reading ours."""
    try:
        return outer.recv(1)
    except ConnectionError:
        return b""


def _end_with_just() -> None:
    """`just`, killed, would leave its recipe running: ask the kernel for SIGTERM when that parent goes."""
    parent = os.getppid()
    try:
        if Path(f"/proc/{parent}/comm").read_text().strip() != "just":
            return
    except OSError:
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it went before the kernel was asked
        os.kill(os.getpid(), signal.SIGTERM)
