"""A gate as plain data with stable keys, and the schema of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from lab.analysis.comparison.rows import Outcome
from lab.analysis.gate.gate import Gate, Gated, Verdict, worse_by
from lab.report.json.comparison import COUNT, FLAG, KNOWN, NUMBER, TEXT, object_of
from lab.report.tables.gate import conclusion


def as_json(gate: Gate, strict: bool) -> dict[str, Any]:
    """Plain data with stable keys; null = not known.

    {schema_version, base, other: run ids, paired, strict, max_regression (fraction), max_more: {metric: value}, verdict: regression |
     cannot-tell | passed, exit_status, conclusion, missing: [str], left_out: [str], notes: [str],
     rows: [{point, metric, base_arm, other_arm, verdict, relative, bound, worse_by, worse_by_at_most, holm_p_value, blocks,
             judgement, said, do, notes: [str]}]}
    `worse_by` and `worse_by_at_most` (the interval's worse end) are fractions where `relative`, else in the metric's own unit (seconds,
    bytes, counts), as `bound` is; negative = better. Rows are the gated ones only: `just compare --json` has all.
    """
    return {
        "schema_version": 1,
        "base": gate.comparison.base.id,
        "other": gate.comparison.other.id,
        "paired": gate.comparison.paired,
        "strict": strict,
        "max_regression": gate.bounds.regression,
        "max_more": dict(gate.bounds.more),
        "verdict": gate.verdict,
        "exit_status": gate.exit_status(strict),
        "conclusion": conclusion(gate, strict),
        "missing": list(gate.missing),
        "left_out": list(gate.left_out),
        "notes": list(gate.comparison.notes),
        "rows": [_row_json(one) for one in gate.rows],
    }


def _row_json(one: Gated) -> Mapping[str, Any]:
    row = one.row
    base, other = row.pair
    return {
        "point": row.point.name,
        "metric": row.metric,
        "base_arm": base,
        "other_arm": other,
        "verdict": one.verdict,
        "relative": row.relative,
        "bound": one.limit,
        "worse_by": worse_by(row, row.estimate.effect) if row.estimate else None,
        "worse_by_at_most": one.worst,
        "holm_p_value": row.holm_p,
        "blocks": row.estimate.n if row.estimate else 0,
        "judgement": row.judgement,
        "said": one.said,
        "do": one.do,
        "notes": list(row.notes),
    }


def schema() -> dict[str, Any]:
    """JSON Schema of what `gate --json` prints."""
    texts = {"type": "array", "items": TEXT}
    row = {
        **dict.fromkeys(("point", "metric", "base_arm", "other_arm"), TEXT),
        "verdict": {"enum": list(get_args(Verdict))},
        "relative": FLAG
        | {"description": "bound and worse_by are fractions; else in the metric's own unit: seconds, bytes, counts"},
        "bound": NUMBER,
        "worse_by": KNOWN | {"description": "negative = better"},
        "worse_by_at_most": KNOWN | {"description": "the worse end of the 95 % interval; null below six blocks"},
        "holm_p_value": {"type": ["number", "null"], "minimum": 0, "maximum": 1, "description": "over the gated rows"},
        "blocks": COUNT,
        "judgement": {"enum": list(get_args(Outcome))},
        **dict.fromkeys(("said", "do"), TEXT),
        "notes": texts,
    }
    told = {
        "schema_version": {"const": 1},
        **dict.fromkeys(("base", "other"), TEXT),
        **dict.fromkeys(("paired", "strict"), FLAG),
        "max_regression": {"type": ["number", "null"], "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        "max_more": {"type": "object", "additionalProperties": {"type": "number", "minimum": 0}},
        "verdict": {"enum": list(get_args(Verdict))},
        "exit_status": {"enum": [0, 1, 2]},
        "conclusion": TEXT,
        "missing": texts | {"description": "asked for, and not in the other run: arms, points, metrics, loads"},
        **dict.fromkeys(("left_out", "notes"), texts),
        "rows": {"type": "array", "minItems": 1, "items": object_of(row)},
    }
    title = "What `gate --json` prints; null = not known"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **object_of(told)}
