"""What to do about a gated row that has not passed: one clause for each, with the number of blocks where more of them would help."""

from __future__ import annotations

from math import ceil, log1p

from lab.analysis.comparison.comparison import TOO_FEW, Comparison, blocks_wanted
from lab.analysis.comparison.rows import LONELY, Compared, size_text
from lab.analysis.comparison.verdicts import TOO_SELDOM, after_unserved
from lab.analysis.rerun import measure, resume
from lab.stats import paired as stats
from lab.stats.power import blocks_to_resolve
from lab.stats.units import format_blocks

REMEASURE = "measure both again in one job, the candidate's run right after the baseline's"
SAME_VARIANT = "it is the same variant, so no setting did this"
SAME = "the manifests are the same in both runs, so no setting did this, but the machine, versions or the lab"
AFTER_LEAST = "gate CPU per request (--metric cpu_per_request), or measure with a generator that is not the limit"
AFTER_SEARCH = f"{TOO_SELDOM}: gate runs of `just bench`"
MEASURE_MISSING = (
    "measure both with the same variants and a sweep that has all of it,"
    " or ask only for what is there: --arm, RUN:ARM RUN:ARM, --metric, --max-more"
)


def after_regression(comparison: Comparison, row: Compared) -> str:
    base, other = row.base, row.other
    if comparison.same_settings(row.pair) and comparison.paired:
        return f"a false claim: {SAME_VARIANT}: measure with --blocks {2 * base.planned_blocks} or more, or on another machine"
    if comparison.same_settings(row.pair):
        return f"{SAME}: {REMEASURE}"
    if not row.beyond_baseline:
        return f"the baseline itself moved as much between the runs: {REMEASURE}"
    runs = base.run if base.run == other.run else f"{base.run} {other.run}"
    return f"keep {base.arm} as it was; `just compare {runs}` shows every metric"


def after_close(comparison: Comparison, row: Compared) -> str:
    """Return how to measure a regression that lies close to its bound a second time, and how to judge both measurements."""
    base, other = row.base, row.other
    if comparison.paired:
        return f"measure it again on fresh bring-ups: {measure(comparison.other, other.arm)}, and name that run by --again RUN"
    runs = (
        "both again on fresh bring-ups"
        if base.arm == other.arm
        else f"{base.arm} and {other.arm} again on fresh bring-ups"
    )
    return f"measure {runs}: {measure(comparison.other, other.arm)}, and name those runs by --again RUN RUN"


def after_broken(comparison: Comparison, row: Compared) -> str:
    shown = f"`just table {row.other.run}` shows what happened"
    if comparison.same_settings(row.pair):
        return f"{SAME_VARIANT}: {shown}" if comparison.paired else f"{SAME}: {shown}, then {REMEASURE}"
    return f"keep {row.base.arm} as it was; {shown}"


def after_nothing(comparison: Comparison, row: Compared) -> str:
    if goes_on := _interrupted(comparison, row):
        return f"measure what an interruption left out: {goes_on}"
    if row.unserved:
        return after_unserved(comparison, row)
    sides = (row.base, row.other)
    if (row.estimate is not None and not row.estimate.has_interval) or LONELY in row.notes:
        if comparison.other.knee is not None:
            return AFTER_SEARCH
        counted = row.estimate.n if row.estimate else 0  # pairs, or the fewer of two runs
        _, planned = min((len(side.values), side.planned_blocks) for side in sides)
        needed = max(stats.MIN_BLOCKS, ceil(stats.MIN_BLOCKS * planned / counted) if counted else 2 * planned)
        return f"measure with --blocks {needed} or more ({counted} of {planned} counted here, {stats.MIN_BLOCKS} must)"
    counts = zip(sides, row.counted, strict=True)
    lost = sorted({str(reason) for side, counted in counts if not counted for reason in side.invalid})
    if lost:
        return f"measure again where this does not happen: {', '.join(lost)}"
    if row.base.generator != row.other.generator:
        return "measure both with the same generator"
    return f"gate another metric by --metric{'' if comparison.paired else f', or {REMEASURE}'}"


def after_open(comparison: Comparison, row: Compared, bound: float, text: str, beyond: bool) -> str:
    """What would tell a row whose interval reaches beyond its bound (`beyond`: all of it does, and yet it is not resolved).

    How many blocks resolve an effect as large as the bound.
    """
    estimate = row.estimate
    assert estimate is not None and estimate.sd is not None, "what has an interval has a standard deviation"
    if comparison.other.knee is not None:
        return AFTER_SEARCH
    wanted = 0 if comparison.paired else blocks_wanted(comparison.rows)
    fewer, twice = "gate one arm (RUN:ARM RUN:ARM)", 2 * estimate.n
    few = (
        f"{fewer}, or measure both with --blocks {wanted} or more:"
        f" {sum(comparison.family)} {TOO_FEW} are never resolved"
    )
    if beyond and not wanted:
        if abs(estimate.effect) <= row.size.guard:
            guard = size_text(row, row.size.guard)
            return f"measure again with --blocks {twice}, or on a quieter machine: the baseline against itself shows {guard}"
        return f"measure again with --blocks {twice}{'' if comparison.paired else f', or {fewer}'}"
    if beyond:
        return few
    if not bound:
        return f"what varies is never shown to be no more at all: allow some, as --max-more {row.metric}=N"
    needed = blocks_to_resolve(estimate.sd, estimate.n, log1p(bound) if row.relative else bound)
    if needed is None:
        return f"too noisy to resolve {text} in any number of blocks that is planned: allow more, or measure on a quieter machine"
    if needed > estimate.n:
        return f"measure with --blocks {max(needed, wanted)}, which resolve {text}"
    if wanted:
        return few
    here = format_blocks(estimate.n)
    return f"measure again with --blocks {twice}: {here} resolve {text}, and the effect lies near it"


def _interrupted(comparison: Comparison, row: Compared) -> str:
    """What measures the blocks that were never begun, where these are enough; empty: there are none, or they are not."""
    left = [side.planned_blocks - begun for side, begun in zip((row.base, row.other), row.begun, strict=True)]
    most = min(counted + more for counted, more in zip(row.counted, left, strict=True))
    if min(row.counted) >= stats.MIN_BLOCKS or most < stats.MIN_BLOCKS:
        return ""
    runs = [run for run, more in zip((comparison.base, comparison.other), left, strict=True) if more]
    return " and ".join(dict.fromkeys(f"`{resume(run)}`" for run in runs))
