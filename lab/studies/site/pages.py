"""A notebook's own page: each cell with what it showed, the figures numbered by their place, and where a claim is spoken of.

What a cell showed becomes parts of the page: a figure as JSON for plotly.js, a gap, prose, or text.

    {"application/vnd.plotly.v1+json": {"data": […], "layout": {"title": {"text": "Reloads (local)"}, …}}}
    →  Part("figure", title="Reloads (local)", text='{"data":[…],"layout":{…}}', runs=("20261121-…",))

A figure's title becomes its caption, which folds where a plot's own would be cut off. Refuses HTML of a cell's own: what is
none of these is shown as text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import unescape
from typing import Any, Literal

from lab.report.html import rendering
from lab.studies.site.executing import CLAIMS, FIGURE, PROSE, TEXT, Executed

TOP = 48
"""Pixels above a plot that has lost its title: room for its buttons, and for what is written at panels and lines."""
DIGITS = 6
"""Significant digits of what is no whole number: hover texts have four at most, and no screen has a million pixels."""
PANEL = 300
"""Pixels that a panel beside others is wide at least: where the screen is narrower, the figure scrolls."""


@dataclass(frozen=True, slots=True)
class Part:
    """`text`: of a figure its JSON, of claims their ids, of prose its HTML, else what is to be read. `runs`: ids of the runs that a figure shows."""

    kind: Literal["figure", "gap", "claims", "prose", "text"]
    text: str
    title: str = ""
    below: str = ""
    runs: tuple[str, ...] = ()
    height: int = 0
    width: int = 0
    """At least; 0: any."""
    gaps: int = 0
    """How many gaps it has: itself, empty panels of a figure, or tables of prose."""
    needs: tuple[str, ...] = ()
    """What these need, a line each; several gaps may need the same."""


def parts(outputs: Sequence[Mapping[str, Any]], runs: Collection[str] = ()) -> Iterator[Part]:
    """In the cell's order. `runs`: ids that prose links to."""
    for data in outputs:
        if FIGURE in data:
            yield _figure(data[FIGURE])
        elif CLAIMS in data:
            yield Part("claims", " ".join(data[CLAIMS]))
        elif PROSE in data:
            needs = rendering.gaps(data[PROSE])
            yield Part("prose", rendering.html(data[PROSE], runs), gaps=len(needs), needs=needs)
        elif text := str(data.get(TEXT, "")).rstrip():
            yield Part("text", text)


def _figure(told: Mapping[str, Any]) -> Part:
    """One without a trace is a gap (`lab.report.figures.style.gap`), and says why."""
    layout: dict[str, Any] = dict(told["layout"])
    head, _, below = str((layout.pop("title", None) or {}).get("text", "")).partition("<br>")
    meta: Mapping[str, Any] = layout.pop("meta", None) or {}
    title, runs = _plain(head), tuple(meta.get("runs", ()))
    below = "; ".join(filter(None, map(_plain, below.split("</span>"))))
    if not told.get("data"):
        why = " ".join(_plain(note.get("text", "")) for note in layout.get("annotations", ()))
        return Part("gap", why, title, runs=runs, gaps=1, needs=(why,))
    margin: dict[str, Any] = layout.get("margin", {})
    height = int(layout.get("height", 450)) - max(0, int(margin.get("t", 100)) - TOP)
    layout |= {"height": height, "margin": {**margin, "t": min(TOP, int(margin.get("t", 100)))}}
    text = json.dumps(
        _rounded({"data": told["data"], "layout": layout}), ensure_ascii=False, sort_keys=True, separators=(",", ":")
    )
    needs = tuple(map(_plain, meta.get("gaps", ())))
    shown = text.replace("<", "\\u003c")
    axes = [axis for name, axis in layout.items() if name.startswith("xaxis")]
    panels = len({axis.get("domain", [0])[0] for axis in axes})  # side by side: their axes begin at different places
    width = PANEL * panels if panels > 1 else 0
    return Part("figure", shown, title, below, runs, height, width, len(needs), needs)


def _rounded(told: Any) -> Any:
    """With every number in it to DIGITS."""
    if isinstance(told, dict):
        return {name: _rounded(each) for name, each in told.items()}
    if isinstance(told, list):
        return [_rounded(each) for each in told]
    if not isinstance(told, float):
        return told
    return int(told) if told.is_integer() else float(f"{told:.{DIGITS}g}")


def _plain(text: str) -> str:
    """plotly's own HTML (a few tags) as text."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", text)).split())


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
    """`runs`: ids that texts link to.

    The title's line is the page's own head and not said twice; what shows nothing is part of what the next figure rests on.
    """
    first = next((cell.source for cell in notebook.cells if cell.kind == "markdown"), "")
    question = first.partition("\n")[0].lstrip("# ").strip()
    cells: list[Shown] = []
    before: list[str] = []
    for number, cell in enumerate(notebook.cells):
        anchor, shown = f"{key}/{cell.id}", tuple(parts(cell.outputs, runs))
        if cell.kind == "markdown":
            text = cell.source.partition("\n")[2] if number == 0 else cell.source
            cells.append(Shown(anchor, rendering.html(text, runs, below=0), "", ()))
        elif shown:
            cells.append(Shown(anchor, "", "\n\n".join([*before, cell.source]), shown))
            before = []
        else:
            before.append(cell.source)
    return Page(key, title, question, tuple(cells))
