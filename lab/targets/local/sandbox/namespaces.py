"""The lab in namespaces of its own: a verb that measures is executed a second time inside them. This page says how.

A verb calls `lab.commands.measuring.inside`, which asks the target to `enter`. On `local` and `apiserver` that happens twice:

    just bench ─ outer python ─ unshare ─ inner python: PID 1 of its own pid, mount and network namespaces
                 main                     main → arrive
                 verb                     verb
                 Target.enter             Target.enter
                 └ enter: starts the      └ attach: watches the outer process, covers /run,
                   inner, waits for it      returns; the verb goes on here and measures

1. The outer process finds no `LAB_INSIDE` in its environment. `enter` starts `python -m lab` with the same arguments in new
   namespaces, waits for it, and returns its exit status as the verb's. It parses, refuses and prepares only what needs no system.
2. The inner process runs `lab.__main__` from the beginning. `arrive` tells the outer that the namespaces were made: if the inner
   ends without that, the machine forbids them, and `enter` says so instead of returning a status.
3. The same verb comes to the same target, which now finds `LAB_INSIDE`. `attach` starts the watch, covers /run by an empty
   tmpfs, brings the loopback interface up and raises the limit of open files. From there on the verb measures.

What the environment carries; of a descriptor or a socket, its number:

    LAB_INSIDE     socket. inner → outer: `+`, arrived. outer → inner: `I` and `T`, SIGINT and SIGTERM; end of file: the outer is gone
    LAB_OUTSIDE    socket. inner → outer: a script of the project to run, as JSON; outer → inner: its exit status
    LAB_HOST_PROC  the host's /proc, and LAB_OUTER_PID, whose descendants in it are the lab's own (`lab.targets.common.sampler`)
    LAB_HANDED     a ConfigMap that was read from a pipe, which gives it once only (`lab.base.handing`)

How it ends: whatever ends the outer process ends everything. The outer forwards each signal once; a third interrupt kills. If the
outer is killed itself, the inner reads the end of file and exits; should it be stuck, the kernel's parent-death signals kill it. The
death of a PID 1 takes every process, mount and interface of its namespaces with it, so nothing has to be cleaned up but cgroups
and folders on a disk (`lab.targets.local.sandbox.cgroups`, `disk`), which the next lab sweeps.

What only the outer process can do is reach the network: `lab.systems.programs.run_outside` has it run one of the project's scripts, which brings a
proxy or a module, and no other program. Where there is no outer process, the script runs here.

Refuses to touch anything outside: the host's /run is covered, not written.
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
from lab.base.errors import UsageError
from lab.base.files import readable
from lab.model.names import INSIDE
from lab.systems.programs import OUTSIDE, SCRIPTS
from lab.targets.common.sampler import HOST_PROC, OUTER_PID
from lab.targets.local.sandbox import cgroups

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
            with serving_scripts() as channel:
                numbers = {INSIDE: theirs.fileno(), OUTSIDE: channel, HOST_PROC: host_proc, OUTER_PID: os.getpid()}
                process = subprocess.Popen(
                    [*unshare(as_root=os.geteuid() == 0), sys.executable, "-m", "lab", *argv],
                    env={**os.environ, **{name: str(number) for name, number in numbers.items()}},
                    pass_fds=[theirs.fileno(), channel, host_proc, *handing.descriptors()],
                    start_new_session=True,
                )
        except FileNotFoundError as error:
            fault = f"not on PATH: {error.filename}"
            raise UsageError("local target", fault, "Debian: apt install util-linux") from None
        theirs.close()
        status = process.wait()
        arrived = b""
        with suppress(OSError):
            arrived = ours.recv(1, socket.MSG_DONTWAIT)
        if status > 0 and arrived != b"+":
            fault = "this machine does not let the lab make its namespaces (the line above says which)"
            remedy = "`just doctor` tells why; as root (sudo) it works everywhere, and --target kind needs none"
            raise UsageError("local target", fault, remedy)
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
    """Tell the outer process that the namespaces are there: whatever fails from now on is no fault of theirs."""
    os.write(int(os.environ[INSIDE]), b"+")


def attach() -> None:
    """First act of a target inside: watch the outer process, then `prepare`."""
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
    """Run scripts for a process that is started meanwhile with OUTSIDE set to the number that this yields."""
    ours, theirs = socket.socketpair()
    threading.Thread(target=_serve_scripts, args=(ours,), name="outside", daemon=True).start()
    try:
        yield theirs.fileno()
    finally:
        theirs.close()


def _serve_scripts(ours: socket.socket) -> None:
    with ours, ours.makefile("r") as asked:
        for line in asked:
            script, *argv = json.loads(line)
            program = SCRIPTS / Path(script).name
            status = subprocess.run([program, *argv], stdin=subprocess.DEVNULL, check=False).returncode
            ours.sendall(f"{status}".encode())


def prepare() -> None:
    """Inside the namespaces: cover /run, bring the loopback up, raise the file limit."""
    # NixOS finds its tools through a link there.
    links = [(path, path.readlink()) for path in Path("/run").iterdir() if path.is_symlink()]
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "lab", "/run"], check=True)
    for path, destination in links:
        path.symlink_to(destination)
    STATE.mkdir(mode=0o755)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # What container runtimes give, where we may (root with CAP_SYS_RESOURCE); else all that this process may have.
    for limit in (max(hard, OPEN_FILES), hard):
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
            return


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


def _watch(outer: socket.socket) -> None:
    """Passes the outer's signals to the main thread; ends PID 1, and so everything, when the outer is gone, even if it went without reading ours."""
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
    """`just`, killed, would leave its recipe running: ask the kernel for SIGTERM when that parent goes."""
    parent = os.getppid()
    if readable(f"/proc/{parent}/comm").strip() == "just":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # it went before the kernel was asked
            os.kill(os.getpid(), signal.SIGTERM)
