"""What `compare --json` prints."""

from __future__ import annotations

from math import exp
from typing import Literal

from pydantic import ConfigDict, Field

from lab.analysis.comparison.comparison import Comparison
from lab.analysis.comparison.rows import Compared
from lab.analysis.comparison.run_cells import CellStats
from lab.analysis.comparison.verdicts import AdviceKind, advices
from lab.analysis.decision import Decision
from lab.model.run import RunRecord
from lab.report.json.printed import Bound, Count, Invalid, Printed, Share
from lab.report.loads import load_text
from lab.stats import paired as stats


class RunJson(Printed):
    """Which run."""

    run: str
    target: str
    sweep: str
    blocks: Count
    created_at: str
    git_commit: str | None

    @staticmethod
    def of(record: RunRecord) -> RunJson:
        return RunJson(
            run=record.id,
            target=record.target,
            sweep=record.sweep,
            blocks=record.blocks,
            created_at=record.created_at,
            git_commit=record.git_commit,
        )


class AdviceJson(Printed):
    """What to do about one arm."""

    base_arm: str
    other_arm: str
    kind: AdviceKind
    text: str
    snippet: str


class SideJson(Printed):
    """One side of a row. `low` and `high`: the median's 95 % interval, null below six blocks."""

    run: str
    arm: str
    generator: str | None
    median: float | None
    low: float | None
    high: float | None
    blocks: Count
    planned_blocks: Count
    invalid: Invalid
    values: dict[str, float] = Field(description="block: value")

    @staticmethod
    def of(side: CellStats) -> SideJson:
        level = side.level
        return SideJson(
            run=side.run,
            arm=side.arm,
            generator=side.generator,
            median=level.value if level else None,
            low=level.low if level else None,
            high=level.high if level else None,
            blocks=len(side.values),
            planned_blocks=side.planned_blocks,
            invalid=dict(side.invalid),
            values={str(block): value for block, value in side.values.items()},
        )


class EffectJson(Printed):
    """other / base, or other - base in the metric's own unit."""

    effect: float | None = Field(description="other / base, or other - base")
    low: Bound
    high: Bound
    blocks: Count = Field(description="pairs; of two runs the fewer")

    @staticmethod
    def of(row: Compared, estimate: stats.Estimate | None) -> EffectJson:
        low, high = estimate.interval if estimate and estimate.interval else (None, None)
        return EffectJson(
            effect=_shown(row, estimate.effect if estimate else None),
            low=_shown(row, low),
            high=_shown(row, high),
            blocks=estimate.n if estimate else 0,
        )


class ComparedJson(Printed):
    """A metric of a load, of two arms. `ratio`: effect, low, high, worth and guard are other / base; `difference`: other - base."""

    point: str
    load: str = Field(description="in words")
    metric: str
    title: str
    kind: Literal["ratio", "difference"]
    more_is_better: bool
    decision: Decision
    base: SideJson
    other: SideJson
    effect: float | None = Field(description="other / base, or other - base")
    low: Bound
    high: Bound
    blocks: Count = Field(description="pairs; of two runs the fewer")
    p_value: Share | None = Field(description="null below six blocks")
    holm_p_value: Share | None = Field(
        description="adjusted over the run's primary metrics, or over all others; of two runs over all rows"
    )
    worth: float = Field(description="from which on a difference is worth knowing: within it, it is the same")
    guard: float = Field(
        description="nothing smaller is claimed: the larger of what the sides' baselines against themselves showed"
    )
    baseline_move: EffectJson | None = Field(description="of two runs: how the baseline that both have moved by itself")
    notes: tuple[str, ...]

    @staticmethod
    def of(row: Compared) -> ComparedJson:
        estimate = row.estimate
        effect = EffectJson.of(row, estimate)
        return ComparedJson(
            point=row.point.name,
            load=load_text(row.point),
            metric=row.metric,
            title=row.title,
            kind="ratio" if row.relative else "difference",
            more_is_better=row.more_is_better,
            decision=row.decision,
            base=SideJson.of(row.base),
            other=SideJson.of(row.other),
            effect=effect.effect,
            low=effect.low,
            high=effect.high,
            blocks=effect.blocks,
            p_value=estimate.p_value if estimate and estimate.has_interval else None,
            holm_p_value=row.holm_p,
            worth=row.size.worth if not row.relative else exp(row.size.worth),
            guard=row.size.guard if not row.relative else exp(row.size.guard),
            baseline_move=EffectJson.of(row, row.baseline_move) if row.baseline_move else None,
            notes=row.notes,
        )


class ComparisonJson(Printed):
    """Every metric of every load that both sides have; of one run its variants against their baselines."""

    model_config = ConfigDict(
        title="What `compare --json` prints; seconds, bytes, requests per second, counts; null = not known"
    )

    schema_version: Literal[2]
    paired: bool = Field(description="one run's arms, paired by block")
    base: RunJson
    other: RunJson
    notes: tuple[str, ...] = Field(description="what differs between the runs")
    verdicts: tuple[AdviceJson, ...]
    rows: tuple[ComparedJson, ...]


def printed(comparison: Comparison) -> ComparisonJson:
    return ComparisonJson(
        schema_version=2,
        paired=comparison.paired,
        base=RunJson.of(comparison.base),
        other=RunJson.of(comparison.other),
        notes=comparison.notes,
        verdicts=tuple(map(AdviceJson.model_validate, advices(comparison))),
        rows=tuple(map(ComparedJson.of, comparison.rows)),
    )


def _shown(row: Compared, value: float | None) -> float | None:
    return exp(value) if value is not None and row.relative else value
