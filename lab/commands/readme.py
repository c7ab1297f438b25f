"""The generated parts of the READMEs: tables and texts that are made from catalogues, runs and code.

A part is the text between `<!-- generated: NAME WORDS… -->` and `<!-- end -->` in a Markdown file of the checkout. The
function that makes the part is found by NAME (`part_makers`), and receives the file and WORDS. Links in the text that it
returns are relative to the top of the checkout; they are then made relative to the file.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from pathlib import Path

from rich.text import Text

from lab.analysis import evidence, levels
from lab.analysis.applied import list_programs, map_programs
from lab.analysis.explain.conclusion import describe_rate_costs
from lab.analysis.migration.table import COST, EXTRA, STREAMS, list_successors, load_table
from lab.analysis.noise import BASELINE
from lab.analysis.rate_costs import compute_rate_costs
from lab.base.errors import UsageError, refuse_unknown
from lab.base.grouping import group_values
from lab.commands import catalog
from lab.experiments.selfbench import effects
from lab.model.facts import ROOT
from lab.model.metrics import METRICS, find_metric
from lab.model.samples import Reason
from lab.model.variants.knobs import Check
from lab.records.calibration import CalibrationFolder
from lab.records.levels import SystemComponents, read_components
from lab.records.store import RunStore
from lab.report.grid import format_references, list_footnotes
from lab.report.markdown import render_markdown
from lab.report.tables import calibration, selfbench
from lab.stats.paired import MIN_BLOCKS
from lab.stats.units import format_blocks
from lab.studies import boots, carrying, ledger, matrix, settings
from lab.studies.claims import ClaimTest, Other
from lab.studies.claims.judging import ClaimVerdict
from lab.studies.claims.measuring import measure_test
from lab.studies.exhibits.streams import describe_systems
from lab.studies.site.rows import find_answer
from lab.studies.steps import list_findings, list_steps, list_steps_elsewhere
from lab.systems.table import SYSTEMS

LAB, REFERENCE = ROOT / "lab", ROOT / "data" / "reference"
PICTURE = REFERENCE / "findings.svg"
"""The picture that the README shows, from `lab.studies.site.rows.draw_findings`."""
TWO_RATES = "two-rates"
"""The sweep (list of loads) that shows the idle and the marginal cost of a system."""
KEPT_APART = {("analysis", "targets"), ("report", "targets")}
"""(importer, imported): packages that must not import a certain package, although it is on a lower floor.

Code that reads runs must not depend on targets; lab/tests/test_house.py checks this.
"""
RECIPE = re.compile(
    r"^# (?P<says>.*)\n\[group\('(?P<group>\w+)'\)\]\n(?:\[.*\]\n)*(?P<call>\w+(?: [A-Z]+)*)", re.MULTILINE
)
"""The pattern of a public recipe of the justfile: its comment, its group, its name and the required arguments."""
PART = re.compile(
    r"(?P<head><!-- generated: (?P<name>[a-z-]+)(?P<words>[^\n]*?) -->\n).*?(?P<end><!-- end -->)", re.DOTALL
)
KIND_OF_CHECK = re.compile(r"^ {4}([a-z]+) +(\S.*(?:\n {5,}.*)*)", re.MULTILINE)
"""The pattern of a line in the docstring of `Check` that describes a kind of check: its name, and what it reads."""
LINK = re.compile(r"(?P<text>\[(?:[^\[\]\n]|\[[^\]\n]*\])*\])\((?P<to>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)")

Maker = Callable[[Path, Sequence[str]], str]
"""The type of functions that make a part, from the file that the part is in and the words of its marker."""


def markdown_files(root: Path = ROOT) -> Iterator[Path]:
    """Yield every Markdown file of the checkout that may have generated parts.

    Files in the folders of single runs and in caches are left out.
    """
    for pattern in ("*.md", "data/*.md", "data/levels/*.md", "data/published/*.md", "data/reference/*.md"):
        yield from sorted(root.glob(pattern))
    for folder in ("lab", "manifests", "notebooks", "scripts"):
        yield from sorted((root / folder).rglob("README.md"))


def render_file(path: Path, makers: Mapping[str, Maker]) -> str:
    """Return the text of a Markdown file in which every generated part is made anew.

    Args:
        path: The file.
        makers: The functions that make parts, by the name that the part's marker has.

    Raises:
        UsageError: The file has a part for which there is no function.

    """
    return PART.sub(lambda match: match["head"] + make_part(path, match, makers) + match["end"], path.read_text())


def make_part(path: Path, match: re.Match[str], makers: Mapping[str, Maker]) -> str:
    """Make one generated part of a Markdown file, with links relative to this file.

    Links in a part that is a fenced block (```) stay unchanged.

    Args:
        path: The file.
        match: The match of `PART` in the file: the marker with its words, and the old text.
        makers: The functions that make parts, by the name that the part's marker has.

    Raises:
        UsageError: There is no function for this part.

    """
    name = match["name"]
    refuse_unknown(name, makers, str(path), f"unknown generated part '{name}'")
    text = makers[name](path, shlex.split(match["words"])).rstrip("\n") + "\n"
    if text.startswith("```"):
        return text
    return LINK.sub(
        lambda link: f"{link['text']}({os.path.relpath(ROOT / link['to'], path.parent)}{link['anchor'] or ''})", text
    )


def part_makers() -> Mapping[str, Maker]:
    """Return the functions that make the generated parts of READMEs, as name of a part (`floors`, `verbs`, …) → function."""
    return {
        "calibration": lambda *_: render_markdown(
            calibration.page(CalibrationFolder.open(f"{REFERENCE}/calibration").record)
        ),
        "carrying": lambda *_: render_markdown(carrying.page(carrying.list_transfers(_runs()), _runs())),
        "claims": lambda *_: render_markdown(ledger.page(judged_claims(), ledger.judge_checks(), linked=True)),
        "counts": lambda *_: f"**{ledger.count_answers(judged_claims())}**: the [ledger](data/reference/CLAIMS.md) has each of them, with its interval and its run.",
        "disturbances": lambda *_: catalog.readme_disturbances(),
        "example": lambda _path, arguments: _make_example(arguments),
        "floors": lambda *_: _make_floors(),
        "folder": lambda path, _arguments: folder(path.parent),
        "found": lambda *_: _make_findings(),
        "known-cost-lengths": lambda *_: render_markdown(boots.make_lengths_page(_runs())),
        "known-costs": lambda *_: _make_known_costs(),
        "matrix": lambda *_: render_markdown(matrix.page()),
        "metrics": lambda *_: _make_metrics(),
        "readbacks": lambda *_: _make_readbacks(),
        "reasons": lambda *_: _make_reasons(),
        "seen": lambda *_: _make_seen(),
        "starts": lambda *_: starts(read_components()),
        "studies": lambda *_: catalog.readme_studies(),
        "sweeps": lambda *_: catalog.readme_sweeps(),
        "trust": lambda *_: _make_trust(),
        "variants": lambda *_: catalog.readme_table(),
        "verbs": lambda *_: _make_verbs(),
    }


def _make_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table from a heading and rows; the cells must already be valid Markdown."""
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (heads, ["---"] * len(heads), *rows))


def _runs() -> Sequence[evidence.Evidence]:
    return evidence.load_references()[0]


@cache
def judged_claims() -> Sequence[ClaimVerdict]:
    """Return all claims of the published studies, each with the verdict of the committed runs.

    The result is cached, because the first call takes seconds.
    """
    return ledger.judge_claims()


def make_settings_text() -> str:
    """Return the content of data/settings.json: what the committed runs show of each setting, as JSON."""
    return (
        json.dumps(
            settings.make_settings(
                list_steps(_runs(), judged_claims()), judged_claims(), list_steps_elsewhere(_runs())
            ),
            indent=1,
        )
        + "\n"
    )


def _make_seen() -> str:
    """Return a Markdown table of what measurements show of settings, for each successor of ingress-nginx.

    The settings are those that `migrate` lists. A row has the successor, the setting, what a committed run shows of
    it, and the verdicts on published claims about it.
    """
    answers = {verdict.claim.id: verdict.answer for verdict in judged_claims()}
    tables = {system: load_table(system) for system in list_successors()}
    cells = {
        (system, row.setting if row.keys[0] == EXTRA else row.keys[0]): (
            _describe_seen(system, *row.seen.split()) if row.seen else "",
            ", ".join(f"{claim} {answers[claim]}" for claim in row.claims),
        )
        for system, table in tables.items()
        for row in (*chain.from_iterable(table.rows.values()), *table.extras)
        if row.seen or row.claims
    }
    shown = describe_systems(evidence.shelf(), "streams")
    cells |= {key: (text, "") for key, text in shown.items() if key[0] in tables and key[1] in STREAMS.values()}
    cells |= {(system, COST): (text, "") for system, text in _yield_rate_costs() if system in tables}
    rows = [(*names, *texts) for names, texts in cells.items()]
    return _make_table(("successor", "setting", "what committed runs show", "the ledger"), rows)


def _yield_rate_costs() -> Iterator[tuple[str, str]]:
    """Yield (variant, text) for each comparison of a variant's idle and marginal CPU cost with those of ingress-nginx.

    The comparisons are from committed runs at two rates, the oldest run first.
    """
    for run in reversed(_runs()):
        if run.run.record.sweep == TWO_RATES:
            costs = compute_rate_costs(run.summary(False))
            programs = map_programs(run.run)
            for cost in (cost for cost in costs if cost.against == BASELINE):
                place = f"[{run.name}](data/reference/{run.name}) on {run.run.record.target}"
                for text in describe_rate_costs(costs, cost.arm):
                    yield cost.arm, f"{text.strip()} ({place}; {programs.get(cost.arm, cost.arm)})"


def _describe_seen(system: str, name: str, at_point: str, metric: str, other: str | None = None) -> str:
    """Return in words the value of a metric that a committed run shows for a successor of ingress-nginx with default settings.

    Args:
        system: The name of the successor's variant.
        name: The name of the run's folder.
        at_point: The name of the load point.
        metric: The name of the metric.
        other: The name of another variant, by whose value the successor's is divided; None = the value itself.

    """
    run = next(run for run in _runs() if run.name == name)
    point = next(point for point in run.points if point.name == at_point)
    test = ClaimTest(metric=metric, points=at_point, ratio_to=Other(variant=other) if other else None)
    (part,) = measure_test(test, system, run)
    load = f"{point.connections:,} connections, {f'{point.rate_rps:,g} req/s' if point.rate_rps else 'full load'}"
    shown = (part.why if part.value is None else part.text).replace(f" at {at_point}", "")
    if part.value is not None and part.blocks < MIN_BLOCKS:
        shown += f" in {format_blocks(part.blocks)}, so without an interval"
    programs = "".join(
        f"; {program}" for program, arms in list_programs(run.run).items() if {system, other} & set(arms)
    )
    return f"{shown} ({load}; [{name}](data/reference/{name}) on {run.run.record.target}{programs})"


def floors() -> Mapping[str, int]:
    """Return the floor (layer of imports) of each package of the lab, as package → number; 1 is the lowest.

    A package imports only from packages on lower floors. `lab/tests/test_house.py` defines the floors.
    """
    text = (LAB / "tests" / "test_house.py").read_text()
    declared = re.search(r"^FLOORS = (\(\n.*?^\))", text, re.DOTALL | re.MULTILINE)
    assert declared
    order: tuple[tuple[str, ...], ...] = ast.literal_eval(declared[1])
    return {name: number for number, names in enumerate(order, start=1) for name in names if (LAB / name).is_dir()}


def _make_floors() -> str:
    """Return a Markdown table of the lab's packages by floor (layer of imports), the highest floor first."""
    packages = sorted(floors().items(), key=lambda item: (-item[1], item[0]))
    rows = group_values((floor, f"[`{name}`](lab/{name}/README.md)") for name, floor in packages)
    return _make_table(("floor", "packages"), ((str(floor), ", ".join(names)) for floor, names in rows.items()))


def folder(path: Path) -> str:
    """Return the description of a folder for its README, in Markdown.

    It has a table of the folder's packages and modules, with the first sentence of the docstring of each. For a package
    of the lab it also states from which packages it may import.
    """
    packages = [init.parent for init in sorted(path.glob("*/__init__.py"))]
    modules = [module for module in sorted(path.glob("*.py")) if module.name != "__init__.py"]
    pages = {package: package / "README.md" for package in packages}
    entries = [
        (f"{package.name}/", page if page.exists() else package, package / "__init__.py")
        for package, page in pages.items()
    ]
    entries += [(module.name, module, module) for module in modules]
    rows: list[tuple[str, str]] = []
    for name, link, module in entries:
        docstring = ast.get_docstring(ast.parse(module.read_text())) or ""
        sentence, stop, _ = " ".join(docstring.partition("\n\n")[0].split()).partition(". ")
        rows.append((f"[`{name}`]({link.relative_to(ROOT)})", f"{sentence}{stop.strip()}".replace("|", r"\|")))
    table = _make_table(("here", "what it is"), rows)
    if path == LAB:
        return table
    package, floor_of = path.relative_to(LAB).parts[0], floors()
    refuse_unknown(package, floor_of, str(path), f"{package} is no package of the lab")
    lower = sorted(
        (name for name in floor_of if floor_of[name] < floor_of[package] and (package, name) not in KEPT_APART),
        key=lambda name: (floor_of[name], name),
    )
    may = f"may import {', '.join(f'`{name}`' for name in lower)}" if lower else "imports nothing of ours"
    never = "".join(
        f" It never imports `{name}`, which is on a lower floor, too: what reads a run knows no target."
        for importer, name in sorted(KEPT_APART)
        if importer == package
    )
    return f"Floor {floor_of[package]}: `{package}` {may} ([the floors](lab/README.md#the-floors)).{never}\n\n{table}"


def _make_findings() -> str:
    """Return a Markdown table of the main findings of the committed runs: question, place, answer and advice.

    The place is a target with the program that ran there as the proxy. If a program ran for several findings, the table
    has a superscript number in its stead, and the legend below the table has the program of each number. The file
    data/reference/findings.toml lists the findings.
    """
    findings = list_findings(_runs())
    programs = [name for name, times in Counter(finding.program for finding in findings).items() if times > 1]
    numbers = {name: number for number, name in enumerate(filter(None, programs), 1)}
    rows: list[tuple[str, ...]] = []
    for finding in findings:
        elsewhere = ""
        for step in finding.elsewhere:
            place = f"{find_metric(step.metric).title} at {step.point} "
            place = "" if place in finding.measured else place
            elsewhere += f"; on {step.target} [{place}{step.text}](data/reference/{step.folder})"
        for step in finding.machines:
            elsewhere += f"; on {step.machine}, {step.target}: [{step.text}](data/reference/{step.folder})"
        remark = f" ({finding.kept})" if finding.kept else ""
        answer = f"[**{find_answer(finding)[0]}**: {finding.measured}](data/reference/{finding.asked.run})"
        question = f"**{finding.asked.asks}** {finding.title}"
        mark = format_references([finding.program], numbers) if finding.program in numbers else ""
        where = f"{finding.target} {mark}" if mark else finding.where
        rows.append((question, where, f"{answer}{elsewhere}{remark}", finding.advice))
    table = _make_table(("question", "where", "measured", "so"), rows)
    return f"{table.rstrip()}\n\n{'; '.join(list_footnotes(numbers))}"


def _make_trust() -> str:
    """Return a Markdown table of the findings (answered questions) that were measured on several targets, with the effect on each.

    A target is where systems run. The table shows whether results of the default target hold elsewhere. Each effect links its run.
    """
    rows: list[tuple[str, ...]] = []
    for finding in list_findings(_runs()):
        measured = {step.target: step for step in finding.elsewhere if step.point == finding.asked.point}
        if len(measured) > 1:
            run = next(run for run in _runs() if run.name == finding.asked.run)
            own = next(
                step
                for step in list_steps([run], ())
                if step.arm == finding.asked.arm and step.point == finding.asked.point
            )
            texts = {
                target: f"[{step.text}](data/reference/{step.folder})"
                for target, step in (*measured.items(), (finding.target, own))
            }
            cells = (texts.get(target, "not measured") for target in ("local", "apiserver", "kind"))
            rows.append((f"{finding.title}: {find_metric(own.metric).title} at {finding.asked.point}", *cells))
    return _make_table(("the same step", "`local`", "`apiserver`", "`kind`"), rows)


def starts(systems: Sequence[SystemComponents]) -> str:
    """Return a Markdown table of how much the results of a system vary when it is started again, as standard deviations.

    Systems for which no measurement was repeated are left out.

    Args:
        systems: The committed variance components of the systems.

    """
    rows: list[tuple[str, ...]] = []
    for components in systems:
        if components.repeat is not None:
            longest = levels.find_starts(components)
            deviations = (levels.start_sd(components), components.generation, longest.bring_up, components.repeat)
            cells = ("–" if deviation is None else f"{100 * deviation:.1f} %" for deviation in deviations)
            counts = ", ".join(
                f"{line.bring_ups} × {line.generations}" for line in dict.fromkeys([components, longest])
            )
            rows.append((f"`{components.variant}` on {components.target}, {components.point}", *cells, counts))
    heads = ("one start of", "varies by", "of it reloads", "and bring-ups", "a repeat", "bring-ups × generations")
    return _make_table(heads, rows)


def _make_reasons() -> str:
    """Return a Markdown table of all reasons for which a sample is invalid, in the order in which they are checked."""
    again, paired = " Measured again, up to twice.", " In a pair, measured again, up to twice."
    rows = (
        (f"`{reason}`", f"{reason.meaning}{again if reason.environmental else paired if reason.unserved else ''}")
        for reason in Reason
    )
    return _make_table(("reason", "meaning"), rows)


def _make_metrics() -> str:
    """Return a Markdown table of all metrics: name, title, unit, better direction, way of comparison, and whether it may be primary."""
    rows = (
        (f"`{name}`", metric.title, metric.unit, metric.better, metric.kind, "yes" if metric.primary else "")
        for name, metric in METRICS.items()
    )
    return _make_table(("metric", "title", "unit", "better", "compared by", "primary"), rows)


def _make_readbacks() -> str:
    """Return a Markdown table of all kinds of read-backs (checks of a running system's settings).

    A row has the kind, its system, the keys that it needs, and what it reads. The texts about kinds that every system
    has are taken from the docstring of `Check`.
    """
    described = dict(KIND_OF_CHECK.findall(inspect.getdoc(Check) or ""))
    general = (
        (f"`{kind}`", "every system", ", ".join(f"`{key}`" for key in keys.split()), " ".join(described[kind].split()))
        for kind, (keys, _) in Check.KINDS.items()
    )
    own = (
        (f"`{kind}`", system.name, "`name`", how.spoken.format(kind=kind, name="*name*", context=""))
        for system in SYSTEMS
        for kind, how in system.readbacks.items()
    )
    return _make_table(("kind", "of", "needs", "reads"), chain(general, own))


def _make_known_costs() -> str:
    """Return a Markdown table of known costs, which variants add on purpose, and of what a committed run measured of them.

    Below the table, a list shows how often the effect of each cost was detected.
    """
    costs, claims = effects.read_effects(RunStore.open(str(REFERENCE / effects.SWEEP)))
    lines = "".join(f"- {effects.format_injected(claim)}\n" for claim in claims)
    return f"{render_markdown(selfbench.known_costs_page(costs))}\nWhat each claims, and how often in ten blocks:\n\n{lines}"


def _make_example(arguments: Sequence[str]) -> str:
    """Run a command of the lab, and return its output as a fenced Markdown block.

    Args:
        arguments: The arguments of the command, such as `["table", "data/reference/slow-link"]`. If the first one has
            the form `3-9`, only these lines of the output are shown.

    """
    wanted = re.fullmatch(r"(\d+)-(\d+)", arguments[0])
    command = arguments[1:] if wanted else arguments
    result = subprocess.run(
        [sys.executable, "-m", "lab", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if not result.stdout:
        raise UsageError(f"just {' '.join(command)}", f"prints nothing: {result.stderr.strip()}", "correct the marker")
    lines = Text.from_ansi(result.stdout).plain.replace(f"{ROOT}/", "").rstrip().split("\n")
    first, last = (int(wanted[1]) - 1, int(wanted[2])) if wanted else (0, len(lines))
    shown = [line.rstrip() for line in lines[first:last]]
    more = ["…"] if last < len(lines) else []
    return "\n".join(["```console", f"$ just {shlex.join(command)}", *shown, *more, "```", ""])


def _make_verbs() -> str:
    """Return a Markdown table of the public recipes in the justfile, by group, each with its comment."""
    rows: list[tuple[str, str]] = []
    for recipe in RECIPE.finditer((ROOT / "justfile").read_text()):
        group = (f"**{recipe['group']}**", "")
        rows += [] if group in rows else [group]
        rows.append((f"`{recipe['call']}`", recipe["says"].replace("|", r"\|")))
    return _make_table(("`just …`", "what it does"), rows)
