"""The catalogue: which variants, knobs, sweeps and studies there are, as tables for people, data for programs, a table for the README.

Refuses to hold a list of its own: everything comes from the folders.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.syntax import Syntax
from rich.table import Table

from lab.analysis.claims import studies
from lab.model import sweeps
from lab.model.variants import knobs, openshift, variants
from lab.model.variants.knobs import Check, Knob
from lab.model.variants.variants import Overlay
from lab.records.sweep_files import load_sweep
from lab.stats.units import format_duration

ARMS = 3
"""A variant, its baseline, and that again."""

LAST_COLUMN_WIDTH = 30


def as_json() -> dict[str, Any]:
    """Variants, knobs, sweeps and studies with all that their files say; nothing is rendered."""
    return {
        "variants": [overlay.model_dump(mode="json", exclude={"resources"}) for overlay in _overlays()],
        "knobs": [knob.model_dump(mode="json") for knob in _knobs()],
        "sweeps": [{"name": name, **sweep.model_dump(mode="json")} for name, sweep in _sweeps()],
        "studies": [{"name": study.key, **study.file.model_dump(mode="json")} for study in _studies()],
    }


def show_json(name: str) -> dict[str, Any]:
    """One variant with its objects, its diff from the baseline and what applies it elsewhere."""
    variant = variants.load_variant(name)
    told = {"sweep": variant.sweep, "primary_metric": variant.primary_metric}
    return {
        **variant.model_dump(mode="json"),
        **told,
        "diff": variants.diff(variant),
        "apply": variants.config_snippet(variant),
        "openshift": openshift.commands(variants.openshift_patches(variant)),
    }


def print_list(console: Console) -> None:
    """Variants, then the knobs that can be put on them, then the sweeps and the studies."""
    knobs = _knobs()
    variant_rows: list[tuple[str, ...]] = []
    for overlay in _overlays():
        what = f"{overlay.title} (the reference of every run)" if overlay.reference else overlay.title
        own = "\n".join(overlay.own_knobs)
        variant_rows.append((overlay.name, overlay.baseline or "", own, overlay.study or "", what))
    _print_table(console, ("VARIANT", "BASELINE", "KNOBS", "STUDY", "WHAT"), variant_rows)
    knob_rows = [(knob.name, knob.sweep, knob.primary_metric, knob.study or "", knob.title) for knob in knobs]
    _print_table(console, ("KNOB", "SWEEP", "METRIC", "STUDY", "WHAT"), knob_rows)
    sweep_rows = [(name, str(len(sweep.expanded())), str(sweep.blocks), sweep.question) for name, sweep in _sweeps()]
    _print_table(console, ("SWEEP", "POINTS", "BLOCKS", "QUESTION"), sweep_rows)
    study_rows = [(each.key, str(len(each.file.variants)), each.file.sweep, each.file.question) for each in _studies()]
    _print_table(console, ("STUDY", "VARIANTS", "SWEEP", "QUESTION"), study_rows)
    example = f"just bench baseline+{knobs[0].name if knobs else '<knob>'}"
    console.print(f"Any knob goes on any variant it fits: {example}", highlight=False, soft_wrap=True)


def print_show(console: Console, name: str) -> None:
    """One variant: what it is, its knobs and what they claim, how it is read back, and its diff from the baseline."""
    variant = variants.load_variant(name)
    knobs = {knob.name: knob for knob in variant.knobs}

    def line(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True)

    line(f"[bold]{escape(variant.name)}[/]: {escape(variant.title)}")
    for key, value in (
        ("baseline", variant.baseline or "none, it is a root"),
        ("study", variant.study),
        ("reference", "measured once in every run" if variant.reference else None),
        ("inherits", ", ".join(knob for knob in knobs if knob not in variant.own_knobs)),
    ):
        if value:
            line(f"  {key:<15} {escape(value)}")
    for knob in (knobs[own] for own in variant.own_knobs):
        line(f"\nknob [bold]{escape(knob.name)}[/]: {escape(knob.title)}")
        for key, value in (
            ("published", knob.published),
            ("hypothesis", knob.hypothesis),
            ("sweep", knob.sweep),
            ("primary metric", knob.primary_metric),
            ("needs", knob.needs),
        ):
            if value:
                line(f"  {key:<15} {escape(value)}")
    if variant.readback:
        line("\nread back before every sample counts")
        for check in variant.readback:
            line(f"  {escape(_spoken(check))}")
    if patches := variants.openshift_patches(variant):
        line("")
        for command in openshift.snippet(patches).splitlines():
            line(escape(command))
    if text := variants.diff(variant):
        line("")
        # Colours for a person; the diff as it is for a pipe.
        if console.is_terminal:
            console.print(Syntax(text.rstrip("\n"), "diff", theme="ansi_dark", background_color="default"))
        else:
            console.out(text, end="", highlight=False)
    else:
        line("\nobjects")
        for obj in variant.manifests:
            line(f"  {obj['kind']} {obj['metadata']['name']}")


def readme_table() -> str:
    """The README's table of variants, in Markdown."""
    rows = [("variant", "baseline", "knobs", "study", "what"), ("---",) * 5]
    for overlay in _overlays():
        baseline = f"`{overlay.baseline}`" if overlay.baseline else ""
        knobs = ", ".join(f"`{knob}`" for knob in overlay.own_knobs)
        rows.append((f"`{overlay.name}`", baseline, knobs, overlay.study or "", overlay.title.replace("|", r"\|")))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def readme_studies() -> str:
    """The README's table of studies, in Markdown."""
    rows = [("study", "question", "variants", "full", "quick"), ("---",) * 5]
    for study in _studies():
        file = study.file
        rows.append(
            (f"`{study.key}`", file.question, str(len(file.variants)), f"`{file.sweep}`", f"`{file.quick.sweep}`")
        )
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def readme_disturbances() -> str:
    """The README's table of sweeps in which something is done to the system, in Markdown; how long is the load's own time."""
    rows = [("sweep", "what is done", "question", "one variant"), ("---",) * 4]
    for name in sweeps.sweep_names():
        _, sweep = load_sweep(name)
        points = sweep.expanded()
        if all(point.disturbance is None for point in points):
            continue
        lasts_s = ARMS * sweep.blocks * sum(point.warmup_s + point.duration_s for point in points)
        rows.append((f"`{name}`", sweep.title, sweep.question, f"{sweep.blocks} blocks, {format_duration(lasts_s)}"))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _spoken(check: Check) -> str:
    """One check as a sentence's worth of words."""
    what = {
        "nginx": f"nginx -T: {check.name}" + (f" in {check.context}" if check.context else ""),
        "sysctl": f"sysctl {check.name} in the pod",
        "backlog": f"accept queue of the socket on port {check.port}",
        "limit": f"{check.name} of every process '{check.process}'",
        "processes": f"number of processes '{check.process}'",
        "affinity": f"CPUs of every process '{check.process}'",
        "environment": f"{check.name} in the container's environment",
        "quota": f"{check.name} limit of the container's cgroup",
        "ports": "local ports of outgoing connections",
        "node": f"the node's {check.name}",
        "rps": "CPUs that receive packet steering spreads to",
        "haproxy": f"show info: {check.name}",
        "pod": f"the running pod's {check.name}",
        "pods": "ready pods",
        "routes": "routes that answer",
        "termination": "where TLS ends",
        "disk": f"how {check.name} is written",
    }[check.kind]
    return f"{check.role}: {what} = {check.value}"


def _overlays() -> list[Overlay]:
    """Every overlay, a baseline before what stands on it."""
    found = {name: variants.chain(name) for name in variants.variant_names()}
    return [found[name][-1] for name in sorted(found, key=lambda name: [overlay.name for overlay in found[name]])]


def _knobs() -> list[Knob]:
    return [knobs.load_knob(name) for name in knobs.knob_names()]


def _sweeps() -> list[tuple[str, sweeps.Sweep]]:
    return [load_sweep(name) for name in sweeps.sweep_names()]


def _studies() -> list[studies.Study]:
    return [studies.read_study(key) for key in studies.study_keys()]


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
