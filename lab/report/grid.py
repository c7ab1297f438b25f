"""What a verb prints as parts, before anybody decides how it looks: tables (`Grid`), sentences (`Words`), notes (`Notes`).

    Grid((Column("variant", left=True), Column("p99", "ms")), (row("baseline", "2.31"),))

`lab.report.terminal` and `lab.report.markdown` render the same parts; widths, folding, footnote numbers, escapes and rules are
theirs alone. What a program reads is no rendering of these: numbers there are neither scaled nor rounded (`lab.report.json`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from rich.text import Text


@dataclass(frozen=True, slots=True)
class Cell:
    """`text`, then what follows it (`tail`), then the numbers of its `notes`. `strong`: `text` is bold in Markdown, where `style` is not seen."""

    text: str
    style: str = ""
    tail: str = ""
    strong: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Column:
    """`unit` has a line of its own below the names; `over` a line of its own above them. `gap`: spaces before it, if not the table's.

    `split`: texts end in one column and tails begin there, with the column's name left above both. `unset`: left, but in Markdown as
    whatever shows it has it by itself.
    """

    name: str
    unit: str = ""
    stands: Literal["left", "right", "split", "unset"] = "right"
    over: str = ""
    style: str = "bold"
    gap: int | None = None


@dataclass(frozen=True, slots=True)
class Heading:
    """What the rows below it have in common; in Markdown a heading of the first level begins a new table."""

    name: str
    about: str = ""
    inner: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table below the headings `under`. `free`: it has fewer cells than there are columns, and its own alignment."""

    cells: tuple[Cell, ...]
    under: tuple[Heading, ...] = ()
    free: bool = False


@dataclass(frozen=True, slots=True)
class Fold:
    """Two lines a row where one does not fit: columns `above` and `below`, the latter behind `indent` spaces (None: one gap)."""

    above: tuple[int, ...]
    below: tuple[int, ...]
    indent: int | None = None
    gaps: tuple[int, ...] = (2, 1)


@dataclass(frozen=True, slots=True)
class Panels:
    """Side by side what fits, the rest below: the first `titles` columns and the one after them are repeated in each panel.

    A row that says nothing in a panel is left out of it.
    """

    titles: int


@dataclass(frozen=True, slots=True)
class Grid:
    """A table. `gaps`: spaces between columns, the first that fit; `wide`: its form in Markdown where that has other columns.

    `blank`: a terminal leaves a line before it; in Markdown parts always stand apart.
    """

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    narrow: Fold | Panels | None = None
    gaps: tuple[int, ...] = (2,)
    indent: int = 0
    blank: bool = False
    wide: Grid | None = None


@dataclass(frozen=True, slots=True)
class Words:
    """Sentences: as a terminal's lines, and as Markdown's (None: not there)."""

    terminal: tuple[Text, ...]
    markdown: tuple[str, ...] | None
    blank: bool = False


@dataclass(frozen=True, slots=True)
class Notes:
    """Dim lines, a list in Markdown: `before`, then the numbered notes of the tables since the last `Notes`, then `after`.

    `elsewhere`: the command that shows them, where a terminal has no place for more than five; empty: all are shown.
    """

    before: tuple[Text, ...] = ()
    after: tuple[Text, ...] = ()
    blank: bool = False
    elsewhere: str = ""


Part = Grid | Words | Notes
"""Some of what is printed; a page is a sequence of these."""


def row(*cells: str | Cell, under: Sequence[Heading] = (), style: str = "", free: bool = False) -> Row:
    """A row of texts, in this style, and of cells, which have their own."""
    made = (Cell(cell, style) if isinstance(cell, str) else cell for cell in cells)
    return Row(tuple(made), tuple(under), free)


def columns(
    names: Sequence[str], left: Container[int] = (), units: Sequence[str] = (), style: str = "bold"
) -> tuple[Column, ...]:
    """Columns of these names; those at places `left` are text, the others numbers."""
    units = units or [""] * len(names)
    return tuple(
        Column(name, unit, "left" if place in left else "right", style=style)
        for place, (name, unit) in enumerate(zip(names, units, strict=True))
    )


def texts(heads: Sequence[str], rows: Iterable[Sequence[str | Cell]]) -> Grid:
    """A table of words, as Markdown has it by itself."""
    return Grid(tuple(Column(head, stands="unset") for head in heads), tuple(row(*cells) for cells in rows))


def plain(text: str, style: str = "", blank: bool = False) -> Words:
    """A sentence that is the same everywhere."""
    return Words((Text(text, style=style),), (text,), blank)


def title(name: str, about: str = "", blank: bool = False) -> Words:
    """`name  about`; in Markdown `**name**: about`."""
    return Words((heading_text(Heading(name, about)),), (heading_markdown(Heading(name, about)),), blank)


def advice(text: str, snippet: str, bold: bool, blank: bool = False) -> Words:
    """A verdict's sentence, and what to paste."""
    lines = [Text(text, style="bold" if bold else ""), *(Text(f"  {line}") for line in snippet.splitlines())]
    return Words(tuple(lines), (text, *(["", "```", snippet.rstrip(), "```"] if snippet else [])), blank)


def heading_text(heading: Heading) -> Text:
    if heading.inner:
        return Text(f"  {heading.name}", style="bold")
    about = f"  {heading.about}" if heading.about else ""
    return Text.assemble((heading.name, "bold cyan"), (about, "dim"))


def heading_markdown(heading: Heading) -> str:
    return f"**{heading.name}**" + (f": {heading.about}" if heading.about else "")


def numbered(parts: Sequence[Part]) -> Iterator[tuple[Part, Mapping[str, int]]]:
    """Every part with the numbers of the notes in it, which count from 1 after each `Notes`."""
    ends = [place for place, part in enumerate(parts, 1) if isinstance(part, Notes)]
    for begin, end in pairwise([0, *ends, len(parts)]):
        rows = (row for part in parts[begin:end] if isinstance(part, Grid) for row in part.rows)
        notes = dict.fromkeys(note for row in rows for cell in row.cells for note in cell.notes)
        numbers = {note: number for number, note in enumerate(notes, 1)}
        yield from ((part, numbers) for part in parts[begin:end])


def footnotes(numbers: Mapping[str, int]) -> list[str]:
    """`¹ closed by the server`."""
    return [f"{references([note], numbers)} {note}" for note in numbers]


def references(notes: Sequence[str], numbers: Mapping[str, int]) -> str:
    """`¹,³`."""
    digits = ",".join(str(number) for number in sorted(numbers[note] for note in notes))
    return digits.translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
