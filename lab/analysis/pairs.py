"""Ways to compare two systems, side by side: each measurement's log-ratios → what a round scatters by, and at which level.

Refuses to use what did not count, and rounds whose every repeat did not.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Literal

from pydantic import Field

from lab.base.validation import Record
from lab.model.pairs import REPEATS, WAYS, Compared, Way


class Scatter(Record):
    """One variant, way and metric over the rounds, per cent of the baseline's (100 · log-ratio)."""

    variant: str
    point: str
    way: Way
    metric: str
    rounds: int = Field(description="whose every repeat counted")
    mean: float
    sd: float | None = Field(description="of one round's mean; null below two rounds")
    repeat_sd: float | None = Field(default=None, description="of one measurement about its pair's mean; null = plain")


class Report(Record):
    """What `selfbench pairs --json` prints."""

    schema_version: Literal[1] = 1
    measured: int = Field(description="comparisons, of which `valid` counted")
    valid: int
    rows: tuple[Scatter, ...]


def report_of(found: Sequence[Compared]) -> Report:
    return Report(measured=len(found), valid=sum(one.valid for one in found), rows=tuple(scatter(found)))


def scatter(found: Sequence[Compared]) -> list[Scatter]:
    """By variant, point, way and metric, in the order of their first measurement."""
    groups: dict[tuple[str, str, Way, str], dict[int, list[float]]] = {}
    for one in sorted(found, key=lambda one: (one.variant, one.point, WAYS.index(one.way))):
        for metric, value in one.log_ratios.items():
            rounds = groups.setdefault((one.variant, one.point, one.way, metric), {})
            rounds.setdefault(one.round, []).extend([100 * value] if one.valid else [])
    rows: list[Scatter] = []
    for (variant, point, way, metric), rounds in groups.items():
        wanted = 1 if way == "plain" else REPEATS
        whole = [values for values in rounds.values() if len(values) == wanted]
        if whole:
            rows.append(_scatter(variant, point, way, metric, whole))
    return rows


def _scatter(variant: str, point: str, way: Way, metric: str, whole: Sequence[Sequence[float]]) -> Scatter:
    means = [fmean(values) for values in whole]
    within = [(first - second) ** 2 / 2 for first, second in whole] if way != "plain" else []
    return Scatter(
        variant=variant,
        point=point,
        way=way,
        metric=metric,
        rounds=len(whole),
        mean=fmean(means),
        sd=stdev(means) if len(means) > 1 else None,
        repeat_sd=fmean(within) ** 0.5 if within else None,
    )
