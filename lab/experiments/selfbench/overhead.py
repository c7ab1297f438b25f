"""A whole run of the lab, started as a user starts it and timed from outside: how much of its time is neither measuring nor bring-ups.

own time = wall time − bring-ups (as its samples have them) − planned measuring and warm-up, of every attempt. Python's start,
rendering, the namespaces, canaries, histograms, fsync and the table are in it, and so is a generator that takes longer than its time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence

from lab.base.errors import MeasuringError
from lab.model.samples import Sample, bring_ups_s, cell, planned_cells, settled
from lab.records.store import RunStore, run_names
from lab.records.sweep_files import load_sweep
from lab.stats.units import format_seconds
from lab.targets.common.scratch import scratch

BLOCKS = 3
SWEEP = "quick"


def takes_s(sweep: str) -> float:
    """Estimate the time: every load of the baseline and again in each block, and one block that warms up; UsageError for an unknown sweep."""
    return sum(point.duration_s + 1.5 for point in load_sweep(sweep)[1].expanded()) * (2 * BLOCKS + 1)


def measure_overhead(sweep: str) -> list[str]:
    """Time `lab bench` of the baseline on the local target at the loads of a sweep; where the time went, in lines.

    Samples are measured up to three times, and other machines are slower: it may take an hour and four times as long as planned.
    MeasuringError: it cannot be started, hangs, makes no run, or stops with cells of its plan to go, which exit status 1 does not tell.
    """
    place, words = (
        "selfbench: lab bench",
        ["bench", f"--sweep={sweep}", f"--blocks={BLOCKS}", "--json", "ingress-nginx"],
    )
    with scratch() as folder:
        began = time.monotonic()
        try:
            done = subprocess.run(
                [sys.executable, "-m", "lab", *words],
                env={**os.environ, "LAB_RUNS": str(folder)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=3600 + 4 * takes_s(sweep),
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MeasuringError(place, str(error)[:300]) from None
        wall_s = time.monotonic() - began
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        end = f"exit status {done.returncode}: {' '.join(lines[-2:])[-300:]}"
        names = run_names(folder)
        if done.returncode not in (0, 1) or not names:  # 1: some cell has no valid sample
            raise MeasuringError(place, end)
        run = RunStore.open(str(folder / names[-1]))
        planned, samples = planned_cells(run.record.plan().slots), run.samples()
        if left := planned - {cell(sample) for sample in samples if settled(sample)}:
            raise MeasuringError(place, f"stopped with {len(left)} of its {len(planned)} cells to go: {end}")
        return account(samples, wall_s)


def account(samples: Sequence[Sample], wall_s: float) -> list[str]:
    """Split the wall time of a run by its samples, in lines; MeasuringError when nothing was measured in it."""
    taken = [sample for sample in samples if sample.requests is not None]
    if not taken:
        why = "; ".join(dict.fromkeys(sample.detail for sample in samples))[:300]
        raise MeasuringError("selfbench: lab bench", f"no sample was measured: {why or 'there is none'}")
    bring_up_s, measuring_s = sum(bring_ups_s(samples)), sum(sample.point.duration_s for sample in taken)
    warmed = [one.point.warmup_s for one in taken if one.point.warmup_s and one.warmed_up is not False]
    own_s = wall_s - bring_up_s - measuring_s - sum(max(1.0, each_s) for each_s in warmed)
    count, valid = len(taken), sum(sample.valid for sample in taken)
    return [
        f"a whole run of {count} samples{f', {count - valid} of them invalid' if valid < count else ''}, {format_seconds(wall_s)}",
        f"  bring-ups: {format_seconds(bring_up_s)}, measuring: {format_seconds(measuring_s)}",
        f"  the lab's own time: {format_seconds(own_s / count)} per sample, {own_s / measuring_s:.1%} of measuring",
    ]
