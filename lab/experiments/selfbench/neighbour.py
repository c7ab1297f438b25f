"""A noisy neighbour: A/A runs while a core is busy during random halves of each. What does the lab claim of nothing?

Refuses to judge otherwise than a run's own table does; what it would claim were every judged metric the primary one stands beside it.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab.analysis.noise import noises
from lab.analysis.summary import summarise_run
from lab.base.errors import MeasuringError
from lab.base.files import writing
from lab.experiments.selfbench.overhead import start_run
from lab.model.samples import cell, cells
from lab.records.store import RunStore
from lab.stats.paired import MIN_BLOCKS

RUNS = 20
MOST_CLAIMS = 2
"""Of RUNS runs; of more runs as many more."""
BLOCKS, NULLS = 10, 1
"""As many as leave the MIN_BLOCKS valid ones that a claim needs to several of RUNS runs."""
SWEEP = f"""\
title = "Noisy neighbour"
question = "What is claimed of nothing while a core is busy half of the time?"
blocks = {BLOCKS}

[[points]]
duration_s = 3
"""
POINTS = (
    'name = "ceiling"\ngenerator = "wrk"\nconnections = 16\n',
    'name = "rate-500"\ngenerator = "k6"\nconnections = 50\nrate_rps = 500\n',
)
"""By turns, a run each."""
RUN_S = ((2 + NULLS) * BLOCKS + 1) * 5.0
"""Of such loads with their warm-ups and bring-ups, about."""
LEAST_BUSY = 0.25
"""Of a run's time; a neighbour is busy during half of it."""
SPELL_S = 40.0
"""Several blocks of a short sweep, so that some lie in a quiet spell and others do not: what is busy in every sample makes each of
them invalid, and then nothing is compared that could be claimed."""
BUSY = "import sys, time\nend = time.monotonic() + float(sys.argv[1])\nwhile time.monotonic() < end: pass"


@dataclass(frozen=True, slots=True)
class Neighboured:
    """One A/A run. `claimed`: what its table claims; `as_primary`: what it would, were each judged metric (`compared`) the primary one.

    `busy_share`: of the run's time, when its neighbour kept `cpu` busy; `valid_blocks`: point → blocks whose pairs are all valid; `invalid`:
    samples by reason, re-measured ones included.
    """

    number: int
    cpu: int
    busy_share: float
    claimed: tuple[str, ...]
    as_primary: int
    compared: int
    valid_blocks: Mapping[str, int]
    invalid: Mapping[str, int]


def measure_runs(folder: Path, runs: int, seed: int) -> Iterator[Neighboured]:
    """Measure A/A runs into that folder, one by one. MeasuringError for one that failed, or that had no neighbour: nothing was shown then."""
    for number in range(1, runs + 1):
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            sweep = folder / "neighbour.toml"
            sweep.write_text(SWEEP + POINTS[number % len(POINTS)])
        lots, place = random.Random(f"{seed} {number}"), f"selfbench: A/A run {number}"
        cpu = lots.choice(sorted(os.sched_getaffinity(0)))
        words = ["aa", f"--sweep={sweep}", f"--blocks={BLOCKS}", f"--nulls={NULLS}", f"--seed={number}", "--json"]
        with busy_neighbour(cpu, lots) as spells_s:
            run, wall_s = start_run(place, folder / "runs", words, RUN_S)
        found = judge(run, number, cpu, sum(spells_s) / wall_s)
        if found.busy_share < LEAST_BUSY:
            fault = f"had no neighbour: CPU {cpu} was kept busy for {found.busy_share:.0%} of its time"
            raise MeasuringError(place, fault, "see why `taskset` did not run, then measure again")
        yield found


@contextmanager
def busy_neighbour(cpu: int, lots: random.Random, spell_s: float = SPELL_S) -> Iterator[list[float]]:
    """Keep a CPU busy during one of every two spells, by lot; the list has how long each of them was, in the end.

    A process of ours does it that ends by itself with its spell, whatever becomes of us. It belongs to nobody who measures, so that whatever
    the lab notices of it, it notices as of anybody's.
    """
    over, spells_s = threading.Event(), list[float]()

    def spell(busy: bool) -> None:
        if not busy or over.is_set():
            over.wait(spell_s)
            return
        began = time.monotonic()
        argv = ["taskset", "-c", str(cpu), sys.executable, "-c", BUSY, str(spell_s)]
        with subprocess.Popen(argv, stdin=subprocess.DEVNULL) as process:
            while process.poll() is None and not over.wait(0.05):
                pass
            process.kill()
        spells_s.append(time.monotonic() - began)

    def alternate() -> None:
        while not over.is_set():
            busy_first = lots.random() < 0.5
            spell(busy_first)
            spell(not busy_first)

    thread = threading.Thread(target=alternate, name="neighbour", daemon=True)
    thread.start()
    try:
        yield spells_s
    finally:
        over.set()
        thread.join()


def judge(run: RunStore, number: int, cpu: int, busy_share: float) -> Neighboured:
    """Return what an A/A run claims of its null arms, and what it lost."""
    samples = run.samples()
    summary = summarise_run(run.record, samples, run.histogram)
    effects = ((row, effect) for row in summary.rows for effect in row.effects)
    noise = noises(summary)
    measured = {cell(sample) for sample in samples if sample.valid}
    compared = [slot for slot in run.record.plan().slots if slot.against]
    lost = {(slot.point.name, slot.block) for slot in compared if not measured.issuperset(cells(slot))}
    points = [point.name for point in run.record.points]
    return Neighboured(
        number=number,
        cpu=cpu,
        busy_share=busy_share,
        claimed=tuple(f"{row.arm.name} {one.metric} at {row.point.name}" for row, one in effects if one.claimed),
        as_primary=sum(one.claimed for one in noise),
        compared=sum(one.compared for one in noise),
        valid_blocks={name: run.record.blocks - sum(point == name for point, _ in lost) for name in points},
        invalid=Counter(str(sample.reason) for sample in samples if not sample.valid),
    )


def line(one: Neighboured) -> str:
    """Return a run in words."""
    valid = ", ".join(f"{point} {blocks}/{BLOCKS}" for point, blocks in one.valid_blocks.items())
    invalid = ", ".join(f"{count} {reason}" for reason, count in one.invalid.items()) or "none"
    return (
        f"{one.number:>3}  CPU {one.cpu} busy {one.busy_share:.0%}  valid blocks: {valid}  invalid: {invalid}"
        f"  claimed: {'; '.join(one.claimed) or 'nothing'} ({one.as_primary} of {one.compared} were every metric primary)"
    )


def verdict(found: Sequence[Neighboured]) -> tuple[bool, str]:
    """Return whether no more was claimed than may be, and that in words with what to do."""
    claims, compared = sum(len(one.claimed) for one in found), sum(one.compared for one in found)
    every = f"{sum(one.as_primary for one in found)} of {compared} were every metric primary"
    lost = sum(sum(one.invalid.values()) for one in found)
    said = f"{claims} claimed in {len(found)} A/A runs beside a noisy neighbour ({every}); {lost} samples were invalid"
    if not compared:
        return True, (
            f"{said}: no run kept the {MIN_BLOCKS} valid blocks that a claim needs, so this shows only that the noise was noticed;"
            " measure again when nothing else runs here"
        )
    runs = max(RUNS, len(found))
    most = MOST_CLAIMS * runs // RUNS
    if claims > most:
        return (
            False,
            f"{said}: at most {most} in {runs} may be; do not decide on this machine (`just table RUN` shows which)",
        )
    return True, f"{said}: at most {most} in {runs} may be claimed, so a claim made here stands"
