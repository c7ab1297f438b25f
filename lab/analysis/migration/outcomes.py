"""What a migration's table cannot show as a number: where a system does not hold its rate, and where too few samples count, in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from lab.analysis.judge.rows import Row
from lab.analysis.summary import Summary

ENOUGH = 4
"""Valid samples of an arm at a load from which on its numbers stand by themselves."""


def outcomes(summaries: Sequence[Summary]) -> Iterator[str]:
    """Yield a sentence for each arm and load that has an outcome in words, in the table's order.

    That is where its samples are not steady, where fewer than `ENOUGH` count, or where they end before the proxy's ports run out.
    """
    for summary in summaries:
        for row in summary.rows:
            if row.arm.role != "reference":
                yield from _of_row(row)


def _of_row(row: Row) -> Iterator[str]:
    where = f"{row.arm.name} at {row.point.name}"
    if row.cell.unsteady is not None:
        yield f"{where}: {row.cell.unsteady.sentence()}"
        return
    if row.change is not None:
        yield f"{where}: {row.change.sentence()}"
    counted = _valid_samples(row)
    if counted < ENOUGH:
        reasons = ", ".join(_reasons(row)) or "not measured"
        yield f"{where}: too few samples for a number, {counted} count: {reasons}"
    if row.exhaustion is not None:
        yield f"{where}: {row.exhaustion.label}"


def _valid_samples(row: Row) -> int:
    """How many samples of an arm count, alone and as a side of a pair with its baseline."""
    cells = [row.cell, *([row.pair.own] if row.pair else [])]
    return sum(cell.valid_blocks for cell in cells)


def _reasons(row: Row) -> Iterable[str]:
    """Why the others do not, each reason with its number and its meaning."""
    cells = [row.cell, *([row.pair.own] if row.pair else [])]
    for cell in cells:
        for reason, count in cell.invalid.items():
            yield f"{reason} {count} ({reason.meaning.removesuffix('.')})"
