"""What makes each generated part of a README: catalogues, the committed runs and calibrations, examples, the recipes of `just`."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from functools import cache

from rich.console import Console
from rich.text import Text

from lab.analysis.calibration.folder import CalibrationFolder
from lab.analysis.claims import ledger
from lab.analysis.claims.judging import Verdict as Judged
from lab.analysis.selfbench import Report as SelfbenchReport
from lab.analysis.summary import summarise_run
from lab.analysis.verdicts import Verdict, verdicts
from lab.base.errors import UsageError, did_you_mean
from lab.base.files import read_record
from lab.commands import parser
from lab.commands.readme import code
from lab.commands.readme.picture import REFERENCE
from lab.commands.readme.texts import ROOT, Maker
from lab.model.samples import Reason
from lab.records.store import RunStore
from lab.report import catalog
from lab.report.markdown import markdown
from lab.report.tables import calibration, matrix, selfbench
from lab.report.tables import ledger as claims

RECIPE = re.compile(
    r"^# (?P<says>.*)\n\[group\('(?P<group>\w+)'\)\]\n(?:\[.*\]\n)*(?P<call>\w+(?: [A-Z]+)*)", re.MULTILINE
)
"""A public recipe of the justfile: its comment, its group, its name with what it cannot do without."""


def makers() -> Mapping[str, Maker]:
    return {
        "calibration": lambda _path, _words: _calibration(),
        "claims": lambda _path, _words: markdown(claims.page(_judged(), ledger.checks(), linked=True)),
        "counts": lambda _path, _words: _counts(),
        "disturbances": lambda _path, _words: catalog.readme_disturbances(),
        "example": lambda _path, words: _example(words),
        "floors": lambda _path, _words: code.floors_picture(),
        "folder": lambda path, _words: code.folder(path.parent),
        "found": lambda _path, words: _found(words),
        "matrix": lambda _path, _words: markdown(matrix.page()),
        "outline": lambda _path, words: code.outline(words[0], words[1:]),
        "reasons": lambda _path, _words: _reasons(),
        "selfbench": lambda _path, _words: _selfbench(),
        "studies": lambda _path, _words: catalog.readme_studies(),
        "variants": lambda _path, _words: catalog.readme_table(),
        "verbs": lambda _path, _words: _verbs(),
    }


def _reasons() -> str:
    """Every reason with its meaning, in the order in which they apply."""
    again = " Measured again, up to twice."
    rows = [f"| `{reason}` | {reason.meaning}{again if reason.environmental else ''} |" for reason in Reason]
    return "\n".join(["| reason | meaning |", "| --- | --- |", *rows]) + "\n"


@cache
def _judged() -> Sequence[Judged]:
    """Every claim, judged once: that takes seconds."""
    return ledger.ledger()


def _counts() -> str:
    """How many claims were reproduced, and how many were not."""
    counted = ledger.counts(_judged())
    return f"**{counted}**: the [ledger](data/reference/CLAIMS.md) has each of them, with its interval and its run.\n"


def _found(arms: Sequence[str]) -> str:
    """A row for each `RUN:ARM`: what the arm is, and its verdict as `just table RUN` ends with it."""
    return "".join(["| step | measured | so |\n| --- | --- | --- |\n", *map(_finding, arms)])


def _finding(named: str) -> str:
    folder, _, arm = named.partition(":")
    verdict = _verdicts(folder).get(arm)
    if verdict is None:
        raise UsageError(f"found {named}", f"no arm '{arm}' in {folder}", did_you_mean(arm, _verdicts(folder)))
    said = verdict.text.partition("\n")[0].removeprefix(f"{arm}: ").removesuffix(":")
    measured, _, advice = said.rpartition(": ")
    title = RunStore.open(str(REFERENCE / folder)).record.variants[arm].title
    return f"| **{title}** (`{arm}`) | [{measured}](data/reference/{folder}) | {advice} |\n"


@cache
def _verdicts(folder: str) -> Mapping[str, Verdict]:
    """Of a committed run, of its steady loads or of its disturbed ones."""
    run = RunStore.open(str(REFERENCE / folder))
    samples = run.samples()
    steady, disturbed = (summarise_run(run.record, samples, run.histogram, each) for each in (False, True))
    return {verdict.arm: verdict for verdict in verdicts(disturbed if disturbed.rows else steady)}


def _calibration() -> str:
    """The committed calibration's tables; how to make them as long as there is none."""
    folder = REFERENCE / "calibration"
    if not (folder / "calibration.json").is_file():
        return "Not measured yet: `just calibrate` measures it on your machine.\n"
    return markdown(calibration.page(CalibrationFolder.open(str(folder)).record))


def _selfbench() -> str:
    """The committed table; how to make it as long as there is none."""
    path = REFERENCE / "selfbench" / "selfbench.json"
    if not path.is_file():
        return "Not measured yet: `just selfbench` measures it on your machine.\n"
    return selfbench.in_readme(read_record(path, SelfbenchReport, "restore it from a copy"))


def _example(words: Sequence[str]) -> str:
    """A verb's answer about a committed run, as it is printed; paths are as seen from the checkout's top."""
    given = [str(ROOT / word) if word.startswith("data/") else word for word in words]
    options = parser().parse_args(given)
    with redirect_stdout(io.StringIO()) as printed:
        options.verb(options, Console(quiet=True))
    answer = Text.from_ansi(printed.getvalue()).plain.rstrip()
    return f"```console\n$ just {' '.join(words)}\n{answer}\n```\n"


def _verbs() -> str:
    """Every recipe of the justfile, by its group."""
    rows = ["| `just …` | what it does |", "| --- | --- |"]
    group = ""
    for recipe in RECIPE.finditer((ROOT / "justfile").read_text()):
        if recipe["group"] != group:
            group = recipe["group"]
            rows.append(f"| **{group}** | |")
        says = recipe["says"].replace("|", r"\|")
        rows.append(f"| `{recipe['call']}` | {says} |")
    return "\n".join(rows) + "\n"
