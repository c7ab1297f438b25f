"""What is to be measured on another boot, a row each with its commands; and what the length of a sample makes of a known cost."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import stdev

from rich.text import Text

from lab.analysis.evidence import Evidence, further_boots
from lab.analysis.explain.run import difference_text
from lab.report.grid import Notes, Part, plain, texts
from lab.stats.boots import format_boots
from lab.stats.units import format_percent, format_size
from lab.studies.boots import BootWanted, deciding_effect

COLUMNS = ("for", "rests on", "minutes", "measure, then add the run")


LENGTHS, SHORT, LONG = "known-cost-lengths", "ceiling-2s", "ceiling-4s"
"""The sweep, which is also the reference's name, and its points."""
LENGTHS_ARM = "ingress-nginx+extra-work-80"


def lengths(runs: Sequence[Evidence]) -> list[Part]:
    """Return the known cost in samples of 2 s and 4 s, a row for each boot, with how far lengths and boots differ; or how to measure it."""
    run = next((each for each in runs if each.name == LENGTHS), None)
    if run is None:
        command = f"just bench {LENGTHS_ARM} --sweep {LENGTHS} && just maintain pack RUN --into {LENGTHS}"
        return [plain(f"Not measured yet. On each boot: `{command}`.")]
    boots = [run, *(each for each in further_boots(run) if isinstance(each, Evidence))]
    rows: list[tuple[str, ...]] = []
    changes: list[float] = []
    shorts: list[float] = []
    for number, each in enumerate(boots, start=1):
        short, long = (deciding_effect(each, LENGTHS_ARM, point) for point in (SHORT, LONG))
        if not (short and short.estimate and long and long.estimate):
            rows.append((f"{number}", "no valid block", "", ""))
            continue
        change = long.estimate.effect - short.estimate.effect
        changes.append(change)
        shorts.append(short.estimate.effect)
        facts = each.run.record.facts
        rows.append(
            (
                f"{number}: {facts['cpu']}, {each.run.record.created_at[:10]}",
                difference_text(short),
                difference_text(long),
                format_percent(change),
            )
        )
    heads = ("boot", "2 s", "4 s", "4 s against 2 s")
    said = (
        f"Of {format_boots(len(changes))}. The length of the sample makes {format_percent(sum(changes) / len(changes))} on average"
        if changes
        else "No boot has both"
    )
    if len(shorts) > 1:
        said += f"; from boot to boot the cost in 2 s differs by {format_size(stdev(shorts))} (SD of the ratio)"
    return [texts(heads, rows), plain(f"{said}.")]


def page(wanted: Sequence[BootWanted]) -> list[Part]:
    """Return the table of what to measure once the machine has booted anew, with its length in all."""
    rows = [
        (
            f"{one.kind}: {one.why}",
            f"{format_boots(len(one.boots))} of {one.reference}",
            f"{one.minutes:.0f}",
            f"{one.bench} && {one.pack}",
        )
        for one in wanted
    ]
    said = {kind: sum(one.minutes for one in wanted if one.kind == kind) for kind in ("finding", "claim")}
    lasts = ", ".join(f"{kind}s about {length:.0f} minutes" for kind, length in said.items() if length)
    return [
        texts(COLUMNS, rows),
        Notes((Text(f"On each further boot: {lasts or 'nothing'}. RUN is the run's name that bench prints."),)),
    ]
