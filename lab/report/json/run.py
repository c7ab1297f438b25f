"""A summary as plain data: what `bench --json` and `table --json` print of steady loads, and of disturbed ones."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from lab.analysis.rows import Row
from lab.analysis.summary import Summary
from lab.analysis.verdicts import floor_line, verdicts
from lab.model.metrics import DIFFERENCES, METRICS, QUANTILES
from lab.report.json.effects import DifferenceJson, RatioJson
from lab.stats import paired as stats


def as_json(summary: Summary) -> dict[str, Any]:
    """Plain data with stable keys, in seconds, bytes, requests per second, counts and ratios (variant/baseline); null = not known.

    {schema_version, target, blocks, seed, complete, floor: str, not_measurable: [{variant, what, why, remedy}], notes: [str],
     verdicts: [{arm, kind, text, snippet}],
     rows: [{arm, variant, role, baseline, point, connections, generator, stand_in_for,
             offered_rps (null = closed loop), achieved_rps, latency_s: {p50, p90, p99, p99.9, max}, histogram,
             requests, errors: {kind: n}, errors_invalid: {kind: n}, cpu_per_request_s, cpu_of, memory_bytes,
             gauges: {role/name: value}, bring_up_s, valid_blocks, planned_blocks, invalid: {reason: n},
             generator_limited, notes: [str],
             effects: [{metric, against, primary, judgement, blocks, ratio, ratio_low, ratio_high, p_value,
                        holm_p_value, floor_ratio, hodges_lehmann_ratio, hodges_lehmann_low,
                        hodges_lehmann_high, notes: [str]}]}]}
    Of disturbed loads:
    {complete, floor, notes: [str], verdicts: [{arm, kind, text, snippet}],
     metrics: {name: {title, better}},
     rows: [{arm, variant, role, baseline, point, control, disturbance, generator, stand_in_for, valid_blocks,
             planned_blocks, invalid: {reason: n}, clock_error_s, notes: [str],
             values: {metric: {block: value}}, medians: {metric: {value, low, high, blocks}},
             slowdowns: {p99 | p50: {ratio, low, high, blocks}},
             effects: [{metric, against, primary, judgement, blocks, difference, low, high, p_value, holm_p_value,
                        floor, hodges_lehmann, hodges_lehmann_low, hodges_lehmann_high, notes: [str]}]}]}
    Intervals and p-values are null below six blocks. `judgement` as in `Effect`, `kind` as in `Verdict`.
    """
    whose = {
        "schema_version": 1,
        "target": summary.target,
        "blocks": summary.blocks,
        "seed": summary.seed,
    }
    said = {"complete": summary.complete, "floor": floor_line(summary)}
    absent = {"not_measurable": [item.model_dump() for item in summary.not_measurable]}
    told = {"notes": list(summary.notes), "verdicts": [asdict(verdict) for verdict in verdicts(summary)]}
    rows = {"rows": [_row(row) for row in summary.rows]}
    if not summary.disturbed:
        return whose | said | absent | told | rows
    metrics = {name: {"title": METRICS[name].title, "better": METRICS[name].better} for name in DIFFERENCES}
    return said | told | {"metrics": metrics} | rows


def _row(row: Row) -> dict[str, Any]:
    steady = row.point.disturbance is None
    return {
        "arm": row.arm.name,
        "variant": row.arm.variant,
        "role": row.arm.role,
        "baseline": row.arm.baseline,
        "point": row.point.name,
        **(_steady(row) if steady else _disturbed(row)),
        "effects": [(RatioJson if steady else DifferenceJson).of(effect).plain() for effect in row.effects],
    }


def _steady(row: Row) -> dict[str, Any]:
    cell = row.cell
    return {
        "connections": row.point.connections,
        "generator": cell.generator,
        "stand_in_for": cell.stand_in_for,
        "offered_rps": row.point.rate_rps,
        "achieved_rps": cell.shown("rate"),
        "latency_s": {name: cell.shown(name) for name in QUANTILES} | {"max": cell.shown("slowest_s")},
        "histogram": cell.histogram,
        "requests": cell.requests,
        "errors": cell.errors,
        "errors_invalid": cell.errors_invalid,
        "cpu_per_request_s": cell.shown("cpu_per_request"),
        "cpu_of": cell.cpu_of,
        "memory_bytes": cell.shown("memory_bytes"),
        "gauges": cell.gauges,
        "bring_up_s": cell.shown("bring_up_s"),
        **_blocks(row),
        "generator_limited": row.generator_limited,
        "notes": list(row.notes),
    }


def _disturbed(row: Row) -> dict[str, Any]:
    cell, disturbance = row.cell, row.point.disturbance
    levels = {name: level for name in cell.values if (level := cell.level(name)) is not None}
    return {
        "control": row.point.control,
        "disturbance": disturbance.model_dump() if disturbance else None,
        "generator": cell.generator,
        "stand_in_for": cell.stand_in_for,
        **_blocks(row),
        "clock_error_s": cell.clock_error_s,
        "notes": list(row.notes),
        "values": {name: {str(block): value for block, value in found.items()} for name, found in cell.values.items()},
        "medians": {
            name: {"value": level.value, "low": level.low, "high": level.high, "blocks": level.n}
            for name, level in levels.items()
        },
        "slowdowns": {name: _slowdown(estimate) for name, estimate in cell.slowdowns.items()},
    }


def _blocks(row: Row) -> dict[str, Any]:
    return {
        "valid_blocks": row.cell.valid_blocks,
        "planned_blocks": row.cell.planned_blocks,
        "invalid": {str(reason): count for reason, count in row.cell.invalid.items()},
    }


def _slowdown(estimate: stats.Estimate) -> dict[str, Any]:
    low, high = estimate.ratio_interval or (None, None)
    return {"ratio": estimate.ratio, "low": low, "high": high, "blocks": estimate.n}
