"""The execution of notebooks with the committed data only, and the conversion of their output to pages.

    notebooks/okd.ipynb         →  Page("okd", …, cells=(ShownCell("okd/okd-00", prose="<p>…"), …, ShownCell(…, parts=(CellOutput("figure", …),))))
    notebooks/successors.ipynb  →  notebooks/successors.md, notebooks/figures/successors-03.svg, …

A page has the cells with their outputs. A notebook runs without a Jupyter kernel, since starting one would take longer than most
cells. The runs of the user are not visible. The title of a figure becomes its caption, since a long title would be cut off in a
plot. If a cell raises an exception, the execution ends with an error that names the cell. HTML in the output of a cell is shown
as text.
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
from lab.records.published import list_sources
from lab.records.store import RunStore, run_names
from lab.report.figures.svg import render_svg
from lab.report.html import rendering
from lab.studies.exhibits.exhibits import ClaimList

ROOT = Path(__file__).resolve().parents[3]
"""The top of the checkout."""
FOLDER = ROOT / "notebooks"
"""The folder of the notebooks."""
PUBLISHED: Mapping[str, tuple[str, str]] = {
    "explore": ('name = ""', 'name = "knobs-local"'),
    "streams": ("", ""),
    "successors": ("", ""),
}
"""Notebook with a page for GitHub → (text in its source that is replaced for the page, replacement).

The page shows the notebook's code only if a text is replaced.
"""
TOP_MARGIN_PX = 48
"""The pixels above a plot without its title: room for its buttons, and for the labels of panels and lines."""
DIGITS = 6
"""The significant digits of a number that is not whole.

Hover texts have four at most, and no screen has a million pixels.
"""
PANEL = 300
"""The least width in pixels of one of several panels; on a narrower screen the figure scrolls."""
GAP_BEGINNINGS = re.compile(r"^(nothing of this was claimed or recorded: |nothing to show: |no run: )+")
"""The words with which exhibits (`lab.studies.exhibits`) begin a gap; the report's list of gaps omits them."""


class NotebookError(LabError):
    """A cell of a notebook has raised an exception."""

    exit_status = 1


@dataclass(frozen=True, slots=True)
class CellOutput:
    """One output of a notebook's code cell.

    Attributes:
        kind: `figure`, `gap` (a figure without data), `claims` (a list of claims), `prose` (Markdown) or `text` (anything else).
        text: The content by kind: a figure's JSON, a gap's reason, the claims' ids, the HTML of prose, or plain text.
        title: The figure's title.
        below: The lines below the figure's title.
        runs: The ids of the runs that a figure shows.
        height: The figure's height in pixels.
        width: The figure's least width in pixels; 0: any.
        needs: What is missing, a line for each gap of the output. A gap is a figure without data, an empty panel of a figure, or an empty
            table in prose. Several lines may be equal.

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
class ShownCell:
    """A cell of an executed notebook with its outputs.

    Attributes:
        anchor: The cell's HTML anchor in the report, which stays the same from build to build.
        prose: The HTML of a Markdown cell; empty for a code cell.
        source: The source of a code cell, preceded by that of earlier cells without output; empty for a Markdown cell.
        parts: The outputs of a code cell.

    """

    anchor: str
    prose: str
    source: str
    parts: tuple[CellOutput, ...]

    @property
    def runs(self) -> list[str]:
        """The ids of the runs that the figures of a notebook's cell show, each once."""
        return list(dict.fromkeys(run for part in self.parts for run in part.runs))


@dataclass(frozen=True, slots=True)
class Page:
    """An executed notebook, as a page of the report.

    Attributes:
        key: The stem of the notebook's file name; for a study's notebook, the study's key.
        title: The study's title; for a notebook of no study, `key`.
        question: The notebook's title.
        cells: The Markdown cells, and the code cells that have an output.

    """

    key: str
    title: str
    question: str
    cells: tuple[ShownCell, ...]

    @property
    def parts(self) -> list[tuple[str, CellOutput]]:
        """All outputs of the executed notebook, each as (anchor of its cell, output)."""
        return [(cell.anchor, part) for cell in self.cells for part in cell.parts]

    def needs(self) -> Iterator[tuple[str, str, str]]:
        """Yield (what is missing, anchor of the cell, title of the output) for every gap (place without data) of the page.

        The first words of a gap's text, such as `no run: `, are removed. So two gaps that need the same data have the same text.
        """
        for anchor, part in self.parts:
            yield from ((GAP_BEGINNINGS.sub("", need), anchor, part.title or "a table") for need in part.needs)

    def shows(self, run: str) -> bool:
        """Return whether a figure of the page shows a run, or a text of the page names it.

        Args:
            run: The run's id.

        """
        return any(run in part.runs or run in part.text for _, part in self.parts)

    def spoken(self, claim: str) -> str:
        """Return the HTML anchor of the last cell whose outputs mention a claim; without such a cell, the anchor of the page.

        Earlier cells usually mention many other claims, too.

        Args:
            claim: The claim's id.

        """
        pattern = re.compile(rf"\b{re.escape(claim)}\b")
        return next((anchor for anchor, part in reversed(self.parts) if pattern.search(part.text)), self.key)


def list_notebooks() -> dict[str, Path]:
    """Return all notebooks in the folder `notebooks`: name → path of the file, sorted by name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.ipynb"))}


def execute_all(paths: Sequence[Path], runs: Collection[str] = ()) -> Iterator[Page]:
    """Execute notebooks, as many at once as there are CPUs, and yield their pages in the order of `paths`.

    Args:
        paths: The notebooks' files.
        runs: The ids of runs; where the text of a page names one of them, it becomes a link.

    Raises:
        UsageError: A file is damaged.
        NotebookError: A cell has raised an exception.

    """
    workers = ProcessPoolExecutor(len(os.sched_getaffinity(0)), get_context("spawn"))
    with TemporaryDirectory(prefix="lab-report-") as empty, workers as pool:
        folder = reference_folder()
        list(pool.map(_read_run, (f"{folder}/{name}" for name in run_names(folder))))  # so that no two read the same
        futures = [pool.submit(_execute_isolated, path, runs, empty) for path in paths]
        try:
            for future in futures:
                outcome = future.result()
                if isinstance(outcome, tuple):
                    error, *arguments = outcome
                    raise error(*arguments)
                yield outcome
        finally:
            pool.shutdown(cancel_futures=True)


def _read_run(run: str) -> None:
    """Fill the cache of latency histograms of a committed run, before several processes read the run at once.

    Nothing happens for a damaged run, since the processes that read the run report the damage.

    Args:
        run: The path of the run's folder.

    """
    with suppress(LabError):
        RunStore.open(run).ready()


def _execute_isolated(
    path: Path, runs: Collection[str], runs_folder: str
) -> Page | tuple[type[LabError], str, str, str]:
    """Execute a notebook in this worker process and return its page; if it fails, return the error in parts.

    An error object cannot be sent from process to process, so its parts are: (class, place, fault, remedy).

    Args:
        path: The notebook's file.
        runs: The ids of runs; where the text of a page names one of them, it becomes a link.
        runs_folder: The folder that replaces the one with the user's runs.

    """
    os.environ["LAB_RUNS"] = runs_folder
    try:
        return execute_notebook(path, runs)
    except LabError as error:
        return type(error), error.place, error.fault, error.remedy


def execute_notebook(path: Path, runs: Collection[str] = ()) -> Page:
    """Execute a notebook in this process and return it as a page of the report.

    The first line becomes the page's title and is not repeated. The source of a code cell without output is shown with the next cell that
    has one.

    Args:
        path: The notebook's file.
        runs: The ids of runs; where the text of the page names one of them, it becomes a link.

    Raises:
        UsageError: The file is damaged.
        NotebookError: A cell has raised an exception.

    """
    title, cells, before = "", list[ShownCell](), list[str]()
    for cell, printed, value in run_notebook(path):
        anchor, source = f"{path.stem}/{cell.id}", cell.source
        if not title:
            title, _, source = source.partition("\n")
        if cell.cell_type != "code":
            cells.append(ShownCell(anchor, rendering.render_html(source, runs, below=0), "", ()))
            continue
        before.append(source)
        if parts := _make_outputs(printed, value, runs):
            cells.append(ShownCell(anchor, "", "\n\n".join(before), parts))
            before = []
    study = list_sources().get(path.stem)
    return Page(path.stem, study.title if study else path.stem, title.lstrip("# ").strip(), tuple(cells))


def run_notebook(path: Path, replaced: tuple[str, str] = ("", "")) -> Iterator[tuple[Any, str, Any]]:
    """Run the cells of a notebook one after the other in this process, and yield each cell with its output.

    Args:
        path: The notebook's file.
        replaced: (text to replace in the cells' sources, replacement), to run the notebook with another choice than its own.

    Yields:
        (cell, what it printed, value of its last line). The value is None if the last line is no expression, and for a Markdown cell.

    Raises:
        UsageError: The file is damaged.
        NotebookError: A cell has raised an exception.

    """
    try:
        notebook: Any = nbformat.read(path, as_version=4)
    except (OSError, ValueError, nbformat.ValidationError) as error:
        raise UsageError(f"notebooks/{path.name}", f"cannot be read: {error}", "restore it from git") from None
    namespace: dict[str, Any] = {"__name__": path.stem}
    for number, cell in enumerate(notebook.cells):
        cell.id, cell.source = cell.get("id") or f"cell-{number}", cell.source.replace(*replaced)
        is_code, place = cell.cell_type == "code", f"notebooks/{path.name}: cell {cell.id}"
        printed, value = _run_source(place, cell.source, namespace) if is_code else ("", None)
        yield cell, printed, value


def _run_source(place: str, source: str, namespace: dict[str, Any]) -> tuple[str, Any]:
    """Run a code cell and return (printed text, value of the last line; None if that is no expression).

    Args:
        place: The cell's place, for messages.
        source: The cell's source.
        namespace: The notebook's variables, which the cell may change.

    Raises:
        NotebookError: The cell has raised an exception.

    """
    value: Any = None
    try:
        with redirect_stdout(io.StringIO()) as stdout:
            tree = ast.parse(source)
            last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, "cell", "exec"), namespace)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), "cell", "eval"), namespace)
    except Exception as error:  # noqa: BLE001  whatever a cell raises is reported as its fault
        fault, name = f"{type(error).__name__}: {' '.join(str(error).split())}", namespace["__name__"]
        remedy = f"`just maintain notebook` opens it; `just test lab/tests/studies/test_notebooks.py -k {name}`"
        raise NotebookError(place, fault, remedy) from None
    return stdout.getvalue().rstrip(), value


def _make_outputs(printed: str, value: Any, runs: Collection[str]) -> tuple[CellOutput, ...]:
    """Return the outputs of a code cell: first the printed text, then the value of its last line; empty without both.

    Args:
        printed: The text that the cell printed.
        value: The value of its last line; None without such a value.
        runs: The ids of runs; where the text names one of them, it becomes a link.

    """
    parts = [CellOutput("text", printed)] if printed else []
    if isinstance(value, go.Figure):
        parts.append(_convert_figure(value))
    elif isinstance(value, ClaimList):
        parts.append(CellOutput("claims", " ".join(value.ids)))
    elif isinstance(value, Markdown):
        parts.append(
            CellOutput(
                "prose", rendering.render_html(str(value.data), runs), needs=rendering.find_gaps(str(value.data))
            )
        )
    elif value is not None and str(value).strip():
        parts.append(CellOutput("text", str(value).rstrip()))
    return tuple(parts)


def _convert_figure(plot: go.Figure) -> CellOutput:
    """Return a plotly figure as an output of a cell, with its title and margins removed from the plot.

    A figure without any trace becomes a `gap`, whose text is the figure's annotation: the reason why there is no data.
    """
    figure: Mapping[str, Any] = json.loads(plot.to_json() or "")
    layout: dict[str, Any] = dict(figure["layout"])
    head, _, below = str((layout.pop("title", None) or {}).get("text", "")).partition("<br>")
    meta: Mapping[str, Any] = layout.pop("meta", None) or {}
    title, runs = _strip_tags(head), tuple(meta.get("runs", ()))
    below = "; ".join(filter(None, map(_strip_tags, below.split("</span>"))))
    if not figure.get("data"):
        reason = " ".join(_strip_tags(note.get("text", "")) for note in layout.get("annotations", ()))
        return CellOutput("gap", reason, title, runs=runs, needs=(reason,))
    margin: dict[str, Any] = layout.get("margin", {})
    top = min(TOP_MARGIN_PX, int(margin.get("t", 100)))
    height = int(layout.get("height", 450)) - int(margin.get("t", 100)) + top
    layout |= {"height": height, "margin": {**margin, "t": top}}
    rounded = _round_numbers({"data": figure["data"], "layout": layout})
    text = json.dumps(rounded, ensure_ascii=False, sort_keys=True, separators=(",", ":")).replace("<", "\\u003c")
    axes = [axis for name, axis in layout.items() if name.startswith("xaxis")]
    panels = len({axis.get("domain", [0])[0] for axis in axes})  # side by side: their axes begin at different places
    needs = tuple(map(_strip_tags, meta.get("gaps", ())))
    return CellOutput("figure", text, title, below, runs, height, PANEL * panels if panels > 1 else 0, needs)


def _round_numbers(value: Any) -> Any:
    """Return JSON data with every fractional number rounded to six significant digits (DIGITS)."""
    if isinstance(value, dict):
        return {name: _round_numbers(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_round_numbers(entry) for entry in value]
    if not isinstance(value, float):
        return value
    return int(value) if value.is_integer() else float(f"{value:.{DIGITS}g}")


def _strip_tags(text: str) -> str:
    """Return text with plotly's HTML tags removed and its HTML entities decoded."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", text)).split())


# -- pages for GitHub, which shows no outputs of notebooks that are stored without them ------------------------------


def render_pages() -> dict[Path, str]:
    """Execute the notebooks of PUBLISHED in this process, and return the files that GitHub shows: path → content.

    The files are the pages in Markdown and their figures as SVG. After the call, this process sees no runs of the user.
    """
    os.environ["LAB_RUNS"] = str(FOLDER / "no-runs")  # a folder that does not exist
    pages = (_render_page(name, replaced) for name, replaced in PUBLISHED.items())
    return {path: text.replace(f"{ROOT}/", "") for page in pages for path, text in page.items()}


def _render_page(name: str, replaced: tuple[str, str]) -> dict[Path, str]:
    """Execute a notebook, and return the files that GitHub shows for it: path → content.

    The files are a page in Markdown, and its figures as SVG.

    Args:
        name: The notebook's name.
        replaced: (text to replace in the cells' sources, replacement); both empty: nothing is replaced.

    """
    blocks, figures = [f"<!-- generated: from {name}.ipynb, by `just maintain publish` -->"], dict[Path, str]()
    for cell, printed, value in run_notebook(FOLDER / f"{name}.ipynb", replaced):
        is_code = cell.cell_type == "code"
        blocks += [cell.source] if not is_code else [f"```python\n{cell.source}\n```"] if any(replaced) else []
        if isinstance(value, go.Figure):
            output, path = _convert_figure(value), FOLDER / "figures" / f"{cell.id}.svg"
            blocks.append(f"**{output.title}**{f': {output.text}' if output.kind == 'gap' else ''}")
            if output.kind == "figure":
                figures[path] = render_svg(value)
                blocks += [f"![{output.title}]({path.relative_to(FOLDER)})", output.below]
            continue
        text = value.data if isinstance(value, Markdown) else value.text if isinstance(value, ClaimList) else ""
        plain = [printed, "" if text or value is None else str(value)]
        blocks += [str(text).strip(), *(f"```text\n{shown}\n```" for shown in plain if shown)]
    return {FOLDER / f"{name}.md": "\n\n".join([*filter(None, blocks), "<!-- end -->\n"]), **figures}
