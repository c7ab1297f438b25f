"""The verb `gate`, for CI: whether the candidate is worse than the baseline by more than the bound."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from lab.base.errors import LabError, UsageError, did_you_mean
from lab.base.files import as_option_error
from lab.commands import (
    MEASURING,
    SWEEPS_HELP,
    Verb,
    answer,
    arm_name,
    command_for_record,
    fraction,
    one_of,
    print_answer,
    variant_name,
)
from lab.commands.measuring import answer_plan, enter_target, measure, print_plan, print_plan_line, probe_trials
from lab.commands.table import compare_named
from lab.model.metrics import DIFFERENCES, METRICS, RATIOS
from lab.model.names import EQUIVALENCE_MARGIN
from lab.model.sweeps import DEFAULT_SWEEP

if TYPE_CHECKING:
    from lab.analysis.judge.gate import Bounds, Gate
    from lab.experiments.bench import PreparedRun

BOUND = "--max-regression"
PRIMARY = "cpu_per_request"
"""The metric in which a change may claim an effect, whatever the change is about."""
UNFINISHED = 2
"""The exit status of a measurement that did not finish; 1 stands for a regression alone."""


def parse_bound(text: str) -> tuple[str, float]:
    """Parse a bound in the metric's own unit: `gap_s=0.5` into ("gap_s", 0.5).

    Raises:
        UsageError: The metric is no outcome, or neither direction of it is worse; or the value is not 0 or more.

    """
    name, sign, number = text.partition("=")
    try:
        value = float(number)
    except ValueError:
        value = float("nan")
    if not sign or not isfinite(value) or value < 0:
        fault = f"expected METRIC=VALUE with a value of 0 or more, got '{text}'"
        raise UsageError("--max-more", fault, "as failed=10 or gap_s=0.5, in seconds, bytes or counts")
    names = {metric for metric in DIFFERENCES if METRICS[metric].better != "neither"}
    if name not in DIFFERENCES:
        raise UsageError("--max-more", f"unknown outcome '{name}'", did_you_mean(name, names))
    if name not in names:
        raise UsageError(
            "--max-more", f"more or less {name} is neither better nor worse", f"known: {', '.join(sorted(names))}"
        )
    return name, value


def _run_gate(options: argparse.Namespace, talk: Console) -> int:
    """Run the gate and return its status: 1 for a regression alone, 2 for anything else that goes wrong.

    The status is the same whether or not the answer was read.
    """
    if options.against is not None:
        return _gate_against(options, talk)
    return _print_gate(options, lambda: _gate_runs(options))


def _print_gate(options: argparse.Namespace, find: Callable[[], Gate]) -> int:
    """Print the result in the requested form, and return the gate's status."""
    from lab.report.json.runs import describe_gate
    from lab.report.json.shape import dumps
    from lab.report.tables.gate import make_junit_xml, page

    strict = options.strict
    try:
        result = find()
        _write_junit(options, lambda: make_junit_xml(result, strict))
        try:
            with answer():
                print_answer(options, lambda: page(result, strict), lambda: dumps(describe_gate(result, strict)))
                sys.stdout.flush()
        except OSError as error:
            # The text that the buffer still holds would fail once more when the lab ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            fault = f"its answer cannot be written: {error.strerror}"
            raise UsageError("gate", fault, "free some space, and ask again") from None
    except LabError as error:
        raise UsageError(error.place, error.fault, error.remedy) from None
    except Exception as error:
        if os.environ.get("LAB_DEBUG"):
            raise
        fault = f"{type(error).__name__}: {error}"
        raise UsageError("gate", fault, "this is a defect of the lab: LAB_DEBUG=1 shows where") from None
    return result.exit_status(strict)


def _write_junit(options: argparse.Namespace, xml: Callable[[], bytes]) -> None:
    if options.junit:
        with as_option_error("--junit", Path(options.junit)):
            Path(options.junit).write_bytes(xml())


def _gate_against(options: argparse.Namespace, talk: Console) -> int:
    """Measure the checkout's variants in pairs with their state at a git ref, and judge the result."""
    from lab.experiments.against_ref import commit_of
    from lab.model.variants.variants import load_variant
    from lab.records.sweep_files import load_sweep

    if options.again:
        fault = "names runs of a second measurement, and --against makes one itself where it needs one"
        raise UsageError("--again", fault, "leave it out")
    if not options.names:
        raise UsageError("gate --against", "no variant named", "as `just gate --against main keepalive`")
    bounds = _build_bounds(options)
    options.names = [variant_name(name) for name in options.names]
    for name in options.names:  # complain before anything starts
        load_variant(name)
    load_sweep(options.sweep or DEFAULT_SWEEP)
    commit_of(options.against)

    target = enter_target(options, options.target)
    from lab.analysis.comparison.comparison import compare_runs
    from lab.analysis.gate.gate import confirm_regressions, judge_gate
    from lab.experiments import bench
    from lab.experiments.ablation.folder import new_manifests
    from lab.experiments.against_ref import add_ref_manifests

    with new_manifests(f"gate-{'-'.join(options.names)[:40].replace('+', '-')}") as (manifests, keep):
        pairs, same = add_ref_manifests(manifests, options.against, options.names)
        if same and pairs:
            print_plan_line(
                talk, "unchanged", f"no rendered manifest of {', '.join(same)} differs from {options.against}'s"
            )
        if not pairs:
            return _report_unchanged(options, same)

        def prepare(names: Sequence[str], seed: int | None) -> PreparedRun:
            request = bench.BenchRequest(
                tuple(names),
                options.sweep or DEFAULT_SWEEP,
                options.blocks,
                seed,
                label=f"gate-{'-'.join(names)}",
                manifests=manifests,
                against=tuple(pairs[name] for name in names),
                primary=PRIMARY,
                worth=bounds.regression or EQUIVALENCE_MARGIN,
            )
            return bench.prepare(request, target, command_for_record(options, "names"), probe_trials(options, talk))

        prepared = prepare([*pairs], options.seed)
        print_plan(talk, prepared, 0)
        if options.plan:
            return answer_plan(options, [(prepared, 0)])
        keep()

    def judge(ready: PreparedRun) -> Gate | None:
        store = measure(talk, ready, None, target, f"just bench --resume {ready.record.id}")
        return judge_gate(compare_runs(store, None, asked=bounds.more), bounds, options.arm) if store else None

    if (result := judge(prepared)) is None:
        return UNFINISHED
    if close := result.to_measure_again:
        reason = "worse, and so close to the bound that it is measured a second time, on fresh bring-ups"
        print_plan_line(talk, "again", f"{', '.join(check.name for check in close)}: {reason}")
        close_arms = {check.row.other.arm for check in close}
        again = prepare([name for name in pairs if name in close_arms], None)
        print_plan(talk, again, 0)
        if (second := judge(again)) is None:
            return UNFINISHED
        result = confirm_regressions(result, second)
    last = result
    return _print_gate(options, lambda: last)


def _report_unchanged(options: argparse.Namespace, same: Sequence[str]) -> int:
    """Report in the requested form that there is nothing to measure, and return 0."""
    from lab.report.json.shape import dumps
    from lab.report.tables.gate import UNCHANGED

    message = f"0 regressions: no rendered manifest of {', '.join(same)} differs from {options.against}'s: nothing to measure, nothing to do"
    data = {"schema_version": 3, "verdict": "passed", "exit_status": 0, "conclusion": message, "unchanged": same}
    _write_junit(options, lambda: UNCHANGED)
    with answer():
        if options.json:
            print(dumps(data))
        else:
            print(f"### Passed\n\n{message}" if options.markdown else message)
    return 0


def _gate_runs(options: argparse.Namespace) -> Gate:
    for name in ("target", "sweep", "blocks", "seed", "plan"):
        if getattr(options, name):
            raise UsageError(
                f"--{name}", "is of what --against measures", "leave it out, or name a git ref by --against"
            )
    if not 1 <= len(options.names) <= 2:
        fault = f"expected one run or two, got {len(options.names)}"
        raise UsageError("gate", fault, "just gate RUN [RUN] --max-regression 5%, or just gate --against REF VARIANT")
    if options.max_regression is None and not options.max_more:
        raise UsageError(BOUND, "no bound given: how much worse is still good?", "as --max-regression 5%")
    if options.metric and options.max_regression is None:
        fault = "is of steady loads, and these have no bound"
        raise UsageError("--metric", fault, f"as --metric {options.metric[0]} --max-regression 5%, or leave it out")

    from lab.analysis.gate.gate import confirm_regressions, judge_gate

    bounds = _build_bounds(options)
    if options.again and (len(options.again) != len(options.names) or {*options.again} & {*options.names}):
        fault = f"expected as many runs as are gated ({len(options.names)}), and others, got {' '.join(options.again)}"
        raise UsageError("--again", fault, "as `just gate RUN --again RUN --max-regression 5%`")

    result = judge_gate(compare_named(options.names, bounds.more), bounds, options.arm)
    if not options.again:
        return result
    return confirm_regressions(result, judge_gate(compare_named(options.again, bounds.more), bounds, options.arm))


def _build_bounds(options: argparse.Namespace) -> Bounds:
    from lab.analysis.judge.gate import Bounds

    default = EQUIVALENCE_MARGIN if options.against is not None and not options.max_more else None
    return Bounds(options.max_regression or default, dict(options.max_more), tuple(options.metric))


GATE = Verb(
    "for CI: exit with status 1 if something is worse than its baseline by more than you allow, and surely so",
    _run_gate,
    {
        "names": {
            "nargs": "*",
            "metavar": "RUN[:ARM]|VARIANT",
            "help": "one run, whose variants are judged against their baselines, or two runs: the baseline and the candidate"
            " (RUN:ARM is one arm of a run); with --against the variants to measure",
        },
        "--against": {
            "metavar": "REF",
            "help": "measure the variants of this checkout in pairs with the same variants at this git ref, and judge that",
        },
        "--again": {
            "nargs": "+",
            "default": [],
            "metavar": "RUN[:ARM]",
            "help": "a second measurement of the same, in as many runs as the first: a regression close to the bound counts"
            " only if both show it",
        },
        "--sweep": {"metavar": "SWEEP", "help": "with --against: " + SWEEPS_HELP.format("quick")},
        BOUND: {
            "type": partial(fraction, BOUND),
            "metavar": "5%",
            "help": "largest acceptable regression under steady loads, as 5%% or 0.05; required without --against, whose"
            " default is 2%%",
        },
        "--max-more": {
            "type": parse_bound,
            "action": "append",
            "default": [],
            "metavar": "METRIC=VALUE",
            "help": "largest acceptable increase of an outcome under a disruption, in its own unit, such as failed=10 requests"
            " or gap_s=0.5 seconds; can be repeated",
        },
        "--metric": {
            "type": one_of("--metric", "metric", RATIOS),
            "action": "append",
            "default": [],
            "metavar": "METRIC",
            "help": f"judge this metric of steady loads: {', '.join(RATIOS)}; can be repeated (default: rate and"
            " cpu_per_request in a closed loop, p50 and p99 at an offered rate)",
        },
        "--arm": {
            "action": "append",
            "type": arm_name,
            "default": [],
            "metavar": "ARM",
            "help": "judge only this arm of the run, by its name in the table; can be repeated (default: every variant)",
        },
        "--strict": {
            "action": "store_true",
            "help": "exit with status 2 where the result is inconclusive, that is, where an interval reaches beyond the bound",
        },
        "--junit": {"metavar": "FILE", "help": "also write the result to this file as JUnit XML"},
    },
    (*MEASURING, "--markdown"),
    examples=(
        "just gate data/reference/quick-keepalive --max-regression 5%",
        "just gate --against origin/main keepalive",
    ),
)
