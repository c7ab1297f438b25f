"""A gate for CI, made from a comparison and bounds: its verdicts (`judge`) and what to do about them (`explain`).

The gate does not pass if there was nothing to judge, and it refuses to compare runs of two machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lab.analysis.explain.gate import REMEASURE, advise_case, explain_case, explain_confirmed, explain_nothing
from lab.analysis.judge.comparison import Comparison, format_change
from lab.analysis.judge.gate import VERDICTS, Bounds, Gate, GatedRow, choose_rows, classify_row, mark_undetectable
from lab.analysis.judge.meeting import TWO_MACHINES
from lab.base.errors import UsageError, refuse_if, refuse_unknown


def judge_gate(comparison: Comparison, bounds: Bounds, arms: Sequence[str] = ()) -> Gate:
    """Judge the rows of a comparison that have a bound: each is a regression, passed or inconclusive.

    Args:
        comparison: The comparison of a base with a candidate.
        bounds: The largest losses that still pass.
        arms: The names of the candidate's arms (variants) to judge; empty for all.

    Raises:
        UsageError: No row has a bound, an arm is unknown, or the runs are of two machines.

    """
    differing = next((note for note in comparison.notes if note.startswith(TWO_MACHINES)), "")
    refuse_if(
        differing,
        "gate",
        f"{comparison.base.id} and {comparison.other.id} are of two machines: {differing.partition(': ')[2]}",
        f"no setting can be judged by that: {REMEASURE}",
    )
    candidates = {row.other.arm for row in comparison.rows}
    for name in arms:
        refuse_if(
            name in {row.base.arm for row in comparison.rows} - candidates,
            "--arm",
            f"'{name}' is what the others are held to, not a candidate",
            f"may be named: {', '.join(sorted(candidates))}",
        )
        refuse_unknown(name, candidates, "--arm", f"no arm '{name}' is compared")
    rows = [row for row in comparison.rows if not arms or row.other.arm in arms]
    selected, left_out = choose_rows(comparison, rows, bounds)
    if not selected:
        empty_reason, instead = explain_nothing(rows, bounds)
        raise UsageError("gate", f"nothing to gate: {'; '.join(left_out) or empty_reason}", instead)
    judged: list[GatedRow] = []
    for row in selected:
        bound = bounds.of(row)
        limit = (bounds.regression or 0.0) if bound is None else bound  # None: it stands for a row that has a bound
        case = classify_row(row, limit)
        verdict, message = VERDICTS.get(case, "inconclusive"), explain_case(row, limit, case)
        judged.append(
            GatedRow(row, limit, verdict, message, advise_case(comparison, row, limit, case), close=case == "close")
        )
    gated, too_noisy = mark_undetectable(comparison, judged, bounds)
    gated_metrics = {item.row.metric for item in judged}
    lacks_steady = bounds.regression is not None and not any(item.row.relative for item in judged)
    missing = (
        *(f"arm {name}" for name in comparison.missing_arms if not arms),
        *(f"point {point.name}" for point in comparison.missing_points if bounds.concern(point)),
        *(f"metric {metric}" for metric in (*bounds.more, *bounds.metrics) if metric not in gated_metrics),
        *(["a steady load"] if lacks_steady else []),
    )
    return Gate(comparison, bounds, gated, (*left_out, *too_noisy), missing)


def confirm_regressions(first: Gate, second: Gate) -> Gate:
    """Combine two gates (pass/fail checks) of the same change, each measured on separate starts of the systems.

    A row is a metric at a load point. If it is close to its bound in both measurements, it becomes a regression. If it
    is close only in the second one, it stays inconclusive.

    Returns:
        The second gate with these verdicts. If the first gate has no row that must be measured again, the first gate.

    """
    if not first.to_measure_again:
        return first
    before = {gated.name: gated for gated in first.rows if gated.close}
    rows = tuple(
        replace(
            gated,
            verdict="regression",
            close=False,
            said=explain_confirmed(before[gated.name], gated),
            do=advise_case(second.comparison, gated.row, gated.limit, "worse"),
        )
        if gated.close and gated.name in before
        else gated
        for gated in second.rows
    )
    measured = f"measured twice: first {first.comparison.other.id}, then {second.comparison.other.id}"
    changes = [
        f"{name}: in the first measurement {format_change(gated.row, gated.row.estimate)}"
        for name, gated in before.items()
        if gated.row.estimate is not None
    ]
    return replace(second, rows=rows, left_out=(*second.left_out, "; ".join([measured, *changes])))
