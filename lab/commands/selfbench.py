"""`selfbench`: what the lab itself costs, long checks of what it claims, and what every generator reports of known answers."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from rich.console import Console

from lab.base.errors import UsageError
from lab.base.files import runs_folder
from lab.base.quantities import number
from lab.commands import Adder, answer, calibrate, print_answer, subcommands
from lab.commands.arguments import add_options
from lab.commands.measuring import say, settle

SWEEP = "quick"


def add(adder: Adder) -> None:
    verb = adder(_alone, "what the lab itself costs, and checks of what it claims (default: overhead)")
    check = subcommands(verb, "CHECK", required=False)
    overhead = check("overhead", _overhead, "the lab's own time in a whole run of the baseline")
    overhead.add_argument("--sweep", default=SWEEP, help=f"the loads of the run (default: {SWEEP})")
    effects = check("effects", _effects, "how often effects of known size are found, as pairs and solo; takes hours")
    blocks = number("--blocks", 10, 1000)
    effects.add_argument("--blocks", type=blocks, default=40, help="number of blocks, read in tens (default: 40)")
    effects.add_argument("--into", metavar="FOLDER", help="folder in which the run goes on (default: one in LAB_RUNS)")
    seed = number("--seed", 0, 2**31 - 1)
    effects.add_argument("--seed", type=seed, default=1, help="seed for the randomized order (default: 1)")
    add_options(effects, "--plan")
    order = check("order", _order, "whether the order of points changed a result of any committed run")
    for each in (overhead, order):
        add_options(each, "--plan", "--json")
    calibrate.add_to(check("calibrate", calibrate.calibrate, calibrate.ABOUT))


def _alone(_: argparse.Namespace, talk: Console) -> int:
    return _overhead(argparse.Namespace(sweep=SWEEP, plan=False, json=False), talk)


def _overhead(options: argparse.Namespace, talk: Console) -> int:
    from lab.experiments.selfbench import overhead
    from lab.stats.units import format_duration

    takes = format_duration(overhead.takes_s(options.sweep))
    say(talk, "plan", f"a run of the baseline, sweep {options.sweep}, {overhead.BLOCKS} blocks: about {takes}\n")
    if options.plan:
        return 0
    settle()
    found = overhead.measure_overhead(options.sweep)
    _answer([found.model_dump_json(indent=1)] if options.json else overhead.describe_overhead(found))
    return 0


def _effects(options: argparse.Namespace, talk: Console) -> int:
    from lab.experiments.selfbench import effects
    from lab.report.tables.selfbench import known_costs
    from lab.report.terminal import show

    folder = Path(options.into).absolute() if options.into else runs_folder() / "selfbench-effects"
    if folder.exists() and not folder.is_dir():
        raise UsageError("--into", f"{options.into} is no folder", "name one, or what does not exist yet")
    names, blocks = effects.variants(), options.blocks - options.blocks % effects.TEN
    say(talk, "plan", effects.plan_text(names, blocks, folder))
    say(talk, "goes on", f"just selfbench effects --blocks {blocks} --into {folder}\n")
    if options.plan:
        return 0
    settle()
    run = effects.measure(folder, names, blocks, options.seed)
    known, found = effects.read(run)
    held, text = effects.verdict(known, found)
    with answer() as out:
        show(out, known_costs(known))
    _answer([*map(effects.line, found), f"\n{text}", str(run.folder)])
    return 0 if held else 1


def _order(options: argparse.Namespace, talk: Console) -> int:
    from lab.analysis.order_report import report_of_reference
    from lab.report.tables.selfbench import orders

    say(talk, "plan", "every order test of every committed run, some minutes where verbatim output is read for p99\n")
    if options.plan:
        return 0
    report = report_of_reference()
    print_answer(options, lambda: orders(report), partial(report.model_dump_json, indent=1))
    return 0 if not report.dependent else 1


def _answer(lines: Iterable[str]) -> None:
    with answer() as out:
        for line in lines:
            out.print(line, markup=False, highlight=False, soft_wrap=True)
