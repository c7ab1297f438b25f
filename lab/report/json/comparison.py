"""A comparison as plain data, and that data's schema. Seconds and ratios, nothing scaled for people."""

from __future__ import annotations

from dataclasses import asdict
from math import exp
from typing import Any, get_args, get_type_hints

from lab.analysis.comparison.comparison import Compared, Comparison
from lab.analysis.comparison.sides import Side
from lab.analysis.comparison.verdicts import Advice, advices
from lab.model.run import RunRecord
from lab.model.samples import Reason
from lab.report.tables.steady import load_text
from lab.stats import paired as stats

TEXT, NUMBER, FLAG = {"type": "string"}, {"type": "number"}, {"type": "boolean"}
COUNT = {"type": "integer", "minimum": 0}
KNOWN = {"type": ["number", "null"]}
NAME = {"type": ["string", "null"]}


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Plain data with stable keys; seconds, bytes, requests per second and counts; null = not known.

    {schema_version, paired, base: {run, target, sweep, blocks, created_at, git_commit}, other: the same keys, notes: [str],
     verdicts: [{base_arm, other_arm, kind, text, snippet}],
     rows: [{point, load, metric, title, kind: ratio | difference, more_is_better, judgement,
             base: {run, arm, generator, median, low, high, blocks, planned_blocks, invalid: {reason: n}, values: {block: n}},
             other: the same keys,
             effect, low, high, p_value, holm_p_value, blocks, floor,
             baseline_move: {effect, low, high, blocks} or null, notes: [str]}]}
    `kind` ratio: effect, low, high and floor are other / base; difference: other − base in the metric's own unit. Intervals
    and p-values are null below six blocks; a side's low and high are its median's interval. `blocks` of a row: pairs, or of two
    runs the fewer. `judgement` as in `Compared`, a verdict's `kind` as in `Advice`. `baseline_move`: of two runs, how the
    baseline that both have moved by itself.
    """
    return {
        "schema_version": 1,
        "paired": comparison.paired,
        "base": _record_json(comparison.base),
        "other": _record_json(comparison.other),
        "notes": list(comparison.notes),
        "verdicts": [asdict(advice) for advice in advices(comparison)],
        "rows": [_row_json(row) for row in comparison.rows],
    }


def _record_json(record: RunRecord) -> dict[str, Any]:
    kept = ("target", "sweep", "blocks", "created_at", "git_commit")
    return {"run": record.id, **{name: getattr(record, name) for name in kept}}


def _row_json(row: Compared) -> dict[str, Any]:
    estimate = row.estimate
    return {
        "point": row.point.name,
        "load": load_text(row.point),
        "metric": row.metric,
        "title": row.title,
        "kind": "ratio" if row.relative else "difference",
        "more_is_better": row.more_is_better,
        "judgement": row.judgement,
        "base": _side_json(row.base),
        "other": _side_json(row.other),
        **_estimate_json(row, estimate),
        "p_value": estimate.p_value if estimate and estimate.has_interval else None,
        "holm_p_value": row.holm_p,
        "floor": _told(row, row.floor),
        "baseline_move": _estimate_json(row, row.baseline_move) if row.baseline_move else None,
        "notes": list(row.notes),
    }


def _side_json(side: Side) -> dict[str, Any]:
    level = side.level
    return {
        "run": side.run,
        "arm": side.arm,
        "generator": side.generator,
        "median": level.value if level else None,
        "low": level.low if level else None,
        "high": level.high if level else None,
        "blocks": len(side.values),
        "planned_blocks": side.planned_blocks,
        "invalid": {str(reason): count for reason, count in side.invalid.items()},
        "values": {str(block): value for block, value in side.values.items()},
    }


def _estimate_json(row: Compared, estimate: stats.Estimate | None) -> dict[str, Any]:
    low, high = estimate.interval if estimate and estimate.interval else (None, None)
    return {
        "effect": _told(row, estimate.effect if estimate else None),
        "low": _told(row, low),
        "high": _told(row, high),
        "blocks": estimate.n if estimate else 0,
    }


def _told(row: Compared, value: float | None) -> float | None:
    return exp(value) if value is not None and row.relative else value


def schema() -> dict[str, Any]:
    """JSON Schema of what `compare --json` prints."""
    texts = {"type": "array", "items": TEXT}
    share = {"type": ["number", "null"], "minimum": 0, "maximum": 1}
    estimate = {
        "effect": KNOWN | {"description": "other / base, or other - base"},
        **dict.fromkeys(("low", "high"), KNOWN | {"description": "95 % interval; null below six blocks"}),
        "blocks": COUNT | {"description": "pairs; of two runs the fewer"},
    }
    counts = {"type": "object", "additionalProperties": COUNT, "propertyNames": {"enum": [str(r) for r in Reason]}}
    side = {
        **dict.fromkeys(("run", "arm"), TEXT),
        "generator": NAME,
        **dict.fromkeys(("median", "low", "high"), KNOWN),
        **dict.fromkeys(("blocks", "planned_blocks"), COUNT),
        "invalid": counts | {"description": "samples by reason"},
        "values": {"type": "object", "additionalProperties": NUMBER, "description": "block: value"},
    }
    row = {
        **dict.fromkeys(("point", "load", "metric", "title"), TEXT),
        "kind": {"enum": ["ratio", "difference"]},
        "more_is_better": FLAG,
        "judgement": _words(Compared, "judgement"),
        **dict.fromkeys(("base", "other"), object_of(side)),
        **estimate,
        **dict.fromkeys(("p_value", "holm_p_value"), share),
        "floor": KNOWN | {"description": "the larger of the sides' A/A floors; null below six A/A blocks"},
        "baseline_move": {"anyOf": [object_of(estimate), {"type": "null"}]}
        | {"description": "of two runs: how the baseline that both have moved by itself"},
        "notes": texts,
    }
    run = object_of(
        dict.fromkeys(("run", "target", "sweep", "created_at"), TEXT) | {"blocks": COUNT, "git_commit": NAME}
    )
    verdict = dict.fromkeys(("base_arm", "other_arm", "text", "snippet"), TEXT) | {"kind": _words(Advice, "kind")}
    told = {
        "schema_version": {"const": 1},
        "paired": FLAG | {"description": "one run's arms, paired by block"},
        **dict.fromkeys(("base", "other"), run),
        "notes": texts | {"description": "what differs between the runs"},
        "verdicts": {"type": "array", "items": object_of(verdict)},
        "rows": {"type": "array", "items": object_of(row)},
    }
    title = "What `compare --json` prints; seconds, bytes, requests per second, counts; null = not known"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **object_of(told)}


def object_of(properties: dict[str, Any]) -> dict[str, Any]:
    """The schema of an object that has these and nothing else."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _words(owner: type, field: str) -> dict[str, Any]:
    """The words that a field may hold, from its `Literal`."""
    known = {"Point": object, "RunRecord": object}
    return {"enum": list(get_args(get_type_hints(owner, localns=known)[field]))}
