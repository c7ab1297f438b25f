"""`selfbench`: what the lab itself costs, checks of what it claims, and what every generator reports of known answers."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from functools import partial

from rich.console import Console

from lab.commands import Adder, answer, calibrate, print_answer, subcommands
from lab.commands.arguments import add_options
from lab.commands.measuring import say, settle

SWEEP = "quick"


def add(adder: Adder) -> None:
    verb = adder(_overhead, "what the lab itself costs, and checks of what it claims (default: overhead)")
    verb.set_defaults(sweep=SWEEP, plan=False)
    check = subcommands(verb, "CHECK", required=False)
    overhead = check("overhead", _overhead, "the lab's own time in a whole run of the baseline")
    overhead.add_argument("--sweep", default=SWEEP, help=f"the loads of the run (default: {SWEEP})")
    add_options(overhead, "--plan")
    effects = check("effects", _effects, "how often a run found effects of known size, as pairs and solo")
    effects.add_argument("run", metavar="RUN", help="of the sweep known-costs, as data/reference/known-costs is")
    order = check("order", _order, "whether the order of points changed a result of any committed run")
    add_options(order, "--json")
    calibrate.add_to(check("calibrate", calibrate.calibrate, calibrate.ABOUT))


def _overhead(options: argparse.Namespace, talk: Console) -> int:
    from lab.experiments.selfbench import overhead
    from lab.stats.units import format_duration

    takes = format_duration(overhead.takes_s(options.sweep))
    say(talk, "plan", f"a run of the baseline, sweep {options.sweep}, {overhead.BLOCKS} blocks: about {takes}\n")
    if options.plan:
        return 0
    settle()
    _answer(overhead.measure_overhead(options.sweep))
    return 0


def _effects(options: argparse.Namespace, _: Console) -> int:
    from lab.experiments.selfbench import effects
    from lab.records.store import RunStore
    from lab.report.tables.selfbench import known_costs
    from lab.report.terminal import show

    known, found = effects.read(RunStore.open(options.run))
    wrong = effects.verdict(known)
    with answer() as out:
        show(out, known_costs(known))
    _answer([*map(effects.line, found), *([f"\n{wrong}"] if wrong else [])])
    return 1 if wrong else 0


def _order(options: argparse.Namespace, talk: Console) -> int:
    from lab.analysis.order_report import report_of_reference
    from lab.report.tables.selfbench import orders

    say(talk, "plan", "every order test of every committed run, some minutes where verbatim output is read for p99\n")
    report = report_of_reference()
    print_answer(options, lambda: orders(report), partial(report.model_dump_json, indent=1))
    return 0 if not report.dependent else 1


def _answer(lines: Iterable[str]) -> None:
    with answer() as out:
        for line in lines:
            out.print(line, markup=False, highlight=False, soft_wrap=True)
