"""`selfbench`: the lab's own time against doing the same by hand, and two long checks of what it claims."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from lab.base.errors import UsageError, did_you_mean
from lab.base.quantities import number
from lab.commands import Adder
from lab.commands.answers import answer
from lab.commands.measuring import say as say_line
from lab.commands.measuring import settle
from lab.commands.selfbench_checks import check_effects, check_neighbour

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lab.analysis.selfbench import Report
    from lab.experiments.selfbench.bring_up import Start

INSIDE = ("pairs", "bring-up")


def add(adder: Adder) -> None:
    verb = adder("selfbench", _selfbench, "the lab's own time against doing the same by hand")
    verb.add_argument("parts", nargs="*", metavar="PART", help="samples, bring-up, analysis (default: all)")
    verb.add_argument("--duration", type=_seconds, default=10.0, help="of each load, seconds (default: 10)")
    verb.add_argument(
        "--pairs",
        type=number("--pairs", 1, 1000),
        default=6,
        help="lab and by hand, and blocks of the whole run (default: 6)",
    )
    verb.add_argument("--rows", type=_rows, help="to reduce at most, e.g. 1e6 or 1e8 (default: 1e7)")
    verb.add_argument(
        "--context", metavar="NAME", help="of bring-up: a cluster of yours as well, at the kubeconfig's context"
    )
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
        "--into", metavar="FOLDER", help="of the two long checks: where they go on (default: in LAB_RUNS)"
    )
    verb.add_argument("--inside", choices=INSIDE, help=argparse.SUPPRESS)
    verb.add_argument("--sweep", help=argparse.SUPPRESS)


def _selfbench(options: argparse.Namespace, talk: Console) -> int:
    from lab.analysis.selfbench import PARTS

    if unknown := next((part for part in options.parts if part not in PARTS), None):
        raise UsageError("selfbench", f"unknown part '{unknown}'", did_you_mean(unknown, PARTS))
    if options.neighbour is not None and options.effects is not None:
        raise UsageError("selfbench", "--neighbour and --effects are hours each", "ask for one of them")
    long = options.neighbour is not None or options.effects is not None
    if long and (options.parts or options.rows):
        raise UsageError("selfbench", "the long checks have no parts and no rows", "leave them out")
    if options.rows and options.parts and "analysis" not in options.parts:
        raise UsageError("--rows", "only the part `analysis` reduces rows", "leave it out, or name that part")
    if options.context and (long or (options.parts and "bring-up" not in options.parts)):
        raise UsageError("--context", "only the part `bring-up` asks for a cluster", "leave it out, or name that part")
    if options.into and not long:
        raise UsageError("--into", "only --neighbour and --effects go on where they were", "leave it out")
    if options.inside:
        return _inside(options)
    settle()
    if options.neighbour is not None:
        return check_neighbour(options, talk)
    if options.effects is not None:
        return check_effects(options, talk)
    return _parts(options, talk)


# -- the comparisons ------------------------------------------------------------------------------------


def _parts(options: argparse.Namespace, talk: Console) -> int:
    from lab.analysis import selfbench as report
    from lab.base.errors import LabError
    from lab.model import facts
    from lab.model.run import now
    from lab.stats.units import format_duration

    wanted = [part for part in report.PARTS if not options.parts or part in options.parts]
    takes = {part: _takes_s(part, options) for part in wanted}
    for part in wanted:
        say_line(talk, part, f"about {format_duration(takes[part])}")
    say_line(
        talk,
        "together",
        f"about {format_duration(sum(takes.values()))}, on this machine alone; exit 1 if anything is not equal\n",
    )
    if options.plan:
        return 0
    if "analysis" in wanted:
        from lab.experiments.selfbench.reducing import check_room

        check_room(_sizes(options.rows))
    if options.context:
        from lab.targets.cluster.connection import Connection

        Connection(options.context)  # nothing is asked of the server yet
    found = report.Report()
    for part in wanted:
        try:
            found = found.plus(_part(part, options, talk))
        except LabError as error:  # the other parts can still be had
            if isinstance(error, UsageError) and not found.rows:
                raise
            found = found.plus(report.Report(faults=(f"{part}: {error}",)))
    _print(found.model_copy(update={"measured_at": now(), "facts": facts.machine()}), options.json)
    return 0 if found.complete else 1


def _takes_s(part: str, options: argparse.Namespace) -> float:
    """About, seconds; of the analysis as measured on two shared cores."""
    if part == "samples":
        return (options.duration + 1.5) * 2 * (4 * options.pairs + 1) + 10  # a run of so many blocks, and the pairs
    if part == "analysis":
        from lab.experiments.selfbench.reducing import REPEATED_MOST, ROW_S

        return sum(120 if rows <= REPEATED_MOST else rows * ROW_S for rows in _sizes(options.rows))
    return 2.5 * options.pairs


def _part(part: str, options: argparse.Namespace, talk: Console) -> Report:
    def say(text: str) -> None:
        say_line(talk, part, text)

    if part == "samples":
        return _samples(options, say)
    if part == "bring-up":
        return _bring_up(options, say)
    from lab.experiments.selfbench.reducing import reducing

    return reducing(_sizes(options.rows), say, seed=options.seed)


def _samples(options: argparse.Namespace, say: Callable[[str], None]) -> Report:
    from lab.experiments.selfbench import overhead, pairs
    from lab.targets.common.process import scratch

    whole = overhead.whole_run(options.duration, options.pairs)
    say(f"a run of {whole.samples} samples: {whole.wall_s:.1f} s, of which the lab's own {whole.own_s:.1f} s")
    with scratch() as folder:
        sweep = overhead.write_sweep(folder, options.duration)
        own = [f"--sweep={sweep}", f"--pairs={options.pairs}", f"--seed={options.seed}"]
        told = _told("pairs", own, folder, _takes_s("samples", options))
    found = [pairs.Pair.model_validate(one) for one in told]
    return overhead.rows_of(whole, [pair.by_hand.wall_s - pair.planned_s for pair in found]).plus(pairs.rows_of(found))


def _bring_up(options: argparse.Namespace, say: Callable[[str], None]) -> Report:
    """Of every target: one that fails, or is not to be had, takes nothing from the others."""
    from lab.analysis.selfbench import Report
    from lab.base.errors import LabError
    from lab.experiments.selfbench import bring_up, clusters
    from lab.targets import chosen

    starts: list[bring_up.Start] = []
    try:
        starts = _local_starts(options)
        found = bring_up.rows_of("local", starts)
        say("local: measured")
    except LabError as error:
        found = Report(faults=(f"bring-up: local: {error}",))
    by_hand = [start.by_hand_s for start in starts if start.by_hand_s is not None]
    for name, context, why in (
        ("kind", None, clusters.missing()),
        ("remote", options.context, "" if options.context else clusters.NO_CONTEXT),
    ):
        if why:
            found = found.plus(Report(notes=(f"{name}: not measured: {why}",)))
            continue
        try:
            target = chosen(name, context)
            ups = clusters.measure(target, min(3, options.pairs), say)
            found = found.plus(clusters.rows_of(name, ups, by_hand))
            target.close()  # a context may name the same cluster
        except LabError as error:
            found = found.plus(Report(faults=(f"bring-up: {name}: {error}",)))
    return found


def _local_starts(options: argparse.Namespace) -> list[Start]:
    from lab.experiments.selfbench.bring_up import Start
    from lab.targets.common.process import scratch

    with scratch() as folder:
        told = _told("bring-up", [f"--pairs={options.pairs}"], folder, _takes_s("bring-up", options))
    return [Start.model_validate(one) for one in told]


def _told(what: str, arguments: Sequence[str], folder: Path, planned_s: float) -> list[object]:
    """What this verb prints when it is started again for what must be inside the local target's namespaces."""
    import os
    import sys

    from lab.base.errors import MeasuringError
    from lab.experiments.selfbench.process import last_words, patience_s, timed

    argv = [sys.executable, "-m", "lab", "selfbench", f"--inside={what}", *arguments]
    done = timed(argv, {**os.environ, "LAB_RUNS": str(folder / "runs")}, patience_s(planned_s))
    if done.status:
        raise MeasuringError(f"selfbench: {what}", last_words(done))
    told: list[object] = json.loads(done.stdout)
    return told


def _inside(options: argparse.Namespace) -> int:
    from lab.experiments.selfbench import bring_up, overhead, pairs
    from lab.model.variants.variants import load_variant
    from lab.targets import chosen

    target = chosen("local", None)
    own = [f"--inside={options.inside}", f"--pairs={options.pairs}", f"--seed={options.seed}"]
    inside = target.enter(["selfbench", *own, *([f"--sweep={options.sweep}"] if options.sweep else [])])
    if inside is not None:
        return inside
    settle()
    if options.inside == "pairs":
        found = pairs.measure(target, Path(options.sweep), options.pairs, seed=options.seed)
    else:
        target.check()
        variant = load_variant(overhead.VARIANT)
        target.check_variant(variant, [])
        found = bring_up.measure(target, variant, options.pairs)
    print(json.dumps([one.model_dump() for one in found]))
    return 0


# -- arguments and printing -----------------------------------------------------------------------------


def _sizes(most: int | None) -> list[int]:
    """The usual sizes up to the one asked for, and that one."""
    from lab.experiments.selfbench.reducing import ROWS

    return list(ROWS) if most is None else sorted({rows for rows in ROWS if rows < most} | {most})


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 <= value <= 600:
        raise UsageError("--duration", f'expected 1 to 600 seconds, got "{text}"', "10 is the default")
    return value


def _rows(text: str) -> int:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not (1e3 <= value <= 1e9 and value.is_integer()):
        raise UsageError("--rows", f'expected a whole number from 1e3 to 1e9, got "{text}"', "for example 1e6")
    return int(value)


def _print(found: Report, as_json: bool) -> None:
    from lab.report.tables.selfbench import page
    from lab.report.terminal import show

    with answer() as out:
        if as_json:
            print(found.model_dump_json(indent=1))
            return
        show(out, page(found))
