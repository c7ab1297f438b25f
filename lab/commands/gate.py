"""`gate`: for CI: has the candidate become worse than the baseline by more than is allowed?"""

from __future__ import annotations

import argparse
import os
import sys
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from lab.base.errors import LabError, UsageError, did_you_mean
from lab.base.quantities import share
from lab.commands import Adder
from lab.commands.answers import answer, print_answer
from lab.commands.compare import run_and_arm
from lab.model.metrics import DIFFERENCES, METRICS, RATIOS

if TYPE_CHECKING:
    from lab.analysis.gate.gate import Bounds, Gate

BOUND = "--max-regression"


def add(adder: Adder) -> None:
    verb = adder(
        "gate", _gate, "for CI: exit 1 when the candidate is worse by more than the bound, and that is resolved"
    )
    verb.add_argument(
        "base", metavar="BASELINE_RUN[:ARM]", help="what it is to be as good as; alone, a run's own baselines"
    )
    verb.add_argument("other", nargs="?", metavar="CANDIDATE_RUN[:ARM]", help="what is judged")
    verb.add_argument(
        BOUND, type=fraction, metavar="5%", help="of steady loads: how much worse is still good, as 5%% or 0.05"
    )
    verb.add_argument(
        "--max-more",
        type=own_unit,
        action="append",
        default=[],
        metavar="METRIC=VALUE",
        help="of disturbed loads: how much more of an outcome is still good, in its own unit (failed=10, gap_s=0.5); repeatable",
    )
    verb.add_argument(
        "--metric",
        action="append",
        default=[],
        help="of steady loads: gate this metric instead of rate and CPU per request at a closed loop, p50 and p99 at a given"
        " rate (rate, cpu_per_request, p50, p90, p99, p99.9); repeatable",
    )
    verb.add_argument("--arm", action="append", default=[], help="gate this arm only; repeatable")
    verb.add_argument(
        "--strict", action="store_true", help="exit 2 where it cannot tell: an interval reaches beyond the bound, …"
    )
    verb.add_argument("--junit", metavar="FILE", help="write JUnit XML there, too")
    verb.add_argument("--markdown", action="store_true", help="for a pull request's comment or $GITHUB_STEP_SUMMARY")
    verb.add_argument("--json", action="store_true")


def fraction(text: str) -> float:
    """`5%` or `0.05` → 0.05, more than 0 and less than 1. UsageError."""
    value = share(text)
    if value is None:
        raise UsageError(BOUND, f"expected a share, got '{text}'", "as 5% or 0.05")
    if not 0 < value < 1:
        meant = "%" not in text and 1 <= value < 100
        near = f"did you mean {text.strip()}%?" if meant else "more than 0 and less than 100%, as 5% or 0.05"
        raise UsageError(BOUND, f"{text} is no bound", near)
    return value


def own_unit(text: str) -> tuple[str, float]:
    """`gap_s=0.5` → ("gap_s", 0.5). UsageError for what is no outcome, or has no worse."""
    name, sign, number = text.partition("=")
    try:
        value = float(number)
    except ValueError:
        value = float("nan")
    if not sign or not isfinite(value) or value < 0:
        fault = f"expected METRIC=VALUE with a value of 0 or more, got '{text}'"
        raise UsageError("--max-more", fault, "as failed=10 or gap_s=0.5, in seconds, bytes or counts")
    known = {metric for metric in DIFFERENCES if METRICS[metric].better != "neither"}
    if name not in DIFFERENCES:
        raise UsageError("--max-more", f"unknown outcome '{name}'", did_you_mean(name, known))
    if name not in known:
        raise UsageError(
            "--max-more", f"more or less {name} is neither better nor worse", f"known: {', '.join(sorted(known))}"
        )
    return name, value


def _gate(options: argparse.Namespace, talk: Console) -> int:
    """The gate's status. 1 is a regression's alone: 2 for whatever else goes wrong, and whether its answer was read does not matter."""
    try:
        found = _found(options)
        _say(options, found)
    except LabError as error:
        raise UsageError(error.place, error.fault, error.remedy) from None
    except Exception as error:
        if os.environ.get("LAB_DEBUG"):
            raise
        fault = f"{type(error).__name__}: {error}"
        raise UsageError("gate", fault, "this is a defect of the lab: LAB_DEBUG=1 shows where") from None
    return found.exit_status(options.strict)


def _found(options: argparse.Namespace) -> Gate:
    if options.max_regression is None and not options.max_more:
        raise UsageError(BOUND, "no bound given: how much worse is still good?", "as --max-regression 5%")
    if options.metric and options.max_regression is None:
        fault = "is of steady loads, and these have no bound"
        raise UsageError("--metric", fault, f"as --metric {options.metric[0]} --max-regression 5%, or leave it out")

    from lab.analysis.comparison.comparison import compare_runs
    from lab.analysis.gate.gate import gate
    from lab.records.store import RunStore

    bounds = _bounds(options)
    base, base_arm = run_and_arm(options.base)
    other, other_arm = run_and_arm(options.other) if options.other is not None else (None, None)
    stores = RunStore.open(base), RunStore.open(other) if other is not None else None
    return gate(compare_runs(*stores, base_arm, other_arm, asked=bounds.more), bounds, options.arm)


def _say(options: argparse.Namespace, found: Gate) -> None:
    from lab.report import junit
    from lab.report.json.gate import printed
    from lab.report.tables.gate import page

    if options.junit:
        _write(Path(options.junit), junit.xml(found, options.strict))
    try:
        with answer():
            print_answer(options, lambda: page(found, options.strict), lambda: printed(found, options.strict).dumps())
            sys.stdout.flush()
    except OSError as error:
        # What the buffer still holds would fail once more where the lab ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        fault = f"its answer cannot be written: {error.strerror}"
        raise UsageError("gate", fault, "free some space, and ask again") from None


def _bounds(options: argparse.Namespace) -> Bounds:
    from lab.analysis.gate.gate import Bounds

    for metric in options.metric:
        if metric not in RATIOS:
            raise UsageError("--metric", f"unknown metric '{metric}'", did_you_mean(metric, RATIOS))
    return Bounds(options.max_regression, dict(options.max_more), tuple(options.metric))


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise UsageError(
            "--junit", f"{path} cannot be written: {error.strerror}", "name a file in a folder that can"
        ) from None
