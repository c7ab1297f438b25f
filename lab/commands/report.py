"""`report`: one HTML file of the committed runs: overview, ledger, studies, methods, runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from lab.base.errors import UsageError
from lab.commands import Adder

OUTPUT = Path(__file__).resolve().parents[2] / ".cache" / "report"
"""Of the checkout, and git-ignored."""


def add(adder: Adder) -> None:
    verb = adder(
        "report", _report, "one self-contained HTML file of the committed runs; a notebook's cell that raises is exit 1"
    )
    verb.add_argument(
        "--output", metavar="FOLDER", default=str(OUTPUT), help="where index.html goes (default: .cache/report)"
    )
    verb.add_argument(
        "--run", metavar="RUN", action="append", default=[], help="a run of yours to show beside them; repeatable"
    )


def _report(options: argparse.Namespace, talk: Console) -> int:
    for place, named in (("--output", [options.output]), ("--run", options.run)):
        if "" in named:
            raise UsageError(place, "is empty", "name one, or leave it out")

    from lab.report.html import site

    def say(text: str) -> None:
        talk.print(text, style="dim", highlight=False, soft_wrap=True)

    found = site.build(Path(options.output), options.run, say)
    gaps = ", ".join(f"{name} {count}" for name, count in found.gaps.items())
    print(found.path)
    print(f"{found.counts}; {found.figures} figures, {sum(found.gaps.values())} gaps{f': {gaps}' if gaps else ''}")
    return 0
