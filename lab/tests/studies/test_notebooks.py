"""The notebooks: stored without outputs, and executed clean from the committed runs, from none, and from a damaged one."""

from __future__ import annotations

import ast
import os
import re
import time
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from lab.studies.site.notebooks import PUBLISHED as PAGES
from lab.studies.site.notebooks import render_pages
from lab.studies.study_files import load_study

pytestmark = pytest.mark.committed

ROOT = Path(__file__).resolve().parents[3]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
CALLED = {
    "lab.studies.claims",
    "lab.analysis.evidence",
    "lab.studies.ledger",
    "lab.studies.exhibits.exhibits",
    "lab.studies.exhibits.exploring",
    "plotly.express",
}
"""Modules of the lab that a notebook may call, nothing below them; and plotly's own for a data frame."""
SIZE_BYTES = 300_000
"""The most that a published page may have, with its figures."""
LIMIT_S = 120
LINES = 9
PUBLISHED = {"nds", "okd", "qinng", "successors"}
"""Studies whose published tables their notebooks show."""

EXPLORE = "explore"
"""Is of any run, and of no study: it has no claims at its end."""

SMALLEST = min((path for path in NOTEBOOKS if path.stem != EXPLORE), key=lambda path: path.stat().st_size).stem
one_now = pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[] if path.stem == SMALLEST else [pytest.mark.long]) for path in NOTEBOOKS],
    ids=lambda path: path.stem,
)
"""The smallest study's notebook with every lane, the others with --long: each takes half a minute."""

named = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@pytest.fixture(autouse=True)
def no_run_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_RUNS", str(tmp_path / "own"))


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def executed(path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Everything that its cells showed, as text. Fails where a cell does."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])))
    notebook = read(path)
    begun = time.monotonic()
    NotebookClient(notebook, timeout=LIMIT_S, resources={"metadata": {"path": str(path.parent)}}).execute()
    assert time.monotonic() - begun < LIMIT_S
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    parts = (part for output in outputs for part in (output.get("text"), *output.get("data", {}).values()))
    return "\n".join(str(part) for part in parts if part)


@named
def test_it_is_in_house_style(path: Path) -> None:
    """One question as title, short cells without outputs and functions, nothing called but what notebooks may call, every run of a named variant.
    Prose, titles of figures among it, has no number but in names (wrk2), years, a status, a formula and ids of claims: cells print them.
    """
    cells = read(path).cells
    assert re.match(r"# [^\n]+\?\n", cells[0].source)
    prose = [(cell.id, cell.source) for cell in cells if cell.cell_type == "markdown"]
    for cell in (cell for cell in cells if cell.cell_type == "code"):
        assert not cell.get("outputs") and not cell.get("execution_count")
        assert len(cell.source.splitlines()) <= LINES
        for node in ast.walk(ast.parse(cell.source)):
            assert not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Import)
            if isinstance(node, ast.ImportFrom) and node.module != "IPython.display":
                assert {f"{node.module}.{name.name}" for name in node.names} <= CALLED
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "of":
                assert "variant" in {each.arg for each in node.keywords}, cell.id
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("exhibits."):
                prose += [(cell.id, str(each.value)) for each in node.args[1:2] if isinstance(each, ast.Constant)]
    for name, text in prose:
        plain = re.sub(r"`[^`]*`|\b(19|20)\d\d\b|\b413\b|\b[A-Z]{2}-\d\d\b|1/\(1 − p\)", "", text)
        assert not re.search(r"(?<![\w.])\d", plain), f"{name}: {plain}"


@one_now
def test_it_executes_from_the_committed_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAB_REFERENCE", raising=False)
    text = executed(path, monkeypatch)
    assert path.stem == EXPLORE or re.search(r"\d+ claims: ", text)
    assert_published_tables(path, text)


@one_now
def test_without_a_run_every_figure_is_a_gap(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_REFERENCE", str(tmp_path))
    text = executed(path, monkeypatch)
    assert "nothing in data/reference of" in text
    assert "**reproduced**" not in text and "**contradicted**" not in text
    assert_published_tables(path, text)


@pytest.mark.slow
def test_published_pages_are_fresh_small_and_begin_with_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `just maintain publish` writes them; every figure is on its page, and no file is left from an earlier one."""
    monkeypatch.delenv("LAB_REFERENCE", raising=False)
    pages = render_pages()
    stale = [path.name for path, text in pages.items() if not path.exists() or path.read_text() != text]
    assert stale == [], "just maintain publish"
    folder = ROOT / "notebooks"
    assert {*folder.glob("figures/*"), *folder.glob("*.md")} - pages.keys() == {folder / "README.md"}
    for name in PAGES:
        page = pages[folder / f"{name}.md"]
        own = [path for path in pages if path.suffix == ".svg" and f"(figures/{path.name})" in page]
        assert own and len(page.encode()) + sum(len(pages[path].encode()) for path in own) <= SIZE_BYTES
        assert page.count(".svg)") == len(own)
    order = ["pick_run", "## Differences", "run.samples()", "express.scatter", "## Absolute values"]
    places = [pages[folder / "explore.md"].index(text) for text in order]
    assert places == sorted(places)
    assert re.search(r"^\*\*[^\n]*\d", pages[folder / "successors.md"].partition("## Claims")[0], re.MULTILINE)


def assert_published_tables(path: Path, text: str) -> None:
    """Each is there in its own shape, whether a run stands beside it or not."""
    if path.stem in PUBLISHED:
        assert (tables := load_study(path.stem).tables) and all(f"**{table.title}**" in text for table in tables)
