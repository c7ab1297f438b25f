"""The rendering of a page's parts (tables, sentences, notes) as lines for a terminal.

The columns of a table are aligned. A table is printed in the first of its layouts that fits on the terminal. A table without a
narrow layout may be wider than the terminal.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from lab.model.names import OUTPUT_WIDTH
from lab.report.grid import (
    Grid,
    Heading,
    Notes,
    Panels,
    Part,
    Sentences,
    TableRow,
    format_references,
    heading_text,
    list_footnotes,
    number_notes,
)

HANGING = 4
"""The spaces before the rest of a table's row that does not fit on its line."""
FEW_NOTES = 5
Layout = tuple[list[Text], list[list[Text]]]
"""A table in one layout: (lines of its head, lines of each row that uses the table's columns)."""


def print_parts(console: Console, parts: Sequence[Part], width: int | None = None) -> None:
    """Print the parts of a page in at most `width` columns.

    A line that is too long is broken at a word. Two kinds of lines stay too long: those of a table without a narrow layout, and those
    without a space (a command, a path).

    Args:
        console: The console to print on.
        parts: The parts.
        width: The maximum number of columns. None: `OUTPUT_WIDTH`, or fewer on a narrower terminal.

    """
    limit = width or (min(console.width, OUTPUT_WIDTH) if console.is_terminal else OUTPUT_WIDTH)
    for line, part in _yield_lines(parts, limit):
        rigid = isinstance(part, Grid) and part.narrow is None
        for piece in [line] if rigid else _wrap(line, limit):
            console.print(piece, soft_wrap=True, highlight=False)


def _wrap(line: Text, limit: int) -> list[Text]:
    """Break a line at words into pieces of at most `limit` columns; every piece but the first is indented."""
    if cell_len(line.plain) <= limit:
        return [line]
    indent = len(line.plain) - len(line.plain.lstrip()) + HANGING
    starts, column = [0], 0
    for word in re.finditer(r"\s*\S+", line.plain):
        if "\n" in word[0]:  # the text has a line break of its own there
            column = cell_len(word[0].rpartition("\n")[2])
        elif column + cell_len(word[0]) > limit and column:
            starts.append(word.start())
            column = indent + cell_len(word[0].lstrip())
        else:
            column += cell_len(word[0])
    first, *continued = line.divide(starts[1:])
    pieces = [first]
    for piece in continued:
        text = piece[len(piece.plain) - len(piece.plain.lstrip()) :]
        pieces.append(Text(" " * indent).append_text(text))
    for piece in pieces:
        piece.rstrip()
    return pieces


def wrap_hanging(console: Console, text: str, indent: int, bold: str = "", most: int | None = None) -> Text:
    """Return a paragraph for a terminal, broken at words; every line but the first is indented.

    With `most`, a word that is longer than a line is broken, too.

    Args:
        console: The console that will print the paragraph.
        text: The paragraph.
        indent: The number of spaces before every line but the first.
        bold: The part of the text that is printed in bold.
        most: The maximum number of characters of a line, which also holds if the output is no terminal. None: only the width of the
            terminal limits the lines.

    """
    if limits := [limit for limit in (most, console.is_terminal and console.width) if limit]:
        margin, breaks = " " * indent, most is not None
        text = textwrap.fill(
            text, min(limits), subsequent_indent=margin, break_long_words=breaks, break_on_hyphens=False
        )
    paragraph = Text(text)
    if bold:
        paragraph.highlight_words([bold], "bold")
    return paragraph


def render_terminal(parts: Sequence[Part], limit: int | None = None) -> list[Text]:
    """Return the parts of a page as lines for a terminal.

    Args:
        parts: The parts.
        limit: The maximum number of columns. A table without a narrow layout may be wider. None: any number.

    """
    return [line for line, _ in _yield_lines(parts, limit)]


def _yield_lines(parts: Sequence[Part], limit: int | None) -> Iterator[tuple[Text, Part]]:
    """Yield each line for a terminal, together with the part of the page that it belongs to."""
    for part, numbers in number_notes(parts):
        for line in [Text("")] * part.blank + _render_part(part, numbers, limit):
            line.rstrip()
            yield line, part


def _render_part(part: Part, numbers: Mapping[str, int], limit: int | None) -> list[Text]:
    if isinstance(part, Sentences):
        return list(part.terminal)
    if isinstance(part, Notes):
        lines = [*part.before, *(Text(note, style="dim") for note in list_footnotes(numbers)), *part.after]
        if not part.elsewhere or len(lines) <= FEW_NOTES:
            return lines
        count = f"{len(lines)} notes{', among them ¹ and the other marks in the table' * bool(numbers)}"
        return [Text(f"{count}: {part.elsewhere}", style="dim")]
    if isinstance(part.narrow, Panels):
        return _lay_out_panels(part, part.narrow.titles, numbers, limit)
    layouts = [_lay_out_on_one_line(part, range(len(part.columns)), numbers, gap) for gap in part.gaps]
    if part.narrow:  # a half of the head without text has no line
        for gap in part.narrow.gaps:
            indent = gap if part.narrow.indent is None else part.narrow.indent
            upper, upper_rows = _align(part, part.narrow.above, numbers, gap, part.indent)
            lower, lower_rows = _align(part, part.narrow.below, numbers, gap, indent)
            head = [line for halves in zip(upper, lower, strict=True) for line in halves if line.plain.strip()]
            layouts.append((head, [list(halves) for halves in zip(upper_rows, lower_rows, strict=True)]))
    fitting = (layout for layout in layouts if limit is None or _measure_width(layout) <= limit)
    return _insert_headings(next(fitting, layouts[-1]), part.rows)


# -- layouts -------------------------------------------------------------------------------------------------


def _measure_width(laid: Layout) -> int:
    """Return the width of a table's widest line, in characters of a terminal.

    The head of the table is measured, and the rows that use the table's columns. Other rows, and headings of groups, may be
    wider.
    """
    lines = [*laid[0], *(line for lines in laid[1] for line in lines)]
    return max((cell_len(line.plain.rstrip()) for line in lines), default=0)


def _insert_headings(laid: Layout, rows: Sequence[TableRow]) -> list[Text]:
    """Return all lines of a table, with the headings of each group of rows before the group's first row.

    Free rows (those that do not use the table's columns) are inserted, too. Their cells are aligned among themselves.

    Args:
        laid: The lines of the table's head, and of its rows that use the columns.
        rows: All rows.

    """
    cells = zip(*(row.cells for row in rows if row.free), strict=True)
    widths = [max(cell_len(cell.text) for cell in column) for column in cells]
    lines, bound = [*laid[0]], iter(laid[1])
    before: Sequence[Heading] = ()
    for row in rows:
        # the first level at which the headings differ from those of the row before
        same = next((n for n in range(len(row.under)) if before[: n + 1] != row.under[: n + 1]), len(row.under))
        for heading in row.under[same:]:
            lines += [*([] if heading.inner else [Text("")]), heading_text(heading)]
        before = row.under
        if row.free:
            padded = (cell.text.ljust(width) for cell, width in zip(row.cells, widths, strict=True))
            lines.append(Text("  ").join(Text(text, cell.style) for text, cell in zip(padded, row.cells, strict=True)))
        else:
            lines += next(bound)
    return lines


def _lay_out_on_one_line(grid: Grid, places: Sequence[int], numbers: Mapping[str, int], gap: int) -> Layout:
    """Lay out a table with one line per row.

    Args:
        grid: The table.
        places: The numbers of the columns to show, from 0.
        numbers: Note → its number.
        gap: The number of spaces between columns.

    """
    head, rows = _align(grid, places, numbers, gap, grid.indent)
    return head, [[line] for line in rows]


def _lay_out_panels(grid: Grid, titles: int, numbers: Mapping[str, int], limit: int | None) -> list[Text]:
    """Lay out a wide table as several panels below each other, each with as many columns as fit; return the lines.

    Each panel repeats the columns with titles. It also repeats the first column after them, with which the other columns are
    compared.

    Args:
        grid: The table.
        titles: The number of columns with titles, which come first.
        numbers: Note → its number.
        limit: The maximum number of columns of the terminal; None: any number.

    """
    repeated, remaining = list(range(titles + 1)), list(range(titles + 1, len(grid.columns)))
    gap = grid.gaps[0]
    lines: list[Text] = []
    while not lines or remaining:
        places = list(repeated)
        while remaining and (
            limit is None
            or places == repeated
            or _measure_width(_lay_out_on_one_line(grid, [*places, remaining[0]], numbers, gap)) <= limit
        ):
            places.append(remaining.pop(0))
        rows = [row for row in grid.rows if any(row.cells[n].text or row.cells[n].tail for n in places[titles:])]
        panel = _lay_out_on_one_line(replace(grid, rows=tuple(rows)), places, numbers, gap)
        lines += [*([Text("")] if lines else []), *_insert_headings(panel, rows)]
    return lines


def _align(
    grid: Grid, places: Sequence[int], numbers: Mapping[str, int], gap: int, indent: int
) -> tuple[list[Text], list[Text]]:
    """Return (lines of a table's head, lines of its rows) with aligned columns.

    Free rows (those that do not use the table's columns) are left out.

    Args:
        grid: The table.
        places: The numbers of the columns to show, from 0.
        numbers: Note → its number.
        gap: The number of spaces between columns.
        indent: The number of spaces before the first column.

    """
    rows = [row for row in grid.rows if not row.free]
    columns: list[list[Text]] = []
    for place in places:
        column, cells = grid.columns[place], [row.cells[place] for row in rows]
        left = max((cell_len(cell.text) for cell in cells), default=0) if column.stands == "split" else 0
        texts = [column.over, column.name, column.unit]
        texts += [
            " " * (left - cell_len(cell.text)) + cell.text + cell.tail + format_references(cell.notes, numbers)
            for cell in cells
        ]
        styles = [column.style, column.style, "dim", *(cell.style for cell in cells)]
        before = " " * (indent if not columns else gap if column.gap is None else column.gap)
        width = max(map(cell_len, texts))
        lines: list[Text] = []
        for text, style in zip(texts, styles, strict=True):
            content, space = Text(text, style), " " * (width - cell_len(text))
            lines.append(Text.assemble(before, *((space, content) if column.stands == "right" else (content, space))))
        columns.append(lines)
    over, name, unit, *bound = (Text.assemble(*parts) for parts in zip(*columns, strict=True))
    present = zip(*((column.over, column.name, column.unit) for column in grid.columns), strict=True)
    return [line for line, texts in zip((over, name, unit), present, strict=True) if any(texts)], bound
