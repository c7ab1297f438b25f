"""The catalog of variants, knobs, sweeps and studies: tables for people, data for programs, tables for the README.

Everything comes from the folders; there is no separate list.
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
from lab.report.grid import make_text_table
from lab.report.markdown import render_markdown
from lab.report.terminal import wrap_hanging
from lab.stats.units import format_duration
from lab.studies import study_files
from lab.systems import stand_ins
from lab.systems.table import describe_check

ARMS = 3
"""The number of arms of one variant: itself, its baseline, and the baseline again."""

LAST_COLUMN_WIDTH = 30
FACTS = 18
"""The number of characters before the value of a fact."""
LONGEST_VALUE = 30
"""The maximum number of characters of a setting's value that people see; programs get the full value."""


def as_json(terms: Sequence[str] = ()) -> dict[str, Any]:
    """Return the catalog with everything in the files of its entries; nothing is rendered.

    Args:
        terms: The words that an entry must contain, as in `print_list`.

    """
    catalog = {
        "variants": [overlay.model_dump(mode="json", exclude={"resources", "below"}) for overlay in _overlays()],
        "knobs": [knob.model_dump(mode="json") for knob in _knobs()],
        "sweeps": [{"name": name, **sweep.model_dump(mode="json")} for name, sweep in _sweeps()],
        "studies": [{"name": study.key, **study.file.model_dump(mode="json")} for study in _studies()],
    }
    return {kind: [entry for entry in entries if _has_all(str(entry), terms)] for kind, entries in catalog.items()}


def show_json(name: str) -> dict[str, Any]:
    """Return a variant with its objects, its diff from the baseline, and the text that applies it elsewhere."""
    variant = variants.load_variant(name)
    return {
        **variant.model_dump(mode="json"),
        "sweep": variant.sweep,
        "primary_metric": variant.primary_metric,
        "diff": variants.diff_against_baseline(variant),
        "apply": variants.config_snippet(variant),
        "openshift": openshift.commands(variants.openshift_patches(variant)),
        "stand_ins": [stand_in.model_dump(mode="json") for stand_in in stand_ins.find_stand_ins(variant.manifests)],
    }


def print_list(console: Console, terms: Sequence[str] = ()) -> None:
    """Print the variants, the knobs that can be put on them, the sweeps and the studies.

    Args:
        console: The console.
        terms: The words that an entry must contain, all of them and in any case; empty for all entries.

    Raises:
        UsageError: No entry contains them.

    """
    overlays, knobs, sweeps, studies = _overlays(), _knobs(), _sweeps(), _studies()
    titles = (
        f"{overlay.title} (the reference of every run)" if overlay.reference else overlay.title for overlay in overlays
    )
    tables = {
        ("VARIANT", "BASELINE", "KNOBS", "STUDY", "WHAT"): [
            (overlay.name, overlay.baseline or "", "\n".join(overlay.own_knobs), overlay.study or "", title)
            for overlay, title in zip(overlays, titles, strict=True)
        ],
        ("KNOB", "SWEEP", "METRIC", "STUDY", "WHAT"): [
            (knob.name, knob.sweep, knob.primary_metric, knob.study or "", knob.title) for knob in knobs
        ],
        ("SWEEP", "POINTS", "BLOCKS", "QUESTION"): [
            (name, str(len(sweep.expanded())), str(sweep.blocks), sweep.question) for name, sweep in sweeps
        ],
        ("STUDY", "VARIANTS", "SWEEP", "QUESTION"): [
            (study.key, str(len(study.file.variants)), study.file.sweep, study.file.question) for study in studies
        ],
    }
    matches = {heads: [row for row in rows if _has_all(" ".join(row), terms)] for heads, rows in tables.items()}
    if not any(matches.values()):
        raise UsageError("list", f"nothing has '{' '.join(terms)}' in it", "`just list` alone shows all")
    for heads, rows in matches.items():
        if rows:
            _print_table(console, heads, rows)
    knob = knobs[0].name if knobs else "KNOB"
    tips = [f"Any knob goes on any variant it fits: just bench VARIANT+{knob}"]
    tips += [f"By itself it stands on the root of its system: just bench {knob}"]
    tips += [] if terms else ["Only what has some words in it: just list keep-alive"]
    console.print(*tips, sep="\n", highlight=False, soft_wrap=True)


def _has_all(text: str, terms: Sequence[str]) -> bool:
    return all(term.lower() in text.lower() for term in terms)


def print_show(console: Console, name: str) -> None:
    """Print a variant: its knobs with their hypotheses, its read-backs, and its diff from the baseline."""
    variant = variants.load_variant(name)
    own_knobs, text = variant.own_knobs, variants.diff_against_baseline(variant)
    lines = _format_facts(
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
        ("inherits", ", ".join(knob.name for knob in variant.knobs if knob.name not in own_knobs)),
    )
    for knob in sorted(
        (knob for knob in variant.knobs if knob.name in own_knobs), key=lambda knob: own_knobs.index(knob.name)
    ):
        lines += _format_facts(
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
            *(wrap_hanging(console, f"  {describe_check(check)}", 4) for check in variant.readback),
        ]
    lines += [wrap_hanging(console, line, 4) for line in _format_stand_ins(variant)]
    if patches := variants.openshift_patches(variant):
        lines += ["", *openshift.snippet(patches).splitlines()]
    if text:
        lines.append("")
    else:
        objects = (f"  {obj['kind']} {obj['metadata']['name']}" for obj in variant.manifests)
        lines += ["\nobjects", *objects]
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    # In color for people, unchanged for a pipe.
    if text and console.is_terminal:
        console.print(Syntax(text.rstrip("\n"), "diff", theme="ansi_dark", background_color="default"))
    elif text:
        console.out(text, end="", highlight=False)


def _format_stand_ins(variant: variants.Variant) -> Iterator[str]:
    """Yield which programs replace those of the variant, target by target, and how they differ from them."""
    for stand_in in stand_ins.find_stand_ins(variant.manifests):
        if variant.only_on and not set(stand_in.targets) & set(variant.only_on):
            continue
        yield ""
        yield f"runs on {stand_in.on}: {stand_in.describe({})}"
        for setting in stand_in.setting:
            given = setting.value_in(variant.manifests)
            value = setting.named if given is None else given
            new, default = (
                text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…" for text in (value, setting.stand_in)
            )
            yield f"  set and read back  {setting.name}={new} (its own default: {default}): {setting.changes}"
        for difference in stand_in.unequal:
            yield f"  cannot be equal    {difference.what}; {difference.why}"


def _format_facts(console: Console, name: str, title: str, *facts: tuple[str, str | None]) -> list[str | Text]:
    """Return the title of a variant or knob, and a line for each fact that has a value."""
    begins = [""] * name.startswith("\n")
    head = wrap_hanging(console, f"{name.strip()}: {title}", 2, name.strip().removeprefix("knob "))
    stated = [(fact, value) for fact, value in facts if value]
    return [*begins, head, *(wrap_hanging(console, f"  {fact:<15} {value}", FACTS) for fact, value in stated)]


def readme_table() -> str:
    """Return the README's table of variants, in Markdown."""
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
    return render_markdown([make_text_table(("variant", "baseline", "knobs", "study", "what"), rows)])


def readme_studies() -> str:
    """Return the README's table of studies, in Markdown."""
    rows = [
        (f"`{key}`", file.question, str(len(file.variants)), f"`{file.sweep}`", f"`{file.quick.sweep}`")
        for key, file in ((study.key, study.file) for study in _studies())
    ]
    return render_markdown([make_text_table(("study", "question", "variants", "full", "quick"), rows)])


def readme_disturbances() -> str:
    """Return the README's table of sweeps with disruptions, in Markdown; durations are those of the loads alone."""
    rows: list[tuple[str, ...]] = []
    for name, sweep in _sweeps():
        points = sweep.expanded()
        if any(point.disturbance is not None for point in points):
            lasts_s = ARMS * sweep.blocks * sum(point.warmup_s + point.duration_s for point in points)
            lasts = f"{sweep.blocks} blocks, {format_duration(lasts_s)}"
            rows.append((f"`{name}`", sweep.title, sweep.question, lasts))
    return render_markdown([make_text_table(("sweep", "what is done", "question", "one variant"), rows)])


def _overlays() -> list[Overlay]:
    """Return every overlay, a baseline before the overlays that build on it."""
    chains = {name: variants.load_chain(name) for name in variants.variant_names()}
    return [chains[name][-1] for name in sorted(chains, key=lambda name: [overlay.name for overlay in chains[name]])]


def _knobs() -> list[Knob]:
    return [knobs.load_knob(name) for name in knobs.knob_names()]


def _sweeps() -> list[tuple[str, sweeps.Sweep]]:
    return [load_sweep(name) for name in sweeps.sweep_names()]


def _studies() -> list[study_files.Study]:
    return [study_files.read_study(key) for key in study_files.list_studies()]


def _print_table(console: Console, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table of which only the last column breaks.

    Names stay complete and can be copied, however narrow the terminal is.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    width = LAST_COLUMN_WIDTH
    for index, head in enumerate(heads[:-1]):
        items = [item for row in rows for item in row[index].split("\n")]
        table.add_column(head, no_wrap=True, justify="right" if all(item.isdigit() for item in items) else "left")
        width += max(len(item) for item in [head, *items]) + 2
    table.add_column(heads[-1])
    for row in rows:
        table.add_row(*map(escape, row))
    table.width = max(console.width, width)
    console.print(table, crop=False)
    console.print()
