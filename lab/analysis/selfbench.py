"""What selfbench found: a row for each number of the lab's, with the one by hand where there is one.

Refuses to judge: a ratio has the interval of its pairs, no verdict. Only what could not be measured, or came out unequal where
it must be equal, is a fault, and makes the exit status 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Literal

from pydantic import Field

from lab.base.validation import Strict
from lab.stats import paired as stats

Unit = Literal["s", "%", "rows/s", "bytes"]
Part = Literal["analysis", "overhead"]
PARTS: tuple[Part, ...] = ("analysis", "overhead")


class Row(Strict):
    """One comparison. Medians where there are several measurements; `ratio` is the pairs' geometric mean, lab / by hand."""

    part: Part
    what: str
    unit: Unit
    lab: float
    by_hand: float | None = Field(default=None, description="null = there is nothing by hand that does this")
    ratio: float | None = Field(default=None, description="lab / by hand")
    ratio_low: float | None = Field(default=None, description="95 % interval; null below six pairs")
    ratio_high: float | None = None
    n: int = Field(description="measurements of the lab, each with its pair by hand where there is one")
    note: str = ""


class Report(Strict):
    """What `selfbench --json` prints. Seconds, bytes, rows per second, per cent."""

    schema_version: Literal[2] = 2
    measured_at: str
    facts: dict[str, str] = Field(description="of the machine, as a run has them")
    rows: tuple[Row, ...]
    faults: tuple[str, ...] = Field(description="what could not be measured, or was not equal: exit status 1")


def compared(part: Part, what: str, unit: Unit, lab: Sequence[float], by_hand: Sequence[float]) -> Row:
    """From pairs (both shape (n,), n >= 1, positive): the ratio by `stats.paired`. ValueError as that raises it."""
    found = stats.paired(lab, by_hand)
    low, high = found.ratio_interval or (None, None)
    return Row(
        part=part,
        what=what,
        unit=unit,
        lab=median(lab),
        by_hand=median(by_hand),
        ratio=found.ratio,
        ratio_low=low,
        ratio_high=high,
        n=found.n,
    )


def alone(part: Part, what: str, unit: Unit, value: float, note: str = "") -> Row:
    """What has nothing beside it, measured once."""
    return Row(part=part, what=what, unit=unit, lab=value, n=1, note=note)
