"""Parts as a terminal's lines: columns aligned, a table in the first of its layouts that fits, whatever the width what cannot fold."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from lab.report.grid import (
    FEW_NOTES,
    Cell,
    Column,
    Fold,
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


def show(console: Console, parts: Sequence[Part], width: int | None = None) -> None:
    """Prints them in as many columns as the terminal has, or as `width` says; a line that is longer is broken at a
    word, but in a table that cannot fold.

    What is no terminal gets one line per row and sentence whatever its length, so that logs can be searched.
    """
    limit = width or (console.width if console.is_terminal else None)
    for line, of in _all(parts, limit):
        rigid = isinstance(of, Grid) and of.narrow is None
        folds = isinstance(of, Grid) and not rigid and limit is not None
        lines = [line]
        if folds and cell_len(line.plain) > console.width:
            first, *rest = line.wrap(console, console.width - HANGING)
            lines = [first, *(Text(" " * HANGING).append_text(each) for each in rest)]
        for each in lines:
            console.print(each, soft_wrap=rigid or limit is None, highlight=False)


def hung(console: Console, text: str, indent: int, bold: str = "") -> Text:
    """One paragraph, on a terminal broken at words, its further lines behind `indent` spaces; `bold`: the words in it that are."""
    lines = [text]
    if console.is_terminal:
        behind = " " * indent
        lines = textwrap.wrap(
            text, console.width, subsequent_indent=behind, break_long_words=False, break_on_hyphens=False
        )
    found = Text("\n".join(lines))
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
        if part.elsewhere and len(lines) > FEW_NOTES:
            return [
                Text(
                    f"{len(lines)} notes, what the numbers in the table mean among them: {part.elsewhere}", style="dim"
                )
            ]
        return lines
    if isinstance(part.narrow, Panels):
        return _panels(part, part.narrow.titles, numbers, limit)
    layouts = [_one_line(part, range(len(part.columns)), numbers, gap) for gap in part.gaps]
    if part.narrow:
        layouts += [_two_lines(part, part.narrow, numbers, gap) for gap in part.narrow.gaps]
    return next((made for made in layouts if limit is None or made.width <= limit), layouts[-1]).below_headings(
        part.rows
    )


# -- layouts -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Laid:
    """Lines of the head, and of each row that is bound to the columns."""

    head: list[Text]
    rows: list[list[Text]]

    @property
    def width(self) -> int:
        """Of the widest of them; headings may be wider."""
        lines = [*self.head, *(line for lines in self.rows for line in lines)]
        return max((cell_len(line.plain.rstrip()) for line in lines), default=0)

    def below_headings(self, rows: Sequence[Row]) -> list[Text]:
        """All lines, each row below what it has in common with its neighbours."""
        lines, bound, free = [*self.head], iter(self.rows), _free([row for row in rows if row.free])
        before: Sequence[Heading] = ()
        for row in rows:
            # from the first level on that is another than the row's before
            same = next((n for n in range(len(row.under)) if before[: n + 1] != row.under[: n + 1]), len(row.under))
            for heading in row.under[same:]:
                lines += [*([] if heading.inner else [Text("")]), heading_text(heading)]
            lines += [next(free)] if row.free else next(bound)
            before = row.under
        return lines


def _free(rows: Sequence[Row]) -> Iterator[Text]:
    """Their cells side by side, in columns of their own."""
    widths = [max(cell_len(cell.text) for cell in cells) for cells in zip(*(row.cells for row in rows), strict=True)]
    for row in rows:
        padded = (
            cell.text + " " * (width - cell_len(cell.text)) for cell, width in zip(row.cells, widths, strict=True)
        )
        yield Text("  ").join(Text(text, cell.style) for text, cell in zip(padded, row.cells, strict=True))


def _one_line(grid: Grid, shown: Sequence[int], numbers: Mapping[str, int], gap: int) -> _Laid:
    """With the columns at these places."""
    head, rows = _aligned(grid, shown, numbers, gap, grid.indent)
    return _Laid(head, [[line] for line in rows])


def _two_lines(grid: Grid, fold: Fold, numbers: Mapping[str, int], gap: int) -> _Laid:
    """A half of the head that says nothing has no line."""
    above, above_rows = _aligned(grid, fold.above, numbers, gap, grid.indent)
    below, below_rows = _aligned(grid, fold.below, numbers, gap, gap if fold.indent is None else fold.indent)
    head = [line for halves in zip(above, below, strict=True) for line in halves if line.plain.strip()]
    return _Laid(head, [list(halves) for halves in zip(above_rows, below_rows, strict=True)])


def _panels(grid: Grid, titles: int, numbers: Mapping[str, int], limit: int | None) -> list[Text]:
    """As many columns as fit beside one another; the first after the titles is repeated, as the others are compared with it."""
    kept, rest = list(range(titles + 1)), list(range(titles + 1, len(grid.columns)))
    gap = grid.gaps[0]
    lines: list[Text] = []
    while True:
        shown = list(kept)
        while rest and (
            limit is None or shown == kept or _one_line(grid, [*shown, rest[0]], numbers, gap).width <= limit
        ):
            shown.append(rest.pop(0))
        said = [row for row in grid.rows if any(row.cells[n].text or row.cells[n].tail for n in shown[titles:])]
        panel = _one_line(replace(grid, rows=tuple(said)), shown, numbers, gap)
        lines += [*([Text("")] if lines else []), *panel.below_headings(said)]
        if not rest:
            return lines


# -- columns -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Span:
    """A column as it is printed: behind `gap` spaces, `width` wide, of which `left` are for what stands before the tails."""

    column: Column
    gap: int
    left: int
    width: int

    def head(self, text: str, style: str) -> Text:
        return self._filled(Text(text, style), right=self.column.stands == "right")

    def cell(self, cell: Cell, numbers: Mapping[str, int]) -> Text:
        text, tail = _texts(cell, numbers)
        if self.column.stands == "split":
            text = " " * (self.left - cell_len(text)) + text
        return self._filled(Text(text + tail, cell.style), right=self.column.stands == "right")

    def _filled(self, text: Text, right: bool) -> Text:
        space = " " * (self.width - cell_len(text.plain))
        return Text.assemble(" " * self.gap, *((space, text) if right else (text, space)))


def _aligned(
    grid: Grid, shown: Sequence[int], numbers: Mapping[str, int], gap: int, indent: int
) -> tuple[list[Text], list[Text]]:
    """Lines of the head and of the bound rows, with the columns at these places."""
    rows = [row for row in grid.rows if not row.free]
    spans: list[_Span] = []
    for place in shown:
        column = grid.columns[place]
        space = (gap if column.gap is None else column.gap) if spans else indent
        texts = [_texts(row.cells[place], numbers) for row in rows]
        left = max((cell_len(text) for text, _ in texts), default=0)
        whole = [left + cell_len(tail) if column.stands == "split" else cell_len(text + tail) for text, tail in texts]
        spans.append(_Span(column, space, left, max(*whole, *map(cell_len, (column.over, column.name, column.unit)))))
    columns = [span.column for span in spans]
    heads = [
        [(column.over, column.style) for column in columns],
        [(column.name, column.style) for column in columns],
        [(column.unit, "dim") for column in columns],
    ]
    present = [any(texts) for texts in zip(*((c.over, c.name, c.unit) for c in grid.columns), strict=True)]
    head = [
        Text.assemble(*(span.head(text, style) for span, (text, style) in zip(spans, line, strict=True)))
        for line, there in zip(heads, present, strict=True)
        if there
    ]
    lines = [
        Text.assemble(*(span.cell(row.cells[place], numbers) for span, place in zip(spans, shown, strict=True)))
        for row in rows
    ]
    return head, lines


def _texts(cell: Cell, numbers: Mapping[str, int]) -> tuple[str, str]:
    return cell.text, cell.tail + references(cell.notes, numbers)
