"""`report`: one HTML file of the committed runs (overview, ledger, studies, methods, runs), or of one run of yours."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from lab.base.errors import UsageError
from lab.base.files import runs_folder
from lab.commands import Adder

OUTPUT = Path(__file__).resolve().parents[2] / ".cache" / "report"
"""Of the checkout, and git-ignored."""


def add(adder: Adder) -> None:
    verb = adder(_report, "one self-contained HTML file of the committed runs; a notebook's cell that raises is exit 1")
    verb.add_argument(
        "--output", metavar="FOLDER", help="where it goes (default: .cache/report; of a run of yours: its own folder)"
    )
    verb.add_argument(
        "--run", metavar="RUN", action="append", default=[], help="the page of this run alone, report.html; repeatable"
    )


def _report(options: argparse.Namespace, talk: Console) -> int:
    if options.run:
        return _of_runs(options)

    from lab.report.html import site

    def say(text: str) -> None:
        talk.print(text, style="dim", highlight=False, soft_wrap=True)

    found = site.build(Path(options.output or OUTPUT), say=say)
    gaps = ", ".join(f"{name} {count}" for name, count in found.gaps.items())
    print(found.path)
    print(f"{found.counts}; {found.figures} figures, {sum(found.gaps.values())} gaps{f': {gaps}' if gaps else ''}")
    return 0


def _of_runs(options: argparse.Namespace) -> int:
    """A page each; what is committed stays as it is, and has its page where the report is."""
    from lab.records.store import RunStore
    from lab.report.html.run import write
    from lab.report.result import Result

    runs: list[RunStore] = []
    for name in dict.fromkeys(options.run):
        try:
            runs.append(RunStore.open(name))
        except UsageError as error:
            raise UsageError("--run", f"{name}: {error.fault}", error.remedy) from None
    for run in runs:
        own = run.folder.parent == runs_folder()
        folder = Path(options.output) if options.output else run.folder if own else OUTPUT
        several = (not own and not options.output) or (len(runs) > 1 and options.output)
        print(write(Result(run), folder / run.folder.name if several else folder))
    return 0
