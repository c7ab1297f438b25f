"""A noisy neighbour: A/A runs while a core is busy during random halves of each. What does the lab claim of nothing?

A run is a line of FOLDER/neighbour.jsonl as soon as it is over, and who goes on there leaves out what is done. Refuses to judge
otherwise than a run's own table does; what it would claim were every judged metric the primary one stands beside it.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pydantic import Field

from lab.analysis import noise
from lab.analysis.summary import summarise_run
from lab.base.errors import MeasuringError
from lab.base.files import writing
from lab.base.validation import Record
from lab.experiments.selfbench import lines
from lab.experiments.selfbench.busy import SPELL_S, Neighbour
from lab.experiments.selfbench.process import measured_run
from lab.model.samples import cell, cells
from lab.records.store import RunStore, run_names
from lab.stats.paired import MIN_BLOCKS

RUNS = 20
MOST_CLAIMS = 2
"""Of RUNS runs, as issue 7 has it; of more runs as many more."""
BLOCKS, NULLS = 10, 1
"""As many as leave the MIN_BLOCKS valid ones that a claim needs to several of RUNS runs."""
DONE = "neighbour.jsonl"
SWEEP = f"""\
title = "Noisy neighbour"
question = "What is claimed of nothing while a core is busy half of the time?"
blocks = {BLOCKS}
"""
POINTS = (
    """
[[points]]
name = "ceiling"
generator = "wrk"
connections = 16
duration_s = 3
""",
    """
[[points]]
name = "rate-500"
generator = "k6"
connections = 50
rate_rps = 500
duration_s = 3
""",
)
"""By turns, a run each."""
SAMPLES = (2 + NULLS) * BLOCKS + 1
SAMPLE_S = 5.0
"""Of such a load with its warm-up and its part of a bring-up, about."""
LEAST_BUSY = 0.25
"""Of a run's time; a neighbour is busy during half of it."""


class Neighboured(Record):
    """One A/A run. `claimed`: what its table claims; `as_primary`: what it would, were each judged metric the primary one."""

    number: int
    run: str
    cpu: int = Field(description="where the neighbour was")
    wall_s: float
    busy_s: float
    claimed: tuple[str, ...]
    as_primary: int
    compared: int
    valid_blocks: dict[str, str] = Field(description="point → of planned blocks those whose pairs are all valid")
    invalid: dict[str, int] = Field(description="samples by reason, re-measured ones included")
    aa_sd: dict[str, float] = Field(
        description="metric at point → the A/A pair's scatter, a log-ratio; absent = no interval"
    )

    @property
    def busy_share(self) -> float:
        return self.busy_s / self.wall_s if self.wall_s else 0.0


class NeighbourReport(Record):
    """What `selfbench --neighbour --json` prints. `held`: no more were claimed than MOST_CLAIMS allows of so many runs."""

    runs: tuple[Neighboured, ...]
    held: bool
    verdict: str


def plan_text(runs: int, done: int) -> str:
    """What is going to happen, before it does."""
    least = (runs - done) * SAMPLES * SAMPLE_S / 60
    return (
        f"{runs} A/A runs of {BLOCKS} blocks ({SAMPLES} samples each), {done} of them done; one core busy during random halves"
        f" of each, in spells of {SPELL_S:g} s: {least:.0f} min, up to three times as long where samples are measured again"
    )


def finished(folder: Path) -> list[Neighboured]:
    """What was done in that folder beside a neighbour. UsageError for a file that is damaged."""
    return [one for one in lines.read(folder / DONE, Neighboured) if one.busy_share >= LEAST_BUSY]


def measured(
    folder: Path, runs: int, seed: int, busy: Callable[[int, random.Random], Neighbour] = Neighbour
) -> Iterator[Neighboured]:
    """Those of `runs` that are not done yet, one by one. StoreError without room; MeasuringError when a run fails or had no neighbour.

    Such a run is not written down: it would claim nothing, as any other A/A run.
    """
    done = {one.number for one in finished(folder)}
    sweep = folder / "neighbour.toml"
    for number in range(1, runs + 1):
        if number in done:
            continue
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            sweep.write_text(SWEEP + POINTS[number % len(POINTS)])
        lots = random.Random(f"{seed} {number}")
        cpu = lots.choice(sorted(os.sched_getaffinity(0)))
        found = _one(folder, sweep, number, cpu, busy(cpu, lots))
        if found.busy_share < LEAST_BUSY:
            fault = f"had no neighbour: CPU {cpu} was kept busy for {found.busy_share:.0%} of its time"
            raise MeasuringError(
                f"selfbench: A/A run {number}", fault, "see why `taskset` did not run; the same command goes on"
            )
        lines.add(folder / DONE, [found])
        yield found


def _one(folder: Path, sweep: Path, number: int, cpu: int, neighbour: Neighbour) -> Neighboured:
    runs = folder / "runs"
    words = ["aa", f"--sweep={sweep}", f"--blocks={BLOCKS}", f"--nulls={NULLS}", f"--seed={number}", "--json"]
    with neighbour:
        place, before = f"selfbench: A/A run {number}", run_names(runs)
        run, done = measured_run(place, runs, words, SAMPLES * SAMPLE_S, before)
    return judged(run, number, cpu, done.wall_s, neighbour.busy_s)


def judged(run: RunStore, number: int, cpu: int, wall_s: float, busy_s: float) -> Neighboured:
    """What an A/A run claims of its null arms, and what it lost."""
    samples = run.samples()
    summary = summarise_run(run.record, samples, run.histogram)
    claims = tuple(
        f"{row.arm.name} {effect.metric} at {row.point.name}"
        for row in summary.rows
        for effect in row.effects
        if effect.claimed
    )
    noises = noise.noises(summary)
    measured = {cell(sample) for sample in samples if sample.valid}
    compared = [slot for slot in run.record.plan().slots if slot.against]
    lost = {(slot.point.name, slot.block) for slot in compared if not measured.issuperset(cells(slot))}
    valid = {
        point.name: run.record.blocks - sum(place == point.name for place, _ in lost) for point in run.record.points
    }
    return Neighboured(
        number=number,
        run=run.record.id,
        cpu=cpu,
        wall_s=wall_s,
        busy_s=busy_s,
        claimed=claims,
        as_primary=sum(one.claimed for one in noises),
        compared=sum(one.compared for one in noises),
        valid_blocks={point: f"{have}/{run.record.blocks}" for point, have in valid.items()},
        invalid=dict(Counter(str(sample.reason) for sample in samples if not sample.valid)),
        aa_sd={f"{one.metric} at {one.point}": one.sd for one in noises if one.sd is not None and not one.why},
    )


def line(one: Neighboured) -> str:
    """A run in words."""
    valid = ", ".join(f"{point} {blocks}" for point, blocks in one.valid_blocks.items())
    invalid = ", ".join(f"{count} {reason}" for reason, count in one.invalid.items()) or "none"
    claims = "; ".join(one.claimed) or "nothing"
    return (
        f"{one.number:>3}  CPU {one.cpu} busy {one.busy_share:.0%}  valid blocks: {valid}  invalid: {invalid}"
        f"  claimed: {claims} ({one.as_primary} of {one.compared} were every metric primary)"
    )


def verdict(found: Sequence[Neighboured]) -> tuple[bool, str]:
    """(whether the promise held, in words with what to do)."""
    claims = sum(len(one.claimed) for one in found)
    every = f"{sum(one.as_primary for one in found)} of {sum(one.compared for one in found)} were every metric primary"
    lost = sum(sum(one.invalid.values()) for one in found)
    said = f"{claims} claimed in {len(found)} A/A runs beside a noisy neighbour ({every}); {lost} samples were invalid"
    if not sum(one.compared for one in found):
        return True, (
            f"{said}: no run kept the {MIN_BLOCKS} valid blocks that a claim needs, so this shows only that the noise was noticed;"
            " go on when nothing else runs here"
        )
    runs = max(RUNS, len(found))
    most = MOST_CLAIMS * runs // RUNS
    if claims > most:
        return (
            False,
            f"{said}: at most {most} in {runs} may be; `just table RUN` shows which: do not decide on this machine",
        )
    return True, f"{said}: at most {most} in {runs} may be claimed, so a claim made here stands"
