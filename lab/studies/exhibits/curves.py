"""The lines of latency by percentile for a figure, from published plots or from the histograms of a run.

    digitalocean,original,100,5,50,2.00,1.9,digitised,0.9,no   →   c100: PercentilePoint(place=5, value=0.0019, low=0.0010, high=0.0028)

Published and measured lines have points at the same percentiles. The band of a published point is the error of reading the plot.
A measured point is computed from the merged histograms of all blocks (repetitions). From six blocks on, its band reaches from the
smallest to the largest single block. Runs are never pooled, and percentiles never averaged. A percentile with fewer than ten
requests beyond it has no point.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from itertools import count
from math import hypot

import polars as pl

from lab.analysis.evidence import Evidence
from lab.records import published
from lab.report.figures.percentiles import Curve, PercentilePoint, reciprocal_tail
from lab.stats.histogram import Histogram
from lab.stats.paired import MIN_BLOCKS
from lab.stats.units import format_blocks

TABLE = "digitalocean_latency_vertices"
"""The published table with the corners of DigitalOcean's plots."""
Blocks = Mapping[int, Histogram]
"""Block → the histogram of its latencies."""


def read_published_curves(suite: str, relative_to: int | None = None) -> tuple[Curve, ...]:
    """Return DigitalOcean's published lines of latency by percentile for one suite, one line per number of connections.

    The bands of the lines are the errors of reading the numbers off a plot.

    Args:
        suite: The suite's name in the table, for example `original`.
        relative_to: The number of connections of a base line, by which all lines are divided; None: absolute values. The base line itself
            becomes exactly 1. Percentiles at which it cannot be distinguished from 0 are left out. The band of a ratio combines the errors
            of both readings (root of the sum of squares).

    Raises:
        UsageError: The table is damaged.

    """
    table = published.read_frame(TABLE).filter(pl.col("suite") == suite).sort("connections", "vertex_index")
    lines: dict[int, dict[int, tuple[float, float]]] = {}  # connections → place → value and error in seconds
    for row in table.iter_rows(named=True):
        reading = row["latency_ms"] * 1e-3, row["uncertainty_ms"] * 1e-3
        lines.setdefault(row["connections"], {})[row["vertex_index"]] = reading
    base = lines.get(relative_to or 0, {})
    curves: list[Curve] = []
    for connections, line in lines.items():
        corners: list[PercentilePoint] = []
        for place, (value, error) in line.items():
            if relative_to is None:
                corners.append(PercentilePoint(place, value, max(0.0, value - error), value + error))
            elif place in base and base[place][0] > base[place][1]:
                ratio = value / base[place][0]
                ratio_error = 0.0 if line is base else hypot(error, ratio * base[place][1]) / base[place][0]
                corners.append(PercentilePoint(place, ratio, max(0.0, ratio - ratio_error), ratio + ratio_error))
        curves += [Curve(connections, corners)] if corners else []
    return tuple(curves)


def measure_curves(run: Evidence, variant: str, relative_to: int | None = None) -> tuple[Curve, ...]:
    """Return a variant's lines of latency by percentile, one line per number of connections, as a run measured them.

    Only loads with an offered rate and usable blocks (repetitions) are used.

    Args:
        run: The run.
        variant: The variant.
        relative_to: The number of connections of a base line, by which all lines are divided; None: absolute values.

    Raises:
        UsageError: A histogram is damaged.

    """
    by_size: dict[int, Blocks] = {}
    for arm in run.arms(variant)[:1]:
        for point in (point for point in run.points if point.rate_rps is not None and not point.control):
            histograms = {block: run.run.histogram(sample) for block, sample in run.blocks(arm, point.name).items()}
            if present := {block: histogram for block, histogram in histograms.items() if histogram is not None}:
                by_size[point.connections] = present
    base = by_size.get(relative_to, {}) if relative_to is not None else None
    curves: list[Curve] = []
    for size, blocks in sorted(by_size.items()):
        if corners := tuple(_list_corners(blocks, base)):
            total = _merge(blocks)
            rounded = "" if total.kind == "exact" else ", between printed percentiles rounded up"
            curves.append(Curve(size, corners, f"{format_blocks(len(blocks))}, {total.total:,} requests{rounded}"))
    return tuple(curves)


def _list_corners(blocks: Blocks, base: Blocks | None) -> Iterator[PercentilePoint]:
    """Yield the points of a line of latency by percentile, from 0 % up to the highest known percentile.

    The value of a point is that of all blocks (repetitions) merged. Its band is the range of the single blocks' values, if every block has
    one and there are at least `MIN_BLOCKS`. If the line is divided by a base line, the band uses only blocks that have both.

    Args:
        blocks: Block → histogram of the line.
        base: Block → histogram of the base line, by which the line is divided. None: absolute values. Empty: the base line was not
            measured, so nothing is yielded.

    """
    if base is not None and not base:
        return
    merged, base_merged = _merge(blocks), None if base is None else _merge(base)
    pairs = [
        (blocks[block], None if base is None else base[block]) for block in blocks if base is None or block in base
    ]
    for place in count():
        share = 1 - 1 / reciprocal_tail(place)
        value = _read_quantile(merged, base_merged, share)
        if value is None:
            return
        singles = [_read_quantile(histogram, divisor, share) for histogram, divisor in pairs]
        present = [value for value in singles if value is not None]
        enough = MIN_BLOCKS <= len(present) == len(singles)
        yield PercentilePoint(place, value, min(present) if enough else None, max(present) if enough else None)


def _read_quantile(histogram: Histogram, base: Histogram | None, share: float) -> float | None:
    """Return the latency in seconds that a share of the requests does not exceed, or its ratio to that of a base line.

    The result is None if a latency is not known, or if that of the base line is 0.

    Args:
        histogram: The latencies.
        base: The latencies of the base line, by whose quantile the result is divided; None: the result is not divided.
        share: The share of the requests, from 0 to 1.

    """
    value = histogram.quantile_s(share)
    if base is None or value is None:
        return value
    divisor = base.quantile_s(share)
    return value / divisor if divisor else None


def _merge(blocks: Blocks) -> Histogram:
    return reduce(Histogram.merge, blocks.values())
