"""Absolute values that stand below a table, apart from the difference that they do not show.

variant                       metric      solo     baseline, solo  solo ratio  as a pair

rate-1000  50 connections, 1,000 req/s, 3 s, 1kB.bin
envoy-gateway-request-id-off  CPU/req µs  140–150  90–92              +62.2 %  −0.3 % [−1.0, +0.3]

Refuses to find them: `lab.analysis.judge.rows` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import expm1

from lab.analysis.aggregate.absolute import absolute_text
from lab.analysis.judge.rows import LIMIT, Row, SoloRatio, misleading_ratios
from lab.model.metrics import METRICS
from lab.model.sweeps import Point
from lab.report import grid
from lab.report.grid import Cell, Column, Fold, Grid, Heading, Part
from lab.report.loads import load_text

STANDS_APART = "below"
"""What a table has in place of such a value."""
COLUMNS = (
    Column("variant", stands="left"),
    Column("metric", stands="left"),
    Column("solo", stands="left"),
    Column("baseline, solo", stands="left"),
    Column("solo ratio"),
    Column("as a pair", stands="left"),
)


Found = tuple[str, Point, SoloRatio]
"""The arm, where, and what its absolute values show there."""


def of_rows(rows: Sequence[Row]) -> list[Part]:
    """Return `standing_apart` of a run's rows."""
    return standing_apart([(row.arm.name, row.point, each) for row in rows for each in misleading_ratios(row)])


def standing_apart(found: Sequence[Found]) -> list[Part]:
    """Return a sentence that says how far they are off and a table of them; nothing where there are none."""
    if not found:
        return []
    worst = max(100 * abs(expm1(each.ratio - each.pair.effect)) for _, _, each in found)
    said = (
        "Absolute values apart from the difference: the ratio of these solo samples leaves the pair's 95 % interval by more than"
        f" {100 * LIMIT:.0f} %, and is off the pair's effect by up to {worst:.0f} %. Conclude nothing from it where the pair decides."
    )
    return [grid.plain(said, blank=True), Grid(COLUMNS, tuple(_rows(found)), Fold((0, 1, 4, 5), (2, 3), indent=4))]


def _rows(found: Sequence[Found]) -> Iterator[grid.Row]:
    for arm, point, each in found:
        metric = METRICS[each.metric]
        unit = f" {metric.unit}" if metric.unit else ""
        effect = f"{metric.change(each.pair.effect)}{metric.ends(*(each.pair.interval or (None, None)))}"
        yield grid.row(
            Cell(arm, "bold"),
            f"{metric.short}{unit}",
            absolute_text(metric, each.own),
            absolute_text(metric, each.base),
            metric.change(each.ratio),
            effect,
            under=[Heading(point.name, load_text(point))],
        )
