"""What is to be measured on another boot, as people read it: a row each, with its commands."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from lab.analysis.boots import BootWanted
from lab.report.grid import Notes, Part, texts
from lab.stats.boots import format_boots

COLUMNS = ("for", "rests on", "minutes", "measure, then add the run")


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
