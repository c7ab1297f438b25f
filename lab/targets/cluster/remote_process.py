"""A process in a pod that lives no longer than the local one which stands for it: `kubectl exec -i` and a watcher there.

The watcher reads its stdin, which ends when the local kubectl or the lab does, however they end; then the remote process
and all that it started are killed. Files go there as a tar archive at the beginning of stdin, so their size is not
bounded by an argument list. Standard output and error come back apart and verbatim, and the exit status is the remote
one; to the error output of one that failed kubectl adds `command terminated with exit code N`.

It begins when it is let go (`Held`), by a line on that stdin: to connect takes a tenth of a second, which can be had before.

Refuses to outlive anything: what a remote process leaves running when it ends is killed too, as is what LEFTOVERS finds
(an API server before 1.30 has no websockets for this, and does not tell the pod that a kubectl was killed).
Needs sh, setsid, and for files mktemp, head, tar and rm in the container.
"""

from __future__ import annotations

import io
import subprocess
import tarfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import IO

from lab.targets.cluster.api import Api

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


def kubectl_exec(api: Api, namespace: str, pod: str, container: str) -> list[str]:
    """The command up to the remote one."""
    command = [*api.kubectl, "exec", "--stdin", "--quiet", f"--namespace={namespace}", f"--container={container}"]
    return [*command, pod, "--"]


@dataclass(slots=True)
class Held:
    """A process whose connection is made, or is being made. One that was not let go ends with this."""

    process: subprocess.Popen[bytes]
    said: bytes
    """What it waits for."""
    gone: bool = False

    def go(self) -> subprocess.Popen[bytes]:
        """Its stdin stays open as long as the process object lives: its end is the remote one's."""
        self.gone = True
        threading.Thread(target=_send, args=(self.process, self.said), name="stdin", daemon=True).start()
        return self.process

    def __enter__(self) -> Held:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self.gone:
            self.process.kill()
            self.process.wait()


def held(
    kubectl: Sequence[str],
    argv: Sequence[str],
    files: Mapping[str, str] | None,
    stdout: IO[bytes] | int,
    stderr: IO[bytes] | int,
    used: str = "",
) -> Held:
    """`argv` behind `kubectl` (`kubectl_exec`), in a fresh folder with these files (None: where the container's sh is).

    `used`: a file in its TMPDIR that gets what sh's `times` says when it has ended (`seconds`); empty = none.
    """
    archive = b"" if files is None else _archive(files)
    process = subprocess.Popen(
        [*kubectl, "sh", "-c", _REMOTE, "sh", str(len(archive)), used, *argv],
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
    )
    return Held(process, b"\n" + archive)


def seconds(told: str) -> float:
    """Of one time as `times` writes it: `1m2.340000s`. ValueError for another form."""
    minutes, separator, rest = told.partition("m")
    if not (separator and rest.endswith("s")):
        raise ValueError(f"expected a time as `times` writes it, got {told!r}")
    return 60 * int(minutes) + float(rest[:-1].replace(",", "."))


def _send(process: subprocess.Popen[bytes], said: bytes) -> None:
    assert process.stdin is not None
    with suppress(OSError, ValueError):  # kubectl has ended, or its stdin is closed, already: its status tells
        process.stdin.write(said)
        process.stdin.flush()


def _archive(files: Mapping[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, text in files.items():
            content = text.encode()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()
