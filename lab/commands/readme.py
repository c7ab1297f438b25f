"""The generated parts of every README: found by their markers in this checkout's Markdown files, made anew of the catalogues, runs, code and recipes.

A part stands between `<!-- generated: NAME WORDS… -->` and `<!-- end -->`, in whichever file it is wanted: no list says which is where.
What makes it (`makers`) is given the file and the words. Links in it are written as seen from the checkout's top.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from rich.text import Text

from lab.analysis import evidence, levels
from lab.base.errors import UsageError, refuse_unknown
from lab.commands import catalog
from lab.experiments.selfbench import effects
from lab.model.facts import ROOT
from lab.model.metrics import about
from lab.model.samples import Reason
from lab.records.calibration import CalibrationFolder
from lab.records.levels import Known, committed
from lab.records.store import RunStore
from lab.report.markdown import markdown
from lab.report.tables import calibration, selfbench
from lab.studies import boots, carrying, ledger, matrix
from lab.studies.claims.judging import Verdict
from lab.studies.site.rows import answered
from lab.studies.steps import findings

LAB, REFERENCE = ROOT / "lab", ROOT / "data" / "reference"
PICTURE = REFERENCE / "steps.svg"
"""`lab.studies.site.rows.picture`, which README shows."""
RECIPE = re.compile(
    r"^# (?P<says>.*)\n\[group\('(?P<group>\w+)'\)\]\n(?:\[.*\]\n)*(?P<call>\w+(?: [A-Z]+)*)", re.MULTILINE
)
"""A public recipe of the justfile: its comment, its group, its name with what it cannot do without."""
PART = re.compile(
    r"(?P<head><!-- generated: (?P<name>[a-z-]+)(?P<words>[^\n]*?) -->\n).*?(?P<end><!-- end -->)", re.DOTALL
)
LINK = re.compile(r"(?P<text>\[(?:[^\[\]\n]|\[[^\]\n]*\])*\])\((?P<to>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)")

Maker = Callable[[Path, Sequence[str]], str]
"""(the file that the part is of, the marker's words) → the part."""


def files(root: Path = ROOT) -> Iterator[Path]:
    """Yield every Markdown file of the checkout, without what was measured or fetched."""
    for pattern in ("*.md", "data/*.md", "data/levels/*.md", "data/published/*.md", "data/reference/*.md"):
        yield from sorted(root.glob(pattern))
    for folder in ("lab", "manifests", "notebooks", "scripts"):
        yield from sorted((root / folder).rglob("README.md"))


def rendered(path: Path, makers: Mapping[str, Maker]) -> str:
    """Return the file's text with every generated part made anew; UsageError for a part that nobody makes."""
    return PART.sub(lambda match: match["head"] + made(path, match, makers) + match["end"], path.read_text())


def made(path: Path, match: re.Match[str], makers: Mapping[str, Maker]) -> str:
    """Return one part, with its links as seen from the file, but for what is pasted (it begins with a fence)."""
    name = match["name"]
    refuse_unknown(name, makers, str(path), f"unknown generated part '{name}'")
    text = makers[name](path, shlex.split(match["words"])).rstrip("\n") + "\n"
    if text.startswith("```"):
        return text
    return LINK.sub(
        lambda link: f"{link['text']}({os.path.relpath(ROOT / link['to'], path.parent)}{link['anchor'] or ''})", text
    )


def makers() -> Mapping[str, Maker]:
    """Return what makes each part, by the name that its markers have."""
    return {
        "calibration": lambda *_: markdown(calibration.page(CalibrationFolder.open(f"{REFERENCE}/calibration").record)),
        "carrying": lambda *_: markdown(carrying.page(carrying.carried(_runs()), _runs())),
        "claims": lambda *_: markdown(ledger.page(judged(), ledger.checks(), linked=True)),
        "counts": lambda *_: f"**{ledger.counts(judged())}**: the [ledger](data/reference/CLAIMS.md) has each of them, with its interval and its run.",
        "disturbances": lambda *_: catalog.readme_disturbances(),
        "example": lambda _path, words: _example(words),
        "floors": lambda *_: _floors(),
        "folder": lambda path, _words: folder(path.parent),
        "found": lambda *_: _found(),
        "known-cost-lengths": lambda *_: markdown(boots.lengths(_runs())),
        "known-costs": lambda *_: _known_costs(),
        "matrix": lambda *_: markdown(matrix.page()),
        "reasons": lambda *_: _reasons(),
        "starts": lambda *_: starts(committed()),
        "studies": lambda *_: catalog.readme_studies(),
        "variants": lambda *_: catalog.readme_table(),
        "verbs": lambda *_: _verbs(),
    }


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells that are Markdown already."""
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (heads, ["---"] * len(heads), *rows))


def _runs() -> Sequence[evidence.Evidence]:
    return evidence.references()[0]


@cache
def judged() -> Sequence[Verdict]:
    """Return every claim with its verdict, which takes seconds the first time."""
    return ledger.ledger()


def floors() -> Mapping[str, int]:
    """Return the floor of each package, 1 at the bottom, as `lab/tests/test_house.py` holds every import to it."""
    text = (LAB / "tests" / "test_house.py").read_text()
    declared = re.search(r"^FLOORS = (\(\n.*?^\))", text, re.DOTALL | re.MULTILINE)
    assert declared
    order: tuple[tuple[str, ...], ...] = ast.literal_eval(declared[1])
    return {name: number for number, names in enumerate(order, start=1) for name in names if (LAB / name).is_dir()}


def _floors() -> str:
    """Return the packages by floor, the highest first."""
    rows: dict[int, list[str]] = {}
    for name, floor in sorted(floors().items(), key=lambda each: (-each[1], each[0])):
        rows.setdefault(floor, []).append(f"[`{name}`](lab/{name}/README.md)")
    return _table(("floor", "packages"), ((str(floor), ", ".join(names)) for floor, names in rows.items()))


def folder(path: Path) -> str:
    """Return what a folder of the code may import, and its folders and modules, each with the first sentence of its docstring."""
    inner = [each.parent for each in sorted(path.glob("*/__init__.py"))]
    modules = [each for each in sorted(path.glob("*.py")) if each.name != "__init__.py"]
    pages = {each: each / "README.md" for each in inner}
    listed = [(f"{each.name}/", page if page.exists() else each, each / "__init__.py") for each, page in pages.items()]
    listed += [(each.name, each, each) for each in modules]
    rows: list[tuple[str, str]] = []
    for name, link, module in listed:
        docstring = ast.get_docstring(ast.parse(module.read_text())) or ""
        sentence, stop, _ = " ".join(docstring.partition("\n\n")[0].split()).partition(". ")
        rows.append((f"[`{name}`]({link.relative_to(ROOT)})", f"{sentence}{stop.strip()}".replace("|", r"\|")))
    table = _table(("here", "what it is"), rows)
    if path == LAB:
        return table
    package, at = path.relative_to(LAB).parts[0], floors()
    refuse_unknown(package, at, str(path), f"{package} is no package of the lab")
    below = sorted((name for name in at if at[name] < at[package]), key=lambda name: (at[name], name))
    may = f"may import {', '.join(f'`{name}`' for name in below)}" if below else "imports nothing of ours"
    return f"Floor {at[package]}: `{package}` {may} ([the floors](lab/README.md#the-floors)).\n\n{table}"


def _found() -> str:
    """Return a row for each of data/reference/findings.toml: its question, the answer and where it was measured, and what to do."""
    rows: list[tuple[str, str, str]] = []
    for found in findings(_runs()):
        others = "".join(
            f"; on {step.target} [{about(step.metric).title} at {step.point} {step.text}](data/reference/{step.folder})"
            for step in found.elsewhere
        )
        kept = f" ({found.kept})" if found.kept else ""
        answer = f"[**{answered(found)[0]}**: {found.measured}](data/reference/{found.asked.run})"
        rows.append((f"**{found.asked.asks}** {found.title}", f"{answer} {found.on}{others}{kept}", found.advice))
    return _table(("question", "measured", "so"), rows)


def starts(known: Sequence[Known]) -> str:
    """Return what one start of each system is off by; not of what was measured only to bound what bring-ups share (no repeat)."""
    rows: list[tuple[str, ...]] = []
    for one in known:
        if one.repeat is not None:
            longest = levels.starts_of(one)
            deviations = (levels.start_sd(one), one.generation, longest.bring_up, one.repeat)
            shown = ("–" if each is None else f"{100 * each:.1f} %" for each in deviations)
            counts = ", ".join(f"{each.bring_ups} × {each.generations}" for each in dict.fromkeys([one, longest]))
            rows.append((f"`{one.variant}` on {one.target}, {one.point}", *shown, counts))
    heads = ("one start of", "is off by", "of it reloads", "and bring-ups", "a repeat", "bring-ups × generations")
    return _table(heads, rows)


def _reasons() -> str:
    """Return every reason with its meaning, in the order in which they apply."""
    again = " Measured again, up to twice."
    rows = ((f"`{reason}`", f"{reason.meaning}{again if reason.environmental else ''}") for reason in Reason)
    return _table(("reason", "meaning"), rows)


def _known_costs() -> str:
    """Return what the committed run of `selfbench effects` shows: its table, and what each variant claims."""
    known, found = effects.read(RunStore.open(str(REFERENCE / effects.SWEEP)))
    claimed = "".join(f"- {effects.line(one)}\n" for one in found)
    return f"{markdown(selfbench.known_costs(known))}\nWhat each claims, and how often in ten blocks:\n\n{claimed}"


def _example(words: Sequence[str]) -> str:
    """Return a verb's answer about a committed run as it is printed; paths are as seen from the checkout's top."""
    given = [str(ROOT / word) if word.startswith("data/") else word for word in words]
    done = subprocess.run([sys.executable, "-m", "lab", *given], cwd=ROOT, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise UsageError(f"just {' '.join(words)}", f"prints nothing: {done.stderr.strip()}", "correct the marker")
    return f"```console\n$ just {' '.join(words)}\n{Text.from_ansi(done.stdout).plain.rstrip()}\n```\n"


def _verbs() -> str:
    """Return every recipe of the justfile, below its group."""
    rows: list[tuple[str, str]] = []
    for recipe in RECIPE.finditer((ROOT / "justfile").read_text()):
        group = (f"**{recipe['group']}**", "")
        rows += [] if group in rows else [group]
        rows.append((f"`{recipe['call']}`", recipe["says"].replace("|", r"\|")))
    return _table(("`just …`", "what it does"), rows)
