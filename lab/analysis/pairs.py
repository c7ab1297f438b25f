"""Ways to compare two systems, side by side: each measurement's log-ratios → what a round scatters by, and at which level.

Refuses to use what did not count, and rounds whose every repeat did not.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Literal, get_args

from pydantic import Field

from lab.base.validation import Record

REPEATS = 2
"""Measurements of one pair in each of its ways."""
Way = Literal["plain", "slices", "together"]
WAYS = get_args(Way)


class Compared(Record):
    """One measurement of a variant against the baseline. `log_ratios`: metric → natural logarithm of variant / baseline."""

    round: int
    variant: str
    baseline: str
    point: str
    way: Way
    repeat: int = Field(description="0 or 1: of the same pair")
    right: bool = Field(description="whether the variant was on the right side, or alone the second")
    valid: bool
    detail: str = Field(description="why it does not count")
    log_ratios: dict[str, float]
    backend: float | None = Field(
        default=None, description="the same of the backends' CPU per request: no knob reaches them"
    )
    slice_s: float | None = None
    in_flight: float | None = None


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
