"""A calibration as it is measured: its plan, a line for each measurement, and its result."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from lab.analysis.calibration.folder import CalibrationFolder
from lab.analysis.calibration.records import CalibrationRecord, Measured
from lab.analysis.calibration.scenarios import Cell, takes_s
from lab.base.errors import LabError, UsageError
from lab.base.files import StoreError, check_writable, runs_folder
from lab.commands.answers import answer
from lab.commands.measuring import say
from lab.experiments.calibration.measuring import Calibrating
from lab.experiments.calibration.prepared import Ready
from lab.generators import GENERATORS
from lab.model.variants.variants import load_variant, reference_name
from lab.report.json.answers import CALIBRATED
from lab.report.markdown import markdown
from lab.report.tables.calibration import page
from lab.report.terminal import show
from lab.stats.units import format_duration, format_rate, format_seconds
from lab.targets.base import Target


def measure(options: argparse.Namespace, talk: Console, target: Target, ready: Ready) -> int:
    """The plan, all of it measured unless `--plan`, and the result; the exit status."""
    record = ready.record
    _print_plan(talk, record, ready.slots)
    if not ready.slots:
        missing = [each for each in record.generators if not each.installed]
        remedies = "; ".join(f"{each.name}: {each.remedy}" for each in missing)
        raise UsageError("calibrate", "no generator is installed that could be measured", remedies or "name another")
    if options.plan:
        if options.json:
            print(CALIBRATED.dumps(record))
        return 0
    check_writable(runs_folder(), len(ready.slots) * 2_000_000)
    calibration = CalibrationFolder.create(record)
    try:
        _measure_all(talk, target, calibration, ready)
    except (KeyboardInterrupt, LabError) as error:
        interrupted = isinstance(error, KeyboardInterrupt)
        how = "interrupted" if interrupted else "stopped"
        said = f"\n{how}; what was measured is kept:\n  just calibrate --show {record.id}"
        talk.print(said, highlight=False, soft_wrap=True)
        if interrupted:
            return 1
        if isinstance(error, StoreError):  # its own remedy is a run's, which can be resumed
            raise StoreError(error.place, error.fault, "mend it, then measure anew: just calibrate") from None
        raise
    return print_result(options, calibration)


def print_result(options: argparse.Namespace, calibration: CalibrationFolder) -> int:
    """As asked for; the exit status."""
    record = calibration.record
    with answer() as out:
        if options.json:
            print(CALIBRATED.dumps(record))
        elif options.markdown:
            print(markdown(page(record)), end="")
        else:
            show(out, page(record))
            out.print(f"\n[dim]{escape(str(calibration.folder))}[/]", highlight=False, soft_wrap=True)
    return 0 if record.complete else 1


def _print_plan(talk: Console, record: CalibrationRecord, slots: Sequence[tuple[int, Cell]]) -> None:
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
    reference = reference_name()
    if reference is None:
        raise UsageError("manifests/overlays", "none is the direct reference", "annotate one with lab/reference")
    with target.up(load_variant(reference)) as system:
        calibrating = Calibrating(target, system)
        for place, (repeat, cell) in enumerate(ready.slots, start=1):
            taken = calibrating.once(GENERATORS[cell.generator], ready.installed[cell.generator], cell, repeat)
            calibration.add(taken)
            say(talk, f"{place}/{len(ready.slots)}", _line(taken.measured))


def _line(measured: Measured) -> str:
    name = f"{measured.generator} {measured.scenario}"
    noise = f"; disturbed: {', '.join(text.partition(':')[0] for text in measured.noise)}" if measured.noise else ""
    if measured.reported is None:
        return f"{name}: {measured.failure}{noise}"
    p50_s = measured.reported.latency.quantiles_s["p50"]
    return f"{name}: {format_rate(round(measured.reported.achieved_rps, 1))} req/s, p50 {format_seconds(p50_s)}{noise}"
