"""The matrix as a table: a row for each parameter and sweep of the studies, a column for each target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.text import Text

from lab.analysis.matrix import Cell, Line, matrix, places
from lab.records import trials
from lab.report.grid import Cell as Shown
from lab.report.grid import Grid, Notes, Part, texts, title


def page() -> list[Part]:
    """All of it, with how much of it each target has shown; links are as from the checkout's top."""
    found = matrix()
    parts: list[Part] = [
        title("Parameters", "data/published/parameters.csv"),
        grid("parameter", "knobs, or what has it", found.parameters),
        title("Published loads", "data/published/sweeps.csv"),
        grid("load", "sweeps", found.published),
        title("Sweeps", "lab/sweeps"),
        grid("sweep", "on", found.sweeps),
    ]
    every = [*found.parameters, *found.published, *found.sweeps]
    return [*parts, Notes(tuple(Text(_counted(target, every)) for target in places()))]


def grid(name: str, by: str, lines: Sequence[Line]) -> Grid:
    """One of the three."""
    heads = ("study", name, by, *places())
    return texts(heads, [(line.study, line.name, line.by, *map(_cell, line.cells.values())) for line in lines])


def _cell(cell: Cell) -> Shown:
    said = f"[{cell.said}]({cell.where})" if cell.where and cell.kind in ("measured", "works") else cell.said
    return Shown(cell.kind, tail=f": {said}" if said else "", strong=cell.kind == "measured")


def _counted(target: str, lines: Sequence[Line]) -> str:
    kinds = Counter(line.cells[target].kind for line in lines)
    told = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    trial = trials.committed().get(target)
    if trial is None:
        return (
            f"{target}: {told}; not tried as a whole yet: `just sabotage --intact --record --target {target}` does it"
        )
    facts = trial.facts
    where = f"{facts['provider']}, {facts['nodes']}" if "nodes" in facts else f"{facts.get('cpus', '?')} CPUs"
    commit = (trial.git_commit or "an unknown commit")[:8]
    again = f", {len(trial.again)} of the variants again later" if trial.again else ""
    return f"{target}: {told}; tried {trial.tried_at[:10]} on {where} at {commit}{again}"
