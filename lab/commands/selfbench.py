"""`selfbench`: what the lab itself costs, and two long checks of what it claims."""

from __future__ import annotations

import argparse

from rich.console import Console

from lab.base.errors import LabError, UsageError, did_you_mean
from lab.base.quantities import number
from lab.commands import Adder
from lab.commands.answers import answer
from lab.commands.arguments import TARGET, variant_name
from lab.commands.measuring import say, settle
from lab.commands.selfbench_checks import check_effects, check_neighbour, check_order, check_pairs, check_quick


def add(adder: Adder) -> None:
    verb = adder(_selfbench, "what the lab itself costs: its share of a run's time, and of a log's reading")
    verb.add_argument(
        "parts",
        nargs="*",
        metavar="PART",
        help="analysis, overhead (default: both); or, alone and for long, pairs or quick (runs of `bench` one after the other); or,"
        " alone, order (test over all committed runs whether the order of points changed a result)",
    )
    verb.add_argument(
        "--rounds",
        type=number("--rounds", 1, 1000),
        default=8,
        help="of pairs: fresh bring-ups of each; of quick: runs of each (default: 8)",
    )
    verb.add_argument(
        "--variant",
        action="append",
        type=variant_name,
        metavar="VARIANT",
        help="of pairs and quick, any number of times (default: the baseline against itself; keepalive)",
    )
    verb.add_argument("--target", help=f"of quick: {TARGET}")
    verb.add_argument(
        "--duration",
        type=number("--duration", 1, 600),
        default=10,
        metavar="SECONDS",
        help="of overhead: of each load (default: 10)",
    )
    verb.add_argument("--rows", type=_rows, help="of analysis: to reduce, e.g. 1e6 (default: 1e7)")
    verb.add_argument("--seed", type=number("--seed", 0, 2**31 - 1), default=1, help="of every order drawn by lot")
    verb.add_argument("--plan", action="store_true", help="print the plan and stop")
    verb.add_argument("--json", action="store_true", help="print the result as JSON")
    verb.add_argument(
        "--neighbour",
        metavar="RUNS",
        nargs="?",
        const=20,
        type=number("--neighbour", 1, 1000),
        help="instead: so many A/A runs, a core busy during random halves of each (default: 20)",
    )
    verb.add_argument(
        "--effects",
        metavar="BLOCKS",
        nargs="?",
        const=40,
        type=number("--effects", 10, 1000),
        help="instead: effects of known size, so many blocks in tens; how many tens claim them (default: 40)",
    )
    verb.add_argument(
        "--into", metavar="FOLDER", help="of pairs and the long checks: where they go on (default: in LAB_RUNS)"
    )


def _selfbench(options: argparse.Namespace, talk: Console) -> int:
    from lab.analysis.selfbench import PARTS

    if options.plan and options.json:
        raise UsageError("selfbench --plan", "a plan is text, there is no JSON of it", "leave --json or --plan out")
    if options.target is not None and options.parts != ["quick"]:
        raise UsageError("--target", "only runs of `quick` are made elsewhere than on local", "leave it out")
    alone = {"pairs": check_pairs, "quick": check_quick, "order": check_order}
    if len(options.parts) == 1 and options.parts[0] in alone:
        if options.neighbour is not None or options.effects is not None or options.rows:
            raise UsageError(
                f"selfbench {options.parts[0]}", "it is measured alone", "leave the other parts' options out"
            )
        return alone[options.parts[0]](options, talk)
    if mixed := next((part for part in options.parts if part in alone), None):
        raise UsageError(f"selfbench {mixed}", "it is measured alone", "leave the other parts out")
    if unknown := next((part for part in options.parts if part not in PARTS), None):
        raise UsageError("selfbench", f"unknown part '{unknown}'", did_you_mean(unknown, [*PARTS, *alone]))
    if options.neighbour is not None and options.effects is not None:
        raise UsageError("selfbench", "--neighbour and --effects are hours each", "ask for one of them")
    long = options.neighbour is not None or options.effects is not None
    if long and (options.parts or options.rows):
        raise UsageError("selfbench", "the long checks have no parts and no rows", "leave them out")
    if options.rows and options.parts and "analysis" not in options.parts:
        raise UsageError("--rows", "only the part `analysis` reduces rows", "leave it out, or name that part")
    if options.into and not long:
        raise UsageError("--into", "only --neighbour and --effects go on where they were", "leave it out")
    settle()
    if options.neighbour is not None:
        return check_neighbour(options, talk)
    if options.effects is not None:
        return check_effects(options, talk)
    return _parts(options, talk, [part for part in PARTS if not options.parts or part in options.parts])


def _parts(options: argparse.Namespace, talk: Console, wanted: list[str]) -> int:
    from lab.analysis.selfbench import Report
    from lab.experiments.selfbench import overhead, reducing
    from lab.model import facts
    from lab.model.run import now
    from lab.report.tables.selfbench import page
    from lab.report.terminal import show
    from lab.stats.units import format_duration

    rows = options.rows or reducing.ROWS
    takes = {"analysis": rows * reducing.TAKES_S, "overhead": overhead.takes_s(options.duration)}
    for part in wanted:
        say(talk, part, f"about {format_duration(takes[part])}")
    together = format_duration(sum(takes[part] for part in wanted))
    say(talk, "together", f"about {together}, on this machine alone; exit 1 if anything is not equal\n")
    if options.plan:
        return 0
    reading, whole, faults = None, None, list[str]()
    for part in wanted:
        try:
            if part == "analysis":
                reading = reducing.reducing(rows, lambda text: say(talk, "analysis", text), options.seed)
            else:
                whole = overhead.whole_run(options.duration)
        except LabError as error:  # the other part can still be had
            if isinstance(error, UsageError) and reading is None:
                raise
            faults.append(f"{part}: {error}")
    found = Report(measured_at=now(), facts=facts.machine(), analysis=reading, overhead=whole, faults=tuple(faults))
    with answer() as out:
        if options.json:
            print(found.model_dump_json(indent=1))
        else:
            show(out, page(found))
    return 1 if faults else 0


def _rows(text: str) -> int:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not (1e3 <= value <= 1e9 and value.is_integer()):
        raise UsageError("--rows", f'expected a whole number from 1e3 to 1e9, got "{text}"', "for example 1e6")
    return int(value)
