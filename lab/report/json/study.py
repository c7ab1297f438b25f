"""What `--json` prints of a study's run: its tables in the published shape, filled in by `lab.report.tables.study`."""

from __future__ import annotations

from pydantic import Field

from lab.report.json.printed import Count, Printed


class LevelJson(Printed):
    """What was measured, in the table's unit; its interval is that of the blocks' geometric mean."""

    value: float | None = Field(description="null = the blocks fall into two clusters")
    low: float | None
    high: float | None
    n: Count = Field(description="blocks")
    smallest: float | None = Field(default=None, description="of the blocks")
    largest: float | None = Field(default=None, description="of the blocks")
    clusters: tuple[tuple[int, float], ...] = Field(
        default=(),
        description="blocks and their mean, of each of the two clusters that they fall into; empty = of none",
    )


class CellJson(Printed):
    """One cell: as measured here (null: not part of this run), and as published."""

    keys: dict[str, str] = Field(description="what it is the cell of, by the table's keys")
    variant: str | None
    point: str | None
    level: LevelJson | None
    published: float | None
    relative: tuple[float, float | None, float | None] | None = Field(
        description="to the table's reference cell, over the blocks that have both, with its 95 % interval"
    )
    published_relative: float | None
    notes: tuple[str, ...]


class StudyTableJson(Printed):
    """One published table."""

    title: str
    unit: str
    reference: dict[str, str] = Field(description="keys of the cell that others are relative to; empty = none")
    cells: tuple[CellJson, ...]


class StudyJson(Printed):
    """A study's run in the published shape."""

    key: str
    question: str
    tables: tuple[StudyTableJson, ...]
