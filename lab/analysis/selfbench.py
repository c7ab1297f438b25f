"""What selfbench found: a row for each comparison, lab against by hand, and why there is none where there is none.

Refuses to judge: a ratio has the interval of its pairs (from six on), no verdict. Only what could not be measured, or came
out unequal where it must be equal, is a fault, and makes the exit status 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from lab.stats import paired as stats

Unit = Literal["s", "%", "req/s", "rows/s", "bytes"]
Part = Literal["samples", "bring-up", "analysis", "start-up"]
"""`start-up` is no longer measured; older records have it."""
PARTS: tuple[Part, ...] = ("samples", "bring-up", "analysis")


class Row(BaseModel):
    """One comparison. Medians where there are several measurements; `ratio` is the pairs' geometric mean, lab / by hand."""

    model_config = ConfigDict(extra="forbid", frozen=True)

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


class Report(BaseModel):
    """What `selfbench --json` prints. Seconds, bytes, requests or rows per second, per cent."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1] = 1
    measured_at: str = ""
    facts: dict[str, str] = Field(default={}, description="of the machine, as a run has them")
    rows: tuple[Row, ...] = ()
    notes: tuple[str, ...] = Field(default=(), description="what was left out here and why; counts against nothing")
    faults: tuple[str, ...] = Field(
        default=(), description="what could not be measured, or was not equal: exit status 1"
    )

    @property
    def complete(self) -> bool:
        return not self.faults

    def plus(self, other: Report) -> Report:
        return Report(rows=self.rows + other.rows, notes=self.notes + other.notes, faults=self.faults + other.faults)


def compared(part: Part, what: str, unit: Unit, lab: Sequence[float], by_hand: Sequence[float], note: str = "") -> Row:
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
        note=note,
    )


def alone(part: Part, what: str, unit: Unit, lab: Sequence[float], note: str = "") -> Row:
    """What has nothing beside it; shape (n,), n >= 1."""
    return Row(part=part, what=what, unit=unit, lab=median(lab), n=len(lab), note=note)
