"""The report's one file: everything that there is to show, put into the templates, and written whole or not at all.

    build(Path(".cache/report"))  →  .cache/report/index.html

plotly.js stands in it once; each figure is its data, drawn when it comes into view. Refuses to write anything when a notebook's
cell raises; what is missing or damaged is a gap, counted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from plotly.offline import get_plotlyjs

from lab.analysis.claims import ledger
from lab.analysis.claims.evidence import Evidence, Missing, references
from lab.base.errors import UsageError
from lab.base.files import replace
from lab.records.published import sources
from lab.report.exhibits.exploring import picked
from lab.report.html.entries import entries, tally
from lab.report.html.executing import ROOT, executed, notebooks
from lab.report.html.machines import machines, shared
from lab.report.html.methods import Methods, methods
from lab.report.html.pages import Page, page

TEMPLATES = Path(__file__).parent / "templates"
FILE = "index.html"
EXPLORE = "explore"
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Site:
    """What was written. `gaps`: page → what it could not show, without pages that show all."""

    path: Path
    counts: str
    figures: int
    gaps: dict[str, int]


def build(folder: Path, named: Sequence[str] = (), say: Say = lambda _: None) -> Site:
    """`named`: runs of yours that get a page each, beside the committed ones. UsageError for one that is none, and where it cannot be
    written; NotebookError (exit 1) for a cell that raises.
    """
    _refuse_unwritable(folder)
    own = list({run.run.record.id: run for run in map(_own, named)}.values())
    committed, damaged = references()
    ids = {run.run.record.id for run in committed}
    runs = [*committed, *(run for run in own if run.run.record.id not in ids)]
    pages = _pages(own, [run.run.record.id for run in runs], say)
    verdicts, checks = ledger.ledger(), ledger.checks()
    how = methods(runs)
    told = machines(runs, pages, verdicts)
    gaps = _gaps(pages, how, len(damaged))
    figures = sum(each.of("figure") for each in pages)
    text = _rendered(
        pages=pages,
        keys=[each.key for each in pages],
        counts=ledger.counts(verdicts),
        tally=tally(verdicts),
        entries=[*entries(verdicts, pages), *entries(checks, pages, check=True)],
        sources=sources(),
        machines=told,
        shared=shared(told),
        damaged=damaged,
        methods=how,
        figures=figures,
        gaps=gaps,
        plotly=get_plotlyjs(),
    )
    path = folder / FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace(path, text.encode())
    except OSError as error:
        fault = f"{error.filename or path} cannot be written: {error.strerror}"
        raise UsageError("--output", fault, "mend it, or name another folder") from None
    return Site(path, ledger.counts(verdicts), figures, gaps)


def _refuse_unwritable(folder: Path) -> None:
    """UsageError where no report could be written, before minutes go into making it."""
    remedy = "name a folder that is yours, or one that does not exist yet"
    place = folder.absolute()
    while True:
        try:
            place.stat()
            break
        except FileNotFoundError:
            place = place.parent
        except OSError as error:
            raise UsageError("--output", f"{folder} cannot be written: {error.strerror}", remedy) from None
    if not place.is_dir():
        raise UsageError("--output", f"{place} is no folder", remedy)
    if not os.access(place, os.W_OK | os.X_OK):
        raise UsageError("--output", f"{place} cannot be written", remedy)
    if (folder / FILE).is_dir():
        raise UsageError("--output", f"{folder / FILE} is a folder", remedy)


def _own(name: str) -> Evidence:
    run = picked(name)
    if isinstance(run, Missing):
        raise UsageError("--run", run.why, "`ls data/runs` names yours; a folder is named with a slash in it")
    return run


def _pages(own: Sequence[Evidence], ids: Sequence[str], say: Say) -> list[Page]:
    """The studies in the order of their publications, then what else there is; the explorer last, once per run of yours."""
    found, studies = notebooks(), sources()
    order = [*(key for key in studies if key in found), *(key for key in found if key not in (*studies, EXPLORE))]
    pages: list[Page] = []
    for key in order:
        say(f"notebooks/{key}.ipynb")
        title = studies[key].title if key in studies else key
        pages.append(page(executed(found[key]), key, title, ids))
    if EXPLORE in found and not own:
        say(f"notebooks/{EXPLORE}.ipynb")
        pages.append(page(executed(found[EXPLORE]), EXPLORE, "Explorer", ids))
    for run in own if EXPLORE in found else ():
        name = run.run.record.id
        say(f"notebooks/{EXPLORE}.ipynb: {name}")
        looked_at = executed(found[EXPLORE], str(run.run.folder.resolve()))
        pages.append(page(looked_at, f"{EXPLORE}-{name}", name, ids))
    return pages


def _gaps(pages: Sequence[Page], how: Methods, damaged: int) -> dict[str, int]:
    found = {each.key: each.gaps for each in pages} | {"methods": how.gaps, "damaged runs": damaged}
    return {name: count for name, count in found.items() if count}


def _rendered(**what: Any) -> str:
    """Without this checkout's place, which says nothing of the data."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("site.html").render(**what).replace(f"{ROOT}/", "")
