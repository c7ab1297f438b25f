"""A whole run of the lab, as a user starts it, timed from outside: what of it is not measuring and not bringing up.

own time = wall time − bring-ups (as its samples have them) − planned measuring and warm-up, of every attempt. Python's start,
rendering, the namespaces, canaries, histograms, fsync and the table are in it, and so is a generator that takes longer than its time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab.analysis.selfbench import Row, alone
from lab.base.errors import MeasuringError
from lab.base.files import writing
from lab.experiments.selfbench.process import measured_run
from lab.model.samples import Sample
from lab.targets.common.process import scratch

BLOCKS = 3
SWEEP = """\
title = "Self-benchmark"
question = "How long does the lab itself take?"
blocks = 1

[[points]]
name = "ceiling"
generator = "wrk"
connections = 16
duration_s = {duration_s:g}

[[points]]
name = "rate-500"
generator = "k6"
connections = 50
rate_rps = 500
duration_s = {duration_s:g}
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


def takes_s(duration_s: float) -> float:
    """About: two loads in every block, of the baseline and again, and one block that warms up."""
    return (duration_s + 1.5) * 2 * (2 * BLOCKS + 1)


def whole_run(duration_s: float) -> Whole:
    """`lab bench` of the baseline on the local target, wrk and k6 for `duration_s` (>= 1) each. MeasuringError when it could not measure."""
    with scratch() as folder:
        sweep = folder / "selfbench.toml"
        with writing(folder, "TMPDIR"):
            sweep.write_text(SWEEP.format(duration_s=duration_s))
        words = ["bench", f"--sweep={sweep}", f"--blocks={BLOCKS}", "--json", "baseline"]
        run, done = measured_run("selfbench: lab bench", folder / "runs", words, takes_s(duration_s))
        return account(run.samples(), done.wall_s)


def account(samples: Sequence[Sample], wall_s: float) -> Whole:
    """Where the wall time of a run went. MeasuringError when nothing was measured in it."""
    taken = [sample for sample in samples if sample.requests is not None]
    if not taken:
        why = "; ".join(dict.fromkeys(sample.detail for sample in samples))[:300]
        raise MeasuringError("selfbench: lab bench", f"no sample was measured: {why or 'there is none'}")
    ups = {(sample.block, sample.arm, sample.generation): sample.bring_up_s or 0.0 for sample in samples}
    return Whole(
        wall_s=wall_s,
        bring_up_s=sum(ups.values()),
        measuring_s=sum(sample.point.duration_s for sample in taken),
        warm_up_s=sum(max(1.0, sample.point.warmup_s) for sample in taken if sample.point.warmup_s),
        samples=len(taken),
        valid=sum(sample.valid for sample in taken),
    )


def rows_of(whole: Whole) -> list[Row]:
    """The lab's own time, per sample and as a share of measuring."""
    invalid = f", {whole.samples - whole.valid} of {whole.samples} invalid" if whole.valid < whole.samples else ""
    note = f"{whole.samples} samples in {whole.wall_s:.1f} s, {whole.bring_up_s:.1f} s of it bring-ups{invalid}"
    return [
        alone("overhead", "own time per sample", "s", whole.own_s / whole.samples, note),
        alone("overhead", "own time of measuring", "%", 100 * whole.own_s / whole.measuring_s),
    ]
