"""The parts that a verb prints, without their appearance: tables (`Grid`), sentences (`Sentences`), notes (`Notes`).

    Grid((Column("variant", left=True), Column("p99", "ms")), (row("baseline", "2.31"),))

`lab.report.terminal` and `lab.report.markdown` render the same parts. They alone know widths, folding, footnote numbers, escapes and rules.
Output for programs is not made from parts: numbers there are neither scaled nor rounded (`lab.report.json`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from rich.text import Text


@dataclass(frozen=True, slots=True)
class TableCell:
    """One cell of a table: its text, then `tail`, then the numbers of its notes.

    `strong` makes the text bold in Markdown, where `style` has no effect.
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
        name: The head of the column.
        unit: The text on a line below the names.
        stands: The alignment. `split`: texts end in one column and tails begin there, with the name left above both. `unset`: left on a
            terminal; in Markdown no alignment is given.
        over: The text on a line above the names.
        style: The style of the head.
        gap: The spaces before the column; None: those of the table.

    """

    name: str
    unit: str = ""
    stands: Literal["left", "right", "split", "unset"] = "right"
    over: str = ""
    style: str = "bold"
    gap: int | None = None


@dataclass(frozen=True, slots=True)
class Heading:
    """The heading of a group of rows; in Markdown a heading of the first level begins a new table.

    `inner` marks a heading of the second level.
    """

    name: str
    about: str = ""
    inner: bool = False


@dataclass(frozen=True, slots=True)
class TableRow:
    """A line of the table, below the headings `under`.

    A `free` row has fewer cells than there are columns, and an alignment with the other free rows only.
    """

    cells: tuple[TableCell, ...]
    under: tuple[Heading, ...] = ()
    free: bool = False


@dataclass(frozen=True, slots=True)
class Fold:
    """The layout with two lines per row, used where one line does not fit.

    `above` and `below` are the places of the columns on each line; the second line begins after `indent` spaces (None: one gap).
    """

    above: tuple[int, ...]
    below: tuple[int, ...]
    indent: int | None = None
    gaps: tuple[int, ...] = (2, 1)


@dataclass(frozen=True, slots=True)
class Panels:
    """The layout with several panels: as many columns next to each other as fit, the others in panels below.

    The first `titles` columns and the column after them are repeated in each panel. A row without text in a panel is left out there.
    """

    titles: int


@dataclass(frozen=True, slots=True)
class Grid:
    """A table.

    Attributes:
        columns: The columns.
        rows: The rows.
        narrow: The layout where one line per row does not fit; None: the lines stay too long.
        gaps: The spaces between columns; the first number that makes the table fit is used.
        indent: The spaces before the first column.
        blank: Whether a terminal leaves an empty line before the table; in Markdown there is always one.
        wide: The form of the table in Markdown, where that has other columns.

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
    """Sentences, as lines of a terminal and as lines of Markdown (None: they are left out there)."""

    terminal: tuple[Text, ...]
    markdown: tuple[str, ...] | None
    blank: bool = False


@dataclass(frozen=True, slots=True)
class Notes:
    """Notes below tables, as dim lines or as a list in Markdown.

    They are `before`, the numbered notes of the tables since the last `Notes`, then `after`. `elsewhere` is the command that shows the notes
    where a terminal has no room for more than five; empty: all are shown.
    """

    before: tuple[Text, ...] = ()
    after: tuple[Text, ...] = ()
    blank: bool = False
    elsewhere: str = ""


Part = Grid | Sentences | Notes
"""One part of what is printed; a page is a sequence of parts."""


def make_row(*cells: str | TableCell, under: Sequence[Heading] = (), style: str = "", free: bool = False) -> TableRow:
    """Return a row of texts, which get this style, and of cells, which keep theirs."""
    styled = (TableCell(cell, style) if isinstance(cell, str) else cell for cell in cells)
    return TableRow(tuple(styled), tuple(under), free)


def make_columns(
    names: Sequence[str], left: Container[int] = (), units: Sequence[str] = (), style: str = "bold"
) -> tuple[TableColumn, ...]:
    """Return columns with these names; the columns at the places in `left` are text, the others are numbers."""
    units = units or [""] * len(names)
    return tuple(
        TableColumn(name, unit, "left" if place in left else "right", style=style)
        for place, (name, unit) in enumerate(zip(names, units, strict=True))
    )


def make_text_table(heads: Sequence[str], rows: Iterable[Sequence[str | TableCell]]) -> Grid:
    """Return a table of texts without an alignment in Markdown."""
    return Grid(tuple(TableColumn(head, stands="unset") for head in heads), tuple(make_row(*cells) for cells in rows))


def make_sentence(text: str, style: str = "", blank: bool = False) -> Sentences:
    """Return a sentence that is the same on a terminal and in Markdown."""
    return Sentences((Text(text, style=style),), (text,), blank)


def make_title(name: str, description: str = "", blank: bool = False) -> Sentences:
    """Return a title: `name  description`, in Markdown `**name**: description`."""
    return Sentences(
        (heading_text(Heading(name, description)),), (heading_markdown(Heading(name, description)),), blank
    )


def make_advice(text: str, snippet: str, bold: bool, blank: bool = False) -> Sentences:
    """Return the sentence of a verdict, and the snippet to paste."""
    lines = [Text(text, style="bold" if bold else ""), *(Text(f"  {line}") for line in snippet.splitlines())]
    return Sentences(tuple(lines), (text, *(["", "```", snippet.rstrip(), "```"] if snippet else [])), blank)


def heading_text(heading: Heading) -> Text:
    """Return a heading as a line of a terminal."""
    if heading.inner:
        return Text(f"  {heading.name}", style="bold")
    description = f"  {heading.about}" if heading.about else ""
    return Text.assemble((heading.name, "bold cyan"), (description, "dim"))


def heading_markdown(heading: Heading) -> str:
    """Return a heading as Markdown."""
    return f"**{heading.name}**" + (f": {heading.about}" if heading.about else "")


def number_notes(parts: Sequence[Part]) -> Iterator[tuple[Part, Mapping[str, int]]]:
    """Yield every part with the numbers of the notes in it, which start at 1 after each `Notes`."""
    ends = [place for place, part in enumerate(parts, 1) if isinstance(part, Notes)]
    for begin, end in pairwise([0, *ends, len(parts)]):
        rows = (row for part in parts[begin:end] if isinstance(part, Grid) for row in part.rows)
        notes = dict.fromkeys(note for row in rows for cell in row.cells for note in cell.notes)
        numbers = {note: number for number, note in enumerate(notes, 1)}
        yield from ((part, numbers) for part in parts[begin:end])


def list_footnotes(numbers: Mapping[str, int]) -> list[str]:
    """Return the notes with their numbers: `¹ closed by the server`."""
    return [f"{format_references([note], numbers)} {note}" for note in numbers]


def format_references(notes: Sequence[str], numbers: Mapping[str, int]) -> str:
    """Return the numbers of notes as superscripts: `¹,³`."""
    digits = ",".join(str(number) for number in sorted(numbers[note] for note in notes))
    return digits.translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
