"""`table`: a run's or an ablation's result again, or what the processes of a run's samples used, as pidstat shows it."""

from __future__ import annotations

import argparse

from rich.console import Console

from lab.base.errors import UsageError
from lab.commands import Adder
from lab.commands.ablate import print_ablation
from lab.commands.arguments import arm_name
from lab.commands.knee import print_knee
from lab.commands.measuring import print_result
from lab.commands.usage import print_usage


def add(adder: Adder) -> None:
    verb = adder(_table, "print a run's table again, or an ablation's")
    verb.add_argument(
        "run", metavar="RUN", help="by its name in data/runs, or its folder (data/reference/…: the committed ones)"
    )
    verb.add_argument("--from-raw", action="store_true", help="recompute every number from the verbatim output")
    verb.add_argument("--notes", action="store_true", help="with all notes, and what the systems hold")
    verb.add_argument(
        "--usage",
        action="store_true",
        help="instead: CPU, memory and page faults of each process and thread, as pidstat shows them",
    )
    verb.add_argument(
        "--arm",
        type=arm_name,
        metavar="ARM",
        help="with --usage: of one variant only (ingress-nginx-again for its second measurement)",
    )
    verb.add_argument(
        "--point", metavar="POINT", help="with --usage: at one load only; together with --arm every second is shown"
    )
    verb.add_argument("--json", action="store_true", help="print it as JSON")
    verb.add_argument("--markdown", action="store_true", help="print it as Markdown")


def _table(options: argparse.Namespace, talk: Console) -> int:
    from lab.experiments.ablation.folder import AblationStore, is_ablation
    from lab.records.store import Reparsed, RunStore

    for name in ("from_raw", "notes", "markdown") if options.usage else ("arm", "point"):
        if getattr(options, name):
            beside = "beside" if options.usage else "without"
            raise UsageError(f"--{name.replace('_', '-')}", f"says nothing {beside} --usage", "leave it out")
    if options.usage:
        return print_usage(options)
    if is_ablation(options.run):
        if options.from_raw:
            raise UsageError("table", "--from-raw is for runs, and this is an ablation", "name one of its runs")
        return print_ablation(options, AblationStore.open(options.run))
    run = RunStore.open(options.run)
    shown = Reparsed.of(run) if options.from_raw else run
    return print_knee(options, shown) if run.record.knee is not None else print_result(options, shown)
