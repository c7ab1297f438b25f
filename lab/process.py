"""A generator's process: started in the client's place, waited for with a deadline, and what it said and used."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lab.generators import Generator, Load
from lab.store import writing
from lab.targets.base import System, Target
from lab.variants import Variant

GRACE_S = 15.0  # what a generator may take beyond its planned time before it counts as hung
POLL_S = 0.02
NOT_STARTED = 127  # as a shell reports it


@dataclass(frozen=True, slots=True)
class Ended:
    """A generator process that has ended (or was killed)."""

    stdout: str
    stderr: str
    exit_status: int
    cpu_s: float
    rss_bytes: int
    hung: bool


def run_generator(system: System, generator: Generator, path: str, load: Load, scratch: Path) -> Ended:
    """Start it in the client's place, wait for its planned time and a grace, collect what it said and used.

    `path` takes the place of argv[0]. One that cannot be started, crashes or hangs is an `Ended` like any other; only the lab's own faults are raised.
    """
    out, err = scratch / "stdout", scratch / "stderr"
    with writing(scratch):
        for name, text in generator.files(load).items():
            (scratch / name).write_text(text)
    deadline = time.monotonic() + load.duration_s + GRACE_S
    with open(out, "wb") as stdout, open(err, "wb") as stderr:
        try:
            process = system.popen([path, *generator.argv(load)[1:]], scratch, stdout, stderr)
        except OSError as error:
            return Ended(
                "",
                f"{path} cannot be started: {error}",
                NOT_STARTED,
                0.0,
                0,
                False,
            )
        try:
            hung, status, used = _wait(process, deadline)
        except BaseException:
            _kill(process)
            raise
    return Ended(
        stdout=out.read_text(errors="surrogateescape"),
        stderr=err.read_text(errors="surrogateescape"),
        exit_status=status,
        cpu_s=used.ru_utime + used.ru_stime,
        rss_bytes=used.ru_maxrss * 1024,
        hung=hung,
    )


def _wait(process: subprocess.Popen[bytes], deadline: float) -> tuple[bool, int, resource.struct_rusage]:
    """(hung, exit status, what it used): wait4 rather than Popen.wait, because only that tells what this child used."""
    hung = False
    while True:
        pid, status, used = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return hung, process.returncode, used
        if time.monotonic() > deadline and not hung:
            hung = True
            _signal(process)
        time.sleep(POLL_S)


def _kill(process: subprocess.Popen[bytes]) -> None:
    _signal(process)
    process.wait()


def _signal(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):  # it may have ended by itself in the meantime
        os.killpg(process.pid, signal.SIGKILL)


def run_beside(target: Target, variant: Variant, argv: Sequence[str]) -> int:
    """Bring a variant up, run a command in the client's place with LAB_URL and LAB_HOST set; its exit status."""
    target.check()
    target.check_variant(variant, [])
    with target.up(variant) as system:
        entry = system.entry()
        named = ["env", f"LAB_URL={entry.base_url}", f"LAB_HOST={entry.host}", *argv]
        process = system.popen(named, Path.cwd(), sys.stdout.buffer, sys.stderr.buffer)
        try:
            return process.wait()
        except BaseException:
            _kill(process)
            raise
