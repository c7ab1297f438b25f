"""What every verb that measures does: go where its target measures, print the plan, measure it, print the result."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from lab.base.errors import LabError, UsageError
from lab.base.files import runs_folder
from lab.commands import RanInsideError, answer, recorded
from lab.stats.units import format_duration

if TYPE_CHECKING:
    from lab.experiments.bench import Prepared, Request
    from lab.experiments.bench.probing import Trials
    from lab.model.run import NotMeasured
    from lab.records.ablation import AblationRecord
    from lab.records.store import RunStore
    from lab.report.grid import Part
    from lab.report.result import Result
    from lab.targets.base import Target


BUSIEST = 3
"""Other processes that are named."""
EACH = 3
"""Points that the plan names one by one."""
LONG_S = 300.0
"""Who is to wait for longer is told how not to."""


def target_of(options: argparse.Namespace) -> str | None:
    """`--target`, or that of the run to `--resume`. UsageError when both are named and differ."""
    if not options.resume:
        return options.target
    from lab.records.store import RunStore

    record = RunStore.open(options.resume).record
    if options.target not in (None, record.target):
        raise UsageError("--target", f"run {record.id} is of target '{record.target}'", "leave --target out")
    return record.target


def inside(options: argparse.Namespace, name: str | None) -> Target:
    """Return the target of that name (None: the default one), where it measures: in its own namespaces, if it has some.

    Where the lab was not there yet, it has been now, and RanInsideError is raised. There SIGTERM ends it as cleanly as Ctrl-C does.
    """
    from lab.targets import entered

    target = entered(name, getattr(options, "context", None), options.argv)
    if isinstance(target, int):
        raise RanInsideError(target)
    settle()
    return target


def settle() -> None:
    """Let SIGTERM end the lab as cleanly as Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def resume_command(options: argparse.Namespace, verb: str, name: str) -> str:
    """What goes on with a run or an ablation, at the same context; one that is gone on with is named as it was."""
    at = f" --context {options.context}" if options.context else ""
    return f"just {verb} --resume {shlex.quote(getattr(options, 'resume', None) or name)}{at}"


def trials(options: argparse.Namespace, talk: Console) -> Trials | None:
    """Return how it is found out what a target carries for two sides at once; None where only a plan was asked for."""
    from lab.experiments.bench.probing import pair_trials

    return None if options.plan else partial(pair_trials, partial(say, talk, "probe"))


def done_samples(run: RunStore | None) -> int:
    """How many of a run's slots need no further measurement."""
    from lab.model.samples import cell, settled

    if run is None:
        return 0
    done = {cell(sample) for sample in run.samples() if settled(sample)}
    return sum(done.issuperset(slot.cells) for slot in run.record.plan().slots)


def plan_and_measure(
    options: argparse.Namespace, talk: Console, target: Target, request: Request, names: str, verb: str = "bench"
) -> RunStore | int:
    """Print the plan of what is asked for, or of the run to `--resume`, and measure it; the exit status where that is all.

    `names`: the option with what is measured; `verb`: the one whose `--resume` goes on with it.
    """
    from lab.experiments import bench

    if options.resume:
        prepared, run = bench.resume(options.resume, target)
    else:
        prepared, run = bench.prepare(request, target, recorded(options, names), trials(options, talk)), None
    done = done_samples(run)
    print_plan(talk, prepared, done, verb == "bench" and run is None and not (options.blocks or request.resolve))
    if options.plan:
        return answer_plan(options, [(prepared, done)])
    store = measure(talk, prepared, run, target, resume_command(options, verb, prepared.record.id))
    return 1 if store is None else store


def measure(
    talk: Console,
    prepared: Prepared,
    run: RunStore | None,
    target: Target,
    resume: str,
    search: Callable[[RunStore], None] | None = None,
) -> RunStore | None:
    """Measure what `run` (None = a new one) does not hold yet; None when interrupted. However it ends, what goes on with it is said.

    `resume`: the command that goes on with it; `search`: measures a search for the knee, whose plan grows meanwhile.
    """
    from lab.commands.progress import Terminal
    from lab.experiments import bench
    from lab.measure import roundtrip
    from lab.measure.loop import Loop
    from lab.model.bottleneck import MAX_OTHERS_CORES
    from lab.records.store import RunStore
    from lab.targets.common.sampler import HOST_PROC, busiest

    found = busiest() if search is None and HOST_PROC in os.environ else {}
    if sum(found.values()) >= MAX_OTHERS_CORES:  # enough to spoil a sample; nothing where the lab cannot see it
        each = (f"{name} {cpus:.1f}" for name, cpus in islice(found.items(), BUSIEST) if cpus >= MAX_OTHERS_CORES)
        lost = "samples may be lost: stop it, or wait"
        bears = "pairs bear that, samples of arms alone may be lost" if prepared.record.pairs else lost
        used = f"{sum(found.values()):.1f} of {os.cpu_count()} CPUs ({', '.join(each)})"
        say(talk, "busy", f"what is not the lab's uses {used}: {bears}\n")

    def say_resume(what: str) -> None:
        kept = "sample" if search is None else "trial"
        said = f"\n{what}; every complete {kept} is kept. Go on with:\n  {resume}"  # a line of its own can be copied
        talk.print(said, markup=False, highlight=False, soft_wrap=True)

    begun = False
    try:
        manifests = {name: variant.manifests for name, variant in prepared.variants.items()}
        store = run or RunStore.create(prepared.record, manifests)
        with store.locked():
            if run is not None:
                bench.go_on(run, target)
            begun = True
            if search is not None:
                search(store)
            else:
                with Terminal(talk, prepared.plan, prepared.design.duration_s, done_samples(run)) as watching:
                    Loop(target, prepared.variants, prepared.chosen, store, watching, roundtrip.measure).measure()
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


def say(talk: Console, head: str, text: str) -> None:
    """One line of a plan."""
    talk.print(f"[bold]{head:<10}[/] {escape(text)}", highlight=False, soft_wrap=True)


def say_left_out(talk: Console, missing: Iterable[NotMeasured]) -> None:
    """A line each, with what would help."""
    for item in missing:
        say(talk, "left out", f"{item}; {item.remedy}" if item.remedy else str(item))


def print_plan(talk: Console, prepared: Prepared, done: int, may_be_less: bool = False) -> None:
    """What is to be measured, how long that takes, and what it resolves. `may_be_less`: nobody asked for so many blocks."""
    from lab.experiments.bench.design import UNKNOWN
    from lab.model.metrics import about
    from lab.report.loads import disturbance_text, load_text
    from lab.stats.paired import MIN_BLOCKS
    from lab.stats.units import format_blocks

    record, design = prepared.record, prepared.design
    role_of = {arm.name: arm.role for arm in record.arms}
    measured = [name for name, role in role_of.items() if role != "reference"]
    references = [name for name, role in role_of.items() if role == "reference"]
    say(talk, "run", record.id)
    roles: dict[str, list[str]] = {}
    for key, cpus in record.facts.items():
        if key.startswith("cpus_"):
            roles.setdefault(cpus, []).append(key.removeprefix("cpus_"))
    pinned = "; ".join(f"{', '.join(names)} on CPU {cpus}" for cpus, names in roles.items())
    unpinned = [record.facts[key] for key in ("target", "pinning") if key in record.facts]
    say(talk, "target", f"{record.target}: {pinned}" if pinned else "; ".join(unpinned))
    held = format_blocks(len({block for one in design.places if one.arm in references for block in one.blocks}))
    say(talk, "arms", ", ".join(measured) + (f"; in {held}: {', '.join(references)}" if references else ""))
    say_left_out(talk, record.not_measurable)
    if record.at_knee is not None:
        say(talk, "knee", str(record.at_knee))
    paired: dict[str, int] = {}
    for one in design.places:
        if one.against and role_of[one.arm] == "variant":
            paired[one.point] = max(len(one.blocks), paired.get(one.point, 0))
    for point in record.points:
        used = prepared.chosen[point.name]
        name = used.generator.name + (f" standing in for {used.stand_in_for}" if used.stand_in_for else "")
        disturbed = disturbance_text(point) if point.disturbance is not None else ""
        done_to_it = "nothing is done (control)" if point.control else disturbed
        words = [f"{point.name}: {name}, {load_text(point)}", done_to_it]
        words += [f"no pair can bear it: {point.why_alone}"] if record.pairs and point.why_alone else []
        count = paired.get(point.name, design.blocks)
        words += [f"pairs in {count} of the {design.blocks} blocks"] if count < max(paired.values(), default=0) else []
        say(talk, "point", "; ".join(filter(None, words)))
    for variant in record.variants.values():
        if variant.unpaired:
            say(talk, "alone", f"{variant.name} is measured without pairs: {variant.unpaired}")
    for probe in record.probes:
        say(talk, "probe", str(probe))
    if prepared.to_probe:
        rates = ", ".join(f"{point.rate_rps:,.0f} req/s ({point.name})" for point in prepared.to_probe)
        then = "if not, the rate is lowered, or arms are measured one after the other"
        say(
            talk,
            "probe",
            f"before the plan is fixed, some seconds of load show whether two sides at once get {rates} here: {then}",
        )
    if design.fixed_workers:
        names = ", ".join(design.fixed_workers)
        say(
            talk,
            "workers",
            f"every pair is measured on the workers it came up with: no reload makes new ones of {names}",
        )
    slots, pairs = len(record.slots), len(record.pairs)
    counts = {"pairs": pairs, "samples of arms alone" if pairs else "samples": slots - pairs}
    many = " and ".join(f"{count} {what}" for what, count in counts.items() if count)
    samples = f"{many} in {design.blocks} block{'s' if design.blocks != 1 else ''}"
    say(talk, "plan", f"{samples}{f', {done} of them done' if done else ''}, seed {record.seed}")
    if chosen_for := design.planned_for:
        wanted = f"{100 * chosen_for.effect:g}% in {about(chosen_for.metric).title} at {chosen_for.point}"
        said = f"so many blocks, because then {wanted} is found with {chosen_for.power:.0%} probability"
        say(talk, "chosen", f"{said}, by the noise of {chosen_for.from_run}")
    share = 1 - done / slots if slots else 0
    long = may_be_less and design.duration_s > LONG_S and design.blocks > MIN_BLOCKS
    shorter = f"; less with --blocks, at least {MIN_BLOCKS} for an interval" if long else ""
    say(talk, "duration", f"about {format_duration(design.duration_s * share)}{shorter}")
    if fresh := design.fresh.count:
        where = f"after {' and '.join(design.fresh.loads)}, which leave too many local ports waiting"
        known = ", ".join(design.fresh.runs[-3:])
        say(talk, "anew", f"{fresh} more bring-ups within blocks, {where} (known from {known})")
    by_metric: dict[str, list[tuple[float, str]]] = {}
    for promise in design.promised:
        by_metric.setdefault(about(promise.metric).title, []).append((promise.effect, promise.point))
    effects: list[str] = []
    for metric, found in by_metric.items():
        ends = dict.fromkeys(f"{effect:.1%}" for effect, _ in (min(found), max(found)))
        several = [f"{' to '.join(ends)} in {metric} at {len(found)} points"]
        each = [f"{effect:.1%} in {metric} at {point}" for effect, point in found]
        effects += each if len(each) <= EACH else several
    said = f"effects from {', '.join(effects)}" if effects else "nothing"
    by = design.promised_by
    say(talk, "resolves", f"{by if by == UNKNOWN else f'{said} ({by})'}\n")


def answer_plan(
    options: argparse.Namespace,
    ready: Iterable[tuple[Prepared, int]],
    ablation: AblationRecord | None = None,
    left_out: Sequence[NotMeasured] = (),
    beside: Mapping[str, str] | None = None,
) -> int:
    """What `--plan` ends in, its sentences said: `--json` has it as data, too. `ready`: each run, and how many of its slots are done. 0."""
    from lab.report.json.answers import PLAN, plan_run

    if options.json:
        runs = [plan_run(prepared.record, done) for prepared, done in ready]
        asked = [{"question": question, "command": command} for question, command in (beside or {}).items()]
        whole = {"ablation": ablation, "runs": runs, "left_out": left_out, "beside": asked}
        with answer():
            print(PLAN.dumps(**whole, duration_s=sum(run["duration_s"] for run in runs)))
    return 0


def finish(
    options: argparse.Namespace, run: RunStore, below: Sequence[Part] = (), more: Sequence[Sequence[Part]] = ()
) -> int:
    """A run that has just been measured: its page is written beside it, with `more` on it; its result is printed, for people with `below`.

    The exit status.
    """
    from lab.report.html.run import write
    from lab.report.result import Result
    from lab.report.terminal import show
    from lab.studies.results import study_page

    result = Result(run)
    status = print_result(options, run, result)
    if below and not options.json:
        with answer() as out:
            show(out, below)
    try:
        page = str(write(result, run.folder, [study_page(result), *more]))
    except UsageError as error:  # a full disk must not make a measured run fail
        page = f"no page: {error.fault}; {error.remedy}"
    Console(stderr=True).print(f"[dim]{escape(page)}[/]", highlight=False, soft_wrap=True)
    return status


def print_result(options: argparse.Namespace, run: RunStore, result: Result | None = None) -> int:
    """What a run says: a sentence per variant, its tables, and where the rest is; the exit status.

    All notes and what the systems hold are shown where `options.notes` says so; Markdown and JSON have everything.
    """
    from lab.report.json.shape import dumps
    from lab.report.markdown import markdown
    from lab.report.result import Result
    from lab.report.terminal import show
    from lab.studies.results import result_json, study_page

    result = result or Result(run)
    name = run.folder.name if run.folder.parent == runs_folder() else str(run.folder)
    with answer() as out:
        if options.json:
            print(dumps(result_json(result)))
        elif getattr(options, "markdown", False):
            print(markdown([*result.page(), *result.more(), *study_page(result)]), end="")
        else:
            every = getattr(options, "notes", False)
            show(out, [*result.page("" if every else f"just table {shlex.quote(name)} --notes")])
            show(out, [*(result.more() if every else []), *study_page(result)])
            out.print(f"\n[dim]{escape(str(run.folder))}[/]", highlight=False, soft_wrap=True)
    return 0 if result.complete else 1
