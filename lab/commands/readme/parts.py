"""What makes each generated part of a README: catalogues, the committed runs and calibrations, examples, the recipes of `just`."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from functools import cache

from rich.console import Console
from rich.text import Text

from lab.analysis import levels
from lab.analysis.carrying import carried
from lab.analysis.claims import evidence, ledger
from lab.analysis.claims.judging import Verdict as Judged
from lab.analysis.steps import Finding, Step, findings
from lab.commands import parser
from lab.commands.readme import code
from lab.commands.readme.picture import REFERENCE
from lab.commands.readme.texts import ROOT, Maker
from lab.experiments.selfbench import effects
from lab.model.metrics import about
from lab.model.samples import Reason
from lab.records.calibration import CalibrationFolder
from lab.records.levels import Known, committed
from lab.records.store import RunStore
from lab.report import catalog
from lab.report.grid import texts
from lab.report.html.rows import answered
from lab.report.markdown import markdown
from lab.report.tables import boots, calibration, carrying, known_costs, matrix
from lab.report.tables import ledger as claims

RECIPE = re.compile(
    r"^# (?P<says>.*)\n\[group\('(?P<group>\w+)'\)\]\n(?:\[.*\]\n)*(?P<call>\w+(?: [A-Z]+)*)", re.MULTILINE
)
"""A public recipe of the justfile: its comment, its group, its name with what it cannot do without."""


def makers() -> Mapping[str, Maker]:
    return {
        "calibration": lambda _path, _words: _calibration(),
        "carrying": lambda _path, _words: _carrying(),
        "claims": lambda _path, _words: markdown(claims.page(judged(), ledger.checks(), linked=True)),
        "counts": lambda _path, _words: _counts(),
        "disturbances": lambda _path, _words: catalog.readme_disturbances(),
        "example": lambda _path, words: _example(words),
        "floors": lambda _path, _words: code.floors_picture(),
        "folder": lambda path, _words: code.folder(path.parent),
        "found": lambda _path, _words: _found(),
        "known-cost-lengths": lambda _path, _words: markdown(boots.lengths(evidence.references()[0])),
        "known-costs": lambda _path, _words: _known_costs(),
        "matrix": lambda _path, _words: markdown(matrix.page()),
        "outline": lambda _path, words: code.outline(words[0], words[1:]),
        "reasons": lambda _path, _words: _reasons(),
        "starts": lambda _path, _words: starts(committed()),
        "studies": lambda _path, _words: catalog.readme_studies(),
        "variants": lambda _path, _words: catalog.readme_table(),
        "verbs": lambda _path, _words: _verbs(),
    }


def starts(known: Sequence[Known]) -> str:
    """What one start of each system is off by, of what was measured of it; not of what only bounds what bring-ups share."""
    told = [one for one in known if one.repeat is not None]
    if not told:
        return "None was measured yet.\n"
    heads = ("one start of", "is off by", "of it reloads", "and bring-ups", "a repeat", "bring-ups × generations")
    rows = [
        (
            f"`{one.variant}` on {one.target}, {one.point}",
            *map(_percent, (levels.start_sd(one), one.generation, levels.starts_of(one).bring_up, one.repeat)),
            ", ".join(f"{each.bring_ups} × {each.generations}" for each in dict.fromkeys([one, levels.starts_of(one)])),
        )
        for one in told
    ]
    return markdown([texts(heads, rows)])


def _percent(sd: float | None) -> str:
    return "–" if sd is None else f"{100 * sd:.1f} %"


def _reasons() -> str:
    """Every reason with its meaning, in the order in which they apply."""
    again = " Measured again, up to twice."
    rows = [f"| `{reason}` | {reason.meaning}{again if reason.environmental else ''} |" for reason in Reason]
    return "\n".join(["| reason | meaning |", "| --- | --- |", *rows]) + "\n"


@cache
def judged() -> Sequence[Judged]:
    """Every claim, judged once: that takes seconds."""
    return ledger.ledger()


def _counts() -> str:
    """How many claims were reproduced, and how many were not."""
    counted = ledger.counts(judged())
    return f"**{counted}**: the [ledger](data/reference/CLAIMS.md) has each of them, with its interval and its run.\n"


def _carrying() -> str:
    """Knobs on every target that has them in pairs, with what explains why they differ."""
    runs = evidence.references()[0]
    return markdown(carrying.page(carried(runs), runs))


def _found() -> str:
    """A row for each of data/reference/findings.toml: its question, the answer, and the verdict as `just table RUN` ends with it."""
    runs = evidence.references()[0]
    told = findings(runs)
    named = {found.asked.run for found in told}
    cpus = sorted(
        {run.run.record.facts["cpus"] for run in runs if run.name in named and "cpus" in run.run.record.facts}
    )
    head = (
        f"{len(told)} steps as measured here, on {' and '.join(cpus)} CPUs: each with its effect, the 95 % interval, what to do about it,"
        " and the run; *one boot*: what another one shows is not in the interval. A point named\n*ceiling*, *burst* or *wrk* is loaded as fast as it answers, *rate-25* with 25 requests a second.\n\n"
    )
    rows = (
        f"| **{found.asked.asks}** {found.title} | [**{answered(found)[0]}**: {found.measured}](data/reference/{found.asked.run}) {_where(found)} | {found.advice} |\n"
        for found in told
    )
    return "".join([head if told else "", "| question | measured | so |\n| --- | --- | --- |\n", *rows])


def _where(found: Finding) -> str:
    """Where a finding was measured, what the same step did on each other target, and which defaults its baseline kept."""
    others = "".join(f"; on {step.target} {_step_text(step)}" for step in found.elsewhere)
    return f"{found.on}{others}" + (f" ({found.kept})" if found.kept else "")


def _step_text(step: Step) -> str:
    """A step as a link to its run, with its metric and point."""
    return f"[{about(step.metric).title} at {step.point} {step.text}](data/reference/{step.folder})"


def _calibration() -> str:
    """The committed calibration's tables; how to make them as long as there is none."""
    folder = REFERENCE / "calibration"
    if not (folder / "calibration.json").is_file():
        return "Not measured yet: `just selfbench calibrate` measures it on your machine.\n"
    return markdown(calibration.page(CalibrationFolder.open(str(folder)).record))


def _known_costs() -> str:
    """What the committed run of `selfbench effects` shows; how to make it as long as there is none."""
    folder = REFERENCE / effects.SWEEP
    if not folder.is_dir():
        return "Not measured yet: `just selfbench effects` measures it on your machine.\n"
    known, found = effects.read(RunStore.open(str(folder)))
    claims = "".join(f"- {effects.line(one)}\n" for one in found)
    return f"{markdown(known_costs.page(known))}\nWhat each claims, and how often in ten blocks:\n\n{claims}"


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
