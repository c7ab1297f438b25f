"""The verb `selfbench`: how much time the lab itself costs, checks of its results, and the calibration of load generators."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Console

from lab.base.errors import LabError, UsageError, refuse_unknown
from lab.base.files import StoreError, check_writable, runs_folder
from lab.base.quantities import whole_number_in
from lab.commands import SWEEPS_HELP, Options, Verb, answer, command_for_record, print_answer
from lab.commands.measuring import end_on_sigterm, enter_target, print_plan_line, print_plan_lines
from lab.stats.units import format_duration, format_rate, format_seconds

if TYPE_CHECKING:
    from lab.experiments.calibration.measuring import PlannedCalibration
    from lab.records.calibration import CalibrationFolder, Measured
    from lab.targets.base import Target

SWEEP = "quick"
REPEATS, DURATION_S = 3, 12
"""The repeats of a calibration and the seconds of each measurement.

Twelve seconds at 1000 requests per second leave ten requests beyond p99.9.
"""
SECONDS_LEAST, SECONDS_MOST = 4, 600
"""The limits of `--duration` in seconds.

A measurement must be clearly longer than the server's pause of one second. A calibration is no endurance test.
"""


def _run_overhead(options: Options, talk: Console) -> None:
    from lab.experiments.selfbench import overhead

    takes = format_duration(overhead.estimate_s(options.sweep))
    print_plan_line(
        talk, "plan", f"a run of the baseline, sweep {options.sweep}, {overhead.BLOCKS} blocks: about {takes}\n"
    )
    if not options.plan:
        end_on_sigterm()
        _print_lines(overhead.measure_overhead(options.sweep))


def _run_effects(options: Options, _: Console) -> int:
    from lab.experiments.selfbench import effects
    from lab.records.store import RunStore
    from lab.report.tables.selfbench import known_costs_page
    from lab.report.terminal import print_parts

    costs, injected = effects.read_effects(RunStore.open(options.run))
    fault = effects.find_faults(costs)
    with answer() as out:
        print_parts(out, known_costs_page(costs))
    _print_lines([*map(effects.format_injected, injected), *([f"\n{fault}"] if fault else [])])
    return 1 if fault else 0


def _run_order(options: Options, talk: Console) -> int:
    from lab.analysis.order_report import report_order_tests
    from lab.report.tables.selfbench import order_page

    print_plan_line(
        talk, "plan", "every order test of every committed run, some minutes where verbatim output is read for p99\n"
    )
    report = report_order_tests()
    print_answer(options, lambda: order_page(report), partial(report.model_dump_json, indent=1))
    return 0 if not report.dependent else 1


def _print_lines(lines: Iterable[str]) -> None:
    with answer() as out:
        for line in lines:
            out.print(line, markup=False, highlight=False, soft_wrap=True)


def _run_calibrate(options: Options, talk: Console) -> int:
    """Measure load generators against a server with known answers (a calibration), and print the result.

    With `--show` a stored calibration is printed instead.

    Returns:
        The exit status: 0 if the calibration is complete or only planned, else 1.

    """
    from lab.experiments.calibration.measuring import SCENARIOS, prepare
    from lab.generators import GENERATORS, get_generator
    from lab.records.calibration import CalibrationFolder

    names = [get_generator(name).name for name in options.generator or ()]
    if own := next((name for name in names if GENERATORS[name].own_backend), None):
        remedy = "`just bench direct --sweep streams-known`, `websocket-known` or `grpc` measures it without a proxy"
        raise UsageError(
            "--generator", f"{own} speaks to its own backend, not to the server with known answers", remedy
        )
    for name in options.scenario or ():
        refuse_unknown(name, SCENARIOS, "--scenario", f"unknown scenario '{name}'")
    if options.show:
        if options.plan or any(getattr(options, name) for name in ("generator", "scenario", "repeats", "duration")):
            raise UsageError("calibrate", "--show prints what was measured", "leave the other options out")
        return _print_calibration(options, CalibrationFolder.open(options.show))

    target = enter_target(options, None)
    target.check()
    ready = prepare(
        target,
        [name for name in GENERATORS if name in names or not (names or GENERATORS[name].own_backend)],
        [name for name in SCENARIOS if name in (options.scenario or SCENARIOS)],
        float(options.duration or DURATION_S),
        options.repeats or REPEATS,
        secrets.randbelow(2**31) if options.seed is None else options.seed,
        ("lab", "selfbench", "calibrate", *command_for_record(options)[2:]),
    )
    return calibrate(options, talk, target, ready)


def calibrate(options: Options, talk: Console, target: Target, ready: PlannedCalibration) -> int:
    """Print the plan of a calibration, carry it out unless `--plan` is given, and print the result.

    A calibration measures load generators against a server with known answers. If it is interrupted or fails, the
    measurements so far are kept, and the command that prints them is shown.

    Args:
        options: The parsed options.
        talk: The console of stderr.
        target: The target (where systems run).
        ready: The planned calibration.

    Returns:
        The exit status: 0 if the calibration is complete or only planned, else 1.

    Raises:
        UsageError: No generator is installed that could be measured, or no variant is marked as the direct reference.
        LabError: The measuring failed.

    """
    from lab.experiments.calibration.measuring import measure_once
    from lab.generators import GENERATORS
    from lab.model.variants.variants import load_variant, reference_name
    from lab.records.calibration import CalibrationFolder

    record = ready.record
    _print_plan(talk, ready)
    if not ready.slots:
        remedies = "; ".join(
            f"{generator.name}: {generator.remedy}" for generator in record.generators if not generator.installed
        )
        raise UsageError("calibrate", "no generator is installed that could be measured", remedies or "name another")
    if options.plan:
        if options.json:
            print(record.model_dump_json(indent=1))
        return 0
    check_writable(runs_folder(), len(ready.slots) * 2_000_000)
    calibration = CalibrationFolder.create(record)
    try:
        reference = reference_name()
        if reference is None:
            raise UsageError("manifests/overlays", "none is the direct reference", "annotate one with lab/reference")
        with target.up(load_variant(reference)) as system:
            for position, (repeat, cell) in enumerate(ready.slots, start=1):
                generator = GENERATORS[cell.generator]
                measured = measure_once(system, generator, ready.installed[cell.generator], cell, repeat)
                calibration.add(*measured)
                print_plan_line(talk, f"{position}/{len(ready.slots)}", _describe(measured[0]))
    except (KeyboardInterrupt, LabError) as error:
        end = "interrupted" if isinstance(error, KeyboardInterrupt) else "stopped"
        message = f"\n{end}; what was measured is kept:\n  just selfbench calibrate --show {record.id}"
        talk.print(message, highlight=False, soft_wrap=True)
        if isinstance(error, KeyboardInterrupt):
            return 1
        if isinstance(error, StoreError):  # its remedy is that of a run, which can be resumed; a calibration cannot
            remedy = "mend it, then measure anew: just selfbench calibrate"
            raise StoreError(error.place, error.fault, remedy) from None
        raise
    return _print_calibration(options, calibration)


def _print_calibration(options: Options, calibration: CalibrationFolder) -> int:
    """Print a calibration (measurements of load generators against a server with known answers).

    Returns:
        The exit status: 0 if the calibration is complete, else 1.

    """
    from lab.report.tables.calibration import page

    record = calibration.record
    print_answer(options, lambda: page(record), lambda: record.model_dump_json(indent=1), ["", str(calibration.folder)])
    return 0 if record.complete else 1


def _print_plan(talk: Console, ready: PlannedCalibration) -> None:
    from lab.experiments.calibration.measuring import estimate_s

    record = ready.record
    cpus = f"server on CPU {record.facts['cpus_backend']}, generators on CPU {record.facts['cpus_generator']}"
    scenarios = (("scenario", f"{name}: the server {does}") for name, does in record.scenarios.items())
    print_plan_lines(talk, [("run", record.id), ("target", f"local: {cpus}"), *scenarios])
    for generator in record.generators:
        if not generator.installed:
            print_plan_line(talk, "left out", f"{generator.name}: not installed: {generator.remedy}")
            continue
        cells = [cell for repeat, cell in ready.slots if repeat == 1 and cell.generator == generator.name]
        longest = max((cell.load.duration_s for cell in cells), default=0.0)
        longer = f", up to {longest:g} s each since it calibrates first" if longest > record.duration_s else ""
        print_plan_line(
            talk, "generator", f"{generator.name} {generator.version or ''}: {len(cells)} scenarios{longer}"
        )
        for scenario, reason in generator.refusals.items():
            print_plan_line(talk, "left out", f"{generator.name}, {scenario}: {reason}")
    print_plan_line(talk, "plan", f"{len(ready.slots)} measurements, {record.repeats} of each, seed {record.seed}")
    print_plan_line(talk, "duration", f"about {format_duration(estimate_s(ready.slots))}\n")


def _describe(measured: Measured) -> str:
    name = f"{measured.generator} {measured.scenario}"
    noise = f"; disturbed: {', '.join(text.partition(':')[0] for text in measured.noise)}" if measured.noise else ""
    if measured.reported is None:
        return f"{name}: {measured.failure}{noise}"
    p50_s = measured.reported.latency.quantiles_s["p50"]
    return f"{name}: {format_rate(round(measured.reported.achieved_rps, 1))} req/s, p50 {format_seconds(p50_s)}{noise}"


SELFBENCH = Verb(
    "check the lab itself: its overhead, and whether it finds effects of known size (default: overhead)",
    lambda _options, talk: _run_overhead(Options(sweep=SWEEP, plan=False), talk),
    words={
        "overhead": Verb(
            "measure how much time the lab itself takes in a whole run of the baseline",
            _run_overhead,
            {"--sweep": {"default": SWEEP, "metavar": "SWEEP", "help": SWEEPS_HELP.format(SWEEP)}},
            ("--plan",),
            examples=("just selfbench overhead --plan",),
        ),
        "effects": Verb(
            "show how often a run found effects of known size, by pairs and by solo samples",
            _run_effects,
            {"run": {"metavar": "RUN", "help": "a run of the sweep known-costs, such as data/reference/known-costs"}},
            examples=("just selfbench effects data/reference/known-costs",),
        ),
        "order": Verb(
            "test whether the order of the loads changed a result of any committed run",
            _run_order,
            shared=("--json",),
            examples=("just selfbench order",),
        ),
        "calibrate": Verb(
            "measure what every load generator reports about a server whose answers are known",
            _run_calibrate,
            {
                "--generator": {
                    "action": "append",
                    "metavar": "NAME",
                    "help": "calibrate only this load generator, such as k6; can be repeated (default: all)",
                },
                "--scenario": {
                    "action": "append",
                    "metavar": "NAME",
                    "help": "use only this behaviour of the server, by its name in the plan; can be repeated (default: all)",
                },
                "--repeats": {
                    "type": whole_number_in("--repeats", 1, 100),
                    "metavar": "N",
                    "help": f"number of times that everything is measured (default: {REPEATS})",
                },
                "--duration": {
                    "type": whole_number_in("--duration", SECONDS_LEAST, SECONDS_MOST),
                    "metavar": "SECONDS",
                    "help": f"duration of each measurement (default: {DURATION_S}; wrk2 takes at least 30)",
                },
                "--show": {
                    "metavar": "CALIBRATION",
                    "help": "print a stored calibration again, named by its name or folder, and measure nothing",
                },
            },
            ("--seed", "--plan", "--json", "--markdown"),
            examples=("just selfbench calibrate --generator k6 --plan",),
        ),
    },
    metavar="CHECK",
    examples=("just selfbench effects data/reference/known-costs", "just selfbench calibrate --plan"),
)
