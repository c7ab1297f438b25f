"""The report's one file: everything that there is to show, put into the templates, and written whole or not at all.

    build(Path(".cache/report"))  →  .cache/report/index.html

plotly.js stands in it once; each figure is its data, drawn when it comes into view. Refuses to write anything when a notebook's
cell raises; what is missing or damaged is a gap, counted.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from plotly.offline import get_plotlyjs

from lab.analysis.claims import ANSWERS, KINDS, ledger
from lab.analysis.claims.evidence import Evidence, Missing, references
from lab.analysis.claims.judging import Verdict
from lab.analysis.claims.publications import OWN_ANSWERS
from lab.analysis.decision import SURE_P
from lab.base.errors import UsageError
from lab.base.files import replace
from lab.model.metrics import about
from lab.records.published import sources
from lab.report.exhibits.exploring import overview, picked
from lab.report.html import markdown
from lab.report.html.executing import ROOT, execute_all, notebooks
from lab.report.html.methods import methods
from lab.report.html.pages import Page, page
from lab.report.tables.noise import itself_text, level_text
from lab.stats.paired import MIN_BLOCKS

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
    verdicts, how = ledger.ledger(), methods(runs)
    counts = ledger.counts(verdicts)
    found = {each.key: each.gaps for each in pages}
    found |= {"methods": 0 if how.calibrated else 1, "damaged runs": len(damaged)}
    gaps = {name: count for name, count in found.items() if count}
    tally = _tally(verdicts)
    text = _rendered(
        pages=pages,
        by_key={each.key: each for each in pages},
        counts=counts,
        tally=tally,
        given=[answer for answer in ANSWERS if any(each[answer] for each in tally.values())],
        verdicts=verdicts,
        checks=ledger.checks(),
        sources=sources(),
        runs=runs,
        shared=_shared(runs),
        damaged=damaged,
        methods=how,
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
    return Site(path, counts, sum(each.of("figure") for each in pages), gaps)


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
    wanted = [(key, key, studies[key].title if key in studies else key, "") for key in order]
    if EXPLORE in found:
        looks = [(f"{EXPLORE}-{run.run.record.id}", run.run.record.id, str(run.run.folder.resolve())) for run in own]
        wanted += [(EXPLORE, *look) for look in looks or [(EXPLORE, "Explorer", "")]]
    pages: list[Page] = []
    done = execute_all([(found[name], run) for name, _, _, run in wanted])
    for (name, key, title, run), shown in zip(wanted, done, strict=True):
        say(f"notebooks/{name}.ipynb{f': {title}' if run else ''}")
        pages.append(page(shown, key, title, ids))
    return pages


def _tally(verdicts: Sequence[Verdict]) -> dict[str, Counter[str]]:
    """Study → answer → how many claims."""
    found: dict[str, Counter[str]] = {}
    for verdict in verdicts:
        found.setdefault(verdict.claim.study, Counter())[verdict.answer] += 1
    return found


def _shared(runs: Sequence[Evidence]) -> dict[str, str]:
    """Fact of the machine → the value that most of the runs have."""
    facts = [run.run.record.facts for run in runs]
    told = {name: Counter(each[name] for each in facts if name in each) for name in ("cpu", "cpus", "kernel", "os")}
    return {name: counts.most_common(1)[0][0] for name, counts in told.items() if counts}


def _rendered(**what: Any) -> str:
    """Without this checkout's place, which says nothing of the data."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = environment.get_template("site.html").render(
        **what,
        answers=ANSWERS,
        own_answers=OWN_ANSWERS,
        kinds=KINDS,
        least_blocks=MIN_BLOCKS,
        mark_p=SURE_P,
        about=about,
        level_text=level_text,
        itself_text=itself_text,
        overview=_overview,
    )
    return text.replace(f"{ROOT}/", "")


def _overview(run: Evidence) -> str:
    return markdown.html(overview(run))
