"""A process that selfbench starts and waits for: how long it took, what it said, and the most memory it held.

Peak memory is VmHWM, read from /proc once a process has written its last line and not yet ended. It is not what rusage says: a
child's ru_maxrss begins with its parent's memory, whose copy it was, and RUSAGE_CHILDREN is the largest of all children.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from lab.base.errors import MeasuringError
from lab.model.samples import cell, settled
from lab.records.store import RunStore

SHIM = """\
import atexit, re, runpy, sys
sys.argv = sys.argv[1:]
def tell():
    try:
        status = open("/proc/self/status").read()
    except OSError:
        return
    sys.stderr.write("peak_kib " + re.search(r"VmHWM:\\s+(\\d+)", status)[1] + "\\n")
atexit.register(tell)
script = sys.argv[0]
(runpy.run_path if script.endswith(".py") else runpy.run_module)(script, run_name="__main__")
"""
"""Runs a script or module as Python would, and tells its peak at the end: the same for the lab's and for those by hand."""


@dataclass(frozen=True, slots=True)
class Timed:
    """`wall_s` from start to end. `peak_bytes`: None where the kernel does not tell (macOS) or nobody asked."""

    wall_s: float
    stdout: str
    stderr: str
    status: int
    peak_bytes: int | None


def patience_s(planned_s: float) -> float:
    """For `timed`, of what is planned to take so long: samples are measured up to three times, and other machines are slower."""
    return 3600 + 4 * planned_s


def timed(argv: Sequence[str], env: Mapping[str, str] | None, deadline_s: float) -> Timed:
    """Run it with this environment (None: ours). MeasuringError when it cannot be started, or is not over in time."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        began = time.monotonic()
        try:
            done = subprocess.run(
                argv,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                timeout=deadline_s,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MeasuringError(f"selfbench: {argv[0]}", str(error)[:300]) from None
        wall_s = time.monotonic() - began
        said, complained = (_text(file.seek(0) or file.read()) for file in (out, err))
    peak = [line.split()[1] for line in complained.splitlines() if line.startswith("peak_kib ")]
    return Timed(wall_s, said, complained, done.returncode, int(peak[-1]) * 1024 if peak else None)


def ended(process: subprocess.Popen[bytes], deadline_s: float) -> int:
    """The exit status of what `System.popen` began; it and all it started are killed when it is not over in time."""
    try:
        return process.wait(deadline_s)
    except subprocess.TimeoutExpired:
        return -signal.SIGKILL
    finally:
        with suppress(ProcessLookupError):  # nothing of its session is left
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def whole(run: RunStore, done: Timed) -> RunStore:
    """The run that it measured. MeasuringError where cells of its plan are left: it stopped, which exit status 1 does not tell."""
    left = set(run.record.slots) - {cell(sample) for sample in run.samples() if settled(sample)}
    if left:
        fault = f"stopped with {len(left)} of its {len(run.record.slots)} cells to go: {last_words(done)}"
        raise MeasuringError(run.record.id, fault, "mend that; the same command goes on")
    return run


def last_words(done: Timed) -> str:
    """For a fault: the end of what it said."""
    said = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    return f"exit status {done.status}: {' '.join(said[-2:])[-300:]}"


def _text(content: bytes | int) -> str:
    return content.decode(errors="replace") if isinstance(content, bytes) else ""
