"""The rendering of a page's parts (tables, sentences, notes) as Markdown; notes become a list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lab.report.grid import (
    Grid,
    Notes,
    Part,
    Sentences,
    format_references,
    heading_markdown,
    list_footnotes,
    number_notes,
)

RULES = {"left": " :-- ", "unset": " --- "}
"""Alignment of a column → the rule below the column's head; for any other alignment the rule is that of numbers."""


def render_markdown(parts: Sequence[Part]) -> str:
    """Return the parts of a page as Markdown with a newline at its end; empty if there are no parts."""
    lines: list[str] = []
    for part, numbers in number_notes(parts):
        if not (isinstance(part, Sentences) and part.markdown is None):
            lines += [*([""] if lines else []), *_render_part(part, numbers)]
    return "\n".join([*lines, ""]) if lines else ""


def _render_part(part: Part, numbers: Mapping[str, int]) -> list[str]:
    if isinstance(part, Sentences):
        return list(part.markdown or ())
    if isinstance(part, Notes):
        before, after = ([line.plain for line in lines] for lines in (part.before, part.after))
        return [f"- {line}" for line in [*before, *list_footnotes(numbers), *after]]
    return _render_table(part.wide or part, numbers)


def _render_table(grid: Grid, numbers: Mapping[str, int]) -> list[str]:
    """Return the lines of a grid in Markdown: one table for all successive rows with the same first-level heading.

    The heading, if there is one, stands above its table. A grid without rows becomes one table without rows.

    A free row (a row that does not use the grid's columns) never begins a new table. It joins the table of the row
    before it, and its own heading is left out. The grid's very first row is the exception: even if it is free, it
    begins the first table under its own heading.

    Args:
        grid: The grid.
        numbers: Note → its number.

    """
    lines: list[str] = []
    begun = None
    for row in grid.rows:
        first = row.under[0] if row.under else None
        if not lines or (first != begun and not row.free):
            lines += [*([""] if lines else []), *([heading_markdown(first), ""] if first else []), *_render_head(grid)]
            begun = first
        cells: list[str] = []
        for cell in row.cells:
            text, suffix = escape(cell.text), escape(cell.tail + format_references(cell.notes, numbers))
            cells.append(f"**{text}**{suffix}" if cell.strong else text + suffix)
        lines.append(f"| {' | '.join(cells)} |" + " |" * (len(grid.columns) - len(cells)))
    return lines or _render_head(grid)


def _render_head(grid: Grid) -> list[str]:
    names = [
        " ".join(filter(None, (column.over, column.name, f"({column.unit})" if column.unit else "")))
        for column in grid.columns
    ]
    rule = "|".join(RULES.get(column.stands, " --: ") for column in grid.columns)
    return [f"| {' | '.join(names)} |", f"|{rule}|"]


def escape(text: str) -> str:
    r"""Return a text with `|` and `*` escaped, so that Markdown shows these characters as they are: `a*` → `a\*`."""
    return text.replace("|", r"\|").replace("*", r"\*")
