"""`table`: a run's or an ablation's result again."""

from __future__ import annotations

import argparse

from rich.console import Console

from lab.base.errors import UsageError
from lab.commands import Adder
from lab.commands.ablate import print_ablation
from lab.commands.knee import print_knee
from lab.commands.measuring import print_result


def add(adder: Adder) -> None:
    verb = adder("table", _table, "print a run's table again, or an ablation's")
    verb.add_argument(
        "run", metavar="RUN", help="by its name in data/runs, or its folder (data/reference/…: the committed ones)"
    )
    verb.add_argument("--from-raw", action="store_true", help="recompute every number from the verbatim output")
    verb.add_argument("--notes", action="store_true", help="with all notes, and what the systems hold")
    verb.add_argument("--json", action="store_true", help="print it as JSON")
    verb.add_argument("--markdown", action="store_true", help="print it as Markdown")


def _table(options: argparse.Namespace, talk: Console) -> int:
    from lab.experiments.ablation.folder import AblationStore, is_ablation
    from lab.records.reparse import from_raw
    from lab.records.store import RunStore

    if is_ablation(options.run):
        if options.from_raw:
            raise UsageError("table", "--from-raw is for runs, and this is an ablation", "name one of its runs")
        return print_ablation(options, AblationStore.open(options.run))
    run = RunStore.open(options.run)
    shown = from_raw(run) if options.from_raw else run
    return print_knee(options, shown) if run.record.knee is not None else print_result(options, shown)
