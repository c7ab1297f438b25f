"""What `aa --json` prints."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from lab.analysis.noise import Noise, counted, null_arms
from lab.model.pairs import Scheme
from lab.report.json.printed import Bound, Count, Printed
from lab.report.tables.noise import EFFECTS, Report


class ResolveJson(Printed):
    """What it takes to find an effect of this size with 90 % probability."""

    effect: float = Field(description="fraction")
    blocks: Count | None = Field(description="null = more than 1000, or not judged")
    duration_s: float | None = Field(description="of a variant against its baseline")


class NoiseJson(Printed):
    """How much a metric varies at a load."""

    variant: str
    point: str
    metric: str
    level: float | None = Field(description="the blocks' median, in seconds or requests per second")
    cv: float | None = Field(description="over the blocks: standard deviation / mean")
    pilot_blocks: Count = Field(description="its degrees of freedom + 1")
    aa_blocks: Count = Field(description="valid in both arms of the A/A pair")
    scheme: Scheme | None = Field(description="how the two were a pair; null = each alone")
    outliers: bool
    compared: Count = Field(description="judged effects of the null arms")
    claimed: Count = Field(description="of these; every one is false")
    why: str = Field(description="why it is not judged here; empty = it is")
    sd_log_ratio: float | None = Field(description="standard deviation of one block's log-ratio of two arms")
    aa_ratio: float | None = Field(description="the baseline against itself")
    aa_low: Bound
    aa_high: Bound
    resolve: tuple[ResolveJson, ...]

    @staticmethod
    def of(found: Report, noise: Noise) -> NoiseJson:
        low, high = (noise.aa.ratio_interval if noise.aa else None) or (None, None)
        counts = [None if noise.why else found.needed(noise, effect) for effect in EFFECTS]
        return NoiseJson(
            variant=noise.variant,
            point=noise.point,
            metric=noise.metric,
            level=noise.level,
            cv=noise.cv,
            pilot_blocks=noise.pilot_blocks,
            aa_blocks=noise.aa.n if noise.aa else 0,
            scheme=noise.scheme,
            outliers=noise.outliers,
            compared=noise.compared,
            claimed=noise.claimed,
            why=noise.why,
            sd_log_ratio=noise.sd,
            aa_ratio=noise.aa.ratio if noise.aa else None,
            aa_low=low,
            aa_high=high,
            resolve=tuple(
                ResolveJson(effect=effect, blocks=blocks, duration_s=found.lasts_s(blocks) if blocks else None)
                for effect, blocks in zip(EFFECTS, counts, strict=True)
            ),
        )


class NullsJson(Printed):
    """Comparisons of arms that are the same."""

    arms: Count
    compared: Count
    claimed: Count


class AaJson(Printed):
    """A run's noise."""

    model_config = ConfigDict(title="What `aa --json` prints; seconds, requests per second, ratios; null = not known")

    schema_version: Literal[2]
    run: str
    target: str
    sweep: str
    blocks: Count
    complete: bool
    nulls: NullsJson
    advice: str
    rows: tuple[NoiseJson, ...]


def printed(found: Report, advice: str) -> AaJson:
    compared, claimed = counted(found.noises)
    record = found.record
    return AaJson(
        schema_version=2,
        run=record.id,
        target=record.target,
        sweep=record.sweep,
        blocks=record.blocks,
        complete=found.complete,
        nulls=NullsJson(arms=len(null_arms(record.arms)), compared=compared, claimed=claimed),
        advice=advice,
        rows=tuple(NoiseJson.of(found, noise) for noise in found.noises),
    )
