"""The report's one file: everything that there is to show, put into the templates, and written whole or not at all.

    build(Path(".cache/report"))  →  .cache/report/index.html

plotly.js stands in it once, packed, as `report.js` unpacks it; each figure is its data, drawn when it comes into view. Refuses to write anything when a notebook's
cell raises; what is missing or damaged is a gap, counted.
"""

from __future__ import annotations

import base64
import gzip
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plotly.offline import get_plotlyjs

from lab.analysis.evidence import Evidence, references
from lab.analysis.judge.decision import SURE_P
from lab.analysis.noise import Noise, noises, nulls_text, pairs
from lab.base.errors import LabError, UsageError
from lab.base.files import reference_folder, replace, written_to
from lab.model.metrics import about
from lab.model.names import WORTH
from lab.records.calibration import REFERENCE, CalibrationFolder
from lab.records.published import sources
from lab.report.html.rendering import html, rendered
from lab.report.markdown import markdown
from lab.report.tables.calibration import page as calibration_page
from lab.report.tables.noise import itself_text, level_text
from lab.stats.paired import MIN_BLOCKS
from lab.studies import ledger
from lab.studies.claims import ANSWERS, KINDS
from lab.studies.claims.judging import Verdict
from lab.studies.claims.publications import OWN_ANSWERS
from lab.studies.exhibits.exploring import overview
from lab.studies.site.notebooks import ROOT, Page, execute_all, notebooks
from lab.studies.site.rows import answered, claim_row, step_rows, step_ticks
from lab.studies.steps import findings, steps

FILE = "index.html"


@dataclass(frozen=True, slots=True)
class Site:
    """What was written. `gaps`: page → what it could not show, without pages that show all."""

    path: Path
    counts: str
    figures: int
    gaps: dict[str, int]


def build(folder: Path, say: Callable[[str], None] = lambda _: None) -> Site:
    """UsageError where it cannot be written; NotebookError (exit 1) for a cell that raises."""
    path, remedy = folder / FILE, "name a folder that is yours, or one that does not exist yet"
    try:  # before minutes go into making it
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UsageError("--output", f"{folder.absolute()} is no folder", remedy) from None
    except OSError as error:
        raise UsageError("--output", f"{folder} cannot be written: {error.strerror}", remedy) from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError("--output", f"{folder.absolute()} cannot be written", remedy)
    if path.is_dir():
        raise UsageError("--output", f"{path} is a folder", remedy)
    runs, damaged = references()
    verdicts, how = ledger.ledger(), methods(runs)
    found, studies = notebooks(), sources()
    # the studies in the order of their publications, then what else there is but the explorer: a run has a page of its own
    order = [*(key for key in studies if key in found), *(key for key in found if key not in (*studies, "explore"))]
    pages: list[Page] = []
    for page in execute_all([found[key] for key in order], [run.run.record.id for run in runs]):
        say(f"notebooks/{page.key}.ipynb")
        pages.append(page)
    counted = {page.key: len([*page.needs()]) for page in pages}
    counted |= {"methods": 0 if how.calibrated else 1, "damaged runs": len(damaged)}
    gaps = {name: count for name, count in counted.items() if count}
    text = rendered(
        "site.html",
        Path(__file__).parent / "templates",
        **_front(verdicts, runs, pages),
        gaps=sum(gaps.values()),
        pages=pages,
        sources=studies,
        runs=runs,
        damaged=damaged,
        methods=how,
        answers=ANSWERS,
        own_answers=OWN_ANSWERS,
        kinds=KINDS,
        least_blocks=MIN_BLOCKS,
        mark_p=SURE_P,
        worth=f"{100 * WORTH:g}",
        about=about,
        level_text=level_text,
        itself_text=itself_text,
        overview=lambda run: html(overview(run)),
        plotly=base64.b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode(),
    ).replace(f"{ROOT}/", "")  # this checkout's place says nothing of the data
    with written_to("--output", path):
        replace(path, text.encode())
    figures = sum(part.kind == "figure" for page in pages for _, part in page.parts)
    return Site(path, ledger.counts(verdicts), figures, gaps)


def _front(verdicts: Sequence[Verdict], runs: Sequence[Evidence], pages: Sequence[Page]) -> dict[str, Any]:
    """What the front page has beside the pages."""
    checks, measured = ledger.checks(), steps(runs, verdicts)
    tally: dict[str, Counter[str]] = {}
    for verdict in verdicts:
        tally.setdefault(verdict.claim.study, Counter())[verdict.answer] += 1
    facts = [run.run.record.facts for run in runs]
    most = {name: Counter(each[name] for each in facts if name in each) for name in ("cpu", "cpus", "kernel", "os")}
    rows = {verdict.claim.id: claim_row(verdict) for verdict in (*verdicts, *checks)}
    needs: dict[tuple[str, str], dict[str, str]] = {}
    for page in pages:
        for need, anchor, name in page.needs():
            what, just, command = need.partition(": just ")  # where a command measures it
            places = needs.setdefault((what, just.removeprefix(": ") + command), {})
            places.setdefault(anchor, f"{page.key}: {name}")
    return {
        "steps": step_rows(measured),
        "ticks": step_ticks(),
        "decided": Counter(step.decision.value for step in measured),
        "findings": [(finding, answered(finding)) for finding in findings(runs)],
        "run_ids": {run.name: run.run.record.id for run in runs},
        "claims": [rows[verdict.claim.id] for verdict in verdicts],
        "checks": [rows[verdict.claim.id] for verdict in checks],
        "rows_of": lambda ids: [rows[name] for name in ids],
        "counts": ledger.counts(verdicts),
        "tally": tally,
        "given": [answer for answer in ANSWERS if any(each[answer] for each in tally.values())],
        "by_key": {each.key: each for each in pages},
        "needs": [(what, command, list(places.items())) for (what, command), places in needs.items()],
        "shared": {name: counts.most_common(1)[0][0] for name, counts in most.items() if counts},
    }


# -- how sure the numbers are: what the generators err by, and how noisy it was ------------------------------


@dataclass(frozen=True, slots=True)
class Methods:
    """`calibration`: HTML, or what is missing. `noises`: run and what it knows of its noise; `untold`: runs that know nothing, and why.

    `nulls`: what was claimed of null arms; empty without.
    """

    calibration: str
    calibrated: bool
    noises: tuple[tuple[str, Noise], ...]
    untold: tuple[tuple[str, str], ...]
    nulls: str


def methods(runs: Sequence[Evidence]) -> Methods:
    """Of the lab, and of these runs; all of it is read from where the lab itself has it."""
    try:
        record = CalibrationFolder.open(f"{reference_folder()}/{REFERENCE}").record
        calibration, calibrated = html(markdown(calibration_page(record)), below=2), True
    except LabError as error:
        none = "no calibration is committed: `just selfbench calibrate` measures what every generator reports of a known server"
        why = "" if "unknown calibration" in error.fault else f" ({error.fault})"
        calibration, calibrated = html(none + why), False
    known = {run.run.record.id: _noises(run) for run in runs}
    compared = [noise for found, _ in known.values() for noise in found if noise.compared]
    return Methods(
        calibration,
        calibrated,
        tuple((run, noise) for run, (found, _) in known.items() for noise in found if not noise.why),
        tuple((run, why) for run, (_, why) in known.items() if why),
        nulls_text(compared) if compared else "",
    )


def _noises(run: Evidence) -> tuple[tuple[Noise, ...], str]:
    """(its noise, why it knows nothing of it)"""
    record = run.run.record
    if not pairs(record.arms):
        return (), "nothing in it was measured twice"
    if all(point.disturbance is not None for point in record.points):
        return (), "a disturbance: what varies there is in the metrics' own units, beside each effect"
    try:
        found = noises(run.summary())
    except LabError as error:
        return (), f"cannot be read: {error.fault}"
    return found, "" if any(not noise.why for noise in found) else "too few valid blocks"
