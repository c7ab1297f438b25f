"""Pages and plans as a terminal prints them, and texts that are held against golden files."""

from __future__ import annotations

import difflib
import io
import json
import os
import re
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from rich.console import Console

from lab.analysis.explain.run import make_verdicts
from lab.analysis.summary import Summary
from lab.commands.measuring import print_plan
from lab.experiments.bench import PreparedRun
from lab.report.grid import Part, make_sentence
from lab.report.tables.run import make_tables
from lab.report.terminal import print_parts


def print_page(parts: Any, width: int | None = None) -> str:
    """Return what a terminal of this width shows of a page; without a width, what is printed into a file."""
    out = io.StringIO()
    print_parts(Console(file=out, width=width or 80), parts, width)
    return out.getvalue()


def make_page(summary: Summary) -> list[Part]:
    """Return the verdicts of a summary as sentences, then its tables with every value."""
    return [*(make_sentence(verdict.text) for verdict in make_verdicts(summary)), *make_tables(summary)]


def print_planned(made: PreparedRun, width: int = 200, done: int = 0, may_be_less: bool = False) -> str:
    """Return the printed plan with each of its lines whole, and without the clock."""
    out = io.StringIO()
    print_plan(Console(file=out, width=width), made, done, may_be_less)
    return re.sub(r"until \d\d:\d\d", "until HH:MM", out.getvalue().replace("\n           ", " "))


def assert_golden(path: Path, got: str) -> None:
    """Fail with a diff unless the text is that of the golden file; `LAB_GOLDEN=write` accepts it."""
    if os.environ.get("LAB_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(got)
    want = path.read_text()
    diff = difflib.unified_diff(want.splitlines(), got.splitlines(), str(path), "got", lineterm="")
    assert want == got, "\n".join(diff)


def drawn(figure: go.Figure) -> Any:
    """Its `data` and `layout` as they are written down: plotly has no types of its own for them."""
    return json.loads(figure.to_json() or "")
