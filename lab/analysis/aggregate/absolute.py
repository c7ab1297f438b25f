"""Absolute values of one arm: what may be shown of its blocks in one metric.

Fewer than six blocks say no more than a range: their smallest and largest value, with two digits. From six on it is one value, by the mean
that effects are ratios of, unless the blocks fall into two clusters: then no block was near their mean, and both clusters are shown.
Refuses to know where it is printed, and to compare two arms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean

from lab.model.metrics import Metric, about
from lab.stats import paired as stats
from lab.stats.groups import find_two_clusters


@dataclass(frozen=True, slots=True)
class Cluster:
    """Some blocks of an arm that lie together; `value` is their geometric mean, in the metric's own unit."""

    blocks: int
    value: float


@dataclass(frozen=True, slots=True)
class Absolute:
    """The absolute value of an arm at a point in one metric, in the metric's own unit.

    `low`, `high`: the smallest and the largest block. `value`: None below six blocks and of two clusters. `interval`: its 95 % interval,
    where it is the blocks' mean; None of a percentile of all requests together. `clusters`: empty, or two, the lower one first.
    """

    blocks: int
    low: float
    high: float
    value: float | None
    interval: tuple[float, float] | None = None
    clusters: tuple[Cluster, ...] = ()


def absolute_of(values: Sequence[float], metric: str, merged: float | None = None) -> Absolute | None:
    """Return what is shown of one number per block; None without a block.

    `values`: one finite number per block, in the metric's own unit. `merged`: what all blocks' requests together have, for a percentile;
    None: the value is the blocks' geometric mean, as effects are ratios of such means.
    """
    if not values:
        return None
    low, high, blocks = min(values), max(values), len(values)
    if blocks < stats.MIN_BLOCKS:
        return Absolute(blocks, low, high, None)
    if clusters := clusters_of(values, metric):
        return Absolute(blocks, low, high, None, None, clusters)
    if merged is not None:
        return Absolute(blocks, low, high, min(max(merged, low), high))
    if low <= 0 or low == high:
        return Absolute(blocks, low, high, mean_of(values))
    level = stats.level(values)
    ends = (level.low, level.high) if level.low is not None and level.high is not None else None
    return Absolute(blocks, low, high, min(max(level.value, low), high), ends)


def mean_of(values: Sequence[float]) -> float | None:
    """Return the geometric mean, the arithmetic one where a value is not above 0; None without a value."""
    if not values or min(values) == max(values):
        return values[0] if values else None
    return geometric_mean(values) if min(values) > 0 else fmean(values)


def clusters_of(values: Sequence[float], metric: str) -> tuple[Cluster, ...]:
    """Return the two clusters that the blocks' values fall into, the lower one first; empty where they do not.

    Only of metrics that are compared by ratios: counts of what came of a disruption are often one of two numbers.
    """
    if not about(metric).ratio or len(values) < stats.MIN_BLOCKS:
        return ()
    found = find_two_clusters(values)
    return tuple(Cluster(len(part), geometric_mean(part)) for part in found) if found else ()


def split_text(own: Mapping[int, float], base: Mapping[int, float], metric: str, names: tuple[str, str]) -> str:
    """Return in words which side of a comparison falls into two clusters, so that no difference describes it; empty where none does.

    `own`, `base`: block -> number, of the arm and of what it is compared with; `names`: theirs.
    """
    about_it = about(metric)
    parts = [
        f"{name}: {clusters_text(about_it, found, len(side))}"
        for side, name in zip((own, base), names, strict=True)
        if (found := clusters_of([*side.values()], metric))
    ]
    if parts and not same_blocks_high(own, base):
        return "; ".join(parts)
    both = own.keys() & base.keys()
    ratios = [own[block] / base[block] for block in both] if about_it.ratio else []
    if found := clusters_of(ratios, metric):
        lower, upper = found
        times = f"{lower.blocks} of {len(ratios)} blocks ×{lower.value:.2g}, {upper.blocks} ×{upper.value:.2g}"
        return f"{names[0]} against {names[1]}: {times}"
    return ""


def same_blocks_high(first: Mapping[int, float], second: Mapping[int, float]) -> bool:
    """Return whether both arms' values fall into two clusters and the same blocks are in the upper one.

    Then it is the machine that was in one of two states, and the ratio of the two arms in a block does not have it.
    """
    both = first.keys() & second.keys()
    found = [(values, find_two_clusters([values[block] for block in both])) for values in (first, second)]
    upper = [{block for block in both if values[block] >= min(split[1])} for values, split in found if split]
    return len(both) >= stats.MIN_BLOCKS and len(upper) == 2 and upper[0] == upper[1]


# -- in words ------------------------------------------------------------------------------------------------


def absolute_text(metric: Metric, found: Absolute | None) -> str:
    """Return the value for a table's cell, without its unit: `24.1`, `19–24` below six blocks, `370|59,000` of two clusters."""
    if found is None:
        return "–"
    if found.clusters:
        return "|".join(metric.coarse(one.value) for one in found.clusters)
    if found.value is not None:
        return metric.text(found.value)
    return "–".join(dict.fromkeys(map(metric.coarse, (found.low, found.high))))


def clusters_text(metric: Metric, clusters: Sequence[Cluster], blocks: int) -> str:
    """Return the sentence's part about two clusters: `5 of 10 blocks at 366 req/s, 5 at 58,600 req/s`."""
    values = [f"{metric.coarse(one.value, 3)} {metric.unit}".rstrip() for one in clusters]
    first, *others = (f"{one.blocks}{{}} at {value}" for one, value in zip(clusters, values, strict=True))
    return ", ".join([first.format(f" of {blocks} blocks"), *(each.format("") for each in others)])
