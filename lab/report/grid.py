"""The parts of a printed page, without their appearance: tables (`Grid`), sentences (`Sentences`) and notes (`Notes`).

    Grid((TableColumn("variant", stands="left"), TableColumn("p99", "ms")), (make_row("baseline", "2.31"),))

`lab.report.terminal` and `lab.report.markdown` render the same parts. Widths, line breaks and escapes of Markdown are found only
there. JSON is not made from parts, because its numbers are neither scaled nor rounded (`lab.report.json`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from rich.text import Text


@dataclass(frozen=True, slots=True)
class TableCell:
    """One cell of a table.

    Attributes:
        text: The text.
        style: The style of the text on a terminal, as rich names it; Markdown has none.
        tail: A text that follows without this style.
        strong: Whether the text is bold in Markdown.
        notes: The notes of the cell. Their numbers follow the text, and the notes are printed below the table.

    """

    text: str
    style: str = ""
    tail: str = ""
    strong: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column of a table.

    Attributes:
        name: The name in the head of the column.
        unit: The text on the line below the name.
        stands: The alignment of the cells. `split`: the texts are right-aligned and the tails left-aligned, next to each other. `unset`:
            left on a terminal; in Markdown no alignment is given.
        over: The text on the line above the name.
        style: The style of the head, as rich names it.
        gap: The number of spaces before the column; None: that of the table.

    """

    name: str
    unit: str = ""
    stands: Literal["left", "right", "split", "unset"] = "right"
    over: str = ""
    style: str = "bold"
    gap: int | None = None


@dataclass(frozen=True, slots=True)
class Heading:
    """The heading of a group of rows in a table.

    In Markdown a heading of the first level begins a new table, and a heading of the second level is left out.

    Attributes:
        name: The text of the heading.
        about: A description that follows the text.
        inner: Whether it is a heading of the second level.

    """

    name: str
    about: str = ""
    inner: bool = False


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row of a table.

    Attributes:
        cells: The cells.
        under: The headings of the row's group, the first level first.
        free: Whether the row does not use the table's columns. It then has fewer cells, which are aligned with those of other free rows
            only.

    """

    cells: tuple[TableCell, ...]
    under: tuple[Heading, ...] = ()
    free: bool = False


@dataclass(frozen=True, slots=True)
class Fold:
    """The layout of a table with two lines per row, for a terminal on which one line does not fit.

    Attributes:
        above: The numbers of the columns on the first line, from 0.
        below: The numbers of the columns on the second line.
        indent: The number of spaces before the second line; None: one gap between columns.
        gaps: The number of spaces between columns; the first of these numbers that makes the table fit is used.

    """

    above: tuple[int, ...]
    below: tuple[int, ...]
    indent: int | None = None
    gaps: tuple[int, ...] = (2, 1)


@dataclass(frozen=True, slots=True)
class Panels:
    """The layout of a wide table as several panels below each other, each with as many columns as fit on a terminal.

    The first column after the titles is repeated in each panel. In a panel, a row without text is left out.

    Attributes:
        titles: The number of columns at the left that are titles of the rows. They are repeated in each panel, too.

    """

    titles: int


@dataclass(frozen=True, slots=True)
class Grid:
    """A table, in a form that can be printed on a terminal or as Markdown.

    Attributes:
        columns: The columns.
        rows: The rows.
        narrow: The layout for a terminal on which one line per row does not fit; None: the lines stay too long.
        gaps: The number of spaces between columns; the first of these numbers that makes the table fit is used.
        indent: The number of spaces before the first column.
        blank: Whether a terminal gets an empty line before the table. Markdown always gets one.
        wide: The table to use for Markdown, if it has other columns there; None: the same table.

    """

    columns: tuple[TableColumn, ...]
    rows: tuple[TableRow, ...]
    narrow: Fold | Panels | None = None
    gaps: tuple[int, ...] = (2,)
    indent: int = 0
    blank: bool = False
    wide: Grid | None = None


@dataclass(frozen=True, slots=True)
class Sentences:
    """Sentences, once as the lines for a terminal, and once as the lines for Markdown.

    Attributes:
        terminal: The lines for a terminal.
        markdown: The lines for Markdown; None: the sentences are left out there.
        blank: Whether a terminal gets an empty line before them.

    """

    terminal: tuple[Text, ...]
    markdown: tuple[str, ...] | None
    blank: bool = False


@dataclass(frozen=True, slots=True)
class Notes:
    """Notes below tables: as dim lines on a terminal, and as a list in Markdown.

    The numbered notes of all tables since the previous `Notes` are printed between `before` and `after`.

    Attributes:
        before: The lines before the numbered notes.
        after: The lines after the numbered notes.
        blank: Whether a terminal gets an empty line before them.
        elsewhere: The command that shows the notes. If it is given, a terminal prints this command instead of more than five notes.

    """

    before: tuple[Text, ...] = ()
    after: tuple[Text, ...] = ()
    blank: bool = False
    elsewhere: str = ""


Part = Grid | Sentences | Notes
"""One part of what is printed; a page is a sequence of parts."""


def make_row(*cells: str | TableCell, under: Sequence[Heading] = (), style: str = "", free: bool = False) -> TableRow:
    """Return a row of a table, made from texts and cells.

    Args:
        *cells: The cells; a text becomes a cell with the style `style`.
        under: The headings of the row's group, the first level first.
        style: The style of the texts, as rich names it; a cell keeps its own.
        free: Whether the row does not use the table's columns.

    """
    styled = (TableCell(cell, style) if isinstance(cell, str) else cell for cell in cells)
    return TableRow(tuple(styled), tuple(under), free)


def make_columns(
    names: Sequence[str], left: Container[int] = (), units: Sequence[str] = (), style: str = "bold"
) -> tuple[TableColumn, ...]:
    """Return the columns of a table, made from their names. Columns of text are aligned left, and columns of numbers right.

    Args:
        names: The names of the columns.
        left: The numbers of the columns with text, from 0; the others have numbers.
        units: The units of the columns; empty: none has a unit.
        style: The style of the heads, as rich names it.

    """
    units = units or [""] * len(names)
    return tuple(
        TableColumn(name, unit, "left" if place in left else "right", style=style)
        for place, (name, unit) in enumerate(zip(names, units, strict=True))
    )


def make_text_table(heads: Sequence[str], rows: Iterable[Sequence[str | TableCell]]) -> Grid:
    """Return a table whose columns all have text. They are aligned left on a terminal, and have no alignment in Markdown."""
    return Grid(tuple(TableColumn(head, stands="unset") for head in heads), tuple(make_row(*cells) for cells in rows))


def make_sentence(text: str, style: str = "", blank: bool = False) -> Sentences:
    """Return a sentence with one text for both a terminal and Markdown.

    Args:
        text: The text.
        style: The style on a terminal, as rich names it.
        blank: Whether a terminal gets an empty line before it.

    """
    return Sentences((Text(text, style=style),), (text,), blank)


def make_title(name: str, description: str = "", blank: bool = False) -> Sentences:
    """Return a title as a line: `name  description` on a terminal, `**name**: description` in Markdown."""
    return Sentences(
        (heading_text(Heading(name, description)),), (heading_markdown(Heading(name, description)),), blank
    )


def make_advice(text: str, snippet: str, bold: bool, blank: bool = False) -> Sentences:
    """Return the sentence of a verdict, followed by the snippet of configuration to paste.

    Args:
        text: The sentence.
        snippet: The snippet; empty: none.
        bold: Whether the sentence is bold on a terminal.
        blank: Whether a terminal gets an empty line before it.

    """
    lines = [Text(text, style="bold" if bold else ""), *(Text(f"  {line}") for line in snippet.splitlines())]
    return Sentences(tuple(lines), (text, *(["", "```", snippet.rstrip(), "```"] if snippet else [])), blank)


def heading_text(heading: Heading) -> Text:
    """Return the heading of a group of rows as a line for a terminal."""
    if heading.inner:
        return Text(f"  {heading.name}", style="bold")
    description = f"  {heading.about}" if heading.about else ""
    return Text.assemble((heading.name, "bold cyan"), (description, "dim"))


def heading_markdown(heading: Heading) -> str:
    """Return the heading of a group of rows as a line of Markdown: `**name**: description`."""
    return f"**{heading.name}**" + (f": {heading.about}" if heading.about else "")


def number_notes(parts: Sequence[Part]) -> Iterator[tuple[Part, Mapping[str, int]]]:
    """Yield each part of a page with the numbers of the notes in the cells of tables: (part, note → number).

    Numbering starts again at 1 after each `Notes` part. All parts up to and including the next `Notes` part share one numbering.
    """
    ends = [place for place, part in enumerate(parts, 1) if isinstance(part, Notes)]
    for begin, end in pairwise([0, *ends, len(parts)]):
        rows = (row for part in parts[begin:end] if isinstance(part, Grid) for row in part.rows)
        notes = dict.fromkeys(note for row in rows for cell in row.cells for note in cell.notes)
        numbers = {note: number for number, note in enumerate(notes, 1)}
        yield from ((part, numbers) for part in parts[begin:end])


def list_footnotes(numbers: Mapping[str, int]) -> list[str]:
    """Return a line for each note, with its number as a superscript: `¹ closed by the server`.

    Args:
        numbers: Note → its number.

    """
    return [f"{format_references([note], numbers)} {note}" for note in numbers]


def format_references(notes: Sequence[str], numbers: Mapping[str, int]) -> str:
    """Return the numbers of some notes as superscripts: `¹,³`.

    Args:
        notes: The notes.
        numbers: Note → its number.

    """
    digits = ",".join(str(number) for number in sorted(numbers[note] for note in notes))
    return digits.translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
