"""Functions for every verb that measures: they enter the target, print the plan, measure the run, and print the result."""

from __future__ import annotations

import os
import shlex
import signal
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from lab.base.errors import LabError, UsageError, refuse_if
from lab.base.files import runs_folder
from lab.commands import Options, RanInsideError, answer, command_for_record
from lab.model.names import OUTPUT_WIDTH

if TYPE_CHECKING:
    from lab.experiments.bench import BenchRequest, PreparedRun
    from lab.experiments.bench.probing import ProbeTrials
    from lab.model.run import NotMeasured
    from lab.records.ablation import AblationRecord
    from lab.records.store import RunStore
    from lab.report.grid import Part
    from lab.report.result import RunResult
    from lab.targets.base import Target


MAX_NAMED_PROCESSES = 3
"""The maximum number of other processes that are named."""


def target_of(options: Options) -> str | None:
    """Return the name of the target (where systems run): from `--target`, or from the run to `--resume`.

    Returns:
        None for the default target.

    Raises:
        UsageError: Both options are given, and the run has another target.

    """
    if not options.resume:
        return options.target
    from lab.records.store import RunStore

    record = RunStore.open(options.resume).record
    fault = f"run {record.id} is of target '{record.target}'"
    refuse_if(options.target not in (None, record.target), "--target", fault, "leave --target out")
    return record.target


def enter_target(options: Options, name: str | None) -> Target:
    """Return the target (where systems run) of this name, ready for use in this process.

    Some targets need Linux namespaces. If this process is not inside them, a child process runs the whole command again
    inside them. Afterwards SIGTERM ends this process as cleanly as Ctrl-C.

    Args:
        options: The parsed options.
        name: The name of the target; None = the default one.

    Raises:
        RanInsideError: A child process has run the command, so this process has nothing more to do.

    """
    from lab.targets import enter_target

    target = enter_target(name, getattr(options, "context", None), options.argv)
    if isinstance(target, int):
        raise RanInsideError(target)
    end_on_sigterm()
    return target


def end_on_sigterm() -> None:
    """Let the signal SIGTERM end this process as cleanly as Ctrl-C does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def resume_command(options: Options, verb: str, name: str) -> str:
    """Return the command that continues a run or an ablation (series of runs), such as `just bench --resume NAME`.

    Args:
        options: The parsed options. Those for the cluster's context and for `--resume` are used.
        verb: The verb, such as `bench`.
        name: The name of the run; it is used if `--resume` was not given.

    """
    context = f" --context {options.context}" if options.context else ""
    return f"just {verb} --resume {shlex.quote(getattr(options, 'resume', None) or name)}{context}"


def probe_trials(options: Options, talk: Console) -> ProbeTrials | None:
    """Return a function that finds out, by short trials before a run, which request rates two systems at once can serve.

    Returns:
        None if only the plan is requested (`--plan`), since the function would load the target.

    """
    from lab.experiments.bench.probing import bring_up_pair

    return None if options.plan else partial(bring_up_pair, partial(print_plan_line, talk, "probe"))


def done_samples(run: RunStore | None) -> int:
    """Return how many planned measurements of a run are already done; 0 if `run` is None."""
    from lab.model.samples import is_settled, key_of_measurement

    if run is None:
        return 0
    done = {key_of_measurement(sample) for sample in run.samples() if is_settled(sample)}
    return sum(done.issuperset(slot.cells) for slot in run.record.plan().slots)


def plan_and_measure(
    options: Options,
    talk: Console,
    target: Target,
    request: BenchRequest,
    names: str,
    print_run: Callable[[RunStore], int],
    verb: str = "bench",
) -> int:
    """Plan a run and print the plan, then measure it and print its result; with `--resume` continue a stored run.

    Args:
        options: The parsed options.
        talk: The console of stderr.
        target: The target (where systems run).
        request: What to measure, if it is a new run.
        names: The name of the attribute of `options` that holds the variants.
        print_run: A function that prints the result of the measured run, and returns the exit status.
        verb: The verb that continues an interrupted run with `--resume`.

    Returns:
        The exit status: that of `print_run`, 0 if only the plan was requested, or 1 if the run was interrupted.

    """
    from lab.experiments import bench

    if options.resume:
        prepared, run = bench.resume(options.resume, target)
    else:
        prepared, run = (
            bench.prepare(request, target, command_for_record(options, names), probe_trials(options, talk)),
            None,
        )
    done = done_samples(run)
    fewer = verb == "bench" and run is None and not (options.blocks or request.resolve)
    print_plan(talk, prepared, done, fewer, full=getattr(options, "all", False))
    if options.plan:
        return answer_plan(options, [(prepared, done)])
    store = measure(talk, prepared, run, target, resume_command(options, verb, prepared.record.id))
    return 1 if store is None else print_run(store)


def measure(
    talk: Console,
    prepared: PreparedRun,
    run: RunStore | None,
    target: Target,
    resume: str,
    search: Callable[[RunStore], None] | None = None,
) -> RunStore | None:
    """Measure everything that is still missing of a run.

    If the measuring is interrupted or fails, the command that continues it is printed.

    Args:
        talk: The console of stderr.
        prepared: The run as it was planned.
        run: The stored run to continue; None = a new one is created.
        target: The target (where systems run).
        resume: The command that continues the run.
        search: For a search for the knee (the highest rate within a latency bound): the function that measures it. None
            = an ordinary run.

    Returns:
        The measured run; None if it was interrupted.

    """
    from lab.commands.progress import RunTerminal
    from lab.experiments import bench
    from lab.measure import roundtrip
    from lab.measure.loop import MeasuringLoop
    from lab.model.bottleneck import MAX_OTHERS_CORES
    from lab.records.store import RunStore
    from lab.targets.common.sampler import HOST_PROC, find_busiest

    cpus_used = find_busiest() if search is None and HOST_PROC in os.environ else {}
    if sum(cpus_used.values()) >= MAX_OTHERS_CORES:  # enough to spoil a sample; empty where the lab cannot see it
        named = (
            f"{name} {cpus:.1f}"
            for name, cpus in islice(cpus_used.items(), MAX_NAMED_PROCESSES)
            if cpus >= MAX_OTHERS_CORES
        )
        lost = "samples may be lost: stop it, or wait"
        consequence = "pairs are measured all the same, solo samples may be lost" if prepared.record.pairs else lost
        used = f"{sum(cpus_used.values()):.1f} of {os.cpu_count()} CPUs ({', '.join(named)})"
        print_plan_line(talk, "busy", f"what is not the lab's uses {used}: {consequence}\n")

    def say_resume(event: str) -> None:
        unit = "sample" if search is None else "trial"
        message = f"\n{event}; every complete {unit} is kept. Go on with:\n  {resume}"  # alone on its line
        talk.print(message, markup=False, highlight=False, soft_wrap=True)

    begun = False
    try:
        manifests = {name: variant.manifests for name, variant in prepared.variants.items()}
        store = run or RunStore.create(prepared.record, manifests)
        with store.locked():
            if run is not None:
                bench.note_resumed(run, target)
            begun = True
            if search is not None:
                search(store)
            else:
                with RunTerminal(talk, prepared.plan, prepared.design.duration_s, done_samples(run)) as observer:
                    MeasuringLoop(
                        target, prepared.variants, prepared.chosen, store, observer, roundtrip.measure_roundtrip
                    ).measure()
    except KeyboardInterrupt:
        if not begun:
            raise
        say_resume("interrupted")
        return None
    except LabError:
        if begun:
            say_resume("stopped")
        raise
    return store


def print_plan_line(talk: Console, head: str, text: str) -> None:
    """Print a part of a plan: a heading of a few letters, and a text that is wrapped to the width of a page.

    Args:
        talk: The console of stderr.
        head: The heading, such as `load`; it is printed bold in the first column.
        text: The text.

    """
    lines = textwrap.wrap(text, OUTPUT_WIDTH - 11, break_long_words=False, break_on_hyphens=False) or [""]
    for number, line in enumerate(lines):
        talk.print(f"[bold]{'' if number else head:<10}[/] {escape(line)}", highlight=False, soft_wrap=True)


def print_plan_lines(talk: Console, lines: Iterable[tuple[str, str]]) -> None:
    """Print several parts of a plan, each a pair (heading, text), as `print_plan_line` does."""
    for head, text in lines:
        print_plan_line(talk, head, text)


def print_plan(
    talk: Console, prepared: PreparedRun, done: int, may_be_less: bool = False, *, full: bool = False
) -> None:
    """Print the plan of a run: what is measured, with which programs, how long it takes, and which effects it can detect.

    Args:
        talk: The console of stderr.
        prepared: The run as it was planned.
        done: The number of planned measurements that are already done.
        may_be_less: Whether to suggest fewer blocks (repetitions) if the run takes long, because the user did not
            choose their number.
        full: Whether to name everything instead of the first few arms, loads and variants that are left out.

    """
    from lab.report.plan import describe_plan

    manifests = {name: variant.manifests for name, variant in prepared.variants.items()}
    for head, text in describe_plan(prepared.record, manifests, prepared.to_probe, done, may_be_less, full=full):
        print_plan_line(talk, head, text)
    talk.print()


def answer_plan(
    options: Options,
    ready: Iterable[tuple[PreparedRun, int]],
    ablation: AblationRecord | None = None,
    left_out: Sequence[NotMeasured] = (),
    related: Mapping[str, str] | None = None,
) -> int:
    """Complete the answer of a verb with `--plan`: print the plans as JSON if `--json` is given, and return 0.

    For people, the plans are already printed as text.

    Args:
        options: The parsed options.
        ready: The planned runs, each with the number of measurements that are already done.
        ablation: The record of the ablation that the runs belong to; None = none.
        left_out: The variants that cannot be measured here.
        related: Further questions: question → the command that answers it.

    Returns:
        The exit status 0.

    """
    from lab.report.json.answers import PLAN, plan_run

    if options.json:
        runs = [plan_run(prepared.record, done) for prepared, done in ready]
        questions = [{"question": question, "command": command} for question, command in (related or {}).items()]
        data = {"ablation": ablation, "runs": runs, "left_out": left_out, "questions": questions}
        with answer():
            print(PLAN.dumps(**data, duration_s=sum(run["duration_s"] for run in runs)))
    return 0


def print_and_write_result(
    options: Options, run: RunStore, extra: Sequence[Part] = (), tables: Sequence[Sequence[Part]] = ()
) -> int:
    """Print the result of a run that was just measured, and write its HTML page into the run's folder.

    Args:
        options: The parsed options.
        run: The run.
        extra: Parts to print after the result, for people.
        tables: Further tables for the HTML page.

    Returns:
        The exit status: 0 if the run is complete, else 1.

    """
    from lab.analysis import rerun
    from lab.report.html.run import write_page
    from lab.report.result import RunResult
    from lab.report.terminal import print_parts
    from lab.studies.results import make_study_page

    result = RunResult(run)
    try:
        page = write_page(result, run.folder, [make_study_page(result), *tables]).resolve().as_uri()
    except UsageError as error:  # a full disk must not make a measured run fail
        page = f"none: {error.fault}; {error.remedy}"
    print_result(options, run, result, page)
    if extra and not options.json:
        with answer() as out:
            print_parts(out, extra)
    if result.complete:
        return 0
    names = " ".join(arm.variant for arm in run.record.arms if arm.role == "variant") or run.record.arms[0].variant
    again = next((summary.resume for summary in result.shown_summaries if summary.resume), "")
    missing = f"exit 1: {result.missing}; measure again: {again or rerun.measure_command(run.record, names)}"
    Console(stderr=True).print(missing, style="red", markup=False, highlight=False, soft_wrap=True)
    return 1


def print_result(options: Options, run: RunStore, result: RunResult | None = None, page: str = "") -> int:
    """Print the result of a run: its conclusion and its tables.

    Markdown and JSON always have everything. People see all rows and notes only with `options.all`, and all absolute
    values only with `options.absolute`.

    Args:
        options: The parsed options.
        run: The run.
        result: The result, if it is already computed.
        page: The address of the run's HTML page, to print it; empty = there is none.

    Returns:
        The exit status: 0 if the run is complete, else 1.

    """
    from lab.report.json.shape import dumps
    from lab.report.markdown import render_markdown
    from lab.report.result import RunResult
    from lab.report.terminal import print_parts
    from lab.studies.results import make_result_json, make_study_page

    result = result or RunResult(run)
    name = run.folder.name if run.folder.parent == runs_folder() else str(run.folder)
    with answer() as out:
        if options.json:
            print(dumps(make_result_json(result)))
        elif getattr(options, "markdown", False):
            print(render_markdown([*result.page(), *result.more(), *make_study_page(result)]), end="")
        else:
            full, absolute = getattr(options, "all", False), getattr(options, "absolute", False)
            notes = "" if full else f"just table {shlex.quote(name)} --all"
            print_parts(out, [*result.page(notes, page, full or absolute, full)])
            print_parts(out, [*(result.more() if full else []), *make_study_page(result)])
            out.print(f"\n[dim]{escape(str(run.folder))}[/]", highlight=False, soft_wrap=True)
    return 0 if result.complete else 1
