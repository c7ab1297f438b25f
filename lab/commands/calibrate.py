"""`calibrate`: what every generator reports of a server whose answers are known."""

from __future__ import annotations

import argparse
import secrets

from rich.console import Console

from lab.base.errors import UsageError, refuse_unknown
from lab.base.quantities import number
from lab.commands import Adder
from lab.commands.arguments import recorded
from lab.commands.measuring import settle

REPEATS, DURATION_S = 3, 12
"""Twelve seconds at 1000 per second leave ten requests beyond p99.9."""
SECONDS_LEAST, SECONDS_MOST = 4, 600
"""`--duration`: the pause of one second must lie well inside; a measurement is no endurance test."""


def add(adder: Adder) -> None:
    verb = adder(_calibrate, "what every generator reports of a server whose answers are known")
    verb.add_argument("--generator", action="append", metavar="NAME", help="only this one; repeatable (default: all)")
    verb.add_argument("--scenario", action="append", metavar="NAME", help="only this one; repeatable (default: all)")
    verb.add_argument("--repeats", type=number("--repeats", 1, 100), help=f"of everything (default: {REPEATS})")
    verb.add_argument(
        "--duration",
        type=number("--duration", SECONDS_LEAST, SECONDS_MOST),
        metavar="SECONDS",
        help=f"of each (default: {DURATION_S}; wrk2 takes 30 at least)",
    )
    verb.add_argument("--seed", type=number("--seed", 0, 2**31 - 1), help="of the shuffled order")
    verb.add_argument("--plan", action="store_true", help="print the plan and stop; with --json, as JSON")
    verb.add_argument("--show", metavar="CALIBRATION", help="print one again, by name or folder")
    verb.add_argument("--json", action="store_true", help="print the result as JSON")
    verb.add_argument("--markdown", action="store_true", help="print the result as Markdown")


def _calibrate(options: argparse.Namespace, talk: Console) -> int:
    from lab.analysis.calibration.folder import CalibrationFolder
    from lab.commands import calibrating
    from lab.experiments.calibration.prepared import prepare
    from lab.targets import chosen

    names, scenarios = _asked(options)
    if options.show:
        if options.plan or any(getattr(options, name) for name in ("generator", "scenario", "repeats", "duration")):
            raise UsageError("calibrate", "--show prints what was measured", "leave the other options out")
        return calibrating.print_result(options, CalibrationFolder.open(options.show))
    target = chosen("local", None)
    inside = target.enter(options.argv)
    if inside is not None:
        return inside
    settle()
    target.check()
    duration_s, repeats = float(options.duration or DURATION_S), options.repeats or REPEATS
    seed = secrets.randbelow(2**31) if options.seed is None else options.seed
    ready = prepare(target, names, scenarios, duration_s, repeats, seed, recorded(options))
    return calibrating.measure(options, talk, target, ready)


def _asked(options: argparse.Namespace) -> tuple[list[str], list[str]]:
    """(generators, scenarios) in their own order. UsageError for an unknown one."""
    from lab.analysis.calibration.scenarios import SCENARIOS
    from lab.generators import GENERATORS, generator

    names = [generator(name).name for name in options.generator or ()]
    known = [each.name for each in SCENARIOS]
    for name in options.scenario or ():
        refuse_unknown(name, known, "--scenario", f"unknown scenario '{name}'")
    return (
        [name for name in GENERATORS if name in names or not names],
        [name for name in known if not options.scenario or name in options.scenario],
    )
