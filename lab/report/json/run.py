"""What `bench --json` and `table --json` print: a run's steady loads, its disturbed ones below `outcomes`, its study's tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import ConfigDict, Field

from lab.analysis.generations import Levels
from lab.analysis.rows import Row
from lab.analysis.summary import Summary
from lab.analysis.verdicts import Kind, noise_line, verdicts
from lab.model.metrics import DIFFERENCES, METRICS, QUANTILES, RATIOS, WINDOWED
from lab.model.plan import ArmRole
from lab.model.run import NotMeasured, RoundTrip
from lab.report.json.effects import DifferenceJson, RatioJson
from lab.report.json.generations import LevelsJson
from lab.report.json.printed import Bound, Count, Invalid, Printed
from lab.report.json.study import StudyJson
from lab.stats import paired as stats
from lab.stats.histogram import Kind as HistogramKind

Counts = dict[str, Count]
BY_METRIC: dict[str, Any] = {"propertyNames": {"enum": list(DIFFERENCES)}}
BY_WINDOW: dict[str, Any] = {"propertyNames": {"enum": list(WINDOWED)}}


class VerdictJson(Printed):
    """One variant's sentence, and what to paste."""

    arm: str
    kind: Kind
    text: str
    snippet: str


class LatencyJson(Printed):
    """Seconds, of all good answers; null = fewer than ten requests beyond it."""

    p50: float | None
    p90: float | None
    p99: float | None
    p99_9: float | None = Field(alias="p99.9")
    max: float | None


class ClusterJson(Printed):
    """Some blocks that lie together."""

    blocks: Count
    value: float = Field(description="their geometric mean")


class AbsoluteJson(Printed):
    """An absolute value as far as the blocks show it, in the metric's own unit."""

    blocks: Count
    low: float = Field(description="the smallest block")
    high: float = Field(description="the largest block")
    value: float | None = Field(
        description="null below six blocks, where the range is all that is known, and of two clusters"
    )
    clusters: tuple[ClusterJson, ...] = Field(
        description="two, where the blocks fall into two clusters; empty = they do not"
    )


class SteadyRowJson(Printed):
    """An arm at a steady load."""

    arm: str
    variant: str
    role: ArmRole
    baseline: str | None
    point: str
    connections: Count
    generator: str | None
    generators: Count = Field(description="how many of them made the load together, each its part")
    stand_in_for: str | None
    offered_rps: float | None = Field(description="null = closed loop")
    achieved_rps: float | None
    latency_s: LatencyJson
    histogram: HistogramKind | None
    requests: Count
    errors: Counts = Field(description="by kind, over the valid samples")
    errors_invalid: Counts = Field(description="by kind, over the invalid samples")
    absolute: dict[str, AbsoluteJson] = Field(
        description="metric: what tables show of it; a value above that rests on few blocks has its range here"
    )
    cpu_per_request_s: float | None
    cpu_of: str | None = Field(description="whose CPU that is")
    memory_bytes: int | float | None = Field(description="of the same: resident at most, the blocks' median")
    gauges: dict[str, int | float] = Field(
        description="what the system said of itself before the load, by role/name: medians"
    )
    bring_up_s: float | None = Field(description="median; not part of any measured time")
    valid_blocks: Count
    planned_blocks: Count
    invalid: Invalid
    generator_limited: bool
    notes: tuple[str, ...]
    effects: tuple[RatioJson, ...]

    @staticmethod
    def of(row: Row) -> SteadyRowJson:
        cell, arm = row.cell, row.arm
        latency_s = {name: cell.shown(name) for name in QUANTILES} | {"max": cell.shown("slowest_s")}
        return SteadyRowJson(
            arm=arm.name,
            variant=arm.variant,
            role=arm.role,
            baseline=arm.baseline,
            point=row.point.name,
            connections=row.point.connections,
            generator=cell.generator,
            generators=row.point.generators,
            stand_in_for=cell.stand_in_for,
            offered_rps=row.point.rate_rps,
            achieved_rps=cell.shown("rate"),
            latency_s=LatencyJson.model_validate(latency_s),
            histogram=cell.histogram,
            requests=cell.requests,
            errors=dict(cell.errors),
            errors_invalid=dict(cell.errors_invalid),
            absolute={
                name: AbsoluteJson.model_validate(found)
                for name in RATIOS
                if (found := cell.absolute(name)) is not None
            },
            cpu_per_request_s=cell.shown("cpu_per_request"),
            cpu_of=cell.cpu_of,
            memory_bytes=cell.shown("memory_bytes"),
            gauges=dict(cell.gauges),
            bring_up_s=cell.shown("bring_up_s"),
            valid_blocks=cell.valid_blocks,
            planned_blocks=cell.planned_blocks,
            invalid=cell.invalid,
            generator_limited=row.generator_limited,
            notes=row.notes,
            effects=tuple(map(RatioJson.of, row.effects)),
        )


class MedianJson(Printed):
    """The blocks' median, in the metric's own unit, with its 95 % interval from six blocks on."""

    value: float
    low: float | None
    high: float | None
    blocks: Count


class SlowdownJson(Printed):
    """Latency during the disturbance against before it, of each block's own two: their geometric mean."""

    ratio: float
    low: Bound
    high: Bound
    blocks: Count

    @staticmethod
    def of(estimate: stats.Estimate) -> SlowdownJson:
        low, high = estimate.ratio_interval or (None, None)
        return SlowdownJson(ratio=estimate.ratio, low=low, high=high, blocks=estimate.n)


class DisturbedRowJson(Printed):
    """An arm at a load beside a disturbance."""

    arm: str
    variant: str
    role: ArmRole
    baseline: str | None
    point: str
    control: bool = Field(description="the same load with nothing done")
    disturbance: dict[str, Any] | None = Field(description="kind and keys, as in the sweep")
    generator: str | None
    stand_in_for: str | None
    valid_blocks: Count
    planned_blocks: Count
    invalid: Invalid
    clock_error_s: float
    notes: tuple[str, ...]
    values: dict[str, dict[str, int | float | None]] = Field(
        description="metric, block: value; null = it could not be told", json_schema_extra=BY_METRIC
    )
    medians: dict[str, MedianJson] = Field(json_schema_extra=BY_METRIC)
    slowdowns: dict[str, SlowdownJson] = Field(json_schema_extra=BY_WINDOW)
    effects: tuple[DifferenceJson, ...]

    @staticmethod
    def of(row: Row) -> DisturbedRowJson:
        cell, arm, disturbance = row.cell, row.arm, row.point.disturbance
        levels = {name: level for name in cell.values if (level := cell.level(name)) is not None}
        return DisturbedRowJson(
            arm=arm.name,
            variant=arm.variant,
            role=arm.role,
            baseline=arm.baseline,
            point=row.point.name,
            control=row.point.control,
            disturbance=disturbance.model_dump() if disturbance else None,
            generator=cell.generator,
            stand_in_for=cell.stand_in_for,
            valid_blocks=cell.valid_blocks,
            planned_blocks=cell.planned_blocks,
            invalid=cell.invalid,
            clock_error_s=cell.clock_error_s,
            notes=row.notes,
            values={name: {str(block): value for block, value in found.items()} for name, found in cell.values.items()},
            medians={
                name: MedianJson(value=level.value, low=level.low, high=level.high, blocks=level.n)
                for name, level in levels.items()
            },
            slowdowns={name: SlowdownJson.of(estimate) for name, estimate in cell.slowdowns.items()},
            effects=tuple(map(DifferenceJson.of, row.effects)),
        )


class AboutJson(Printed):
    """A metric: its name for people, and which way is better."""

    title: str
    better: Literal["less", "more", "neither"]


class OutcomesJson(Printed):
    """Of loads beside a disturbance; seconds, bytes, counts."""

    complete: bool
    noise: str
    notes: tuple[str, ...]
    verdicts: tuple[VerdictJson, ...]
    metrics: dict[str, AboutJson] = Field(json_schema_extra=BY_METRIC)
    rows: tuple[DisturbedRowJson, ...]

    @staticmethod
    def of(summary: Summary) -> OutcomesJson:
        return OutcomesJson(
            complete=summary.complete,
            noise=noise_line(summary),
            notes=summary.notes,
            verdicts=tuple(map(VerdictJson.model_validate, verdicts(summary))),
            metrics={name: AboutJson.model_validate(METRICS[name]) for name in DIFFERENCES},
            rows=tuple(map(DisturbedRowJson.of, summary.rows)),
        )


class ResultJson(Printed):
    """A run's result. `study`, `outcomes` and `levels` are left out where there is none."""

    model_config = ConfigDict(
        title="What `bench --json` and `table --json` print; seconds, requests per second, ratios; null = not known"
    )

    schema_version: Literal[2]
    target: str | None
    blocks: Count
    seed: int
    complete: bool
    noise: str
    not_measurable: tuple[NotMeasured, ...] = Field(
        description="what was asked for and cannot be shown here; counts against nothing"
    )
    notes: tuple[str, ...]
    verdicts: tuple[VerdictJson, ...]
    rows: tuple[SteadyRowJson, ...]
    roundtrip: RoundTrip | None = Field(default=None, description="of the bare network; null = not tried yet")
    study: StudyJson | None = Field(default=None, description="of a study's run: its tables")
    outcomes: OutcomesJson | None = None
    levels: tuple[LevelsJson, ...] | None = Field(
        default=None,
        description="of pairs of a variant with itself on several generations of workers: where its scatter lies",
    )

    def plain(self) -> dict[str, Any]:
        absent = {name for name in ("study", "outcomes", "levels") if getattr(self, name) is None}
        return self.model_dump(mode="json", by_alias=True, exclude=absent)


def printed(
    summary: Summary,
    outcomes: Summary | None = None,
    study: StudyJson | None = None,
    network: RoundTrip | None = None,
    levels: Sequence[Levels] = (),
) -> ResultJson:
    """`summary`: of the steady loads; `outcomes`: of the disturbed ones, where there are any."""
    return ResultJson(
        schema_version=2,
        target=summary.target,
        blocks=summary.blocks,
        seed=summary.seed,
        complete=summary.complete and (outcomes is None or outcomes.complete),
        noise=noise_line(summary),
        not_measurable=summary.not_measurable,
        notes=summary.notes,
        verdicts=tuple(map(VerdictJson.model_validate, verdicts(summary))),
        rows=tuple(map(SteadyRowJson.of, summary.rows)),
        roundtrip=network,
        study=study,
        outcomes=OutcomesJson.of(outcomes) if outcomes and outcomes.rows else None,
        levels=tuple(map(LevelsJson.of, levels)) or None,
    )
