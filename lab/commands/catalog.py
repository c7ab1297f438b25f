"""The catalog of variants, knobs (settings), sweeps (loads) and studies, as text for people, as JSON, and as README tables.

The entries are read from the folders of the checkout; there is no separate list.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from lab.base.errors import refuse_if
from lab.commands import print_lines
from lab.model import sweeps
from lab.model.names import OUTPUT_WIDTH
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
LINES_MOST = 60
"""The maximum number of lines of a page without `--all`."""
KNOBS_MOST = 4
"""The maximum number of knobs of which a page without `--all` has more than the titles."""
KINDS = ("variants", "knobs", "sweeps", "studies")
"""The kinds of entries, as one names them in `just list KIND`."""
STARTERS = (
    "ingress-nginx",
    "keepalive",
    "access-log-off",
    "access-log-buffer-8k",
    "use-gzip",
    "backlog",
    "traefik",
    "envoy",
    "haproxy",
    "nginx-ngf",
)
"""The variants and knobs to start with: the noise of the machine, well-known tuning advice, and successors."""
OVERVIEW = (
    "The others:",
    "  just list variants    what can be measured: proxies, and proxies with some settings",
    "  just list knobs       single settings; any knob goes on any variant it fits: just bench VARIANT+KNOB",
    "  just list sweeps      loads, for --sweep",
    "  just list studies     published studies that are measured again here: just study STUDY",
    "  just list WORD…       only what has these words in it, such as: just list keep-alive",
    "  just list … --all     every entry with all its columns",
    "  just show NAME        what a variant changes",
)
"""The end of the page that `just list` prints without words."""
DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}
"""The first character of a line of a diff → the line's colour."""


def as_json(words: Sequence[str] = ()) -> dict[str, Any]:
    """Return the catalog as data for JSON, by kind: "variants", "knobs", "sweeps" and "studies".

    Each entry has everything that its file states. Kubernetes objects are not rendered.

    Args:
        words: Which entries to return: a kind to begin with (optional), and words that an entry must contain.

    """
    kinds, terms = _split_words(words)
    catalog: Mapping[str, Callable[[], list[dict[str, Any]]]] = {
        "variants": lambda: [
            overlay.model_dump(mode="json", exclude={"resources", "below"}) for overlay in _overlays()
        ],
        "knobs": lambda: [knob.model_dump(mode="json") for knob in _knobs()],
        "sweeps": lambda: [{"name": name, **sweep.model_dump(mode="json")} for name, sweep in _sweeps()],
        "studies": lambda: [{"name": key, **file.model_dump(mode="json")} for key, file in _studies()],
    }
    return {kind: [entry for entry in catalog[kind]() if _has_all(str(entry), terms)] for kind in kinds}


def show_json(name: str) -> dict[str, Any]:
    """Return everything about a variant as data for JSON.

    The data include its Kubernetes objects, the diff from its baseline, and the commands that apply it to a user's
    cluster.

    Args:
        name: The name of the variant.

    """
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


def print_list(console: Console, words: Sequence[str] = (), everything: bool = False) -> None:
    """Print the catalog of variants, knobs (single settings), sweeps (lists of loads) and studies.

    Args:
        console: The console.
        words: Which entries to print: a kind in KINDS to begin with (optional), and words that an entry must contain,
            in upper or lower case. Empty = an overview with the numbers of entries, and some to start with.
        everything: Whether to print every entry with all columns, in any number of lines.

    Raises:
        UsageError: No entry contains the words.

    """
    if not words and not everything:
        names = variants.variant_names(), knobs.knob_names(), sweeps.sweep_names(), study_files.list_studies()
        starters = {
            name: knobs.load_knob(name) if name in names[1] else variants.load_overlay(name) for name in STARTERS
        }
        lines = [f"  just bench {name:<22} {entry.title}" for name, entry in starters.items()]
        counts = [f"{len(entries)} {kind}" for kind, entries in zip(KINDS, names, strict=True)]
        head = f"{', '.join(counts[:-1])} and {counts[-1]}. Ten to start with:"
        print_lines(console, [head, "", *map(_shorten, lines), "", *OVERVIEW], LINES_MOST, "just list")
        return
    kinds, terms = _split_words(words)
    tables: Mapping[str, tuple[Sequence[str], Callable[[], list[tuple[str, ...]]]]] = {
        "variants": (
            ("VARIANT", "BASELINE", "KNOBS", "STUDY", "WHAT"),
            lambda: [
                (
                    overlay.name,
                    overlay.baseline or "",
                    "\n".join(overlay.own_knobs),
                    overlay.study or "",
                    overlay.title + (" (the reference of every run)" if overlay.reference else ""),
                )
                for overlay in _overlays()
            ],
        ),
        "knobs": (
            ("KNOB", "SWEEP", "METRIC", "STUDY", "WHAT"),
            lambda: [(knob.name, knob.sweep, knob.primary_metric, knob.study or "", knob.title) for knob in _knobs()],
        ),
        "sweeps": (
            ("SWEEP", "POINTS", "BLOCKS", "QUESTION"),
            lambda: [
                (name, str(len(sweep.load_points)), str(sweep.blocks), sweep.question) for name, sweep in _sweeps()
            ],
        ),
        "studies": (
            ("STUDY", "VARIANTS", "SWEEP", "QUESTION"),
            lambda: [(key, str(len(file.variants)), file.sweep, file.question) for key, file in _studies()],
        ),
    }
    matches = {kind: [row for row in tables[kind][1]() if _has_all(" ".join(row), terms)] for kind in kinds}
    refuse_if(
        not any(matches.values()), "list", f"nothing has '{' '.join(terms)}' in it", "`just list` alone shows all"
    )
    lines = [", ".join(f"{len(rows)} {kind}" for kind, rows in matches.items() if rows)]
    for kind, rows in matches.items():
        if everything and rows:
            _print_table(console, tables[kind][0], rows)
        width = min(40, max((len(row[0]) for row in rows), default=0))
        lines += ["", tables[kind][0][0]] * bool(rows)
        if kind == "variants":
            rows.sort(key=lambda row: row[1] > "")  # systems before what builds on them
        lines += [_shorten(f"  {row[0]:<{width}}  {row[-1]}") for row in rows]
    if not everything:
        print_lines(console, lines, LINES_MOST, " ".join(["just list", *words]))


def _split_words(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Split the words of `just list` into the kinds of entries to list and the words that an entry must contain.

    `["sweeps", "tls"]` gives (["sweeps"], ["tls"]). Without a kind in the first place, all kinds are listed.
    """
    return (words[:1], words[1:]) if words and words[0] in KINDS else (KINDS, words)


def _shorten(line: str) -> str:
    """Return a line, cut between two words if it is longer than OUTPUT_WIDTH characters."""
    return f"{line[: line.rindex(' ', 0, OUTPUT_WIDTH - 1)]} …" if len(line) > OUTPUT_WIDTH else line


def _has_all(text: str, terms: Sequence[str]) -> bool:
    return all(term.lower() in text.lower() for term in terms)


def print_show(console: Console, name: str, everything: bool = False) -> None:
    """Print a variant: its knobs (single settings), its read-backs (checks that they took effect), and its diff.

    The diff is against the baseline.

    Args:
        console: The console.
        name: The name of the variant.
        everything: Whether to print all details, in any number of lines. Otherwise there are at most LINES_MOST lines:
            only the titles if there are many knobs, and no details of stand-in programs.

    """
    variant = variants.load_variant(name)
    own_knobs, text = variant.own_knobs, variants.diff_against_baseline(variant)
    fold = partial(wrap_hanging, console, most=None if everything else OUTPUT_WIDTH)
    brief = not everything and len(own_knobs) > KNOBS_MOST
    lines = _format_facts(
        fold,
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
        facts = (
            ("published", knob.published),
            ("hypothesis", knob.hypothesis),
            ("sweep", knob.sweep),
            ("primary metric", knob.primary_metric),
            ("needs", knob.needs),
        )
        lines += _format_facts(fold, f"\nknob {knob.name}"[brief:], knob.title, *(() if brief else facts))
    if variant.readback:
        lines += [
            "\nchecked in the running system before every sample (read-back)",
            *(fold(f"  {describe_check(check)}", 4) for check in variant.readback),
        ]
    lines += [fold(line, 4) for line in _format_stand_ins(variant) if everything or not line.startswith(" ")]
    if patches := variants.openshift_patches(variant):
        # The shell reads the commands in shorter lines, too.
        lines += ["", openshift.snippet(patches).rstrip().replace(" | ", " |\n    ").replace(" -p '", " \\\n    -p '")]
    objects = (f"  {obj['kind']} {obj['metadata']['name']}" for obj in variant.manifests)
    lines += [""] if text else ["\nobjects", *objects]
    diff = text.splitlines()
    if not everything:
        diff = [
            piece for line in diff for piece in textwrap.wrap(line, OUTPUT_WIDTH, subsequent_indent=" " * 6) or [""]
        ]
    lines += [Text(line, DIFF_STYLES.get(line[:1], "")) for line in diff]
    print_lines(console, lines, None if everything else LINES_MOST, f"just show {name}")


def _format_stand_ins(variant: variants.Variant) -> Iterator[str]:
    """Yield lines about the variant's stand-ins: the programs that run in place of its own ones on some targets.

    A target (a place to run systems) uses a stand-in if it cannot run the original program. The lines also state how
    the stand-in differs from the original.
    """
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


def _format_facts(fold: Callable[..., Text], name: str, title: str, *facts: tuple[str, str | None]) -> list[str | Text]:
    """Return lines that describe a variant or knob (single setting): its title, and each fact that has a value.

    Args:
        fold: A function that returns a paragraph with hanging indentation (`wrap_hanging`).
        name: The name. If it begins with a line break, a blank line comes first.
        title: The title.
        *facts: Pairs of a fact's name and value; None or empty = the fact is left out.

    """
    begins = [""] * name.startswith("\n")
    head = fold(f"{name.strip()}: {title}", 2, name.strip().removeprefix("knob "))
    stated = [(fact, value) for fact, value in facts if value]
    return [*begins, head, *(fold(f"  {fact:<15} {value}", FACTS) for fact, value in stated)]


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
        for key, file in _studies()
    ]
    return render_markdown([make_text_table(("study", "question", "variants", "full", "quick"), rows)])


def readme_sweeps() -> str:
    """Return the README's table of all sweeps (lists of loads), in Markdown."""
    rows = [
        (
            f"`{name}`",
            sweep.title,
            ", ".join(dict.fromkeys(point.generator for point in sweep.load_points)),
            str(sweep.blocks),
        )
        for name, sweep in _sweeps()
    ]
    return render_markdown([make_text_table(("sweep", "loads", "generators", "blocks"), rows)])


def readme_disturbances() -> str:
    """Return the README's table of the sweeps (lists of loads) that have a disruption, in Markdown.

    The durations in it are those of the loads alone, without the starts of the systems.
    """
    rows = [
        (f"`{name}`", sweep.title, sweep.question, f"{sweep.blocks} blocks, {format_duration(_loads_s(sweep))}")
        for name, sweep in _sweeps()
        if any(point.disturbance is not None for point in sweep.load_points)
    ]
    return render_markdown([make_text_table(("sweep", "what is done", "question", "one variant"), rows)])


def _loads_s(sweep: sweeps.Sweep) -> float:
    """Return how long all loads of a sweep take for one variant, in seconds."""
    return ARMS * sweep.blocks * sum(point.warmup_s + point.duration_s for point in sweep.load_points)


def _overlays() -> list[Overlay]:
    """Return all overlays (variants before they are rendered), each baseline before the overlays that build on it."""
    chains = {name: variants.load_chain(name) for name in variants.variant_names()}
    return [chains[name][-1] for name in sorted(chains, key=lambda name: [overlay.name for overlay in chains[name]])]


def _knobs() -> list[Knob]:
    return [knobs.load_knob(name) for name in knobs.knob_names()]


def _sweeps() -> list[tuple[str, sweeps.Sweep]]:
    return [load_sweep(name) for name in sweeps.sweep_names()]


def _studies() -> list[tuple[str, study_files.StudyFile]]:
    return [(key, study_files.read_study(key)) for key in study_files.list_studies()]


def _print_table(console: Console, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table in which only the last column is wrapped to the terminal's width.

    So the names in the other columns stay complete and can be copied, however narrow the terminal is.
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
