"""Absolute values of one arm (variant) in one metric: a range, a mean with its interval, or two clusters.

Fewer than six blocks (repetitions) give only a range: their smallest and largest value, with two digits. Six blocks or more give
one value. It is the geometric mean, because an effect is a ratio of geometric means; for a percentile of latency, it is that of
the requests of all blocks together. If the blocks fall into two clusters, no block was near the mean, so both clusters are
shown. This module does not know where a value is printed. It computes no effects: it examines the ratios of two arms only for
clusters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean

from lab.model.metrics import Metric, find_metric
from lab.stats import paired as stats
from lab.stats.groups import find_two_clusters


@dataclass(frozen=True, slots=True)
class Cluster:
    """A group of blocks (repetitions of a run's plan) in which one arm (variant of the run) had similar values.

    Attributes:
        blocks: The number of blocks in the cluster.
        value: The geometric mean of these blocks' values, in the metric's own unit.

    """

    blocks: int
    value: float


@dataclass(frozen=True, slots=True)
class Absolute:
    """The absolute value of a metric for one arm (variant in a run) at one load, over all blocks (repetitions of the plan).

    Numbers are in the metric's own unit. It is not an effect, which is a comparison of two arms.

    Attributes:
        blocks: The number of blocks from which it is computed.
        low: The smallest value of a block. It is `value` if some block has too few requests for the percentile.
        high: The largest value of a block, or `value` as for `low`.
        value: The one value to show. It is None for fewer than six blocks, and if the blocks fall into two clusters.
        interval: The 95 % interval of `value` if that is the geometric mean of the blocks. Otherwise it is None, such as
            for a percentile of all requests together. It is also None if all blocks have the same value.
        clusters: The two clusters that the blocks' values fall into, the lower one first; empty if they form one group.

    """

    blocks: int
    low: float
    high: float
    value: float | None
    interval: tuple[float, float] | None = None
    clusters: tuple[Cluster, ...] = ()


def compute_absolute(values: Sequence[float], metric: str, merged: float | None = None) -> Absolute | None:
    """Compute the absolute value of a metric for one arm (variant) from one number per block (repetition); None without any.

    Args:
        values: One finite number per block, in the metric's own unit.
        metric: The metric's name in the catalogue (`lab.model.metrics`).
        merged: For a percentile: its value over the requests of all blocks together. It then is the absolute value, but
            not below the smallest or above the largest of `values`. If it is None, the absolute value is the geometric
            mean of `values`, or the arithmetic mean if one of them is 0 or less.

    """
    if not values:
        return None
    low, high, blocks = min(values), max(values), len(values)
    clusters = find_clusters(values, metric)
    if clusters or blocks < stats.MIN_BLOCKS:
        return Absolute(blocks, low, high, None, None, clusters)
    if merged is not None:
        return Absolute(blocks, low, high, min(max(merged, low), high))
    if low <= 0 or low == high:
        return Absolute(blocks, low, high, compute_mean(values))
    level = stats.estimate_geometric_mean(values)
    ends = (level.low, level.high) if level.low is not None and level.high is not None else None
    return Absolute(blocks, low, high, min(max(level.value, low), high), ends)


def compute_mean(values: Sequence[float]) -> float | None:
    """Return the geometric mean of positive values, or the arithmetic mean if some value is 0 or less; None without values."""
    if not values or min(values) == max(values):
        return values[0] if values else None
    return geometric_mean(values) if min(values) > 0 else fmean(values)


def find_clusters(values: Sequence[float], metric: str) -> tuple[Cluster, ...]:
    """Split the values of an arm's blocks (repetitions) into two clusters; empty if they form one group.

    The result is also empty for fewer than six blocks, and for metrics that are not compared as ratios. Such a metric may
    be a count of failures in a disruption, which often takes only one of two numbers.

    Args:
        values: One value per block.
        metric: The metric's name in the catalogue.

    Returns:
        The two clusters, the one with the lower values first.

    """
    if not find_metric(metric).ratio or len(values) < stats.MIN_BLOCKS:
        return ()
    parts = find_two_clusters(values)
    return tuple(Cluster(len(part), geometric_mean(part)) for part in parts) if parts else ()


def describe_split(
    arm_values: Mapping[int, float], baseline_values: Mapping[int, float], metric: str, names: tuple[str, str]
) -> str:
    """Describe the two clusters that the values of a compared arm (variant) fall into, by block (repetition).

    If the values of an arm form two clusters, no single difference describes the comparison. In two cases, the ratios of
    the two arms are examined instead: if neither arm's values fall into clusters, and if both arms' values do with the
    same blocks in the upper cluster.

    Args:
        arm_values: Block (number of the repetition) → value of the arm.
        baseline_values: Block → value of the arm that it is compared with.
        metric: The metric's name in the catalogue.
        names: The names of the arm and of the arm that it is compared with.

    Returns:
        A phrase such as `keepalive: 5 of 10 blocks at 366 req/s, 5 at 58,600 req/s`. It is empty if there are no
        clusters.

    """
    entry = find_metric(metric)
    parts = [
        f"{name}: {format_clusters(entry, clusters, len(side))}"
        for side, name in zip((arm_values, baseline_values), names, strict=True)
        if (clusters := find_clusters([*side.values()], metric))
    ]
    if parts and not share_high_blocks(arm_values, baseline_values):
        return "; ".join(parts)
    common = arm_values.keys() & baseline_values.keys()
    ratios = [arm_values[block] / baseline_values[block] for block in common] if entry.ratio else []
    if clusters := find_clusters(ratios, metric):
        lower, upper = clusters
        times = f"{lower.blocks} of {len(ratios)} blocks ×{lower.value:.2g}, {upper.blocks} ×{upper.value:.2g}"
        return f"{names[0]} against {names[1]}: {times}"
    return ""


def share_high_blocks(first: Mapping[int, float], second: Mapping[int, float]) -> bool:
    """Return whether the values of both arms (variants) fall into two clusters, with the same blocks in the upper cluster.

    If so, the machine was in one of two states in each block (repetition). The ratio of the two arms then does not
    depend on the state.

    Args:
        first: Block → value of the first arm.
        second: Block → value of the second arm.

    """
    common = first.keys() & second.keys()
    splits = [(values, find_two_clusters([values[block] for block in common])) for values in (first, second)]
    upper = [{block for block in common if values[block] >= min(split[1])} for values, split in splits if split]
    return len(common) >= stats.MIN_BLOCKS and len(upper) == 2 and upper[0] == upper[1]


# -- in words ------------------------------------------------------------------------------------------------


def format_absolute(metric: Metric, absolute: Absolute | None) -> str:
    """Format an absolute value for a table's cell, without its unit.

    Examples: `24.1`; `19–24`, the range for fewer than six blocks (repetitions); `370|59,000` for two clusters; `–`
    without a value.
    """
    if absolute is None:
        return "–"
    if absolute.clusters:
        return "|".join(metric.coarse(cluster.value) for cluster in absolute.clusters)
    if absolute.value is not None:
        return metric.text(absolute.value)
    return "–".join(dict.fromkeys(map(metric.coarse, (absolute.low, absolute.high))))


def format_clusters(metric: Metric, clusters: Sequence[Cluster], blocks: int) -> str:
    """Format the clusters of an arm's blocks (repetitions) for a sentence: `5 of 10 blocks at 366 req/s, 5 at 58,600 req/s`.

    Args:
        metric: The metric, for its unit.
        clusters: The clusters, each with its number of blocks and its value.
        blocks: The number of blocks in all.

    """
    values = [f"{metric.coarse(cluster.value, 3)} {metric.unit}".rstrip() for cluster in clusters]
    first, *further = (f"{cluster.blocks}{{}} at {value}" for cluster, value in zip(clusters, values, strict=True))
    return ", ".join([first.format(f" of {blocks} blocks"), *(part.format("") for part in further)])
