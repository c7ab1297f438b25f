"""A notebook's own page: each cell with what it showed, the figures numbered by their place, and where a claim is spoken of."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from lab.report.html.rendering import html
from lab.studies.site.executing import Executed
from lab.studies.site.parts import Part, parts

NOTHING = re.compile(r"^(nothing of this was claimed or recorded: |nothing to show: |no run: )+")
"""How exhibits begin that have nothing, before they say what of (`lab.studies.exhibits`)."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One cell. `prose`: HTML of a Markdown cell; `source`: of a code cell. `anchor` is the same in every build."""

    anchor: str
    prose: str
    source: str
    parts: tuple[Part, ...]

    @property
    def runs(self) -> list[str]:
        """Ids of the runs that its figures show."""
        return list(dict.fromkeys(run for part in self.parts for run in part.runs))


@dataclass(frozen=True, slots=True)
class Page:
    """`key`: the study's. `question`: the notebook's title."""

    key: str
    title: str
    question: str
    cells: tuple[Shown, ...]

    def of(self, *kinds: str) -> int:
        """How many parts of these kinds it shows."""
        return sum(part.kind in kinds for cell in self.cells for part in cell.parts)

    @property
    def gaps(self) -> int:
        return sum(part.gaps for cell in self.cells for part in cell.parts)

    def needs(self) -> Iterator[tuple[str, str, str]]:
        """(what is missing in a line, where, what it is of) of every gap; what several kinds of exhibits need alike is said alike."""
        for cell in self.cells:
            for part in cell.parts:
                yield from ((NOTHING.sub("", need), cell.anchor, part.title or "a table") for need in part.needs)

    def shows(self, run: str) -> bool:
        """Whether a figure or a text of it names the run."""
        return any(run in part.runs or run in part.text for cell in self.cells for part in cell.parts)

    def spoken(self, claim: str) -> str:
        """The anchor of the last cell that says something of a claim, which is about the least beside; the page's own where none does."""
        word = re.compile(rf"\b{re.escape(claim)}\b")
        said = (cell.anchor for cell in reversed(self.cells) for part in cell.parts if word.search(part.text))
        return next(said, self.key)


def page(notebook: Executed, key: str, title: str, runs: Collection[str]) -> Page:
    """`runs`: ids that texts link to."""
    first = next((cell.source for cell in notebook.cells if cell.kind == "markdown"), "")
    question = first.partition("\n")[0].lstrip("# ").strip()
    return Page(key, title, question, tuple(_cells(notebook, key, runs)))


def _cells(notebook: Executed, key: str, runs: Collection[str]) -> Iterator[Shown]:
    """The title's line is the page's own head and not said twice; what shows nothing is part of what the next figure rests on."""
    before: list[str] = []
    for number, cell in enumerate(notebook.cells):
        anchor, shown = f"{key}/{cell.id}", tuple(parts(cell.outputs, runs))
        if cell.kind == "markdown":
            text = cell.source.partition("\n")[2] if number == 0 else cell.source
            yield Shown(anchor, html(text, runs, below=0), "", ())
        elif shown:
            yield Shown(anchor, "", "\n\n".join([*before, cell.source]), shown)
            before = []
        else:
            before.append(cell.source)
