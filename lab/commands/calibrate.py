"""`selfbench calibrate`: what every generator reports of a server whose answers are known."""

from __future__ import annotations

import argparse
import secrets
from typing import TYPE_CHECKING

from rich.console import Console

from lab.base.errors import LabError, UsageError, refuse_unknown
from lab.base.files import StoreError, check_writable, runs_folder
from lab.base.quantities import number
from lab.commands import print_answer
from lab.commands.arguments import add_options, recorded
from lab.commands.measuring import inside, say

if TYPE_CHECKING:
    from lab.experiments.calibration.measuring import Ready
    from lab.records.calibration import CalibrationFolder, Measured
    from lab.targets.base import Target

ABOUT = "what every generator reports of a server whose answers are known"
REPEATS, DURATION_S = 3, 12
"""Twelve seconds at 1000 per second leave ten requests beyond p99.9."""
SECONDS_LEAST, SECONDS_MOST = 4, 600
"""`--duration`: the pause of one second must lie well inside; a measurement is no endurance test."""


def add_to(verb: argparse.ArgumentParser) -> None:
    """Add the options."""
    verb.add_argument("--generator", action="append", metavar="NAME", help="only this one; repeatable (default: all)")
    verb.add_argument("--scenario", action="append", metavar="NAME", help="only this one; repeatable (default: all)")
    verb.add_argument("--repeats", type=number("--repeats", 1, 100), help=f"of everything (default: {REPEATS})")
    verb.add_argument(
        "--duration",
        type=number("--duration", SECONDS_LEAST, SECONDS_MOST),
        metavar="SECONDS",
        help=f"of each (default: {DURATION_S}; wrk2 takes 30 at least)",
    )
    verb.add_argument("--show", metavar="CALIBRATION", help="print one again, by name or folder")
    add_options(verb, "--seed", "--plan", "--json", "--markdown")


def calibrate(options: argparse.Namespace, talk: Console) -> int:
    """Measure a calibration, or print one again."""
    from lab.experiments.calibration.measuring import SCENARIOS, prepare
    from lab.generators import GENERATORS, generator
    from lab.records.calibration import CalibrationFolder

    names = [generator(name).name for name in options.generator or ()]
    for name in options.scenario or ():
        refuse_unknown(name, SCENARIOS, "--scenario", f"unknown scenario '{name}'")
    if options.show:
        if options.plan or any(getattr(options, name) for name in ("generator", "scenario", "repeats", "duration")):
            raise UsageError("calibrate", "--show prints what was measured", "leave the other options out")
        return _print(options, CalibrationFolder.open(options.show))

    def here(target: Target) -> int:
        target.check()
        ready = prepare(
            target,
            [name for name in GENERATORS if name in names or not names],
            [name for name in SCENARIOS if name in (options.scenario or SCENARIOS)],
            float(options.duration or DURATION_S),
            options.repeats or REPEATS,
            secrets.randbelow(2**31) if options.seed is None else options.seed,
            ("lab", "selfbench", "calibrate", *recorded(options)[2:]),
        )
        return measure(options, talk, target, ready)

    return inside(options, None, here)


def measure(options: argparse.Namespace, talk: Console, target: Target, ready: Ready) -> int:
    """Print the plan, measure all of it unless `--plan`, and print the result; the exit status."""
    from lab.records.calibration import CalibrationFolder

    record = ready.record
    _print_plan(talk, ready)
    if not ready.slots:
        remedies = "; ".join(f"{each.name}: {each.remedy}" for each in record.generators if not each.installed)
        raise UsageError("calibrate", "no generator is installed that could be measured", remedies or "name another")
    if options.plan:
        if options.json:
            print(record.model_dump_json(indent=1))
        return 0
    check_writable(runs_folder(), len(ready.slots) * 2_000_000)
    calibration = CalibrationFolder.create(record)
    try:
        _measure_all(talk, target, calibration, ready)
    except (KeyboardInterrupt, LabError) as error:
        how = "interrupted" if isinstance(error, KeyboardInterrupt) else "stopped"
        said = f"\n{how}; what was measured is kept:\n  just selfbench calibrate --show {record.id}"
        talk.print(said, highlight=False, soft_wrap=True)
        if isinstance(error, KeyboardInterrupt):
            return 1
        if isinstance(error, StoreError):  # its own remedy is a run's, which can be resumed
            remedy = "mend it, then measure anew: just selfbench calibrate"
            raise StoreError(error.place, error.fault, remedy) from None
        raise
    return _print(options, calibration)


def _print(options: argparse.Namespace, calibration: CalibrationFolder) -> int:
    """Print a calibration as asked for; the exit status."""
    from lab.report.tables.calibration import page

    record = calibration.record
    print_answer(options, lambda: page(record), lambda: record.model_dump_json(indent=1), ["", str(calibration.folder)])
    return 0 if record.complete else 1


def _print_plan(talk: Console, ready: Ready) -> None:
    from lab.experiments.calibration.measuring import takes_s
    from lab.stats.units import format_duration

    record = ready.record
    cpus = f"server on CPU {record.facts['cpus_backend']}, generators on CPU {record.facts['cpus_generator']}"
    say(talk, "run", record.id)
    say(talk, "target", f"local: {cpus}")
    for name, does in record.scenarios.items():
        say(talk, "scenario", f"{name}: the server {does}")
    for each in record.generators:
        if not each.installed:
            say(talk, "left out", f"{each.name}: not installed: {each.remedy}")
            continue
        mine = [cell for repeat, cell in ready.slots if repeat == 1 and cell.generator == each.name]
        longest = max((cell.load.duration_s for cell in mine), default=0.0)
        longer = f", up to {longest:g} s each since it calibrates first" if longest > record.duration_s else ""
        say(talk, "generator", f"{each.name} {each.version or ''}: {len(mine)} scenarios{longer}")
        for scenario, why in each.refusals.items():
            say(talk, "left out", f"{each.name}, {scenario}: {why}")
    say(talk, "plan", f"{len(ready.slots)} measurements, {record.repeats} of each, seed {record.seed}")
    say(talk, "duration", f"about {format_duration(takes_s(ready.slots))}\n")


def _measure_all(talk: Console, target: Target, calibration: CalibrationFolder, ready: Ready) -> None:
    from lab.experiments.calibration.measuring import measure_once
    from lab.generators import GENERATORS
    from lab.model.variants.variants import load_variant, reference_name

    reference = reference_name()
    if reference is None:
        raise UsageError("manifests/overlays", "none is the direct reference", "annotate one with lab/reference")
    with target.up(load_variant(reference)) as system:
        for place, (repeat, cell) in enumerate(ready.slots, start=1):
            taken = measure_once(system, GENERATORS[cell.generator], ready.installed[cell.generator], cell, repeat)
            calibration.add(*taken)
            say(talk, f"{place}/{len(ready.slots)}", _line(taken[0]))


def _line(measured: Measured) -> str:
    from lab.stats.units import format_rate, format_seconds

    name = f"{measured.generator} {measured.scenario}"
    noise = f"; disturbed: {', '.join(text.partition(':')[0] for text in measured.noise)}" if measured.noise else ""
    if measured.reported is None:
        return f"{name}: {measured.failure}{noise}"
    p50_s = measured.reported.latency.quantiles_s["p50"]
    return f"{name}: {format_rate(round(measured.reported.achieved_rps, 1))} req/s, p50 {format_seconds(p50_s)}{noise}"
