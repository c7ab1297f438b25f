"""One effect of an arm against its baseline: of a steady load as a ratio, of a disturbed one as a difference."""

from __future__ import annotations

from math import exp
from typing import Annotated, Literal

from pydantic import Field

from lab.analysis.decision import Decision
from lab.analysis.effects import Effect
from lab.model.metrics import DIFFERENCES
from lab.report.json.printed import Bound, Count, Printed, Share

Judgement = Literal["claimed", "marked", "unresolved", "no-interval", "a/a", "not-judged", "not-available"]
WORDS: dict[Decision, Judgement] = {
    Decision.CANNOT_TELL: "unresolved",
    Decision.NO_INTERVAL: "no-interval",
    Decision.A_A: "a/a",
    Decision.NOT_JUDGED: "not-judged",
    Decision.NOT_AVAILABLE: "not-available",
}
"""What is printed of a decision that is neither better nor worse."""
Ratio = Annotated[float, Field(gt=0)]
Primary = Annotated[bool, Field(description="only the primary metric may claim")]
Against = Annotated[str, Field(description="the baseline's arm")]


class RatioJson(Printed):
    """Of a steady load: arm / baseline."""

    metric: str
    against: Against
    primary: Primary
    judgement: Judgement
    blocks: Count
    ratio: Ratio | None = Field(description="arm / baseline")
    ratio_low: Ratio | None = Field(description="95 % interval; null below six blocks")
    ratio_high: Ratio | None = Field(description="95 % interval; null below six blocks")
    p_value: Share | None
    holm_p_value: Share | None
    floor_ratio: Ratio | None = Field(description="what A/A leaves open; null below six blocks")
    hodges_lehmann_ratio: Ratio | None
    hodges_lehmann_low: Ratio | None
    hodges_lehmann_high: Ratio | None
    notes: tuple[str, ...]

    @staticmethod
    def of(effect: Effect) -> RatioJson:
        estimate = effect.estimate
        low, high = estimate.interval if estimate and estimate.interval else (None, None)
        return RatioJson(
            metric=effect.metric,
            against=effect.against,
            primary=effect.primary,
            judgement=_judgement(effect),
            blocks=estimate.n if estimate else 0,
            ratio=estimate.ratio if estimate else None,
            ratio_low=_ratio(low),
            ratio_high=_ratio(high),
            p_value=_p_value(effect),
            holm_p_value=effect.holm_p,
            floor_ratio=_ratio(effect.floor),
            hodges_lehmann_ratio=_ratio(estimate.hodges_lehmann) if estimate else None,
            hodges_lehmann_low=_ratio(estimate.hl_low) if estimate else None,
            hodges_lehmann_high=_ratio(estimate.hl_high) if estimate else None,
            notes=_notes(effect),
        )


class DifferenceJson(Printed):
    """Of a disturbed load: arm - baseline, in the metric's own unit."""

    metric: Annotated[str, Field(json_schema_extra={"enum": list(DIFFERENCES)})]
    against: Against
    primary: Primary
    judgement: Judgement
    blocks: Count
    difference: float | None = Field(description="arm - baseline, the blocks' mean, in the metric's own unit")
    low: Bound
    high: Bound
    p_value: Share | None
    holm_p_value: Share | None
    floor: float | None = Field(description="what A/A and the load's resolution leave open; null below six blocks")
    hodges_lehmann: float | None
    hodges_lehmann_low: float | None
    hodges_lehmann_high: float | None
    notes: tuple[str, ...]

    @staticmethod
    def of(effect: Effect) -> DifferenceJson:
        estimate = effect.estimate
        low, high = estimate.interval if estimate and estimate.interval else (None, None)
        return DifferenceJson(
            metric=effect.metric,
            against=effect.against,
            primary=effect.primary,
            judgement=_judgement(effect),
            blocks=estimate.n if estimate else 0,
            difference=estimate.effect if estimate else None,
            low=low,
            high=high,
            p_value=_p_value(effect),
            holm_p_value=effect.holm_p,
            floor=effect.floor,
            hodges_lehmann=estimate.hodges_lehmann if estimate else None,
            hodges_lehmann_low=estimate.hl_low if estimate else None,
            hodges_lehmann_high=estimate.hl_high if estimate else None,
            notes=_notes(effect),
        )


def effect_json(effect: Effect) -> RatioJson | DifferenceJson:
    """By its metric: a difference for what comes of a disturbance."""
    return DifferenceJson.of(effect) if effect.metric in DIFFERENCES else RatioJson.of(effect)


def _judgement(effect: Effect) -> Judgement:
    return "claimed" if effect.claimed else "marked" if effect.marked else WORDS[effect.decision]


def _p_value(effect: Effect) -> float | None:
    return effect.estimate.p_value if effect.estimate and effect.estimate.has_interval else None


def _notes(effect: Effect) -> tuple[str, ...]:
    return (*([effect.note] if effect.note else []), *(effect.estimate.notes if effect.estimate else ()))


def _ratio(log_ratio: float | None) -> float | None:
    return exp(log_ratio) if log_ratio is not None else None
