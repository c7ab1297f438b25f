"""A real bench of one block for tests: its samples, or a skip where the machine alone spoiled them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.model.samples import Reason, Sample
from lab.records.store import RunStore, run_names

ROOT = Path(__file__).parents[3]
BY_THE_MACHINE = {reason for reason in Reason if reason.environmental or reason.unserved} | {
    Reason.GENERATOR_SATURATED,
    Reason.NOT_STEADY,
}
"""The reasons against a sample that a busy machine gives, and not the proxy."""


def measure(folder: Path, *words: str) -> list[Sample]:
    """Run `just bench WORDS --blocks 1` with its run in a folder, and return its samples in the order of their measurement."""
    env = {**os.environ, "LAB_RUNS": str(folder / "runs"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "lab", "bench", *words, "--blocks", "1"],
        env=env, cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert len(run_names(folder / "runs")) == 1, done.stdout + done.stderr
    samples = list(RunStore.open(str(folder / "runs" / run_names(folder / "runs")[0])).samples())
    assert samples, done.stdout + done.stderr
    return samples


def measure_valid(folder: Path, *words: str) -> list[Sample]:
    """Measure, and return the valid samples, at least one for each arm at each load point.

    The test is skipped where an arm has none and the machine gave the reasons; it fails where the proxy or the lab gave one.
    """
    samples = measure(folder, *words)
    valid = [sample for sample in samples if sample.valid]
    served = {(sample.arm, sample.point.name) for sample in valid}
    lost = [sample for sample in samples if (sample.arm, sample.point.name) not in served]
    assert [sample.detail for sample in lost if sample.reason not in BY_THE_MACHINE] == []
    if lost:
        pytest.skip(f"this machine is too busy to measure: {lost[-1].arm} at {lost[-1].point.name}: {lost[-1].detail}")
    return valid
