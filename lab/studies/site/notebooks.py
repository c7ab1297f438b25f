"""A notebook executed from top to bottom in a fresh process, from the committed data alone, as a page: each cell with what it showed, the figures
numbered by their place, and where a claim is spoken of.

    notebooks/okd.ipynb  →  Page("okd", …, cells=(Shown("okd/okd-00", prose="<p>…"), …, Shown(…, parts=(Part("figure", '{"data":[…]}', …),))))

No kernel is started, which would cost more than most cells. No run of yours is seen. A figure's title becomes its caption, which folds where a
plot's own would be cut off. Refuses to go on after a cell that raises: it is named; and HTML of a cell's own: it is shown as text.
"""

from __future__ import annotations

import ast
import io
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from html import unescape
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import nbformat
import plotly.graph_objects as go
from IPython.display import Markdown

from lab.base.errors import LabError, UsageError
from lab.base.files import reference_folder
from lab.records.published import sources
from lab.records.store import RunStore, run_names
from lab.report.html import rendering
from lab.studies.exhibits.exhibits import Claims

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "notebooks"
TOP = 48
"""Pixels above a plot that has lost its title: room for its buttons, and for what is written at panels and lines."""
DIGITS = 6
"""Significant digits of what is no whole number: hover texts have four at most, and no screen has a million pixels."""
PANEL = 300
"""Pixels that a panel beside others is wide at least: where the screen is narrower, the figure scrolls."""
NOTHING = re.compile(r"^(nothing of this was claimed or recorded: |nothing to show: |no run: )+")
"""How exhibits begin that have nothing, before they say what of (`lab.studies.exhibits`)."""


class NotebookError(LabError):
    """A cell that raises."""

    exit_status = 1


@dataclass(frozen=True, slots=True)
class Part:
    """`text`: of a figure its JSON, of claims their ids, of prose its HTML, else what is to be read. `runs`: ids of the runs that a figure shows.

    `width`: at least; 0: any. `needs`: what each of its gaps needs, itself, empty panels of a figure, or tables of prose; several may need the
    same.
    """

    kind: Literal["figure", "gap", "claims", "prose", "text"]
    text: str
    title: str = ""
    below: str = ""
    runs: tuple[str, ...] = ()
    height: int = 0
    width: int = 0
    needs: tuple[str, ...] = ()


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
    """`key`: the study's, and the file's stem. `question`: the notebook's title."""

    key: str
    title: str
    question: str
    cells: tuple[Shown, ...]

    @property
    def parts(self) -> list[tuple[str, Part]]:
        """Each with the anchor of its cell."""
        return [(cell.anchor, part) for cell in self.cells for part in cell.parts]

    def needs(self) -> Iterator[tuple[str, str, str]]:
        """(what is missing in a line, where, what it is of) of every gap; what several kinds of exhibits need alike is said alike."""
        for anchor, part in self.parts:
            yield from ((NOTHING.sub("", need), anchor, part.title or "a table") for need in part.needs)

    def shows(self, run: str) -> bool:
        """Whether a figure or a text of it names the run."""
        return any(run in part.runs or run in part.text for _, part in self.parts)

    def spoken(self, claim: str) -> str:
        """The anchor of the last cell that says something of a claim, which is about the least beside; the page's own where none does."""
        word = re.compile(rf"\b{re.escape(claim)}\b")
        return next((anchor for anchor, part in reversed(self.parts) if word.search(part.text)), self.key)


def notebooks() -> dict[str, Path]:
    """Name → file."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.ipynb"))}


def execute_all(wanted: Sequence[Path], runs: Collection[str] = ()) -> Iterator[Page]:
    """These files, as many at once as there are CPUs, in their order. `runs`: ids that texts link to.

    UsageError for a damaged file, NotebookError for a cell.
    """
    workers = ProcessPoolExecutor(len(os.sched_getaffinity(0)), get_context("spawn"))
    with TemporaryDirectory(prefix="lab-report-") as none, workers as pool:
        folder = reference_folder()
        list(pool.map(_read, (f"{folder}/{name}" for name in run_names(folder))))  # so that no two read the same
        begun = [pool.submit(_apart, path, runs, none) for path in wanted]
        try:
            for each in begun:
                found = each.result()
                if isinstance(found, tuple):
                    error, *told = found
                    raise error(*told)
                yield found
        finally:
            pool.shutdown(cancel_futures=True)


def _read(run: str) -> None:
    """A committed run's histograms, for all that come after; what is damaged is told by who needs it."""
    with suppress(LabError):
        RunStore.open(run).ready()


def _apart(path: Path, runs: Collection[str], own: str) -> Page | tuple[type[LabError], str, str, str]:
    """An error in parts: as it is it cannot be sent. `own`: the folder in the place of that of the user's own runs."""
    os.environ["LAB_RUNS"] = own
    try:
        return executed(path, runs)
    except LabError as error:
        return type(error), error.place, error.fault, error.remedy


def executed(path: Path, runs: Collection[str] = ()) -> Page:
    """In this process. UsageError for a damaged file, NotebookError for a cell.

    The title's line is the page's own head and not said twice; what shows nothing is part of what the next figure rests on.
    """
    try:
        notebook: Any = nbformat.read(path, as_version=4)
    except (OSError, ValueError, nbformat.ValidationError) as error:
        raise UsageError(f"notebooks/{path.name}", f"cannot be read: {error}", "restore it from git") from None
    known: dict[str, Any] = {"__name__": path.stem}
    title, _, rest = notebook.cells[0].source.partition("\n")
    cells = [Shown(f"{path.stem}/{notebook.cells[0].get('id')}", rendering.html(rest, runs, below=0), "", ())]
    before: list[str] = []
    for number, cell in enumerate(notebook.cells[1:], start=1):
        name = cell.get("id") or f"cell-{number}"
        anchor = f"{path.stem}/{name}"
        if cell.cell_type != "code":
            cells.append(Shown(anchor, rendering.html(cell.source, runs, below=0), "", ()))
            continue
        before.append(cell.source)
        if parts := _shown(f"notebooks/{path.name}: cell {name}", cell.source, known, runs):
            cells.append(Shown(anchor, "", "\n\n".join(before), parts))
            before = []
    study = sources().get(path.stem)
    return Page(path.stem, study.title if study else path.stem, title.lstrip("# ").strip(), tuple(cells))


def _shown(place: str, source: str, known: dict[str, Any], runs: Collection[str]) -> tuple[Part, ...]:
    """What a cell printed, and what its last line is, where that is an expression."""
    value: Any = None
    try:
        with redirect_stdout(io.StringIO()) as told:
            tree = ast.parse(source)
            last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, "cell", "exec"), known)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), "cell", "eval"), known)
    except Exception as error:  # noqa: BLE001  whatever a cell raises is told as its fault
        fault, name = f"{type(error).__name__}: {' '.join(str(error).split())}", known["__name__"]
        remedy = f"`just maintain notebook` opens it; `just test lab/tests/studies/test_notebooks.py -k {name}`"
        raise NotebookError(place, fault, remedy) from None
    text = told.getvalue().rstrip()
    parts = [Part("text", text)] if text else []
    if isinstance(value, go.Figure):
        parts.append(_figure(json.loads(value.to_json() or "")))
    elif isinstance(value, Claims):
        parts.append(Part("claims", " ".join(value.ids)))
    elif isinstance(value, Markdown):
        parts.append(Part("prose", rendering.html(str(value.data), runs), needs=rendering.gaps(str(value.data))))
    elif value is not None and str(value).strip():
        parts.append(Part("text", str(value).rstrip()))
    return tuple(parts)


def _figure(told: Mapping[str, Any]) -> Part:
    """One without a trace is a gap (`lab.report.figures.style.gap`), and says why."""
    layout: dict[str, Any] = dict(told["layout"])
    head, _, below = str((layout.pop("title", None) or {}).get("text", "")).partition("<br>")
    meta: Mapping[str, Any] = layout.pop("meta", None) or {}
    title, runs = _plain(head), tuple(meta.get("runs", ()))
    below = "; ".join(filter(None, map(_plain, below.split("</span>"))))
    if not told.get("data"):
        why = " ".join(_plain(note.get("text", "")) for note in layout.get("annotations", ()))
        return Part("gap", why, title, runs=runs, needs=(why,))
    margin: dict[str, Any] = layout.get("margin", {})
    top = min(TOP, int(margin.get("t", 100)))
    height = int(layout.get("height", 450)) - int(margin.get("t", 100)) + top
    layout |= {"height": height, "margin": {**margin, "t": top}}
    rounded = _rounded({"data": told["data"], "layout": layout})
    text = json.dumps(rounded, ensure_ascii=False, sort_keys=True, separators=(",", ":")).replace("<", "\\u003c")
    axes = [axis for name, axis in layout.items() if name.startswith("xaxis")]
    panels = len({axis.get("domain", [0])[0] for axis in axes})  # side by side: their axes begin at different places
    needs = tuple(map(_plain, meta.get("gaps", ())))
    return Part("figure", text, title, below, runs, height, PANEL * panels if panels > 1 else 0, needs)


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
