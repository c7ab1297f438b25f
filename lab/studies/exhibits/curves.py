"""Latency by percentile as lines: published plots as they were read, and a run's histograms at the same percentiles.

    digitalocean,original,100,5,50,2.00,1.9,digitised,0.9,no   →   c100: Corner(place=5, value=0.0019, low=0.0010, high=0.0028)

A published corner may lie as far off as reading the plot may err. A measured one is of all blocks' merged histograms, and from six
blocks on lies between the least and the most of any single block. Refuses to pool runs and to average percentiles; a percentile
with fewer than ten requests beyond it has no corner.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from itertools import count
from math import hypot

import polars as pl

from lab.analysis.evidence import Evidence
from lab.records import published
from lab.report.figures.percentiles import Corner, Curve, tail
from lab.stats.histogram import Histogram
from lab.stats.paired import MIN_BLOCKS
from lab.stats.units import format_blocks

TABLE = "digitalocean_latency_vertices"
Blocks = Mapping[int, Histogram]


def digitised(suite: str, relative_to: int | None = None) -> tuple[Curve, ...]:
    """A published suite's lines; `relative_to`: as multiples of the line of so many connections, where that can be told from 0, with what both
    readings may be off (root of squares); a line is exactly 1 against itself.

    UsageError when the table is damaged.
    """
    table = published.frame(TABLE).filter(pl.col("suite") == suite).sort("connections", "vertex_index")
    lines: dict[
        int, dict[int, tuple[float, float]]
    ] = {}  # connections → place → value in seconds and how far it may be off
    for row in table.iter_rows(named=True):
        read = row["latency_ms"] * 1e-3, row["uncertainty_ms"] * 1e-3
        lines.setdefault(row["connections"], {})[row["vertex_index"]] = read
    base = lines.get(relative_to or 0, {})
    curves: list[Curve] = []
    for connections, own in lines.items():
        corners: list[Corner] = []
        for place, (value, by) in own.items():
            if relative_to is None:
                corners.append(Corner(place, value, max(0.0, value - by), value + by))
            elif place in base and base[place][0] > base[place][1]:
                ratio = value / base[place][0]
                off = 0.0 if own is base else hypot(by, ratio * base[place][1]) / base[place][0]
                corners.append(Corner(place, ratio, max(0.0, ratio - off), ratio + off))
        curves += [Curve(connections, corners)] if corners else []
    return tuple(curves)


def measured(run: Evidence, variant: str, relative_to: int | None = None) -> tuple[Curve, ...]:
    """A line for every number of connections at which a rate was offered to the variant, of the blocks that count; `relative_to` as in
    `digitised`.

    UsageError when a histogram is damaged.
    """
    every: dict[int, Blocks] = {}
    for arm in run.arms(variant)[:1]:
        for point in (point for point in run.points if point.rate_rps is not None and not point.control):
            read = {block: run.run.histogram(sample) for block, sample in run.blocks(arm, point.name).items()}
            if known := {block: histogram for block, histogram in read.items() if histogram is not None}:
                every[point.connections] = known
    base = every.get(relative_to, {}) if relative_to is not None else None
    found: list[Curve] = []
    for size, own in sorted(every.items()):
        if corners := tuple(_corners(own, base)):
            whole = _merged(own)
            rounded = "" if whole.kind == "exact" else ", between printed percentiles rounded up"
            found.append(Curve(size, corners, f"{format_blocks(len(own))}, {whole.total:,} requests{rounded}"))
    return tuple(found)


def _corners(own: Blocks, base: Blocks | None) -> Iterator[Corner]:
    """Up to the last percentile that both sides can tell. The band of a ratio is over the blocks that both have."""
    if base is not None and not base:
        return
    mine, theirs = _merged(own), None if base is None else _merged(base)
    pairs = [(own[block], None if base is None else base[block]) for block in own if base is None or block in base]
    for place in count():
        share = 1 - 1 / tail(place)
        value = _at(mine, theirs, share)
        if value is None:
            return
        single = [_at(one, other, share) for one, other in pairs]
        known = [each for each in single if each is not None]
        enough = MIN_BLOCKS <= len(known) == len(single)
        yield Corner(place, value, min(known) if enough else None, max(known) if enough else None)


def _at(own: Histogram, base: Histogram | None, share: float) -> float | None:
    value = own.quantile_s(share)
    if base is None or value is None:
        return value
    other = base.quantile_s(share)
    return value / other if other else None


def _merged(blocks: Blocks) -> Histogram:
    return reduce(Histogram.merge, blocks.values())
