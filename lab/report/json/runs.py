"""The JSON that the commands `bench`, `table`, `compare`, `gate` and `aa` print about runs."""

from __future__ import annotations

from collections.abc import Callable
from math import exp
from typing import Any, Literal

from lab.analysis.aggregate.absolute import Absolute, Cluster
from lab.analysis.aggregate.generations import Generation, VarianceComponents
from lab.analysis.explain.comparison import Advice, advise
from lab.analysis.explain.conclusion import describe_noise
from lab.analysis.explain.gate import conclude
from lab.analysis.explain.run import Verdict, make_verdicts
from lab.analysis.judge.comparison import ComparedRow, Comparison
from lab.analysis.judge.effects import Effect
from lab.analysis.judge.gate import Gate, GatedRow, compute_loss
from lab.analysis.judge.meeting import CellStats
from lab.analysis.judge.rows import Summary, SummaryRow
from lab.analysis.noise import Noise, count_claims
from lab.analysis.rate_costs import RateCost
from lab.analysis.summary import list_null_arms
from lab.model.metrics import DIFFERENCES, METRICS, QUANTILES, RATIOS, Metric
from lab.model.run import RunRecord
from lab.report.json.shape import JsonKey, JsonShape
from lab.report.loads import describe_load
from lab.report.tables.noise import EFFECTS, Report
from lab.stats.components import Component
from lab.stats.paired import Estimate, Level

VERSION_3 = JsonKey("schema_version", lambda _: 3, Literal[3])
Numbers = dict[str, float | int | None]

# -- an effect of an arm against its baseline -------------------------------------------------------------------

BLOCKS = JsonKey("blocks", lambda effect: effect.estimate.n if effect.estimate else 0, int)
P_VALUE = JsonKey(
    "p_value",
    lambda effect: effect.estimate.p_value if effect.estimate and effect.estimate.interval else None,
    float | None,
)
NOTES = JsonKey(
    "notes",
    lambda effect: (*filter(None, [effect.remark]), *(effect.estimate.notes if effect.estimate else ())),
    tuple[str, ...],
)
RATIO = JsonShape(
    "Ratio",
    Effect,
    "metric against primary decision scheme",
    BLOCKS,
    "ratio=estimate.ratio ratio_low=estimate.ratio_interval.0 ratio_high=estimate.ratio_interval.1",
    P_VALUE,
    "holm_p_value=holm_p",
    JsonKey("margin_ratio", "size.margin", then=exp),
    JsonKey("noise_floor_ratio", "size.noise_floor", then=exp),
    "pair_ratio=pair_estimate.ratio",
    JsonKey("hodges_lehmann_ratio", "estimate.hodges_lehmann", then=exp),
    JsonKey("hodges_lehmann_low", "estimate.hl_low", then=exp),
    JsonKey("hodges_lehmann_high", "estimate.hl_high", then=exp),
    NOTES,
)
DIFFERENCE = JsonShape(
    "Difference",
    Effect,
    "metric against primary decision scheme",
    BLOCKS,
    "difference=estimate.effect low=estimate.interval.0 high=estimate.interval.1",
    P_VALUE,
    "holm_p_value=holm_p margin=size.margin noise_floor=size.noise_floor",
    "hodges_lehmann=estimate.hodges_lehmann hodges_lehmann_low=estimate.hl_low hodges_lehmann_high=estimate.hl_high",
    NOTES,
)

# -- a run ------------------------------------------------------------------------------------------------------


def _read_metric(metric: str) -> Callable[[SummaryRow], float | None]:
    return lambda row: row.cell.shown(metric)


ARM = "arm=arm.name variant=arm.variant role=arm.role baseline=arm.baseline point=point.name"
COUNTS = "valid_blocks=cell.valid_blocks planned_blocks=cell.planned_blocks invalid=cell.invalid"
NOISE_LINE = JsonKey("noise", describe_noise, str)
VERDICTS = JsonKey("verdicts", make_verdicts, tuple[Verdict, ...])
VERDICT = JsonShape(
    "Verdict",
    Verdict,
    "arm kind",
    JsonKey("headline", "headline", str),
    JsonKey("text", "text", str),
    "snippet",
)
STEADY = JsonShape(
    "SteadyRow",
    SummaryRow,
    ARM,
    "connections=point.connections generator=cell.generator generators=point.generators stand_in_for=cell.stand_in_for",
    "offered_rps=point.rate_rps",
    JsonKey("achieved_rps", _read_metric("rate"), float | None),
    JsonKey(
        "latency_s",
        lambda row: {name: row.cell.shown(name) for name in QUANTILES} | {"max": row.cell.shown("slowest_s")},
        dict[str, float | None],
    ),
    "histogram=cell.histogram requests=cell.requests errors=cell.errors errors_invalid=cell.errors_invalid",
    JsonKey(
        "absolute",
        lambda row: {name: value for name in RATIOS if (value := row.cell.absolute(name)) is not None},
        dict[str, Absolute],
    ),
    JsonKey("cpu_per_request_s", _read_metric("cpu_per_request"), float | None),
    "cpu_of=cell.cpu_of",
    JsonKey("memory_bytes", _read_metric("memory_bytes"), int | float | None),
    JsonKey("gauges", "cell.gauges", dict[str, int | float]),
    JsonKey("bring_up_s", _read_metric("bring_up_s"), float | None),
    COUNTS,
    "generator_limited notes effects",
    parts=[
        RATIO,
        JsonShape("Absolute", Absolute, "blocks low high value clusters", parts=[JsonShape("Cluster", Cluster)]),
    ],
)
DISTURBED = JsonShape(
    "DisturbedRow",
    SummaryRow,
    ARM,
    "control=point.control",
    JsonKey("disturbance", "point.disturbance", dict[str, Any] | None, lambda disturbance: disturbance.model_dump()),
    "generator=cell.generator stand_in_for=cell.stand_in_for",
    COUNTS,
    "clock_error_s=cell.clock_error_s notes",
    JsonKey("values", "cell.values", dict[str, dict[int, int | float | None]]),
    JsonKey(
        "medians",
        lambda row: {name: level for name in row.cell.values if (level := row.cell.level(name)) is not None},
        dict[str, Level],
    ),
    "slowdowns=cell.slowdowns effects",
    parts=[
        DIFFERENCE,
        JsonShape("Median", Level, "value low high blocks=n"),
        JsonShape("Slowdown", Estimate, "ratio low=ratio_interval.0 high=ratio_interval.1 blocks=n"),
    ],
)
OUTCOMES = JsonShape(
    "Outcomes",
    Summary,
    "complete",
    NOISE_LINE,
    "notes",
    VERDICTS,
    JsonKey("metrics", lambda _: {name: METRICS[name] for name in DIFFERENCES}, dict[str, Metric]),
    "rows",
    parts=[
        VERDICT,
        DISTURBED,
        JsonShape("Metric", Metric, JsonKey("title", "title", str), JsonKey("better", "better", str)),
    ],
)
LEVELS = JsonShape(
    "Levels",
    VarianceComponents,
    "variant=arm.variant point=point.name planned whole",
    "repeat=found.repeat generation=found.generation bring_up=found.bring_up one_start=start generations",
    parts=[
        JsonShape("Level", Component),
        JsonShape("Generation", Generation, "block reload log_ratios=ratios own_s base_s"),
    ],
)

RATE_COST = JsonShape(
    "RateCost",
    RateCost,
    "arm against rates",
    JsonKey("idle_cores", "idle", Estimate),
    JsonKey("marginal_s", "marginal", Estimate),
    JsonKey("idle_cores_change", "idle_change", Estimate | None),
    JsonKey("marginal_s_change", "marginal_change", Estimate | None),
    parts=[JsonShape("Cost", Estimate, "value=effect low=interval.0 high=interval.1 blocks=n")],
)

# -- two arms, a gate -------------------------------------------------------------------------------------------


def _convert_to_ratio(row: ComparedRow, value: float | None) -> float | None:
    """Return a value of a comparison's row for JSON: a log-ratio as a ratio, and a difference or None unchanged."""
    return exp(value) if value is not None and row.relative else value


def _convert_estimate(row: ComparedRow, estimate: Estimate | None) -> Numbers:
    low, high = estimate.interval if estimate and estimate.interval else (None, None)
    log_ratios = {"effect": estimate.effect if estimate else None, "low": low, "high": high}
    numbers = {name: _convert_to_ratio(row, value) for name, value in log_ratios.items()}
    return numbers | {"blocks": estimate.n if estimate else 0}


COMPARED = JsonShape(
    "Compared",
    ComparedRow,
    "point=point.name",
    JsonKey("load", lambda row: describe_load(row.point), str),
    "metric title",
    JsonKey("kind", lambda row: "ratio" if row.relative else "difference", Literal["ratio", "difference"]),
    "more_is_better decision base other",
    *(
        JsonKey(end, lambda row, end=end: _convert_estimate(row, row.estimate)[end], float | None)
        for end in ("effect", "low", "high")
    ),
    BLOCKS,
    P_VALUE,
    "holm_p_value=holm_p",
    JsonKey("margin", lambda row: _convert_to_ratio(row, row.size.margin), float),
    JsonKey("noise_floor", lambda row: _convert_to_ratio(row, row.size.noise_floor), float),
    JsonKey(
        "baseline_move", lambda row: row.baseline_move and _convert_estimate(row, row.baseline_move), Numbers | None
    ),
    "notes",
    parts=[
        JsonShape(
            "Side",
            CellStats,
            "run arm generator median=level.value low=level.low high=level.high",
            JsonKey("blocks", "values", int, len),
            "planned_blocks invalid values",
        )
    ],
)
COMPARISON = JsonShape(
    "Comparison",
    Comparison,
    VERSION_3,
    "paired base other notes",
    JsonKey("verdicts", advise, tuple[Advice, ...]),
    "rows",
    parts=[
        JsonShape("ComparedRun", RunRecord, "run=id target sweep blocks created_at git_commit"),
        JsonShape("Advice", Advice),
        COMPARED,
    ],
    title="What `compare --json` prints; seconds, bytes, requests per second, counts; null = not known",
)
GATED = JsonShape(
    "Gated",
    GatedRow,
    "point=row.point.name metric=row.metric base_arm=row.base.arm other_arm=row.other.arm verdict",
    "relative=row.relative bound=limit",
    JsonKey(
        "worse_by",
        lambda gated: compute_loss(gated.row, gated.row.estimate.effect) if gated.row.estimate else None,
        float | None,
    ),
    "worse_by_at_most=worst holm_p_value=row.holm_p",
    JsonKey("blocks", lambda gated: gated.row.estimate.n if gated.row.estimate else 0, int),
    "decision=row.decision decides close said do notes=row.notes",
)
GATE = JsonShape(
    "Gate",
    Gate,
    VERSION_3,
    "base=comparison.base.id other=comparison.other.id paired=comparison.paired",
    JsonKey("strict", None, bool),
    "max_regression=bounds.regression max_more=bounds.more verdict",
    JsonKey("exit_status", None, int),
    JsonKey("conclusion", None, str),
    "missing left_out notes=comparison.notes rows",
    parts=[GATED],
    title="What `gate --json` prints; null = not known",
)


def describe_gate(gate: Gate, strict: bool) -> dict[str, Any]:
    """Return the JSON data that `gate --json` prints about a gate (a comparison that fails on a regression).

    Args:
        gate: The judged comparison.
        strict: Whether the gate also fails if something is inconclusive.

    """
    return GATE.plain(gate, strict=strict, exit_status=gate.exit_status(strict), conclusion=conclude(gate, strict))


# -- a run's noise ----------------------------------------------------------------------------------------------


def _list_noises(report: Report) -> list[dict[str, Any]]:
    noises: list[dict[str, Any]] = []
    for noise in report.noises:
        needed = [(effect, None if noise.why else report.needed(noise, effect)) for effect in EFFECTS]
        resolve = [
            {"effect": effect, "blocks": blocks, "duration_s": report.lasts_s(blocks) if blocks else None}
            for effect, blocks in needed
        ]
        noises.append(NOISE.read(noise, {"resolve": resolve}))
    return noises


def _count_nulls(report: Report) -> dict[str, int]:
    compared, claimed = count_claims(report.noises)
    return {"arms": len(list_null_arms(report.record.arms)), "compared": compared, "claimed": claimed}


NOISE = JsonShape(
    "Noise",
    Noise,
    "variant point metric level cv pilot_blocks",
    JsonKey("aa_blocks", lambda noise: noise.aa.n if noise.aa else 0, int),
    "scheme outliers compared claimed why sd_log_ratio=sd",
    "aa_ratio=aa.ratio aa_low=aa.ratio_interval.0 aa_high=aa.ratio_interval.1",
    JsonKey("resolve", None, tuple[dict[Literal["effect", "blocks", "duration_s"], float | int | None], ...]),
)
AA = JsonShape(
    "Aa",
    Report,
    VERSION_3,
    "run=record.id target=record.target sweep=record.sweep blocks=record.blocks complete",
    JsonKey("nulls", _count_nulls, dict[str, int]),
    JsonKey("advice", None, str),
    JsonKey("rows", _list_noises, tuple[Noise, ...]),
    parts=[NOISE],
    title="What `aa --json` prints; seconds, requests per second, ratios; null = not known",
)
