"""One effect of an arm against its baseline: of a steady load as a ratio, of a disturbed one as a difference."""

from __future__ import annotations

from math import exp
from typing import Annotated

from pydantic import Field

from lab.analysis.decision import Decision
from lab.analysis.effects import Effect
from lab.model.metrics import DIFFERENCES
from lab.model.pairs import Scheme
from lab.report.json.printed import Bound, Count, Printed, Share

Ratio = Annotated[float, Field(gt=0)]
Primary = Annotated[bool, Field(description="only the primary metric may claim")]
Against = Annotated[str, Field(description="the baseline's arm")]


class RatioJson(Printed):
    """Of a steady load: arm / baseline."""

    metric: str
    against: Against
    primary: Primary
    decision: Decision
    scheme: Scheme | None = Field(description="how the two were a pair; null = each alone")
    blocks: Count
    ratio: Ratio | None = Field(description="arm / baseline")
    ratio_low: Ratio | None = Field(description="95 % interval; null below six blocks")
    ratio_high: Ratio | None = Field(description="95 % interval; null below six blocks")
    p_value: Share | None
    holm_p_value: Share | None
    worth_ratio: Ratio = Field(description="from which on a difference is worth knowing: within it, it is the same")
    guard_ratio: Ratio = Field(
        description="nothing smaller is claimed: the baseline against itself showed as much; 1 = it did not"
    )
    pair_ratio: Ratio | None = Field(
        description="what the pair showed where the arms alone lead; null = they do not, or it was none"
    )
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
            decision=effect.decision,
            scheme=effect.scheme,
            blocks=estimate.n if estimate else 0,
            ratio=estimate.ratio if estimate else None,
            ratio_low=_ratio(low),
            ratio_high=_ratio(high),
            p_value=_p_value(effect),
            holm_p_value=effect.holm_p,
            worth_ratio=exp(effect.size.worth),
            guard_ratio=exp(effect.size.guard),
            pair_ratio=effect.beside.ratio if effect.beside else None,
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
    decision: Decision
    scheme: Scheme | None = Field(description="how the two were a pair; null = each alone")
    blocks: Count
    difference: float | None = Field(description="arm - baseline, the blocks' mean, in the metric's own unit")
    low: Bound
    high: Bound
    p_value: Share | None
    holm_p_value: Share | None
    worth: float = Field(description="from which on a difference is worth knowing: within it, it is the same")
    guard: float = Field(description="nothing smaller is claimed: what A/A showed, and what the load resolves")
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
            decision=effect.decision,
            scheme=effect.scheme,
            blocks=estimate.n if estimate else 0,
            difference=estimate.effect if estimate else None,
            low=low,
            high=high,
            p_value=_p_value(effect),
            holm_p_value=effect.holm_p,
            worth=effect.size.worth,
            guard=effect.size.guard,
            hodges_lehmann=estimate.hodges_lehmann if estimate else None,
            hodges_lehmann_low=estimate.hl_low if estimate else None,
            hodges_lehmann_high=estimate.hl_high if estimate else None,
            notes=_notes(effect),
        )


def effect_json(effect: Effect) -> RatioJson | DifferenceJson:
    """By its metric: a difference for what comes of a disturbance."""
    return DifferenceJson.of(effect) if effect.metric in DIFFERENCES else RatioJson.of(effect)


def _p_value(effect: Effect) -> float | None:
    return effect.estimate.p_value if effect.estimate and effect.estimate.has_interval else None


def _notes(effect: Effect) -> tuple[str, ...]:
    return (*([effect.note] if effect.note else []), *(effect.estimate.notes if effect.estimate else ()))


def _ratio(log_ratio: float | None) -> float | None:
    return exp(log_ratio) if log_ratio is not None else None
