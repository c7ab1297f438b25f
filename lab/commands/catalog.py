"""The catalogue: which variants, knobs, sweeps and studies there are, as tables for people, data for programs, a table for the README.

Refuses to hold a list of its own: everything comes from the folders.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from lab.base.errors import UsageError
from lab.model import sweeps
from lab.model.variants import knobs, openshift, variants
from lab.model.variants.knobs import Knob
from lab.model.variants.variants import Overlay
from lab.records.sweep_files import load_sweep
from lab.report.grid import texts
from lab.report.markdown import markdown
from lab.report.terminal import hung
from lab.stats.units import format_duration
from lab.studies import study_files
from lab.systems import stand_ins
from lab.systems.table import speak

ARMS = 3
"""A variant, its baseline, and that again."""

LAST_COLUMN_WIDTH = 30
FACTS = 18
"""Characters before a fact's value."""
LONGEST_VALUE = 30
"""Characters of a setting's value that a person is shown; programs get all of it."""


def as_json(words: Sequence[str] = ()) -> dict[str, Any]:
    """Variants, knobs, sweeps and studies with all that their files say; nothing is rendered. `words`: as `print_list`."""
    found = {
        "variants": [overlay.model_dump(mode="json", exclude={"resources", "below"}) for overlay in _overlays()],
        "knobs": [knob.model_dump(mode="json") for knob in _knobs()],
        "sweeps": [{"name": name, **sweep.model_dump(mode="json")} for name, sweep in _sweeps()],
        "studies": [{"name": study.key, **study.file.model_dump(mode="json")} for study in _studies()],
    }
    return {kind: [each for each in listed if _has(str(each), words)] for kind, listed in found.items()}


def show_json(name: str) -> dict[str, Any]:
    """One variant with its objects, its diff from the baseline and what applies it elsewhere."""
    variant = variants.load_variant(name)
    return {
        **variant.model_dump(mode="json"),
        "sweep": variant.sweep,
        "primary_metric": variant.primary_metric,
        "diff": variants.diff(variant),
        "apply": variants.config_snippet(variant),
        "openshift": openshift.commands(variants.openshift_patches(variant)),
        "stand_ins": [each.model_dump(mode="json") for each in stand_ins.stand_ins_of(variant.manifests)],
    }


def print_list(console: Console, words: Sequence[str] = ()) -> None:
    """Variants, then the knobs that can be put on them, then the sweeps and the studies; only those with all of these words.

    UsageError where nothing has them.
    """
    overlays, knobs, sweeps, studies = _overlays(), _knobs(), _sweeps(), _studies()
    titles = (f"{each.title} (the reference of every run)" if each.reference else each.title for each in overlays)
    tables = {
        ("VARIANT", "BASELINE", "KNOBS", "STUDY", "WHAT"): [
            (each.name, each.baseline or "", "\n".join(each.own_knobs), each.study or "", title)
            for each, title in zip(overlays, titles, strict=True)
        ],
        ("KNOB", "SWEEP", "METRIC", "STUDY", "WHAT"): [
            (knob.name, knob.sweep, knob.primary_metric, knob.study or "", knob.title) for knob in knobs
        ],
        ("SWEEP", "POINTS", "BLOCKS", "QUESTION"): [
            (name, str(len(sweep.expanded())), str(sweep.blocks), sweep.question) for name, sweep in sweeps
        ],
        ("STUDY", "VARIANTS", "SWEEP", "QUESTION"): [
            (each.key, str(len(each.file.variants)), each.file.sweep, each.file.question) for each in studies
        ],
    }
    shown = {heads: [row for row in rows if _has(" ".join(row), words)] for heads, rows in tables.items()}
    if not any(shown.values()):
        raise UsageError("list", f"nothing has '{' '.join(words)}' in it", "`just list` alone shows all")
    for heads, rows in shown.items():
        if rows:
            _print_table(console, heads, rows)
    knob = knobs[0].name if knobs else "KNOB"
    tips = [f"Any knob goes on any variant it fits: just bench VARIANT+{knob}"]
    tips += [f"By itself it stands on the root of its system: just bench {knob}"]
    tips += [] if words else ["Only what has some words in it: just list keep-alive"]
    console.print(*tips, sep="\n", highlight=False, soft_wrap=True)


def _has(text: str, words: Sequence[str]) -> bool:
    return all(word.lower() in text.lower() for word in words)


def print_show(console: Console, name: str) -> None:
    """One variant: what it is, its knobs and what they claim, how it is read back, and its diff from the baseline."""
    variant = variants.load_variant(name)
    own, text = variant.own_knobs, variants.diff(variant)
    lines = _facts(
        console,
        variant.name,
        variant.title,
        ("baseline", variant.baseline or "none, it is a root"),
        ("study", variant.study),
        (
            "reference",
            "measured in the first, the middle and the last block of every run" if variant.reference else None,
        ),
        ("to measure by", variant.only_to_measure_by or None),
        ("inherits", ", ".join(knob.name for knob in variant.knobs if knob.name not in own)),
    )
    for knob in sorted((knob for knob in variant.knobs if knob.name in own), key=lambda knob: own.index(knob.name)):
        lines += _facts(
            console,
            f"\nknob {knob.name}",
            knob.title,
            ("published", knob.published),
            ("hypothesis", knob.hypothesis),
            ("sweep", knob.sweep),
            ("primary metric", knob.primary_metric),
            ("needs", knob.needs),
        )
    if variant.readback:
        lines += [
            "\nread back before every sample counts",
            *(hung(console, f"  {speak(each)}", 4) for each in variant.readback),
        ]
    lines += [hung(console, line, 4) for line in _stand_in_lines(variant)]
    if patches := variants.openshift_patches(variant):
        lines += ["", *openshift.snippet(patches).splitlines()]
    if text:
        lines.append("")
    else:
        objects = (f"  {each['kind']} {each['metadata']['name']}" for each in variant.manifests)
        lines += ["\nobjects", *objects]
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    # Colours for a person; the diff as it is for a pipe.
    if text and console.is_terminal:
        console.print(Syntax(text.rstrip("\n"), "diff", theme="ansi_dark", background_color="default"))
    elif text:
        console.out(text, end="", highlight=False)


def _stand_in_lines(variant: variants.Variant) -> Iterator[str]:
    """Yield what runs in the place of the variant's programs, target by target, and how it differs from them."""
    for each in stand_ins.stand_ins_of(variant.manifests):
        if variant.only_on and not set(each.targets) & set(variant.only_on):
            continue
        yield ""
        where = f", where its image is not to be had: {each.ran}" if each.shown_by else f": {each.ran}"
        yield f"runs on {each.on} in the place of {each.named}{where}"
        for setting in each.setting:
            given = setting.value_in(variant.manifests)
            value = setting.named if given is None else given
            said, own = (
                text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…" for text in (value, setting.stand_in)
            )
            yield f"  set and read back  {setting.name}={said} (its own default: {own}): {setting.changes}"
        for difference in each.unequal:
            yield f"  cannot be equal    {difference.what}; {difference.why}"


def _facts(console: Console, name: str, title: str, *facts: tuple[str, str | None]) -> list[str | Text]:
    """What it is, and a line for each fact that is known."""
    begins = [""] * name.startswith("\n")
    head = hung(console, f"{name.strip()}: {title}", 2, name.strip().removeprefix("knob "))
    known = [(fact, value) for fact, value in facts if value]
    return [*begins, head, *(hung(console, f"  {fact:<15} {value}", FACTS) for fact, value in known)]


def readme_table() -> str:
    """The README's table of variants, in Markdown."""
    rows = [
        (
            f"`{overlay.name}`",
            f"`{overlay.baseline}`" if overlay.baseline else "",
            ", ".join(f"`{knob}`" for knob in overlay.own_knobs),
            overlay.study or "",
            overlay.title,
        )
        for overlay in _overlays()
    ]
    return markdown([texts(("variant", "baseline", "knobs", "study", "what"), rows)])


def readme_studies() -> str:
    """The README's table of studies, in Markdown."""
    rows = [
        (f"`{key}`", file.question, str(len(file.variants)), f"`{file.sweep}`", f"`{file.quick.sweep}`")
        for key, file in ((study.key, study.file) for study in _studies())
    ]
    return markdown([texts(("study", "question", "variants", "full", "quick"), rows)])


def readme_disturbances() -> str:
    """The README's table of sweeps in which something is done to the system, in Markdown; how long is the load's own time."""
    rows: list[tuple[str, ...]] = []
    for name, sweep in _sweeps():
        points = sweep.expanded()
        if any(point.disturbance is not None for point in points):
            lasts_s = ARMS * sweep.blocks * sum(point.warmup_s + point.duration_s for point in points)
            lasts = f"{sweep.blocks} blocks, {format_duration(lasts_s)}"
            rows.append((f"`{name}`", sweep.title, sweep.question, lasts))
    return markdown([texts(("sweep", "what is done", "question", "one variant"), rows)])


def _overlays() -> list[Overlay]:
    """Every overlay, a baseline before what stands on it."""
    found = {name: variants.chain(name) for name in variants.variant_names()}
    return [found[name][-1] for name in sorted(found, key=lambda name: [overlay.name for overlay in found[name]])]


def _knobs() -> list[Knob]:
    return [knobs.load_knob(name) for name in knobs.knob_names()]


def _sweeps() -> list[tuple[str, sweeps.Sweep]]:
    return [load_sweep(name) for name in sweeps.sweep_names()]


def _studies() -> list[study_files.Study]:
    return [study_files.read_study(key) for key in study_files.study_keys()]


def _print_table(console: Console, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns of words. Only the last one breaks, so that names stay whole and can be copied, however narrow the terminal."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    width = LAST_COLUMN_WIDTH
    for index, head in enumerate(heads[:-1]):
        words = [word for row in rows for word in row[index].split("\n")]
        table.add_column(head, no_wrap=True, justify="right" if all(word.isdigit() for word in words) else "left")
        width += max(len(word) for word in [head, *words]) + 2
    table.add_column(heads[-1])
    for row in rows:
        table.add_row(*map(escape, row))
    table.width = max(console.width, width)
    console.print(table, crop=False)
    console.print()
