"""The conclusion of a run, printed first: what to do, each load in words, the noise check, limits, and what shows more.

    keepalive: no difference found; no change needed
      ceiling    CPU per request +0.4 % [−0.3, +1.1] = +0.08 µs: equivalent, within ±2 %
      rate-1000  CPU per request −0.9 % [−1.6, −0.2] = −0.52 µs: equivalent, within ±2 %
    noise check passed: ingress-nginx against itself, CPU per request −0.7 % [−2.0, +0.7] at ceiling

A run of disrupted loads has a sentence for each variant, and describes no loads. A run of steady loads with more than three
variants has a line for each kind of verdict. The table follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from lab.analysis import rerun
from lab.analysis.explain.notes import describe_direct_streams
from lab.analysis.explain.run import (
    WORDS,
    RowEffect,
    Verdict,
    count_judged,
    explain_inconclusive,
    find_bound,
    format_difference,
    format_interval,
    format_margin,
    make_verdicts,
)
from lab.analysis.judge.decision import ALPHA, Decision
from lab.analysis.judge.effects import Effect
from lab.analysis.judge.rows import Summary
from lab.analysis.rate_costs import RateCost, compute_rate_costs, format_cost, format_even_rate
from lab.base.grouping import group_values
from lab.model.metrics import find_metric
from lab.model.names import BRING_UP_S, OUTPUT_WIDTH
from lab.model.run import RunRecord
from lab.stats import paired as stats
from lab.stats.power import compute_mde, count_blocks_to_detect
from lab.stats.units import format_blocks, format_duration
from lab.systems.table import SYSTEMS

MOST_VERDICTS, MOST_LOADS = 3, 3
"""The most variants of steady loads that have a line each, and the most loads that are put into words for a single variant.

With two or three variants, one load of each is put into words. The table has the others.
"""
LIMITS = {
    "generator": "the load generator: judge CPU per request there, not requests per second",
    "limit": "a container's CPU limit",
    "link": "the shaped link",
    "errors": "what failed",
    "proxy": "the proxy's CPUs",
    "waiting": "no CPU: it waited for something else",
}
"""The causes that limit a closed loop (`lab.model.bottleneck`), in words; of several at one load, the first is named."""
UNTIL_CONFIRMED = " once a run on apiserver agrees"
"""The condition after the advice to apply a setting that was measured without its controller."""
FIRST_STEP = "just bench keepalive"
"""The command that a run without a variant recommends."""


def conclude_run(summary: Summary, record: RunRecord) -> Iterator[tuple[str, tuple[Verdict, ...]]]:
    """Yield the lines of a run's conclusion, each with the verdicts about variants that it states.

    Args:
        summary: The summary of the run's steady loads, or of its disrupted ones.
        record: The record of the run.

    Returns:
        Pairs of a line and its verdicts; a line that states no verdict has an empty tuple.

    """
    run_verdicts = make_verdicts(summary)
    advised = tuple(replace(verdict, do=condition_advice(verdict, record)) for verdict in run_verdicts)
    yield from _list_verdicts(summary, advised)
    if not summary.rows:
        return
    if all(row.arm.variant == "direct" for row in summary.rows):
        yield from ((line, ()) for line in describe_direct_streams(summary.rows))
    resolution, limits = "" if run_verdicts else _describe_resolution(summary), _describe_limits(summary)
    unconfirmed = [verdict.arm for verdict in run_verdicts if needs_controller(verdict, record)]
    command = rerun.measure_command(record, " ".join(unconfirmed))
    further = [
        describe_noise(summary),
        f"{resolution}; next: {FIRST_STEP}" if resolution else "",
        f"limited {limits}" if limits else "",
        f"local runs no controller; to confirm it: {command} --target apiserver" if unconfirmed else "",
        _suggest_blocks(summary, record),
    ]
    yield from ((line, ()) for line in further if line)


def needs_controller(verdict: Verdict, record: RunRecord) -> bool:
    """Return whether a verdict advises to apply a variant, but a run with the system's controller must confirm it first.

    This is so if the run was on the target local, which has no controllers, and the system has a controller on the
    target apiserver.
    """
    base = record.variants[verdict.arm].base if verdict.kind == "apply" and record.target == "local" else ""
    return any(system.name == base and system.controllers for system in SYSTEMS)


def condition_advice(verdict: Verdict, record: RunRecord) -> str:
    """Return what a verdict advises to do, with the condition `once a run on apiserver agrees` if `needs_controller`."""
    return verdict.do + UNTIL_CONFIRMED * needs_controller(verdict, record)


def _list_verdicts(summary: Summary, run_verdicts: Sequence[Verdict]) -> Iterator[tuple[str, tuple[Verdict, ...]]]:
    """Yield the lines with the verdicts about variants, each with the verdicts that it states.

    For disrupted loads there is one line per verdict, however many there are, and no load is described. For steady loads
    it depends on the number of verdicts:

    - One: its line is followed by lines about at most `MOST_LOADS` loads.
    - Two up to `MOST_VERDICTS`: each of their lines is followed by a line about one load.
    - More: there is one line for each kind of verdict, with the names of the variants.

    If a variant has further loads, one more line has their number.
    """
    if summary.disturbed or len(run_verdicts) <= MOST_VERDICTS:
        costs = compute_rate_costs(summary)
        for verdict in run_verdicts:
            yield verdict.text if summary.disturbed else verdict.headline, (verdict,)
            most = MOST_LOADS if len(run_verdicts) == 1 else 1
            yield from ((line, ()) for line in describe_rate_costs(costs, verdict.arm))
            yield from ((line, ()) for line in _describe_loads(summary, verdict.arm, most) if not summary.disturbed)
        return
    for kind, word in WORDS.items():
        if alike := tuple(verdict for verdict in run_verdicts if verdict.kind == kind):
            actions = {verdict.do for verdict in alike}
            head = ", ".join(filter(None, (word, actions.pop() if len(actions) == 1 else "")))
            yield _list_names(head, [verdict.arm for verdict in alike]), alike


def _list_names(head: str, names: Sequence[str]) -> str:
    """Return a line such as `worse, do not apply it: tls, and 3 more`, with as many names as fit, but at least one."""
    count = len(names)
    while count > 1 and len(f"{head}: {', '.join(names[:count])}, and {len(names)} more") > OUTPUT_WIDTH:
        count -= 1
    return f"{head}: {', '.join(names[:count])}" + f", and {len(names) - count} more" * (count < len(names))


def describe_noise(summary: Summary) -> str:
    """Return the line of the noise check, which compares each baseline with a second measurement of itself (A/A).

    The check passes if every interval includes 0. Without any interval, the line states that there is no check. The
    metrics are the primary ones of the variants. For steady loads without a variant, it is CPU time per request, or
    every metric if that was not measured.
    """
    effects = list(_list_self_effects(summary))
    known = [(row, effect) for row, effect in effects if effect.estimate and effect.estimate.has_interval]
    if not known:
        blocks = min((effect.estimate.n for _, effect in effects if effect.estimate), default=0)
        return f"noise check: none, {format_blocks(blocks)} with the baseline twice, {stats.MIN_BLOCKS} are needed"
    failed = [(row, effect) for row, effect in known if effect.estimate and effect.estimate.excludes_zero]
    widest = sorted(failed or known, key=lambda item: -find_bound(item[1].estimate))
    shown = [item for item in widest if item[1].against == widest[0][1].against][:MOST_LOADS]
    parts = group_values(
        (metric.title, f"{metric.change(effect.estimate.effect)}{format_interval(effect)} at {row.point.name}")
        for row, effect in shown
        for metric in [find_metric(effect.metric)]
        if effect.estimate
    )
    base, left = shown[0][1].against, len(failed or known) - len(shown)
    listed = "; ".join(f"{title} {', '.join(texts)}" for title, texts in parts.items())
    listed += f", and {left} smaller" if left else ""
    if failed:
        return f"noise check: {base} against itself differs, {listed}: no difference up to its far end is claimed there"
    return f"noise check passed: {base} against itself, {listed}"


def _list_self_effects(summary: Summary) -> list[RowEffect]:
    """Return the A/A comparisons (a baseline with itself) for the noise check, each with its row of the table.

    They are those in a primary metric. Without any, those in CPU time per request are returned for steady loads, or else
    those in all metrics.
    """
    effects = [(row, effect) for row in summary.rows for effect in row.effects if effect.decision is Decision.A_A]
    primary = [item for item in effects if item[1].primary]
    costs = [item for item in effects if item[1].metric == "cpu_per_request"]
    return primary or ([] if summary.disturbed else costs or effects)


def _describe_resolution(summary: Summary) -> str:
    """Return the smallest effects that this machine detects with the run's number of blocks (repetitions); empty if unknown.

    Effects of this size are found 9 times in 10.
    """
    parts = [
        f"{100 * least:.1f} % in {find_metric(effect.metric).title} at {row.point.name}"
        for row, effect in _list_self_effects(summary)
        for estimate in [effect.estimate]
        if estimate and estimate.sd and find_metric(effect.metric).ratio
        if (least := compute_mde(estimate.sd, estimate.n))
    ]
    found = ", ".join(parts[:MOST_LOADS])
    return (
        found and f"this machine finds differences from {found} on, 9 times in 10, in {format_blocks(summary.blocks)}"
    )


def _describe_loads(summary: Summary, arm: str, most: int) -> Iterator[str]:
    """Yield one line for each load of a variant: the effect with its interval, and the decision in words.

    Args:
        summary: The summary of the run.
        arm: The name of the variant's arm.
        most: The largest number of loads to describe; one more line has the number of the others.

    """
    order = [Decision.BETTER, Decision.WORSE, Decision.INCONCLUSIVE, *Decision]
    rows = [row for row in summary.rows if row.arm.name == arm and not row.point.control]
    effects = [(row, effect) for row in rows for effect in row.shown]
    effects.sort(key=lambda item: (item[0].unsteady is None, order.index(item[1].decision)))
    width = max((len(row.point.name) for row, _ in effects[:most]), default=0)
    for row, effect in effects[:most]:
        metric = find_metric(effect.metric)
        if row.unsteady is not None:
            yield f"  {row.point.name:<{width}}  {row.unsteady.sentence()}"
        else:
            change = f"{metric.title} {format_difference(effect)}"
            yield f"  {row.point.name:<{width}}  {change}: {_describe_decision(effect)}"
    if len(effects) > most:
        left = len(effects) - most
        yield f"  and {left} more load{'s' if left > 1 else ''}, in the table"


def describe_rate_costs(costs: Sequence[RateCost], arm: str) -> Iterator[str]:
    """Yield a line about a variant's effect on idle cost (CPU at rate 0) and marginal cost (CPU of each further request).

    There is no line if the run lacks two rates of one load. The line also names the rate below which the baseline's
    idle cost is larger than the cost of all its requests. Below this rate, a difference in idle cost matters most.
    """
    for cost in (cost for cost in costs if cost.arm == arm and cost.idle_change and cost.marginal_change):
        assert cost.idle_change and cost.marginal_change
        idle, marginal = (
            " ".join(format_cost(change, change is cost.marginal_change, signed=True))
            for change in (cost.idle_change, cost.marginal_change)
        )
        even = next((base.even_rate for base in costs if base.arm == cost.against), None)
        matters = f"; the first matters below some {format_even_rate(even)} req/s, the second above" if even else ""
        yield f"  idle cost {idle}, each further request {marginal}{matters}"


def _describe_decision(effect: Effect) -> str:
    """Return the decision about an effect in words, with the reason if it is inconclusive or if there is no decision."""
    if effect.decision is Decision.EQUIVALENT:
        return f"equivalent, within ±{format_margin(effect)}"
    if effect.decision is Decision.INCONCLUSIVE and (reason := explain_inconclusive(effect)):
        return f"inconclusive, {reason}"
    at_least = ", at least: the faster side was limited by the generator" if effect.bound else ""
    judged = effect.decision.judged or not effect.note
    return f"{effect.decision.value}{at_least}" if judged else f"{effect.decision.value}, {effect.note}"


def _describe_limits(summary: Summary) -> str:
    """Describe what limited the closed loops of a run: `at ceiling by the proxy's CPUs`; empty without a closed loop.

    In the example, `ceiling` is the name of a load.
    """
    limits = group_values(
        (row.point.name, limit)
        for row in summary.rows
        if row.arm.role != "reference"
        for cell in (row.cell, *([row.pair.own] if row.pair else []))
        for limit in cell.limits
    )
    points = group_values(
        (LIMITS[limit], point)
        for point, found in limits.items()
        for limit in [limit for limit in LIMITS if limit in found][:1]
    )
    return "; ".join(f"at {', '.join(names)} by {limit}" for limit, names in points.items())


def _suggest_blocks(summary: Summary, record: RunRecord) -> str:
    """Return the command with enough blocks (repetitions) to decide the inconclusive effects, and its duration.

    If even the largest plan would not suffice for one of the variants, the result is `more blocks would not find …`. It
    is empty if nothing is inconclusive, or if the run has enough blocks already.
    """
    family, blocks = count_judged(summary), dict[str, int | None]()
    place = ""
    effects = [(row, effect) for row in summary.rows for effect in row.shown]
    for row, effect in effects:
        estimate, margin = effect.estimate, effect.size.margin
        if effect.decision is Decision.INCONCLUSIVE and estimate and estimate.sd and find_bound(estimate) > margin > 0:
            needed = count_blocks_to_detect(estimate.sd, estimate.n, margin, ALPHA / family)
            if needed is None or needed > max((count or 0 for count in blocks.values()), default=estimate.n):
                place = f"{format_margin(effect)} at {row.point.name}"
            blocks[row.arm.name] = needed
    counts = [count for count in blocks.values() if count is not None]
    if not blocks or len(counts) < len(blocks):
        return f"more blocks would not find {place}" if blocks else ""
    command = f"{rerun.measure_command(record, ' '.join(blocks))} --blocks {max(counts)}"
    total_s = record.designed.duration_s or record.plan().lasts_s(BRING_UP_S[record.target])
    duration = format_duration(total_s * max(counts) / max(1, record.blocks))
    return f"to find {place}: {command} (about {duration})" if max(counts) > summary.blocks else ""
