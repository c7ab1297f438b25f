"""A whole run of the lab, as a user starts it, timed from outside: what of it is not measuring and not bringing up.

own time = wall time − bring-ups (as its samples have them) − planned measuring and warm-up, of every attempt. Python's start,
rendering, the namespaces, canaries, histograms, fsync and the table are in it, and so is a generator that takes longer than its time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from lab.analysis.selfbench import Report, Row, Unit
from lab.base.errors import MeasuringError
from lab.experiments.selfbench.process import last_words, patience_s, timed
from lab.model.samples import Sample
from lab.records.store import RunStore, run_names
from lab.targets.common.process import scratch

VARIANT = "baseline"
SWEEP = """\
title = "Self-benchmark"
question = "How long does the lab itself take?"
blocks = 1

[[points]]
name = "ceiling"
generator = "wrk"
connections = 16
duration_s = {duration_s}

[[points]]
name = "rate-500"
generator = "k6"
connections = 50
rate_rps = 500
duration_s = {duration_s}
"""


@dataclass(frozen=True, slots=True)
class Whole:
    """One run. Seconds; `samples` counts attempts, `valid` those of them that count."""

    wall_s: float
    bring_up_s: float
    measuring_s: float
    warm_up_s: float
    samples: int
    valid: int

    @property
    def own_s(self) -> float:
        return self.wall_s - self.bring_up_s - self.measuring_s - self.warm_up_s

    @property
    def own_share(self) -> float:
        """Of measuring."""
        return self.own_s / self.measuring_s


def write_sweep(folder: Path, duration_s: float) -> Path:
    """wrk and k6, `duration_s` (>= 1) each."""
    path = folder / "selfbench.toml"
    path.write_text(SWEEP.format(duration_s=f"{duration_s:g}"))
    return path


def whole_run(duration_s: float, blocks: int) -> Whole:
    """`lab bench` of VARIANT on the local target. MeasuringError when it could not measure."""
    with scratch() as folder:
        sweep = write_sweep(folder, duration_s)
        argv = [sys.executable, "-m", "lab", "bench", f"--sweep={sweep}", f"--blocks={blocks}", "--json", VARIANT]
        planned_s = (duration_s + 1.5) * 2 * (2 * blocks + 1)
        done = timed(argv, {**os.environ, "LAB_RUNS": str(folder / "runs")}, patience_s(planned_s))
        names = run_names(folder / "runs")
        if done.status not in (0, 1) or not names:  # 1: some samples were invalid, and took as long
            raise MeasuringError("selfbench: lab bench", last_words(done))
        return account(RunStore.open(str(folder / "runs" / names[-1])).samples(), done.wall_s)


def account(samples: Sequence[Sample], wall_s: float) -> Whole:
    """Where the wall time of a run went. MeasuringError when nothing was measured in it."""
    measured = [sample for sample in samples if sample.requests is not None]
    if not measured:
        why = "; ".join(dict.fromkeys(sample.detail for sample in samples))[:300]
        raise MeasuringError("selfbench: lab bench", f"no sample was measured: {why or 'there is none'}")
    ups = {(sample.block, sample.arm, sample.generation): sample.bring_up_s or 0.0 for sample in samples}
    return Whole(
        wall_s=wall_s,
        bring_up_s=sum(ups.values()),
        measuring_s=sum(sample.point.duration_s for sample in measured),
        warm_up_s=sum(max(1.0, sample.point.warmup_s) for sample in measured if sample.point.warmup_s),
        samples=len(measured),
        valid=sum(sample.valid for sample in measured),
    )


def rows_of(whole: Whole, by_hand_own_s: Sequence[float]) -> Report:
    """`by_hand_own_s`: what each sample by hand took beyond its planned time (see `pairs`), on a system that was up."""
    per_sample_s, hand_s = whole.own_s / whole.samples, median(by_hand_own_s)
    measured_s = whole.measuring_s / whole.samples
    invalid = f", {whole.samples - whole.valid} of {whole.samples} invalid" if whole.valid < whole.samples else ""
    note = f"{whole.samples} samples in {whole.wall_s:.1f} s, {whole.bring_up_s:.1f} s of it bring-ups{invalid}"
    planned_s = measured_s + whole.warm_up_s / whole.samples
    lab_wall_s, hand_wall_s = planned_s + per_sample_s, planned_s + hand_s
    return Report(
        rows=(
            _one("a whole run: own time per sample", "s", per_sample_s, hand_s, note=note),
            _one("a whole run: own time of measuring", "%", 100 * whole.own_share, 100 * hand_s / measured_s),
            _one(
                "a whole run: time per sample, bring-ups apart", "s", lab_wall_s, hand_wall_s, lab_wall_s / hand_wall_s
            ),
        )
    )


def _one(what: str, unit: Unit, lab: float, by_hand: float, ratio: float | None = None, note: str = "") -> Row:
    return Row(part="samples", what=what, unit=unit, lab=lab, by_hand=by_hand, ratio=ratio, n=1, note=note)
