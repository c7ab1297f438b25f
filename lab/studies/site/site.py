"""The builder of the HTML report of all committed runs, which is a single file.

    build_site(Path(".cache/report"))  →  .cache/report/index.html

The file contains plotly.js once, compressed, and `report.js` unpacks it. A figure is stored as its data, and drawn when it comes
into view. If a cell of a notebook raises an exception, no file is written. Missing or damaged data is a gap in the report, and
gaps are counted.
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

from lab.analysis.evidence import Evidence, load_references
from lab.analysis.judge.decision import ALPHA
from lab.analysis.noise import Noise, describe_null_claims, list_aa_variants, measure_noise
from lab.base.errors import LabError, UsageError, refuse_if
from lab.base.files import as_option_error, reference_folder, replace_file
from lab.model.metrics import find_metric
from lab.model.names import EQUIVALENCE_MARGIN
from lab.records.calibration import REFERENCE, CalibrationFolder
from lab.records.published import list_sources
from lab.report.html.rendering import fill_template, render_html
from lab.report.markdown import render_markdown
from lab.report.result import describe_programs
from lab.report.tables.calibration import page as calibration_page
from lab.report.tables.noise import describe_aa, level_text
from lab.stats.paired import MIN_BLOCKS
from lab.studies import ledger
from lab.studies.claims import ANSWERS, KINDS
from lab.studies.claims.judging import ClaimVerdict
from lab.studies.claims.publications import OWN_ANSWERS
from lab.studies.exhibits.exploring import overview
from lab.studies.settings import TARGETS, make_settings
from lab.studies.site.notebooks import ROOT, Page, execute_all, list_notebooks
from lab.studies.site.rows import claim_row, find_answer, make_step_rows, step_ticks
from lab.studies.steps import list_findings, list_steps, list_steps_elsewhere

FILE = "index.html"
"""The name of the report's file."""


@dataclass(frozen=True, slots=True)
class Site:
    """The HTML report that was written: its file, and counts of what it shows.

    Attributes:
        path: The path of the report's file.
        counts: How often each answer to a claim occurs, in words.
        figures: The number of figures.
        gaps: Page → the number of things that the page could not show; a page without gaps is left out.

    """

    path: Path
    counts: str
    figures: int
    gaps: dict[str, int]


def build_site(folder: Path, say: Callable[[str], None] = lambda _: None) -> Site:
    """Execute the notebooks, build the HTML report with their pages, and write it into a folder.

    Args:
        folder: The folder, which is created if it does not exist.
        say: A function that is called with the path of each notebook after its execution, to report progress.

    Raises:
        UsageError: The file cannot be written.
        NotebookError: A cell of a notebook has raised an exception (exit status 1).

    """
    path, remedy = folder / FILE, "name a folder that is yours, or one that does not exist yet"
    try:  # before the minutes that building takes
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UsageError("--output", f"{folder.absolute()} is no folder", remedy) from None
    except OSError as error:
        raise UsageError("--output", f"{folder} cannot be written: {error.strerror}", remedy) from None
    writable = os.access(folder, os.W_OK | os.X_OK)
    refuse_if(not writable, "--output", f"{folder.absolute()} cannot be written", remedy)
    refuse_if(path.is_dir(), "--output", f"{path} is a folder", remedy)
    runs, damaged = load_references()
    verdicts, reliability = ledger.judge_claims(), read_reliability(runs)
    files, studies = list_notebooks(), list_sources()
    # First the studies in the order of their publications, then the other notebooks without the explorer: each run has a page already.
    order = [*(key for key in studies if key in files), *(key for key in files if key not in (*studies, "explore"))]
    pages: list[Page] = []
    for page in execute_all([files[key] for key in order], [run.run.record.id for run in runs]):
        say(f"notebooks/{page.key}.ipynb")
        pages.append(page)
    counted = {page.key: len([*page.needs()]) for page in pages}
    counted |= {"methods": 0 if reliability.calibrated else 1, "damaged runs": len(damaged)}
    gaps = {name: count for name, count in counted.items() if count}
    text = fill_template(
        "site.html",
        Path(__file__).parent / "templates",
        **_make_front(verdicts, runs, pages),
        gaps=sum(gaps.values()),
        pages=pages,
        sources=studies,
        runs=runs,
        damaged=damaged,
        methods=reliability,
        answers=ANSWERS,
        own_answers=OWN_ANSWERS,
        kinds=KINDS,
        least_blocks=MIN_BLOCKS,
        mark_p=ALPHA,
        margin=f"{100 * EQUIVALENCE_MARGIN:g}",
        about=find_metric,
        level_text=level_text,
        itself_text=describe_aa,
        overview=lambda run: render_html(overview(run)),
        programs=lambda run: describe_programs(run.run),
        plotly=base64.b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode(),
    ).replace(f"{ROOT}/", "")  # the checkout's place has nothing to do with the data
    with as_option_error("--output", path):
        replace_file(path, text.encode())
    figures = sum(part.kind == "figure" for page in pages for _, part in page.parts)
    return Site(path, ledger.count_answers(verdicts), figures, gaps)


def _make_front(verdicts: Sequence[ClaimVerdict], runs: Sequence[Evidence], pages: Sequence[Page]) -> dict[str, Any]:
    """Return the values that the template of the report needs for its front page: name in the template → value.

    Args:
        verdicts: The verdicts of the claims.
        runs: The committed runs.
        pages: The executed notebooks.

    """
    checks, measured = ledger.judge_checks(), list_steps(runs, verdicts)
    tally: dict[str, Counter[str]] = {}
    for verdict in verdicts:
        tally.setdefault(verdict.claim.study, Counter())[verdict.answer] += 1
    settings = make_settings(measured, verdicts, list_steps_elsewhere(runs))
    facts = [run.run.record.facts for run in runs]
    frequent = {
        name: Counter(run_facts[name] for run_facts in facts if name in run_facts)
        for name in ("cpu", "cpus", "kernel", "os")
    }
    rows = {verdict.claim.id: claim_row(verdict) for verdict in (*verdicts, *checks)}
    needs: dict[tuple[str, str], dict[str, str]] = {}
    for page in pages:
        for need, anchor, name in page.needs():
            missing, just, command = need.partition(": just ")  # where a command measures it
            places = needs.setdefault((missing, just.removeprefix(": ") + command), {})
            places.setdefault(anchor, f"{page.key}: {name}")
    return {
        "steps": make_step_rows(measured),
        "ticks": step_ticks(),
        "decided": Counter(step.decision.value for step in measured),
        "settings": settings,
        "setting_verdicts": Counter(item["verdict"] for item in settings),
        "targets": TARGETS,
        "findings": [(finding, find_answer(finding)) for finding in list_findings(runs)],
        "run_ids": {run.name: run.run.record.id for run in runs},
        "claims": [rows[verdict.claim.id] for verdict in verdicts],
        "checks": [rows[verdict.claim.id] for verdict in checks],
        "rows_of": lambda ids: [rows[name] for name in ids],
        "counts": ledger.count_answers(verdicts),
        "tally": tally,
        "given": [answer for answer in ANSWERS if any(counts[answer] for counts in tally.values())],
        "by_key": {page.key: page for page in pages},
        "needs": [(missing, command, list(places.items())) for (missing, command), places in needs.items()],
        "shared": {name: counts.most_common(1)[0][0] for name, counts in frequent.items() if counts},
    }


# -- how sure the numbers are: what the generators err by, and how noisy it was ------------------------------


@dataclass(frozen=True, slots=True)
class Reliability:
    """The reliability of the report's numbers: the load generators' errors, and the noise of each run.

    Attributes:
        calibration: The calibration as HTML, or the reason why there is none. A calibration is what generators report of a test server that
            answers at known times.
        calibrated: Whether there is a calibration.
        noises: (id of a run, noise) for each noise that could be computed.
        untold: (id of a run, reason) for each run whose noise is not known.
        nulls: How many comparisons of a variant with itself came out as significant, in words; empty: there is no such comparison.

    """

    calibration: str
    calibrated: bool
    noises: tuple[tuple[str, Noise], ...]
    untold: tuple[tuple[str, str], ...]
    nulls: str


def read_reliability(runs: Sequence[Evidence]) -> Reliability:
    """Return the reliability of the report's numbers: the load generators' errors, and the noise of each run.

    The errors are from the committed calibration of the generators. Without a calibration, the result has the reason.
    """
    try:
        record = CalibrationFolder.open(f"{reference_folder()}/{REFERENCE}").record
        calibration, calibrated = render_html(render_markdown(calibration_page(record)), below=2), True
    except LabError as error:
        none = "no calibration is committed: `just selfbench calibrate` measures what every generator reports of a known server"
        reason = "" if "unknown calibration" in error.fault else f" ({error.fault})"
        calibration, calibrated = render_html(none + reason), False
    by_run = {run.run.record.id: _read_noise(run) for run in runs}
    compared = [noise for run_noises, _ in by_run.values() for noise in run_noises if noise.compared]
    return Reliability(
        calibration,
        calibrated,
        tuple((run, noise) for run, (run_noises, _) in by_run.items() for noise in run_noises if not noise.why),
        tuple((run, reason) for run, (_, reason) in by_run.items() if reason),
        describe_null_claims(compared) if compared else "",
    )


def _read_noise(run: Evidence) -> tuple[tuple[Noise, ...], str]:
    """Return the noise of a run (variation of equal measurements) for each metric at each steady load.

    Returns:
        (noises, reason). The reason says why no noise is known; it is empty if one is known.

    """
    record = run.run.record
    if not list_aa_variants(record.arms):
        return (), "no variant in it was measured against itself"
    if all(point.has_outcome for point in record.points):
        return (), "a disturbance: the variation there is in the metrics' own units, next to each effect"
    try:
        run_noises = measure_noise(run.summary())
    except LabError as error:
        return (), f"cannot be read: {error.fault}"
    return run_noises, "" if any(not noise.why for noise in run_noises) else "too few valid blocks"
