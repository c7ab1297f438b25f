r"""One container's `sh`, kept open: many questions over one `kubectl exec`, milliseconds each; and processes beside it, over connections of their
own. What goes over the wire for `run(["sysctl", "-n", "net.core.somaxconn"])`, and what comes back:

    ( exec 'sysctl' '-n' 'net.core.somaxconn' ) </dev/null; printf '%s %d\n' 5f2c… $?; printf '%s\n' 5f2c… >&2
    4096\n5f2c… 0\n     →  CompletedProcess(argv, 0, "4096\n", "")

The mark is random and made for this question, and output is all that stands before it, whatever it ends with. Refuses to lose the shell to a
question: it is asked in a subshell, with nothing to read. Works with dash, bash and busybox's ash. The remote `sh` ends with its stdin.

A process there lives no longer than the local one which stands for it: a watcher reads its stdin, which ends when the local kubectl or the lab does;
then the process and all that it started are killed, as is what it leaves running, and what LEFTOVERS finds (an API server before 1.30 does not tell
the pod that a kubectl was killed). Files go there as a tar archive at the beginning of stdin. To the error output of one that failed kubectl adds
`command terminated with exit code N`. It begins when it is let go (`Held`), by a line on that stdin: to connect takes a tenth of a second, which
can be had before. Needs sh, setsid, and for files mktemp, head, tar and rm.
"""

from __future__ import annotations

import io
import os
import secrets
import selectors
import shlex
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import IO, TypeVar

from lab.base.errors import MeasuringError, UsageError
from lab.targets.cluster import pods
from lab.targets.cluster.api import Api

T = TypeVar("T")

CONNECT_S = 15.0
ENDING_S = 5.0
"""What the connection may take to end once it is closed."""
_HELLO = "trap : HUP INT TERM\nprintf '%s %d\\n' {mark} $$; printf '%s\\n' {mark} >&2\n"
_ASKED = "( {question} ) </dev/null; printf '%s %d\\n' {mark} $?; printf '%s\\n' {mark} >&2\n"
MARK = "LAB_TETHERED"
"""Environment variable of what runs there, so that it is known again."""
_REMOTE = f"""\
size=$1 used=$2 folder=
shift 2
read -r _ || exit 126
if [ "$size" -gt 0 ]; then
  folder=$(mktemp -d) && cd "$folder" && head -c "$size" | tar -xf - || exit 126
fi
exec 3<&0
{MARK}=1 setsid "$@" </dev/null 3<&- &
process=$!
end() {{ kill -s KILL -- "-$process" "$process"; }}
{{ read -r _ <&3; end; }} >/dev/null 2>&1 &
watcher=$!
wait "$process"
status=$?
[ -z "$used" ] || times >"${{TMPDIR:-/tmp}}/$used"
{{ end; kill -KILL "$watcher"; }} >/dev/null 2>&1
[ -z "$folder" ] || rm -rf "$folder"
exit "$status"
"""
LEFTOVERS = f"""\
for one in /proc/[0-9]*/environ; do
  grep -qsz '^{MARK}=' "$one" || continue
  one=${{one%/environ}}
  kill -KILL "${{one#/proc/}}"
done 2>/dev/null
"""
"""Script that kills what a lab which died left behind in a container."""


@dataclass(slots=True)
class Held:
    """A process whose connection is made, or is being made. One that was not let go ends with this."""

    process: subprocess.Popen[bytes]
    said: bytes
    """What it waits for."""
    gone: bool = False

    def go(self) -> subprocess.Popen[bytes]:
        """Its stdin stays open as long as the process object lives: its end is the remote one's."""

        def send() -> None:
            assert self.process.stdin is not None
            with suppress(OSError, ValueError):  # kubectl has ended, or its stdin is closed, already: its status tells
                self.process.stdin.write(self.said)
                self.process.stdin.flush()

        self.gone = True
        threading.Thread(target=send, name="stdin", daemon=True).start()
        return self.process

    def __enter__(self) -> Held:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self.gone:
            self.process.kill()
            self.process.wait()


class Shell:
    """Asked by several threads, it answers one after the other. Connects with the first question.

    Every method raises LostError when the pod is gone, MeasuringError when its container does not answer, and UsageError
    without a kubectl. A connection that breaks is made again, once: what was asked then is asked again.
    """

    def __init__(self, api: Api, namespace: str, pod: str, container: str) -> None:
        self._api, self._namespace, self._pod, self._container = api, namespace, pod, container
        where = [f"--namespace={namespace}", f"--container={container}", pod, "--", "sh"]
        self._kubectl_exec = [*api.kubectl, "exec", "--stdin", "--quiet", *where]
        self._connection: _Connection | None = None
        self._lock = threading.Lock()

    @property
    def place(self) -> str:
        return f"pod {self._namespace}/{self._pod}"

    @property
    def pid(self) -> int:
        """Of the `sh`, in the container's own numbering."""
        return self._reconnecting(lambda connection: connection.pid)

    def run(self, argv: Sequence[str], timeout_s: float = 30.0) -> subprocess.CompletedProcess[str]:
        """A command, as subprocess.run would; 127 = no such program. One that is late is given up: status 124, and said so."""
        return self._ask(list(argv), f"exec {shlex.join(argv)}", timeout_s)

    def script(self, text: str, timeout_s: float = 30.0) -> subprocess.CompletedProcess[str]:
        """`text` by the `sh` itself, in a subshell: no program is started unless it says so. Late as `run`."""
        return self._ask([text], f"eval {shlex.quote(text)}", timeout_s)

    def held(
        self,
        argv: Sequence[str],
        files: Mapping[str, str] | None = None,
        stdout: IO[bytes] | int = subprocess.DEVNULL,
        stderr: IO[bytes] | int = subprocess.DEVNULL,
        used: str = "",
    ) -> Held:
        """A process beside this shell that waits to be let go; in a fresh folder with these files (None: where the container's sh is).

        `used`: a file in its TMPDIR that gets what sh's `times` says when it has ended; empty = none.
        """
        archive = b"" if files is None else _archive(files)
        command = [*self._kubectl_exec, "-c", _REMOTE, "sh", str(len(archive)), used, *argv]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr, start_new_session=True)
        return Held(process, b"\n" + archive)

    def close(self) -> None:
        """End the remote `sh`; idempotent, and the next question opens another."""
        with self._lock:
            self._drop()

    def _ask(self, argv: list[str], question: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
        def answer(connection: _Connection) -> subprocess.CompletedProcess[str]:
            answered = connection.ask(_ASKED, question, timeout_s)
            if answered is not None:
                return subprocess.CompletedProcess(argv, *answered)
            said, complained = connection.so_far()
            self._drop()
            note = f"given up: it took longer than {timeout_s:g} s\n"
            return subprocess.CompletedProcess(argv, 124, said, complained + note)  # as timeout(1) has it

        return self._reconnecting(answer)

    def _reconnecting(self, ask: Callable[[_Connection], T]) -> T:
        """What `ask` returns; tried again, once, when the connection has broken but the pod is there: else LostError."""
        fault = ""
        with self._lock:
            for _ in range(2):
                try:
                    return ask(self._connected())
                except _BrokenError as error:
                    self._drop()
                    pods.check_there(self.place, self._api.get("v1", "Pod", self._pod, self._namespace))
                    fault = f"container {self._container} does not answer: {error}"
        raise MeasuringError(self.place, fault, "`kubectl describe` that pod tells its state")

    def _connected(self) -> _Connection:
        if self._connection is None:
            try:
                self._connection = _Connection(self._kubectl_exec)
            except FileNotFoundError:
                fault, remedy = "kubectl is not on PATH", "start the lab by scripts/shell, which brings it"
                raise UsageError(self.place, fault, remedy) from None
        if not self._connection.pid:
            answer = self._connection.ask(_HELLO, "", CONNECT_S)
            if answer is None:
                raise _BrokenError(f"no answer within {CONNECT_S:g} s")
            self._connection.pid = answer[0]
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _BrokenError(Exception):
    """The connection ended, in kubectl's words."""


class _Connection:
    """A `kubectl exec -i … sh` and what it has said of the question that is open."""

    def __init__(self, command: list[str]) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, start_new_session=True
        )
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._stdin, self._streams = self._process.stdin, (self._process.stdout, self._process.stderr)
        self._selector = selectors.DefaultSelector()
        for number, stream in enumerate(self._streams):
            self._selector.register(stream, selectors.EVENT_READ, number)
        for stream in (self._stdin, *self._streams):
            os.set_blocking(stream.fileno(), False)
        self._said = (bytearray(), bytearray())
        self._ends = [-1, -1]  # where in these the mark is, once it has come
        self._unsent, self._mark = b"", b""
        """The mark: of the question that is open; empty without one."""
        self.pid = 0

    def ask(self, form: str, question: str, timeout_s: float) -> tuple[int, str, str] | None:
        """(the number behind the mark, stdout, stderr); None when it is late: nothing else can be asked then."""
        mark = secrets.token_hex(16)
        self._mark, self._ends, self._said = mark.encode(), [-1, -1], (bytearray(), bytearray())
        self._unsent = form.format(question=question, mark=mark).encode("utf-8", "surrogateescape")
        self._selector.register(self._stdin, selectors.EVENT_WRITE)
        deadline = time.monotonic() + timeout_s
        while not all(end >= 0 and said.endswith(b"\n", end) for end, said in zip(self._ends, self._said, strict=True)):
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            for key, _ in self._selector.select(left):
                if key.data is not None:
                    self._receive(key.data)
                    continue
                try:
                    self._unsent = self._unsent[os.write(self._stdin.fileno(), self._unsent) :]
                except BrokenPipeError:  # its output tells why
                    self._unsent = b""
                if not self._unsent:
                    self._selector.unregister(self._stdin)
        number = int(self._said[0][self._ends[0] + len(self._mark) :])
        self._mark = b""
        for said, end in zip(self._said, self._ends, strict=True):
            del said[end:]
        return number, *self.so_far()

    def so_far(self) -> tuple[str, str]:
        said, complained = (part.decode("utf-8", "replace") for part in self._said)
        return said, complained

    def close(self) -> None:
        with suppress(OSError):  # it has ended already
            self._stdin.close()
        try:
            self._process.wait(0 if self._mark else ENDING_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for one in (self._selector, *self._streams):
            one.close()

    def _receive(self, number: int) -> None:
        said = self._said[number]
        read = os.read(self._streams[number].fileno(), 1 << 20)
        if not read:
            words = " ".join(self._said[1].decode(errors="replace").split())[-300:]
            raise _BrokenError(words or "the connection ended")
        said += read
        if self._ends[number] < 0:
            self._ends[number] = said.find(self._mark, max(0, len(said) - len(read) - len(self._mark)))


def _archive(files: Mapping[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, text in files.items():
            content = text.encode()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()
