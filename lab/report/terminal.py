"""Parts as a terminal's lines: columns aligned, a table in the first of its layouts that fits, whatever the width what cannot fold."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from lab.report.grid import (
    Grid,
    Heading,
    Notes,
    Panels,
    Part,
    Row,
    Words,
    footnotes,
    heading_text,
    numbered,
    references,
)

HANGING = 4
"""Spaces before what of a table's row has no room on its line."""
FEW_NOTES = 5
Laid = tuple[list[Text], list[list[Text]]]
"""Lines of the head, and of each row that is bound to the columns."""


def show(console: Console, parts: Sequence[Part], width: int | None = None) -> None:
    """Prints them in as many columns as the terminal has, or as `width` says; a line that is longer is broken at a
    word, but in a table that cannot fold.

    What is no terminal gets one line per row and sentence whatever its length, so that logs can be searched.
    """
    limit = width or (console.width if console.is_terminal else None)
    for line, of in _all(parts, limit):
        rigid = isinstance(of, Grid) and of.narrow is None
        lines = [line]
        if isinstance(of, Grid) and not rigid and limit is not None and cell_len(line.plain) > console.width:
            first, *rest = line.wrap(console, console.width - HANGING)
            lines = [first, *(Text(" " * HANGING).append_text(each) for each in rest)]
        for each in lines:
            console.print(each, soft_wrap=rigid or limit is None, highlight=False)


def hung(console: Console, text: str, indent: int, bold: str = "") -> Text:
    """One paragraph, on a terminal broken at words, its further lines behind `indent` spaces; `bold`: the words in it that are."""
    if console.is_terminal:
        behind = " " * indent
        text = textwrap.fill(
            text, console.width, subsequent_indent=behind, break_long_words=False, break_on_hyphens=False
        )
    found = Text(text)
    if bold:
        found.highlight_words([bold], "bold")
    return found


def terminal(parts: Sequence[Part], limit: int | None = None) -> list[Text]:
    """The lines; tables that can be folded keep to `limit` columns (None: any number)."""
    return [line for line, _ in _all(parts, limit)]


def _all(parts: Sequence[Part], limit: int | None) -> Iterator[tuple[Text, Part]]:
    """Each line, and what it is of."""
    for part, numbers in numbered(parts):
        for line in [Text("")] * part.blank + _lines(part, numbers, limit):
            line.rstrip()
            yield line, part


def _lines(part: Part, numbers: Mapping[str, int], limit: int | None) -> list[Text]:
    if isinstance(part, Words):
        return list(part.terminal)
    if isinstance(part, Notes):
        lines = [*part.before, *(Text(note, style="dim") for note in footnotes(numbers)), *part.after]
        if not part.elsewhere or len(lines) <= FEW_NOTES:
            return lines
        what = f"{len(lines)} notes, what the numbers in the table mean among them"
        return [Text(f"{what}: {part.elsewhere}", style="dim")]
    if isinstance(part.narrow, Panels):
        return _panels(part, part.narrow.titles, numbers, limit)
    layouts = [_one_line(part, range(len(part.columns)), numbers, gap) for gap in part.gaps]
    if part.narrow:  # a half of the head that says nothing has no line
        for gap in part.narrow.gaps:
            indent = gap if part.narrow.indent is None else part.narrow.indent
            above, above_rows = _aligned(part, part.narrow.above, numbers, gap, part.indent)
            below, below_rows = _aligned(part, part.narrow.below, numbers, gap, indent)
            head = [line for halves in zip(above, below, strict=True) for line in halves if line.plain.strip()]
            layouts.append((head, [list(halves) for halves in zip(above_rows, below_rows, strict=True)]))
    fits = (made for made in layouts if limit is None or _width(made) <= limit)
    return _below_headings(next(fits, layouts[-1]), part.rows)


# -- layouts -------------------------------------------------------------------------------------------------


def _width(laid: Laid) -> int:
    """Of the widest of its lines; headings may be wider."""
    lines = [*laid[0], *(line for lines in laid[1] for line in lines)]
    return max((cell_len(line.plain.rstrip()) for line in lines), default=0)


def _below_headings(laid: Laid, rows: Sequence[Row]) -> list[Text]:
    """All lines, each row below what it has in common with its neighbours; free rows' cells in columns of their own."""
    cells = zip(*(row.cells for row in rows if row.free), strict=True)
    widths = [max(cell_len(cell.text) for cell in column) for column in cells]
    lines, bound = [*laid[0]], iter(laid[1])
    before: Sequence[Heading] = ()
    for row in rows:
        # from the first level on that is another than the row's before
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


def _one_line(grid: Grid, shown: Sequence[int], numbers: Mapping[str, int], gap: int) -> Laid:
    """With the columns at these places."""
    head, rows = _aligned(grid, shown, numbers, gap, grid.indent)
    return head, [[line] for line in rows]


def _panels(grid: Grid, titles: int, numbers: Mapping[str, int], limit: int | None) -> list[Text]:
    """As many columns as fit beside one another; the first after the titles is repeated, as the others are compared with it."""
    kept, rest = list(range(titles + 1)), list(range(titles + 1, len(grid.columns)))
    gap = grid.gaps[0]
    lines: list[Text] = []
    while not lines or rest:
        shown = list(kept)
        while rest and (
            limit is None or shown == kept or _width(_one_line(grid, [*shown, rest[0]], numbers, gap)) <= limit
        ):
            shown.append(rest.pop(0))
        said = [row for row in grid.rows if any(row.cells[n].text or row.cells[n].tail for n in shown[titles:])]
        panel = _one_line(replace(grid, rows=tuple(said)), shown, numbers, gap)
        lines += [*([Text("")] if lines else []), *_below_headings(panel, said)]
    return lines


def _aligned(
    grid: Grid, shown: Sequence[int], numbers: Mapping[str, int], gap: int, indent: int
) -> tuple[list[Text], list[Text]]:
    """Lines of the head and of the bound rows, with the columns at these places."""
    rows = [row for row in grid.rows if not row.free]
    columns: list[list[Text]] = []
    for place in shown:
        column, cells = grid.columns[place], [row.cells[place] for row in rows]
        left = max((cell_len(cell.text) for cell in cells), default=0) if column.stands == "split" else 0
        texts = [column.over, column.name, column.unit]
        texts += [
            " " * (left - cell_len(cell.text)) + cell.text + cell.tail + references(cell.notes, numbers)
            for cell in cells
        ]
        styles = [column.style, column.style, "dim", *(cell.style for cell in cells)]
        before = " " * (indent if not columns else gap if column.gap is None else column.gap)
        width = max(map(cell_len, texts))
        lines: list[Text] = []
        for text, style in zip(texts, styles, strict=True):
            said, space = Text(text, style), " " * (width - cell_len(text))
            lines.append(Text.assemble(before, *((space, said) if column.stands == "right" else (said, space))))
        columns.append(lines)
    over, name, unit, *below = (Text.assemble(*parts) for parts in zip(*columns, strict=True))
    present = zip(*((column.over, column.name, column.unit) for column in grid.columns), strict=True)
    return [line for line, texts in zip((over, name, unit), present, strict=True) if any(texts)], below
