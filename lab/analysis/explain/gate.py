"""The sentences of a gate: why each row has its verdict, what to do about it, and the conclusion.

Where more blocks would help, the advice has their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log1p

from lab.analysis.explain.comparison import TOO_SELDOM, explain_unserved
from lab.analysis.judge.comparison import (
    NO_COMMON_BLOCK,
    TOO_FEW,
    WHY_OPEN,
    ComparedRow,
    Comparison,
    count_needed_blocks,
    format_change,
)
from lab.analysis.judge.decision import Decision
from lab.analysis.judge.gate import CLOSE, Bounds, Case, Gate, GatedRow, compute_loss, describe_breakage, format_limit
from lab.analysis.rerun import measure_command, resume
from lab.model.metrics import RATIOS, find_metric
from lab.stats import paired as stats
from lab.stats.power import count_blocks_to_detect
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


# -- a row ---------------------------------------------------------------------------------------------------


def explain_case(row: ComparedRow, limit: float, case: Case) -> str:
    """Return the reason for a gate's verdict on a row of a comparison, with the effect and the bound.

    A gate checks whether a candidate is worse than a base by more than a bound.

    Args:
        row: The row of the comparison.
        limit: The row's bound: a fraction, or for a disruption an amount in the metric's own unit.
        case: Where the effect lies relative to the bound, such as `worse` or `within`
            (`lab.analysis.judge.gate.classify_row`).

    """
    if case == "broken":
        return (
            f"no valid block of the candidate: {describe_breakage(row)}; the base has {format_blocks(row.counted[0])}"
        )
    if case == "untold" or row.estimate is None:
        return "; ".join(row.notes) or "nothing to compare"
    change, text, worse = format_change(row, row.estimate), format_limit(row, limit), row.decision is Decision.WORSE
    p_text = f"p {row.holm_p:.3f}" if row.holm_p and row.holm_p >= 0.0005 else "p < 0.001"
    beyond = f"{change}, worse than the bound of {text} and resolved ({p_text})"
    notes = "".join(f" ({note})" for note in row.notes if note.startswith(WHY_OPEN))
    resolved = "resolved, but not how large it is" if worse else f"not resolved{notes}"
    reasons: dict[Case, str] = {
        "worse": beyond,
        "close": f"{beyond}, but its interval begins less than {CLOSE:.0%} above the bound",
        "fell": f"{change} in the blocks that worked: {row.fell}",
        "at-least": f"{change} or more, as the generator was the base's limit: nothing shows that it is within {text}",
        "open": f"{change}: {resolved}, and its interval allows more than {text}",
        "within": f"{change}: {'worse, resolved, but ' if worse else ''}within the bound of {text}",
    }
    return reasons[case]


def explain_confirmed(first: GatedRow, second: GatedRow) -> str:
    """Return why a gate calls a row a regression after it was measured twice, each time close to the bound.

    A gate checks whether a candidate is worse than a base by more than a bound.

    Args:
        first: The row in the first measurement.
        second: The same row in the second measurement.

    """
    changes = " and ".join(
        format_change(gated.row, gated.row.estimate) for gated in (first, second) if gated.row.estimate
    )
    return f"{changes} in two measurements on bring-ups of their own, worse than the bound of {second.bound}"


def advise_case(comparison: Comparison, row: ComparedRow, limit: float, case: Case) -> str:
    """Return what a user should do about a row that a gate (pass/fail check) judged, such as to measure it again.

    Args:
        comparison: The comparison that has the row.
        row: The row.
        limit: The row's bound: a fraction, or for a disruption an amount in the metric's own unit.
        case: Where the effect lies relative to the bound, such as `worse` or `within`
            (`lab.analysis.judge.gate.classify_row`).

    """
    base, other, same = row.base, row.other, comparison.same_settings(row.pair)
    if case == "within":
        return "nothing to do"
    if case == "at-least":
        return AFTER_LEAST
    if case == "broken" or (row.fell and case in ("untold", "fell")):
        look = f"`just table {other.run}` shows what happened"
        if same:
            return f"{SAME_VARIANT}: {look}" if comparison.paired else f"{SAME}: {look}, then {REMEASURE}"
        return f"keep {base.arm} as it was; {look}"
    if case == "untold":
        return _advise_uncompared(comparison, row)
    if case == "open":
        return _advise_open(comparison, row, limit)
    if case == "close":
        command = measure_command(comparison.other, other.arm)
        if comparison.paired:
            return f"measure it again on fresh bring-ups: {command}, and name that run by --again RUN"
        arms = "both" if base.arm == other.arm else f"{base.arm} and {other.arm}"
        return f"measure {arms} again on fresh bring-ups: {command}, and name those runs by --again RUN RUN"
    if same and comparison.paired:
        return f"a false claim: {SAME_VARIANT}: measure with --blocks {2 * base.planned_blocks} or more, or on another machine"
    if same:
        return f"{SAME}: {REMEASURE}"
    if not row.beyond_baseline:
        return f"the baseline itself moved as much between the runs: {REMEASURE}"
    runs = base.run if base.run == other.run else f"{base.run} {other.run}"
    return f"keep {base.arm} as it was; `just compare {runs}` shows every metric"


def _advise_uncompared(comparison: Comparison, row: ComparedRow) -> str:
    """Return what to measure so that a row gets a decision, if its two sides could not be compared."""
    sides = (row.base, row.other)
    left = [side.planned_blocks - begun for side, begun in zip(sides, row.begun, strict=True)]
    possible = min(counted + remaining for counted, remaining in zip(row.counted, left, strict=True))
    runs = [run for run, remaining in zip((comparison.base, comparison.other), left, strict=True) if remaining]
    if runs and min(row.counted) < stats.MIN_BLOCKS <= possible:  # blocks that were never begun are enough
        goes_on = " and ".join(dict.fromkeys(f"`{resume(run)}`" for run in runs))
        return f"measure what an interruption left out: {goes_on}"
    if row.unserved:
        return explain_unserved(comparison, row)
    if (row.estimate is not None and not row.estimate.has_interval) or NO_COMMON_BLOCK in row.notes:
        if comparison.other.knee is not None:
            return AFTER_SEARCH
        counted = row.estimate.n if row.estimate else 0  # pairs, or the fewer blocks of two runs
        _, planned = min((len(side.values), side.planned_blocks) for side in sides)
        needed = max(stats.MIN_BLOCKS, ceil(stats.MIN_BLOCKS * planned / counted) if counted else 2 * planned)
        return f"measure with --blocks {needed} or more ({counted} of {planned} counted here, {stats.MIN_BLOCKS} must)"
    counts = zip(sides, row.counted, strict=True)
    if lost := sorted({str(reason) for side, counted in counts if not counted for reason in side.invalid}):
        return f"measure again where this does not happen: {', '.join(lost)}"
    if row.base.generator != row.other.generator:
        return "measure both with the same generator"
    return f"gate another metric by --metric{'' if comparison.paired else f', or {REMEASURE}'}"


def _advise_open(comparison: Comparison, row: ComparedRow, bound: float) -> str:
    """Return what would decide a row whose interval reaches beyond its bound, usually more blocks (repetitions).

    Args:
        comparison: The comparison that has the row.
        row: The row.
        bound: The row's bound: a fraction, or for a disruption an amount in the metric's own unit.

    """
    estimate, text = row.estimate, format_limit(row, bound)
    assert estimate is not None and estimate.sd is not None and estimate.interval, "what is open has an interval"
    if comparison.other.knee is not None:
        return AFTER_SEARCH
    least_blocks = 0 if comparison.paired else count_needed_blocks(comparison.rows)
    fewer, twice = "gate one arm (RUN:ARM RUN:ARM)", 2 * estimate.n
    few = (
        f"{fewer}, or measure both with --blocks {least_blocks} or more:"
        f" {sum(comparison.family)} {TOO_FEW} are never resolved"
    )
    # the whole interval lies beyond the bound, and yet the effect is not resolved
    if min(compute_loss(row, end) for end in estimate.interval) > bound:
        if least_blocks:
            return few
        if abs(estimate.effect) <= row.size.noise_floor:
            guard = find_metric(row.metric).size(row.size.noise_floor)
            return f"measure again with --blocks {twice}, or on a quieter machine: the baseline against itself shows {guard}"
        return f"measure again with --blocks {twice}{'' if comparison.paired else f', or {fewer}'}"
    if not bound:
        return f"what varies is never shown to be no more at all: allow some, as --max-more {row.metric}=N"
    needed = count_blocks_to_detect(estimate.sd, estimate.n, log1p(bound) if row.relative else bound)
    if needed is None:
        return f"too noisy to resolve {text} in any number of blocks that is planned: allow more, or measure on a quieter machine"
    if needed > estimate.n:
        return f"measure with --blocks {max(needed, least_blocks)}, which resolve {text}"
    if least_blocks:
        return few
    return (
        f"measure again with --blocks {twice}: {format_blocks(estimate.n)} resolve {text}, and the effect lies near it"
    )


# -- a gate --------------------------------------------------------------------------------------------------


def explain_nothing(rows: Sequence[ComparedRow], bounds: Bounds) -> tuple[str, str]:
    """Explain why no row of a comparison has a bound, so that a gate (pass/fail check) has nothing to judge.

    Returns:
        (the reason, the command-line options that would give a row a bound).

    """
    instead = f"--max-regression 5%, and --metric one of {', '.join(RATIOS)}"
    if outcomes := dict.fromkeys(row.metric for row in rows if not row.relative):
        instead = f"name what may grow in its own unit, as --max-more failed=0 --max-more gap_s=0.5; there are: {', '.join(outcomes)}"
    if not rows:
        return "the runs have no row in common", instead
    if not any(row.relative for row in rows):
        none = "every load is disturbed, and what comes of that has no percentages"
        return f"no row has {', '.join(bounds.more)}" if bounds.more else none, instead
    if bounds.regression is None:
        return "the loads are steady, and --max-more is for disturbed ones", instead
    return f"no row has {', '.join(bounds.metrics) or 'a metric that is judged'}", instead


def format_missing(gate: Gate) -> str:
    """Format what the candidate's run lacks: `not in run-2: arm keepalive, point rate-1000, metric gap_s`."""
    return f"not in {gate.comparison.other.id}: {', '.join(gate.missing)}"


def conclude(gate: Gate, strict: bool) -> str:
    """Return the last line of a gate's output: the number of rows with each verdict, and what to do.

    Args:
        gate: The gate, which checked a candidate against a base.
        strict: True if an inconclusive gate fails.

    """
    failed, unsure, passed = (len(gate.of(verdict)) for verdict in ("regression", "inconclusive", "passed"))
    counts = f"{failed} regression{'' if failed == 1 else 's'}, {unsure} inconclusive, {passed} passed"
    counts += f", {format_missing(gate)}" if gate.missing else ""
    if failed:
        comparison = gate.comparison
        same = comparison.paired and all(comparison.same_settings(gated.row.pair) for gated in gate.of("regression"))
        return f"{counts}: {'of the same variant, so no change is to blame' if same else 'do not take this change as it is'}"
    if gate.verdict == "inconclusive":
        knowledge = "nothing is known of this change" if not passed else "not all is known of this change"
        return f"not decided: {counts}; {knowledge}, {'refused' if strict else 'let through; --strict would refuse it'}"
    # the share of the bound that its interval reaches; without an interval, or with a bound of 0, the least
    worst = max(
        (gated for gated in gate.rows if gated.decides),
        key=lambda gated: gated.worst / gated.limit if gated.worst is not None and gated.limit else float("-inf"),
    )
    change = format_change(worst.row, worst.row.estimate) if worst.row.estimate else ""
    return f"{counts}: nothing to do; the nearest to its bound is {worst.name}, {change} of {worst.bound}"
