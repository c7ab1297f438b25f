"""What a cell showed → parts of a page: a figure as JSON for plotly.js, a gap, prose, or text.

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
from lab.studies.site.executing import CLAIMS, FIGURE, PROSE, TEXT

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
    return Part("figure", shown, title, below, runs, height, _width(layout), len(needs), needs)


def _rounded(told: Any) -> Any:
    """With every number in it to DIGITS."""
    if isinstance(told, dict):
        return {name: _rounded(each) for name, each in told.items()}
    if isinstance(told, list):
        return [_rounded(each) for each in told]
    if not isinstance(told, float):
        return told
    return int(told) if told.is_integer() else float(f"{told:.{DIGITS}g}")


def _width(layout: Mapping[str, Any]) -> int:
    """Of panels side by side: x axes that begin at different places."""
    axes = [axis for name, axis in layout.items() if name.startswith("xaxis")]
    panels = len({axis.get("domain", [0])[0] for axis in axes})
    return PANEL * panels if panels > 1 else 0


def _plain(text: str) -> str:
    """plotly's own HTML (a few tags) as text."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", text)).split())
