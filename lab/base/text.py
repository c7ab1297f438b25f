"""Layout of plain text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text


def aligned(grid: Sequence[Sequence[Text]], left: frozenset[int], gap: int) -> list[Text]:
    widths = [max(cell_len(row[column].plain) for row in grid) for column in range(len(grid[0]))]
    lines: list[Text] = []
    for row in grid:
        line = Text()
        for column, cell in enumerate(row):
            space = " " * (widths[column] - cell_len(cell.plain))
            line.append(" " * gap if column else "")
            line.append_text(Text.assemble(cell, space) if column in left else Text.assemble(space, cell))
        lines.append(line)
    return lines
