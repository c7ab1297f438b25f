"""`calibrate`: what every generator reports of a server whose answers are known."""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from lab.base.errors import LabError, UsageError, did_you_mean
from lab.base.files import runs_folder
from lab.base.quantities import number
from lab.commands import Adder
from lab.commands.answers import answer
from lab.commands.arguments import recorded
from lab.commands.measuring import say, settle

if TYPE_CHECKING:
    from lab.analysis.calibration.folder import CalibrationFolder
    from lab.analysis.calibration.records import CalibrationRecord, Measured
    from lab.analysis.calibration.scenarios import Cell
    from lab.experiments.calibration.prepared import Ready
    from lab.targets.base import Target

REPEATS, DURATION_S = 3, 12
"""Twelve seconds at 1000 per second leave ten requests beyond p99.9."""
SECONDS_LEAST, SECONDS_MOST = 4, 600
"""`--duration`: the pause of one second must lie well inside; a measurement is no endurance test."""


def add(adder: Adder) -> None:
    verb = adder("calibrate", _calibrate, "what every generator reports of a server whose answers are known")
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
    verb.add_argument("--plan", action="store_true", help="print the plan and stop")
    verb.add_argument("--show", metavar="CALIBRATION", help="print one again, by name or folder")
    verb.add_argument("--json", action="store_true", help="print the result as JSON")
    verb.add_argument("--markdown", action="store_true", help="print the result as Markdown")


def _calibrate(options: argparse.Namespace, talk: Console) -> int:
    from lab.analysis.calibration.folder import CalibrationFolder
    from lab.targets import chosen

    names, scenarios = _asked(options)
    if options.show:
        if options.plan or any(getattr(options, name) for name in ("generator", "scenario", "repeats", "duration")):
            raise UsageError("calibrate", "--show prints what was measured", "leave the other options out")
        return _print(options, CalibrationFolder.open(options.show))
    target = chosen("local", None)
    inside = target.enter(options.argv)
    if inside is not None:
        return inside
    settle()
    return _measure(options, talk, target, names, scenarios, recorded(options))


def _asked(options: argparse.Namespace) -> tuple[list[str], list[str]]:
    """(generators, scenarios) in their own order. UsageError for an unknown one."""
    from lab.analysis.calibration.scenarios import SCENARIOS
    from lab.generators import generator, generators

    names = [generator(name).name for name in options.generator or ()]
    known = [each.name for each in SCENARIOS]
    for name in options.scenario or ():
        if name not in known:
            raise UsageError("--scenario", f"unknown scenario '{name}'", did_you_mean(name, known))
    return (
        [name for name in generators() if name in names or not names],
        [name for name in known if not options.scenario or name in options.scenario],
    )


def _measure(
    options: argparse.Namespace,
    talk: Console,
    target: Target,
    names: Sequence[str],
    scenarios: Sequence[str],
    command: Sequence[str],
) -> int:
    from lab.analysis.calibration import folder
    from lab.base.files import StoreError, check_writable
    from lab.experiments.calibration.prepared import prepare

    target.check()
    duration_s, repeats = float(options.duration or DURATION_S), options.repeats or REPEATS
    seed = options.seed if options.seed is not None else secrets.randbelow(2**31)
    ready = prepare(target, names, scenarios, duration_s, repeats, seed, command)
    _print_plan(talk, ready.record, ready.slots)
    if not ready.slots:
        missing = [each for each in ready.record.generators if not each.installed]
        remedies = "; ".join(f"{each.name}: {each.remedy}" for each in missing)
        raise UsageError("calibrate", "no generator is installed that could be measured", remedies or "name another")
    if options.plan:
        return 0
    check_writable(runs_folder(), len(ready.slots) * 2_000_000)
    calibration = folder.CalibrationFolder.create(ready.record)
    try:
        _measure_all(talk, target, calibration, ready)
    except (KeyboardInterrupt, LabError) as error:
        interrupted = isinstance(error, KeyboardInterrupt)
        how = "interrupted" if interrupted else "stopped"
        said = f"\n{how}; what was measured is kept:\n  just calibrate --show {ready.record.id}"
        talk.print(said, highlight=False, soft_wrap=True)
        if interrupted:
            return 1
        if isinstance(error, StoreError):  # its own remedy is a run's, which can be resumed
            raise StoreError(error.place, error.fault, "mend it, then measure anew: just calibrate") from None
        raise
    return _print(options, calibration)


def _print_plan(talk: Console, record: CalibrationRecord, slots: Sequence[tuple[int, Cell]]) -> None:
    from lab.analysis.calibration.scenarios import takes_s
    from lab.stats.units import format_duration

    say(talk, "run", record.id)
    say(
        talk,
        "target",
        f"local: server on CPU {record.facts['cpus_backend']}, generators on CPU {record.facts['cpus_generator']}",
    )
    for name, does in record.scenarios.items():
        say(talk, "scenario", f"{name}: the server {does}")
    for each in record.generators:
        if not each.installed:
            say(talk, "left out", f"{each.name}: not installed: {each.remedy}")
            continue
        mine = [cell for repeat, cell in slots if repeat == 1 and cell.generator == each.name]
        longest = max((cell.load.duration_s for cell in mine), default=0.0)
        longer = f", up to {longest:g} s each since it calibrates first" if longest > record.duration_s else ""
        say(talk, "generator", f"{each.name} {each.version or ''}: {len(mine)} scenarios{longer}")
        for scenario, why in each.refusals.items():
            say(talk, "left out", f"{each.name}, {scenario}: {why}")
    say(talk, "plan", f"{len(slots)} measurements, {record.repeats} of each, seed {record.seed}")
    say(talk, "duration", f"about {format_duration(takes_s(slots))}\n")


def _measure_all(talk: Console, target: Target, calibration: CalibrationFolder, ready: Ready) -> None:
    from lab.experiments.calibration.measuring import Calibrating
    from lab.generators import generators
    from lab.model.variants.variants import load_variant, reference_name

    reference = reference_name()
    if reference is None:
        raise UsageError("manifests/overlays", "none is the direct reference", "annotate one with lab/reference")
    with target.up(load_variant(reference)) as system:
        calibrating = Calibrating(target, system)
        for place, (repeat, cell) in enumerate(ready.slots, start=1):
            taken = calibrating.once(generators()[cell.generator], ready.installed[cell.generator], cell, repeat)
            calibration.add(taken)
            say(talk, f"{place}/{len(ready.slots)}", _line(taken.measured))


def _line(measured: Measured) -> str:
    from lab.stats.units import format_rate, format_seconds

    name = f"{measured.generator} {measured.scenario}"
    noise = f"; disturbed: {', '.join(text.partition(':')[0] for text in measured.noise)}" if measured.noise else ""
    if measured.reported is None:
        return f"{name}: {measured.failure}{noise}"
    p50_s = measured.reported.latency.quantiles_s["p50"]
    return f"{name}: {format_rate(round(measured.reported.achieved_rps, 1))} req/s, p50 {format_seconds(p50_s)}{noise}"


def _print(options: argparse.Namespace, calibration: CalibrationFolder) -> int:
    from lab.report.json import calibration as calibration_json
    from lab.report.markdown import markdown
    from lab.report.tables.calibration import page
    from lab.report.terminal import show

    record = calibration.record
    with answer() as out:
        if options.json:
            print(calibration_json.printed(record).dumps())
        elif options.markdown:
            print(markdown(page(record)), end="")
        else:
            show(out, page(record))
            out.print(f"\n[dim]{escape(str(calibration.folder))}[/]", highlight=False, soft_wrap=True)
    return 0 if record.complete else 1
