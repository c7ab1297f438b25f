"""The overhead of a run of the lab: the part of its duration in which it neither measures nor starts systems.

The run is started by a command, as a user starts it, and its wall time is measured. The lab's own time = wall time −
bring-ups (as the samples record them) − planned measuring and warm-up of every attempt. So it includes the start of
Python, the rendering of manifests, the creation of namespaces, the requests that check a system before and after a
load, the storing of samples, and the printing of the result. It also includes the time that a generator takes beyond
its planned time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence

from lab.base.errors import MeasuringError
from lab.model.samples import Sample, is_settled, key_of_measurement, list_bring_ups_s, planned_cells
from lab.records.store import RunStore, run_names
from lab.records.sweep_files import load_sweep
from lab.stats.units import format_seconds
from lab.targets.common.scratch import make_scratch_folder

BLOCKS = 3
SWEEP = "quick"


def estimate_s(sweep: str) -> float:
    """Return the estimated seconds of the run that `measure_overhead` times.

    Each load of the sweep is made by three arms in each of three blocks: the baseline, its A/A arm (the baseline again) and the direct
    reference (the backend without a proxy).

    Args:
        sweep: The name of the sweep (a list of load points).

    Raises:
        UsageError: The sweep is unknown.

    """
    return sum(point.duration_s + 1.5 for point in load_sweep(sweep)[1].load_points) * 3 * BLOCKS


def measure_overhead(sweep: str) -> list[str]:
    """Run `lab bench` with the baseline under the loads of a sweep, and return lines of text about how it spent its time.

    The run is on the local target. It may take up to an hour plus four times the estimate, because samples are measured up to three times
    and other machines are slower.

    Args:
        sweep: The name of the sweep (a list of load points).

    Raises:
        MeasuringError: The run cannot be started, hangs, leaves no run, or stops before everything in its plan is measured.

    """
    place, arguments = (
        "selfbench: lab bench",
        ["bench", f"--sweep={sweep}", f"--blocks={BLOCKS}", "--json", "ingress-nginx"],
    )
    with make_scratch_folder() as folder:
        began = time.monotonic()
        try:
            ended = subprocess.run(
                [sys.executable, "-m", "lab", *arguments],
                env={**os.environ, "LAB_RUNS": str(folder)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=3600 + 4 * estimate_s(sweep),
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MeasuringError(place, str(error)[:300]) from None
        wall_s = time.monotonic() - began
        lines = [line.strip() for line in (ended.stderr or ended.stdout).splitlines() if line.strip()]
        message = f"exit status {ended.returncode}: {' '.join(lines[-2:])[-300:]}"
        names = run_names(folder)
        if ended.returncode not in (0, 1) or not names:  # status 1: some cell has no valid sample
            raise MeasuringError(place, message)
        run = RunStore.open(str(folder / names[-1]))
        planned, samples = planned_cells(run.record.plan().slots), run.samples()
        if remaining := planned - {key_of_measurement(sample) for sample in samples if is_settled(sample)}:
            raise MeasuringError(place, f"stopped with {len(remaining)} of its {len(planned)} cells to go: {message}")
        return split_wall_time(samples, wall_s)


def split_wall_time(samples: Sequence[Sample], wall_s: float) -> list[str]:
    """Divide the wall time of a run into starting systems, measuring, and the lab's own time; return the result as lines of text.

    Args:
        samples: The samples of the run.
        wall_s: The wall time of the run, in seconds.

    Raises:
        MeasuringError: Nothing was measured in the run.

    """
    measured = [sample for sample in samples if sample.requests is not None]
    if not measured:
        reason = "; ".join(dict.fromkeys(sample.detail for sample in samples))[:300]
        raise MeasuringError("selfbench: lab bench", f"no sample was measured: {reason or 'there is none'}")
    bring_up_s, measuring_s = sum(list_bring_ups_s(samples)), sum(sample.point.duration_s for sample in measured)
    warmups_s = [
        sample.point.warmup_s for sample in measured if sample.point.warmup_s and sample.warmed_up is not False
    ]
    own_s = wall_s - bring_up_s - measuring_s - sum(max(1.0, warmup_s) for warmup_s in warmups_s)
    count, valid = len(measured), sum(sample.valid for sample in measured)
    return [
        f"a whole run of {count} samples{f', {count - valid} of them invalid' if valid < count else ''}, {format_seconds(wall_s)}",
        f"  bring-ups: {format_seconds(bring_up_s)}, measuring: {format_seconds(measuring_s)}",
        f"  the lab's own time: {format_seconds(own_s / count)} per sample, {own_s / measuring_s:.1%} of measuring",
    ]
