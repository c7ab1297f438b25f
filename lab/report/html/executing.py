"""A notebook executed from top to bottom in a fresh kernel, from the committed data alone; its cells with what they showed.

    notebooks/okd.ipynb  →  Executed("okd", (Cell("okd-00", "markdown", "# What …?", ()), …))

No run of yours is seen unless it is named. Refuses to go on after a cell that raises: it is named.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellControlSignal, CellExecutionError, DeadKernelError

from lab.base.errors import LabError, UsageError
from lab.report.exhibits.exploring import EXPLORE

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "notebooks"
LIMIT_S = 600
"""No cell takes as long: whatever does hangs."""


class NotebookError(LabError):
    """A cell that raises, or does not end."""

    exit_status = 1


@dataclass(frozen=True, slots=True)
class Cell:
    """`outputs` are nbformat's, as they were recorded."""

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


def executed(path: Path, run: str = "") -> Executed:
    """`run`: the one run of yours, by its folder, that it may look at. UsageError for a damaged file, NotebookError for a cell."""
    place = f"notebooks/{path.name}"
    try:
        notebook: Any = nbformat.read(path, as_version=4)
    except (OSError, ValueError, nbformat.ValidationError) as error:
        raise UsageError(place, f"cannot be read: {error}", "restore it from git") from None
    begun: list[str] = []
    client = NotebookClient(
        notebook,
        timeout=LIMIT_S,
        resources={"metadata": {"path": str(path.parent)}},
        extra_arguments=["--IPKernelApp.log_level=40"],  # it warns of its own transport otherwise
        on_cell_start=lambda cell, cell_index: begun.append(cell.get("id") or str(cell_index)),
    )
    try:
        with TemporaryDirectory(prefix="lab-report-") as scratch:
            client.execute(env=_environment(scratch, run))
    except CellExecutionError as error:
        raise _failed(place, begun, f"{error.ename}: {' '.join(error.evalue.split())}") from None
    except (CellControlSignal, DeadKernelError, TimeoutError) as error:
        raise _failed(place, begun, f"{type(error).__name__}: {' '.join(str(error).split())}") from None
    return Executed(path.stem, tuple(_cell(cell, number) for number, cell in enumerate(notebook.cells)))


def _failed(place: str, begun: list[str], fault: str) -> NotebookError:
    at = f"{place}: cell {begun[-1]}" if begun else place
    return NotebookError(
        at, fault, f"`just notebook` opens it; `just test lab/tests/report/test_notebooks.py -k {Path(place).stem}`"
    )


def _environment(scratch: str, run: str) -> dict[str, str]:
    """Nothing of the user's own: no runs, no start-up files; figures as data alone, and sets in the same order every time."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    own = {
        "PYTHONPATH": path,
        "PYTHONHASHSEED": "0",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        "PLOTLY_RENDERER": "plotly_mimetype",
        "IPYTHONDIR": scratch,
        "LAB_RUNS": scratch,
        EXPLORE: run,
    }
    return {**os.environ, **own}


def _cell(cell: Any, number: int) -> Cell:
    kind: Literal["markdown", "code"] = "code" if cell.cell_type == "code" else "markdown"
    return Cell(cell.get("id") or f"cell-{number}", kind, cell.source, tuple(cell.get("outputs", ())))
