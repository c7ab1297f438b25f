"""A comparison and what may get worse → a gate for CI to act on: its verdicts (`judge`) and what to do about them (`explain`).

Refuses to pass on nothing, and runs of two machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lab.analysis.explain.gate import REMEASURE, advice, in_both, reason, why_nothing
from lab.analysis.judge.comparison import Comparison, change_text
from lab.analysis.judge.gate import VERDICTS, Bounds, Gate, Gated, case_of, chosen, detectable
from lab.analysis.judge.meeting import TWO_MACHINES
from lab.base.errors import UsageError, refuse_unknown


def gate(comparison: Comparison, bounds: Bounds, arms: Sequence[str] = ()) -> Gate:
    """Judge what `bounds` ask for, of these arms (empty: all). UsageError where that is nothing, and for runs of two machines."""
    if differing := next((note for note in comparison.notes if note.startswith(TWO_MACHINES)), ""):
        fault = f"{comparison.base.id} and {comparison.other.id} are of two machines: {differing.partition(': ')[2]}"
        raise UsageError("gate", fault, f"no setting can be judged by that: {REMEASURE}")
    candidates = {row.other.arm for row in comparison.rows}
    for name in arms:
        if name in {row.base.arm for row in comparison.rows} - candidates:
            fault = f"'{name}' is what the others are held to, not a candidate"
            raise UsageError("--arm", fault, f"may be named: {', '.join(sorted(candidates))}")
        refuse_unknown(name, candidates, "--arm", f"no arm '{name}' is compared")
    rows = [row for row in comparison.rows if not arms or row.other.arm in arms]
    found, left_out = chosen(comparison, rows, bounds)
    if not found:
        why, instead = why_nothing(rows, bounds)
        raise UsageError("gate", f"nothing to gate: {'; '.join(left_out) or why}", instead)
    judged: list[Gated] = []
    for row in found:
        bound = bounds.of(row)
        limit = (bounds.regression or 0.0) if bound is None else bound  # where it stands for one that is gated
        case = case_of(row, limit)
        verdict, said = VERDICTS.get(case, "cannot-tell"), reason(row, limit, case)
        judged.append(Gated(row, limit, verdict, said, advice(comparison, row, limit, case), close=case == "close"))
    gated, too_noisy = detectable(comparison, judged, bounds)
    missing = [] if arms else [f"arm {name}" for name in comparison.missing_arms]
    missing += [f"point {point.name}" for point in comparison.missing_points if bounds.concern(point)]
    held = {one.row.metric for one in judged}
    missing += [f"metric {metric}" for metric in (*bounds.more, *bounds.metrics) if metric not in held]
    if bounds.regression is not None and not any(one.row.relative for one in judged):
        missing.append("a steady load")
    return Gate(comparison, bounds, gated, (*left_out, *too_noisy), tuple(missing))


def confirmed(first: Gate, second: Gate) -> Gate:
    """Return the second measurement's gate, in which a row that was close to its bound in both is a regression.

    Both measured the same change, each on bring-ups of its own. A row that was close in one of them alone stays undecided. The first gate
    itself, where nothing in it has to be measured again.
    """
    if not first.to_measure_again:
        return first
    before = {one.name: one for one in first.rows if one.close}
    rows = tuple(
        replace(
            one,
            verdict="regression",
            close=False,
            said=in_both(before[one.name], one),
            do=advice(second.comparison, one.row, one.limit, "worse"),
        )
        if one.close and one.name in before
        else one
        for one in second.rows
    )
    measured = f"measured twice: first {first.comparison.other.id}, then {second.comparison.other.id}"
    told = [
        f"{name}: in the first measurement {change_text(one.row, one.row.estimate)}"
        for name, one in before.items()
        if one.row.estimate is not None
    ]
    return replace(second, rows=rows, left_out=(*second.left_out, "; ".join([measured, *told])))
