"""Effects of known work: does the lab find them as often as it promises? One long run of the extra-work variants, read in tens.

Disjoint tens of blocks of one run are as many runs of ten: each is summarised by itself, with a floor of its own. What was promised
is the power that `stats.resolvable` gives for ten blocks at the effect and the noise of the whole run. Refuses tens that are cut.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from math import expm1, log1p
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from lab import stats
from lab.errors import MeasuringError, UsageError
from lab.files import writing
from lab.records import RunRecord
from lab.samples import Sample
from lab.selfbench.process import last_words, timed
from lab.selfbench.promise import kept, power
from lab.store import RunStore, run_names
from lab.summary import Effect, HistogramOf, Row, Summary, summarise_run
from lab.units import format_interval, format_percent, metric_name
from lab.variants import variant_names

BLOCKS, TEN = 40, 10
PREFIX = "extra-work-"
SWEEP = """\
title = "Injected effects"
question = "Is extra work in the proxy found as often as promised?"
blocks = 40

[[points]]
name = "ceiling"
generator = "wrk"
connections = 64
duration_s = 5
"""
SAMPLE_S = 7.5
"""Of this load with its warm-up and a bring-up, about."""


class Injected(BaseModel):
    """One variant's primary metric over the tens. `effect` and `resolvable` are fractions (0.05 = 5 %), of `blocks` and of ten blocks."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    variant: str
    point: str
    metric: str
    effect: float
    low: float | None
    high: float | None
    blocks: int
    resolvable: float | None = Field(description="what ten blocks promise to claim with 90 %; null = no A/A interval")
    promised: float | None = Field(description="the chance that ten blocks claim this effect; null likewise")
    claimed: int
    tens: int = Field(description="those in which it was judged")

    kept: bool = Field(description="whether so few claims, or fewer, have a chance of 5 % or more if the promise holds")


class InjectedReport(BaseModel):
    """What `selfbench --effects --json` prints."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run: str
    effects: tuple[Injected, ...]
    kept: bool = Field(description="whether the promise holds; false also where nothing is known of it")
    verdict: str


def variants() -> list[str]:
    """The variants of known work. UsageError where there are none."""
    found = [name for name in variant_names() if name.startswith(PREFIX)]
    if not found:
        raise UsageError("selfbench --effects", f"no variant begins with {PREFIX}", "they are in manifests/overlays")
    return found


def plan_text(names: Sequence[str], blocks: int, done: str) -> str:
    hours = (len(names) + 2) * blocks * SAMPLE_S / 3600
    return f"{', '.join(names)} against their baselines, {blocks} blocks read in tens: {hours:.1f} h at least{done}"


def done_text(folder: Path) -> str:
    """What that folder already holds of it; empty = nothing."""
    runs = folder / "runs"
    begun = run_names(runs)
    if not begun:
        return ""
    run = RunStore.open(str(runs / begun[-1]))
    return f"; {len({(one.block, one.arm) for one in run.samples()})} of {run.record.plan().bring_ups} bring-ups of {run.record.id} are done"


def verdict(found: Sequence[Injected]) -> tuple[bool, str]:
    """(whether the promise holds, in words with what to do). What was not promised or not judged shows neither."""
    known = [one for one in found if one.promised is not None and one.tens]
    if not known:
        return False, (
            "nothing is known of what `--resolve` promises: no effect was both promised and judged in a ten; the run's table says why:"
            " measure again when nothing else runs here, into another folder (--into)"
        )
    claimed, tens = sum(one.claimed for one in known), sum(one.tens for one in known)
    expected = sum(one.promised * one.tens for one in known if one.promised is not None)
    said = f"{claimed} of {tens} tens claimed their effect, {expected:.1f} were promised"
    if silent := [one.variant for one in found if one not in known]:
        said += f"; nothing is known of {', '.join(silent)}"
    few = [one.variant for one in known if not one.kept]
    if few:
        return (
            False,
            f"{said}; fewer than promised: {', '.join(few)}: plan with more blocks than `--resolve` says, and report this",
        )
    return True, f"{said}: what `--resolve` promises on this machine holds"


def measure(folder: Path, names: Sequence[str], blocks: int, seed: int) -> RunStore:
    """The run in that folder, begun or gone on with. MeasuringError when it was not finished: then it is resumed next time."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        sweep = folder / "effects.toml"
        sweep.write_text(SWEEP)
    runs = folder / "runs"
    begun = run_names(runs)
    if begun and RunStore.open(str(runs / begun[-1])).record.blocks != blocks:
        raise UsageError(str(folder), "holds a run of another number of blocks", "name another folder by --into")
    new = [f"--sweep={sweep}", f"--blocks={blocks}", f"--seed={seed}", *names]
    argv = ["-m", "lab", "bench", "--json", *([f"--resume={begun[-1]}"] if begun else new)]
    done = timed([sys.executable, *argv], {**os.environ, "LAB_RUNS": str(runs)}, 24 * 3600.0)
    names_now = run_names(runs)
    if done.status not in (0, 1) or not names_now:  # 1: some cell has no valid sample
        raise MeasuringError("selfbench: lab bench", last_words(done))
    return RunStore.open(str(runs / names_now[-1]))


def read(run: RunStore) -> list[Injected]:
    """Of a stored run: the primary metric of every variant with knobs of its own. MeasuringError for fewer than ten blocks."""
    if run.record.blocks < TEN:
        raise MeasuringError(run.record.id, f"has {run.record.blocks} blocks, ten are needed", "name a longer run")
    samples = run.samples()
    histograms = {one.id: run.histogram(one) for one in samples}  # each is read by the whole and by its ten
    return in_tens(run.record, samples, lambda one: histograms[one.id])


def in_tens(record: RunRecord, samples: Sequence[Sample], histogram_of: HistogramOf) -> list[Injected]:
    """The whole run's effects, and in how many of its tens they are claimed; what the whole run does not judge is left out."""
    whole = summarise_run(record, samples, histogram_of)
    parts = [part(record, samples, histogram_of, first) for first in range(1, record.blocks - TEN + 2, TEN)]
    noise = {
        (row.arm.baseline, row.point.name, effect.metric): effect.estimate
        for row in whole.rows
        if row.arm.role == "again"
        for effect in row.effects
    }
    found: list[Injected] = []
    for row in whole.rows:
        for effect in row.effects if row.arm.role == "variant" else ():
            if (
                effect.primary
                and effect.estimate is not None
                and effect.judgement not in ("not-judged", "not-available")
            ):
                again = noise.get((effect.against, row.point.name, effect.metric))
                found.append(_injected(row, effect, again, [_same(one, row, effect) for one in parts]))
    return found


def part(record: RunRecord, samples: Sequence[Sample], histogram_of: HistogramOf, first: int) -> Summary:
    """Ten blocks from `first` on, as a run of their own."""
    mine = range(first, first + TEN)
    slots = tuple(slot for slot in record.slots if slot[0] in mine or slot[0] == 0)
    alone = record.model_copy(update={"blocks": TEN, "slots": slots})
    return summarise_run(alone, [one for one in samples if one.block in mine or one.block == 0], histogram_of)


def _injected(row: Row, effect: Effect, again: stats.Estimate | None, tens: Sequence[Effect | None]) -> Injected:
    estimate = effect.estimate
    assert estimate is not None, "judged effects have one"
    judged = [one for one in tens if one is not None and one.judgement in ("claimed", "unresolved")]
    low, high = estimate.interval or (None, None)
    sd = again.sd if again is not None and again.has_interval else None
    promised = None if sd is None else power(estimate.effect, sd, TEN)
    claimed = sum(one.judgement == "claimed" for one in judged)
    return Injected(
        variant=row.arm.variant,
        point=row.point.name,
        metric=effect.metric,
        effect=expm1(estimate.effect),
        low=None if low is None else expm1(low),
        high=None if high is None else expm1(high),
        blocks=estimate.n,
        resolvable=None if sd is None else stats.resolvable(sd, TEN),
        promised=promised,
        claimed=claimed,
        tens=len(judged),
        kept=kept(claimed, len(judged), promised),
    )


def _same(summary: Summary, row: Row, effect: Effect) -> Effect | None:
    rows = (one for one in summary.rows if (one.arm.name, one.point.name) == (row.arm.name, row.point.name))
    return next(
        (
            one
            for found in rows
            for one in found.effects
            if (one.metric, one.against) == (effect.metric, effect.against)
        ),
        None,
    )


def line(one: Injected) -> str:
    """A variant in words: what it does, how often ten blocks claimed it, how often they should."""
    interval = "" if one.low is None or one.high is None else format_interval(log1p(one.low), log1p(one.high))
    promised = "no A/A interval, so nothing was promised"
    if one.promised is not None and one.resolvable is not None:
        promised = f"promised {one.promised:.0%} of tens (ten blocks resolve {one.resolvable:.1%} with 90 %)"
    kept = "" if one.kept else ": fewer than promised"
    name = f"{one.variant} {metric_name(one.metric)} at {one.point}"
    return f"{name}: {format_percent(log1p(one.effect))} %{interval} over {one.blocks} blocks; claimed in {one.claimed} of {one.tens} tens, {promised}{kept}"
