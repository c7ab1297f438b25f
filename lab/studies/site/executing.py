"""A notebook executed from top to bottom in a fresh process, from the committed data alone; its cells with what they showed.

    notebooks/okd.ipynb  →  Executed("okd", (Cell("okd-00", "markdown", "# What …?", ()), …))

No kernel is started, which would cost more than most cells. No run of yours is seen. Refuses to go on after a cell
that raises: it is named.
"""

from __future__ import annotations

import ast
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import nbformat
import plotly.graph_objects as go
from IPython.display import Markdown

from lab.base.errors import LabError, UsageError
from lab.base.files import reference_folder
from lab.records.store import RunStore, run_names
from lab.studies.exhibits.exhibits import CLAIMS, Claims

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "notebooks"
FIGURE, PROSE, TEXT = "application/vnd.plotly.v1+json", "text/markdown", "text/plain"


class NotebookError(LabError):
    """A cell that raises."""

    exit_status = 1


@dataclass(frozen=True, slots=True)
class Cell:
    """`outputs`: MIME type → what is shown, as notebooks have it."""

    id: str
    kind: Literal["markdown", "code"]
    source: str
    outputs: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Executed:
    """`name`: the file's stem."""

    name: str
    cells: tuple[Cell, ...]


def notebooks() -> dict[str, Path]:
    """Name → file."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.ipynb"))}


def execute_all(wanted: Sequence[Path], meanwhile: Callable[[], None] = lambda: None) -> Iterator[Executed]:
    """These files, as many at once as there are CPUs, in their order.

    `meanwhile`: what the caller has to do itself. UsageError for a damaged file, NotebookError for a cell.
    """
    workers = ProcessPoolExecutor(len(os.sched_getaffinity(0)), get_context("spawn"))
    with TemporaryDirectory(prefix="lab-report-") as none, workers as pool:
        folder = reference_folder()
        list(pool.map(_read, (f"{folder}/{name}" for name in run_names(folder))))  # so that no two read the same
        begun = [pool.submit(_apart, path, none) for path in wanted]
        try:
            meanwhile()
            for each in begun:
                found = each.result()
                if isinstance(found, Executed):
                    yield found
                else:
                    error, *told = found
                    raise error(*told)
        finally:
            pool.shutdown(cancel_futures=True)


def _read(run: str) -> None:
    """A committed run's histograms, for all that come after; what is damaged is told by who needs it."""
    with suppress(LabError):
        RunStore.open(run).ready()


def _apart(path: Path, runs: str) -> Executed | tuple[type[LabError], str, str, str]:
    """An error in parts: as it is it cannot be sent. `runs`: the folder in the place of that of the user's own."""
    os.environ["LAB_RUNS"] = runs
    try:
        return executed(path)
    except LabError as error:
        return type(error), error.place, error.fault, error.remedy


def executed(path: Path) -> Executed:
    """In this process. UsageError for a damaged file, NotebookError for a cell."""
    place = f"notebooks/{path.name}"
    try:
        notebook: Any = nbformat.read(path, as_version=4)
    except (OSError, ValueError, nbformat.ValidationError) as error:
        raise UsageError(place, f"cannot be read: {error}", "restore it from git") from None
    known: dict[str, Any] = {"__name__": path.stem}
    return Executed(path.stem, tuple(_cell(place, cell, number, known) for number, cell in enumerate(notebook.cells)))


def _cell(place: str, cell: Any, number: int, known: dict[str, Any]) -> Cell:
    """What it printed, and what its last line is, where that is an expression."""
    name = cell.get("id") or f"cell-{number}"
    if cell.cell_type != "code":
        return Cell(name, "markdown", cell.source, ())
    value = None
    try:
        with redirect_stdout(io.StringIO()) as told:
            tree = ast.parse(cell.source)
            last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, "cell", "exec"), known)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), "cell", "eval"), known)
    except Exception as error:  # noqa: BLE001  whatever a cell raises is told as its fault
        fault = f"{type(error).__name__}: {' '.join(str(error).split())}"
        remedy = (
            f"`just maintain notebook` opens it; `just test lab/tests/studies/test_notebooks.py -k {Path(place).stem}`"
        )
        raise NotebookError(f"{place}: cell {name}", fault, remedy) from None
    shown: list[dict[str, Any]] = [{TEXT: told.getvalue()}] if told.getvalue() else []
    if isinstance(value, go.Figure):
        shown.append({FIGURE: json.loads(value.to_json() or "")})
    elif isinstance(value, Claims):
        shown.append({CLAIMS: list(value.ids)})
    elif value is not None:
        shown.append({PROSE: value.data} if isinstance(value, Markdown) else {TEXT: str(value)})
    return Cell(name, "code", cell.source, tuple(shown))
