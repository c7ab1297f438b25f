"""A lab, or a reduction, that selfbench starts and waits for: how long it took, what it said, and the run that it measured."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.base.errors import MeasuringError
from lab.model.samples import cell, planned_cells, settled
from lab.records.store import RunStore, run_names


@dataclass(frozen=True, slots=True)
class Timed:
    """`wall_s` from start to end."""

    wall_s: float
    stdout: str
    stderr: str
    status: int


def timed(argv: Sequence[str], env: Mapping[str, str], planned_s: float) -> Timed:
    """Run it with these variables beside ours. MeasuringError when it cannot be started, or hangs.

    Samples are measured up to three times, and other machines are slower: it may take four times as long as planned, and an hour.
    """
    began = time.monotonic()
    try:
        done = subprocess.run(
            argv,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=3600 + 4 * planned_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MeasuringError(f"selfbench: {argv[0]}", str(error)[:300]) from None
    return Timed(time.monotonic() - began, done.stdout, done.stderr, done.returncode)


def measured_run(
    place: str, runs: Path, words: Sequence[str], planned_s: float, known: Collection[str] = ()
) -> tuple[RunStore, Timed]:
    """The newest run in that folder, none of the `known`, once `lab WORDS` is over.

    MeasuringError at `place` where there is none, and where cells of its plan are left: it stopped, which exit status 1 does not tell.
    """
    done = timed([sys.executable, "-m", "lab", *words], {"LAB_RUNS": str(runs)}, planned_s)
    names = [name for name in run_names(runs) if name not in known]
    if done.status not in (0, 1) or not names:  # 1: some cell has no valid sample
        raise MeasuringError(place, last_words(done))
    run = RunStore.open(str(runs / names[-1]))
    planned = planned_cells(run.record.plan().slots)
    left = planned - {cell(sample) for sample in run.samples() if settled(sample)}
    if left:
        fault = f"stopped with {len(left)} of its {len(planned)} cells to go: {last_words(done)}"
        raise MeasuringError(run.record.id, fault, "mend that; the same command goes on")
    return run, done


def last_words(done: Timed) -> str:
    """For a fault: the end of what it said."""
    said = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    return f"exit status {done.status}: {' '.join(said[-2:])[-300:]}"
