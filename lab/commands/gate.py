"""The verb `gate`, for CI: it fails if a candidate (changed variant) is worse than its baseline by more than a given bound."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from lab.base.errors import LabError, MeasuringError, UsageError, did_you_mean, refuse_first, refuse_if
from lab.base.files import as_option_error
from lab.base.handing import STDIN, hand_over, piped_command, read_once
from lab.commands import (
    MEASURING,
    SWEEPS_HELP,
    Options,
    Verb,
    answer,
    arm_name,
    command_for_record,
    fraction,
    one_of,
    print_answer,
    refuse_given,
    variant_name,
)
from lab.commands.measuring import (
    answer_plan,
    enter_target,
    measure,
    print_plan,
    print_plan_line,
    print_plan_lines,
    probe_trials,
)
from lab.commands.table import compare_named
from lab.model.metrics import DIFFERENCES, METRICS, RATIOS
from lab.model.names import DEFAULT_TARGET, EQUIVALENCE_MARGIN
from lab.model.sweeps import DEFAULT_SWEEP

if TYPE_CHECKING:
    from lab.analysis.judge.gate import Bounds, Gate
    from lab.experiments.bench import PreparedRun
    from lab.records.store import RunStore
    from lab.targets.base import Target

BOUND = "--max-regression"
PRIMARY = "cpu_per_request"
"""The primary metric of every measured change."""
UNFINISHED = 2
"""The exit status if a measurement did not finish; the status 1 always means a regression."""


def parse_bound(text: str) -> tuple[str, float]:
    """Parse a value of `--max-more`, the bound for a metric in its own unit: `gap_s=0.5` → ("gap_s", 0.5).

    Raises:
        UsageError: The metric is no outcome of a disruption, or it has no better and worse direction; or the value is
            negative or no number.

    """
    name, sign, number = text.partition("=")
    try:
        value = float(number)
    except ValueError:
        value = float("nan")
    names = {metric for metric in DIFFERENCES if METRICS[metric].better != "neither"}
    refuse_first(
        (
            not sign or not isfinite(value) or value < 0,
            "--max-more",
            f"expected METRIC=VALUE with a value of 0 or more, got '{text}'",
            "as failed=10 or gap_s=0.5, in seconds, bytes or counts",
        ),
        (name not in DIFFERENCES, "--max-more", f"unknown outcome '{name}'", did_you_mean(name, names)),
        (
            name not in names,
            "--max-more",
            f"more or less {name} is neither better nor worse",
            f"known: {', '.join(sorted(names))}",
        ),
    )
    return name, value


def _run_gate(options: Options, talk: Console) -> int:
    """Run the verb `gate`: judge whether candidates (changed variants) are worse than their baselines by more than a bound.

    With `--against` or `--config` the candidates are measured first, otherwise stored runs are judged.

    Returns:
        The exit status: 0 = no regression; 1 = a regression; 2 = anything else went wrong, or the result is
        inconclusive and `--strict` is given.

    """
    if options.config:
        return _gate_files(options, talk)
    if options.against is not None:
        return _gate_ref(options, talk)
    return _print_gate(options, lambda: _gate_runs(options))


def _print_gate(options: Options, find: Callable[[], Gate]) -> int:
    """Compute the result of the gate (whether any candidate is worse than its baseline), and print it.

    Args:
        options: The parsed options, which determine the form of the output.
        find: A function that returns the result.

    Returns:
        The exit status: 0 = no regression; 1 = a regression; 2 = inconclusive, if `--strict` is given.

    Raises:
        UsageError: The result could not be computed or printed; the exit status is then 2.

    """
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


def _write_junit(options: Options, xml: Callable[[], bytes]) -> None:
    if options.junit:
        with as_option_error("--junit", Path(options.junit)):
            Path(options.junit).write_bytes(xml())


Pairs = tuple[Mapping[str, str], Sequence[str], str, Sequence[str]]
"""The variants of a gate: (candidate → its old version, names of unchanged candidates, name of the sweep, notes for people)."""


def _gate_ref(options: Options, talk: Console) -> int:
    """Measure the checkout's variants at the same time as their versions at a git ref, and judge whether they became worse.

    Returns:
        The exit status: 0 = no regression, or only the plan was requested; 1 = a regression; 2 = not finished, or
        inconclusive and `--strict` is given.

    """
    from lab.experiments.against_ref import add_ref_manifests, commit_of
    from lab.model.variants.variants import load_variant

    remedy = "as `just gate --against main keepalive`"
    refuse_if(not options.names, "gate --against", "no variant named", remedy)
    options.names = names = [variant_name(name) for name in options.names]
    for name in names:  # complain before anything starts
        load_variant(name)
    commit_of(options.against)

    def write(manifests: Path, elsewhere: bool) -> Pairs:
        return *add_ref_manifests(manifests, options.against, names), DEFAULT_SWEEP, ()

    return _measure_change(
        options, talk, f"gate-{'-'.join(names)[:40].replace('+', '-')}", f"{options.against}'s", write
    )


def _gate_files(options: Options, talk: Console) -> int:
    """Measure a user's new configuration file at the same time as the old one, and judge whether the new file is worse.

    The old configuration is another file, or the same file at a git ref.

    Returns:
        The exit status: 0 = no regression, or only the plan was requested; 1 = a regression; 2 = not finished, or
        inconclusive and `--strict` is given.

    """
    from lab.experiments.against_ref import read_at_ref
    from lab.experiments.configmap import knobs, split
    from lab.experiments.configmap.reading import read_settings
    from lab.model.variants.variants import load_variant

    files, ref, reader = options.config, options.against, piped_command("gate", "--config FILE")
    wrong_files = len(files) != (1 if ref else 2) or options.names or files.count(STDIN) > (0 if ref else 1)
    fault = f"expected {'one file, which is in git,' if ref else 'two files, the old one first,'} and nothing else"
    remedy = "as `just gate --config old.yaml new.yaml`, or `just gate --config FILE --against REF` for one in git"
    refuse_if(wrong_files, "--config", fault, remedy)
    contents = [read_once(name, reader) for name in files]
    sides = [(name, read_settings(name, content, reader)) for name, content in zip(files, contents, strict=True)]
    if ref:
        old_name = f"{files[0]} at {ref}"
        sides.insert(0, (old_name, read_settings(old_name, read_at_ref(Path(files[0]), ref), reader)))

    def write(manifests: Path, elsewhere: bool) -> Pairs:
        old, new = (split.sort_keys(name, given, elsewhere) for name, given in sides)
        old_refused, refused = (
            "; ".join(f"{key}: {text}" for kind, key, text in side.remarks if kind == "refused") for side in (old, new)
        )
        fault = f"the controller would refuse the whole file, and keep {sides[0][0]}: {refused}"
        refuse_if(refused, sides[1][0], fault, "correct it, or take these keys out")
        before, after, sweep = knobs.write_files(old, new, manifests)
        remarks = [*old.remarks, *new.remarks]
        hidden = {
            *old.of_controller,
            *new.of_controller,
            *(key for kind, key, _ in remarks if kind in ("unseen", "here")),
        }
        differing = sorted(key for key in hidden if len({given.data.get(key) for _, given in sides}) > 1)
        notes = [f"not compared on this target: {', '.join(differing)} (`just check` says why)"] if differing else []
        notes += (
            [f"{sides[0][0]} is measured without what the controller refuses: {old_refused}"] if old_refused else []
        )
        if len({load_variant(name, manifests).manifests_sha256 for name in (before, after)}) > 1:
            return {after: before}, [], sweep, notes
        return {}, [sides[1][0]], sweep, notes

    return _measure_change(options, talk, f"gate-{Path(sides[1][0]).stem[:40]}", sides[0][0], write, contents)


def _measure_change(
    options: Options,
    talk: Console,
    label: str,
    since: str,
    write: Callable[[Path, bool], Pairs],
    contents: Sequence[bytes] = (),
) -> int:
    """Measure candidates (changed variants), each at the same time as its old version, and print whether they are worse.

    A regression close to the bound is measured a second time, and counts only if it is confirmed.

    Args:
        options: The parsed options.
        talk: The console of stderr.
        label: A text for the name of the folder, such as `gate-keepalive`.
        since: The old versions in words, such as `main's`.
        write: A function that writes the variants to compare, and returns them as `Pairs`. Its arguments are a copy
            of the checkout's folder of manifests, and whether the target is not the default one (so that the real
            controller runs).
        contents: The contents of files that were read already. They are passed on to a child process of this command,
            which cannot read standard input again.

    Returns:
        The exit status: 0 = no regression, or only the plan was requested; 1 = a regression; 2 = not finished, or
        inconclusive and `--strict` is given.

    """
    from lab.records.sweep_files import load_sweep

    fault = "names runs of a second measurement, and --against and --config make one themselves where they need one"
    refuse_given(options, ["again"], fault)
    bounds = _build_bounds(options)
    load_sweep(options.sweep or DEFAULT_SWEEP)
    with hand_over(*contents):
        target = enter_target(options, options.target)
    from lab.analysis.comparison.comparison import compare_runs
    from lab.analysis.gate.gate import confirm_regressions, judge_gate
    from lab.experiments import bench
    from lab.experiments.ablation.folder import new_manifests

    with new_manifests(label) as (manifests, keep):
        pairs, same, sweep, notes = write(manifests, target.name != DEFAULT_TARGET)
        print_plan_lines(talk, (("note", note) for note in notes))
        if not pairs:
            return _report_unchanged(options, since, same, notes)
        print_plan_lines(talk, (("unchanged", f"no rendered manifest of {name} differs from {since}") for name in same))

        def prepare(names: Sequence[str], seed: int | None) -> PreparedRun:
            request = bench.BenchRequest(
                tuple(names),
                options.sweep or sweep,
                options.blocks,
                seed,
                label=f"gate-{'-'.join(names)}",
                manifests=manifests,
                against=tuple(pairs[name] for name in names),
                primary=PRIMARY,
                margin=bounds.regression or EQUIVALENCE_MARGIN,
            )
            return bench.prepare(request, target, command_for_record(options, "names"), probe_trials(options, talk))

        prepared = prepare([*pairs], options.seed)
        print_plan(talk, prepared, 0)
        if options.plan:
            return answer_plan(options, [(prepared, 0)])
        keep()

    def judge(ready: PreparedRun) -> Gate | None:
        store = measure_prepared(talk, ready, target)
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
    last = replace(result, left_out=(*result.left_out, *notes))
    return _print_gate(options, lambda: last)


def measure_prepared(talk: Console, ready: PreparedRun, target: Target) -> RunStore | None:
    """Measure a prepared run for the verb `gate`, and return the stored run; None if it was interrupted.

    Raises:
        MeasuringError: The measurement failed. The command's exit status is then UNFINISHED, because 1 means a regression.

    """
    try:
        return measure(talk, ready, None, target, f"just bench --resume {ready.record.id}")
    except MeasuringError as error:
        error.exit_status = UNFINISHED
        raise


def _report_unchanged(options: Options, since: str, same: Sequence[str], notes: Sequence[str]) -> int:
    """Print that no candidate (variant under test) differs from its old version, so that there is nothing to measure.

    Args:
        options: The parsed options, which determine the form of the output.
        since: The old versions in words, such as `main's`.
        same: The names of the candidates.
        notes: Remarks for the result.

    Returns:
        The exit status 0.

    """
    from lab.report.json.shape import dumps
    from lab.report.tables.gate import UNCHANGED

    nothing = f"no rendered manifest of {', '.join(same)} differs from {since}: nothing to measure, nothing to do"
    message = "; ".join([f"0 regressions: {nothing}", *notes])
    data = {"schema_version": 3, "verdict": "passed", "exit_status": 0, "conclusion": message, "unchanged": same}
    _write_junit(options, lambda: UNCHANGED)
    with answer():
        if options.json:
            print(dumps(data))
        else:
            print(f"### Passed\n\n{message}" if options.markdown else message)
    return 0


def _gate_runs(options: Options) -> Gate:
    refuse_given(
        options,
        ("target", "sweep", "blocks", "seed", "plan"),
        "is of what --against and --config measure",
        "leave it out, or name a git ref by --against, or files by --config",
    )
    runs, again, unbounded = options.names, options.again, options.max_regression is None
    refuse_first(
        (
            not 1 <= len(runs) <= 2,
            "gate",
            f"expected one run or two, got {len(runs)}",
            "just gate RUN [RUN] --max-regression 5%, just gate --against REF VARIANT, or just gate --config OLD NEW",
        ),
        (
            unbounded and not options.max_more,
            BOUND,
            "no bound given: how much worse is still good?",
            "as --max-regression 5%",
        ),
        (
            options.metric and unbounded,
            "--metric",
            "is of steady loads, and these have no bound",
            f"as --metric {next(iter(options.metric), '')} --max-regression 5%, or leave it out",
        ),
        (
            again and (len(again) != len(runs) or {*again} & {*runs}),
            "--again",
            f"expected as many runs as are gated ({len(runs)}), and others, got {' '.join(again)}",
            "as `just gate RUN --again RUN --max-regression 5%`",
        ),
    )

    from lab.analysis.gate.gate import confirm_regressions, judge_gate

    bounds = _build_bounds(options)
    result = judge_gate(compare_named(runs, bounds.more), bounds, options.arm)
    if not again:
        return result
    return confirm_regressions(result, judge_gate(compare_named(again, bounds.more), bounds, options.arm))


def _build_bounds(options: Options) -> Bounds:
    from lab.analysis.judge.gate import Bounds

    default = EQUIVALENCE_MARGIN if (options.against or options.config) and not options.max_more else None
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
        "--config --configmap": {
            "metavar": "FILE",
            "nargs": "+",
            "help": "measure your new ConfigMap or Helm values in pairs with the old ones, and judge that: --config OLD NEW; with"
            " --against REF, one FILE against itself as this ref of the file's own repository has it; - is the standard input",
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
        "just gate --config old.yaml new.yaml --plan",
    ),
)
