r"""A shell in a container that stays open for many commands, and separate processes in the container.

All commands of a shell use one `kubectl exec`, so each takes only milliseconds. As an example, these are the bytes that
`run(["sysctl", "-n", "net.core.somaxconn"])` sends, and the bytes that come back:

    ( exec 'sysctl' '-n' 'net.core.somaxconn' ) </dev/null; printf '%s %d\n' 5f2c… $?; printf '%s\n' 5f2c… >&2
    4096\n5f2c… 0\n     →  CompletedProcess(argv, 0, "4096\n", "")

The mark (here `5f2c…`) is a random text, and is made anew for each command. The output is everything before the mark, even
without a newline at its end. A command cannot end the shell, because it runs in a subshell with empty stdin. This works with
dash, bash and busybox's ash. The `sh` in the container ends when its stdin ends.

A separate process has its own connection, and ends at the latest when the local kubectl process that represents it ends. A
watcher in the container reads the connection's stdin, which ends when the local kubectl or the lab ends. Then the process and
everything that it started are killed. Programs that the process leaves running at its own end are killed, too. An API server
before 1.30 does not notify the pod that a kubectl was killed. For this case the script LEFTOVERS kills what a crashed lab has
left running.

Files reach a separate process as a tar archive at the beginning of stdin. A line on stdin starts the process (`HeldProcess`),
so that the connection, which takes a tenth of a second, can be made before. If the process fails, kubectl adds `command
terminated with exit code N` to the error output. The container needs sh and setsid, and for files mktemp, head, tar and rm.
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
from typing import IO, TypeVar

from lab.base.errors import MeasuringError, UsageError
from lab.targets.cluster import pods
from lab.targets.cluster.api import Api

T = TypeVar("T")

CONNECT_S = 15.0
ENDING_S = 5.0
"""The seconds that the connection may take to end once it is closed."""
_HELLO = "trap : HUP INT TERM\nprintf '%s %d\\n' {mark} $$; printf '%s\\n' {mark} >&2\n"
_QUESTION = "( {question} ) </dev/null; printf '%s %d\\n' {mark} $?; printf '%s\\n' {mark} >&2\n"
MARK = "LAB_TETHERED"
"""The environment variable that identifies the lab's processes in a container."""
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
"""The script that kills what a crashed lab has left running in a container."""


@dataclass(slots=True)
class HeldProcess:
    """A process in a container that is prepared (connected, or about to be) and starts when `go` is called.

    The object is also a context manager: if `go` was not called in its `with` block, the process is ended after the
    block.

    Attributes:
        process: The local kubectl process; its input, output and end are those of the process in the container.
        said: The bytes to send to the process's stdin, for which it waits before it starts its work.
        gone: Whether `go` was called.

    """

    process: subprocess.Popen[bytes]
    said: bytes
    gone: bool = False

    def go(self) -> subprocess.Popen[bytes]:
        """Start the process in the container, and return the local kubectl process that is connected to it.

        The local process has the remote one's output and exit status. Its stdin stays open as long as the returned
        object exists. When stdin is closed, the process in the container ends.
        """

        def send() -> None:
            assert self.process.stdin is not None
            with suppress(OSError, ValueError):  # kubectl has ended or its stdin is closed: its exit status shows it
                self.process.stdin.write(self.said)
                self.process.stdin.flush()

        self.gone = True
        threading.Thread(target=send, name="stdin", daemon=True).start()
        return self.process

    def __enter__(self) -> HeldProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.gone:
            self.process.kill()
            self.process.wait()


class Shell:
    """An open `sh` in a container, in which several threads can run commands, one command at a time.

    The first command opens the connection. If the connection breaks, a new one is opened and the command is repeated
    once. Every method raises LostError if the pod is gone, MeasuringError if its container does not answer, and
    UsageError if there is no kubectl.
    """

    def __init__(self, api: Api, namespace: str, pod: str, container: str) -> None:
        self._api, self._namespace, self._pod, self._container = api, namespace, pod, container
        self.place = f"pod {namespace}/{pod}"
        """The name of the shell's pod for messages, such as `pod ingress-lab/proxy-5f`."""
        target = [f"--namespace={namespace}", f"--container={container}", pod, "--", "sh"]
        self._kubectl_exec = [*api.kubectl, "exec", "--stdin", "--quiet", *target]
        self._connection: _Connection | None = None
        self._lock = threading.Lock()

    @property
    def pid(self) -> int:
        """The process id of the `sh` in the container, in the container's own numbering."""
        return self._retry_broken(lambda connection: connection.pid)

    def run(self, argv: Sequence[str], timeout_s: float = 30.0) -> subprocess.CompletedProcess[str]:
        """Run a command in the container and return the completed command, like subprocess.run.

        The exit status 127 means that there is no such program. If a command takes longer than `timeout_s` seconds, it
        is no longer waited for: its exit status is 124, and its stderr ends with a note.
        """
        return self._ask(list(argv), f"exec {shlex.join(argv)}", timeout_s)

    def script(self, text: str, timeout_s: float = 30.0) -> subprocess.CompletedProcess[str]:
        """Run a script in the container's `sh`, and return the result as `run` does.

        No program is started in the container, unless the script starts one. A script that takes longer than
        `timeout_s` seconds is treated as by `run`.
        """
        return self._ask([text], f"eval {shlex.quote(text)}", timeout_s)

    def held(
        self,
        argv: Sequence[str],
        files: Mapping[str, str] | None = None,
        stdout: IO[bytes] | int = subprocess.DEVNULL,
        stderr: IO[bytes] | int = subprocess.DEVNULL,
        used: str = "",
    ) -> HeldProcess:
        """Prepare a separate process in the container; it starts when `HeldProcess.go` is called.

        Args:
            argv: The command.
            files: Name → text of files in a new folder, in which the process starts. None means no such folder: the
                process starts in the folder of the `sh`.
            stdout: The file that gets the process's output.
            stderr: The file that gets the process's error output.
            used: The name of a file in the container's TMPDIR that gets the process's CPU times (the output of the
                shell's `times`) when it has ended; empty = none.

        """
        archive = b"" if files is None else _pack(files)
        command = [*self._kubectl_exec, "-c", _REMOTE, "sh", str(len(archive)), used, *argv]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr, start_new_session=True)
        return HeldProcess(process, b"\n" + archive)

    def close(self) -> None:
        """End the `sh` in the container; a later command opens a new one."""
        with self._lock:
            self._disconnect()

    def _ask(self, argv: list[str], question: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
        def answer(connection: _Connection) -> subprocess.CompletedProcess[str]:
            result = connection.ask(_QUESTION, question, timeout_s)
            if result is not None:
                return subprocess.CompletedProcess(argv, *result)
            stdout, stderr = connection.so_far()
            self._disconnect()
            note = f"given up: it took longer than {timeout_s:g} s\n"
            return subprocess.CompletedProcess(argv, 124, stdout, stderr + note)  # as timeout(1) has it

        return self._retry_broken(answer)

    def _retry_broken(self, ask: Callable[[_Connection], T]) -> T:
        """Call a function with the open connection, and return its result; if the connection breaks, call it once more.

        The second call gets a new connection.

        Args:
            ask: The function.

        Raises:
            LostError: The connection broke and the pod no longer runs.
            MeasuringError: The connection broke twice while the pod runs.

        """
        fault = ""
        with self._lock:
            for _ in range(2):
                try:
                    return ask(self._connect())
                except _BrokenError as error:
                    self._disconnect()
                    pods.check_running(self.place, self._api.get("v1", "Pod", self._pod, self._namespace))
                    fault = f"container {self._container} does not answer: {error}"
        raise MeasuringError(self.place, fault, "`kubectl describe` that pod shows its state")

    def _connect(self) -> _Connection:
        """Return the open connection to the `sh` in the container; open one if there is none."""
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

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _BrokenError(Exception):
    """The error for a connection that has ended or does not answer; its text is kubectl's message."""


class _Connection:
    """A connection to an `sh` in a container: a running `kubectl exec -i … sh`, and the output that it has sent so far."""

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
        self._received = (bytearray(), bytearray())
        self._ends = [-1, -1]  # the position of the mark in each of these, once it has arrived
        self._unsent, self._mark = b"", b""
        """The bytes that are not sent yet, and the mark of the command whose answer is awaited; empty if there is none."""
        self.pid = 0

    def ask(self, form: str, question: str, timeout_s: float) -> tuple[int, str, str] | None:
        """Send shell code to the `sh` in the container, and return the answer.

        The `sh` also prints a random text (the mark) after the output, so that the end of the answer can be
        recognized.

        Args:
            form: The text to send, with the placeholders `question` and `mark`.
            question: The shell code.
            timeout_s: The seconds to wait for the answer.

        Returns:
            The number that the `sh` prints after the mark (such as an exit status), the stdout and the stderr. None if
            the answer does not come in time; the connection is then unusable.

        """
        mark = secrets.token_hex(16)
        self._mark, self._ends, self._received = mark.encode(), [-1, -1], (bytearray(), bytearray())
        self._unsent = form.format(question=question, mark=mark).encode("utf-8", "surrogateescape")
        self._selector.register(self._stdin, selectors.EVENT_WRITE)
        deadline = time.monotonic() + timeout_s
        while not all(
            end >= 0 and output.endswith(b"\n", end) for end, output in zip(self._ends, self._received, strict=True)
        ):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return None
            for key, _ in self._selector.select(left_s):
                if key.data is not None:
                    self._receive(key.data)
                    continue
                try:
                    self._unsent = self._unsent[os.write(self._stdin.fileno(), self._unsent) :]
                except BrokenPipeError:  # the output explains it
                    self._unsent = b""
                if not self._unsent:
                    self._selector.unregister(self._stdin)
        number = int(self._received[0][self._ends[0] + len(self._mark) :])
        self._mark = b""
        for output, end in zip(self._received, self._ends, strict=True):
            del output[end:]
        return number, *self.so_far()

    def so_far(self) -> tuple[str, str]:
        """Return the stdout and stderr that have arrived so far for the last question."""
        stdout, stderr = (part.decode("utf-8", "replace") for part in self._received)
        return stdout, stderr

    def close(self) -> None:
        """Close the connection and end its kubectl.

        If a question is still unanswered, kubectl is killed at once.
        """
        with suppress(OSError):  # it has ended already
            self._stdin.close()
        try:
            self._process.wait(0 if self._mark else ENDING_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for resource in (self._selector, *self._streams):
            resource.close()

    def _receive(self, number: int) -> None:
        """Read the bytes that have arrived on one output, and look in them for the mark that ends the answer.

        Args:
            number: 0 for stdout, 1 for stderr.

        """
        output = self._received[number]
        chunk = os.read(self._streams[number].fileno(), 1 << 20)
        if not chunk:
            message = " ".join(self._received[1].decode(errors="replace").split())[-300:]
            raise _BrokenError(message or "the connection ended")
        output += chunk
        if self._ends[number] < 0:
            self._ends[number] = output.find(self._mark, max(0, len(output) - len(chunk) - len(self._mark)))


def _pack(files: Mapping[str, str]) -> bytes:
    """Return a tar archive with the given files (name → text)."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, text in files.items():
            content = text.encode()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()
