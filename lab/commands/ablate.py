"""`ablate`: a variant's or a study's knobs one at a time and cumulatively, each in the load its hypothesis names, ranked."""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from lab.base.errors import UsageError
from lab.commands import MEASURING, Verb, of_its_own, print_answer, recorded, variant_name
from lab.commands.measuring import (
    answer_plan,
    done_samples,
    inside,
    measure,
    print_plan,
    resume_command,
    say,
    say_left_out,
    trials,
)
from lab.stats.units import format_duration

if TYPE_CHECKING:
    from lab.experiments.ablation.folder import AblationStore, Ready
    from lab.experiments.ablation.plan import Owned
    from lab.targets.base import Target


def _ablate(options: argparse.Namespace, talk: Console) -> int:
    from lab.experiments.ablation.folder import AblationStore
    from lab.experiments.ablation.plan import knobs_of
    from lab.studies.study_files import variants_of

    if options.resume and (options.target or of_its_own(options) - {"variant"}):
        fault = "--resume goes on with the ablation's own knobs, target, blocks and seed"
        raise UsageError("ablate", fault, "leave them out")
    if not options.resume and not options.subject:
        raise UsageError("ablate", "no study or variant named", "`just list` shows them; try `just ablate keepalive`")
    if options.resume:
        store = AblationStore.open(options.resume)
        return _go_on(options, talk, inside(options, store.record.target), store)
    names, study = variants_of(options.subject, options.variant)
    target, command = inside(options, options.target), recorded(options, "subject")
    return ablate(options, talk, target, options.subject, command, lambda folder: (knobs_of(names, folder, study), []))


def ablate(
    options: argparse.Namespace,
    talk: Console,
    target: Target,
    subject: str,
    command: Sequence[str],
    build: Callable[[Path], tuple[Sequence[Owned], Sequence[str]]],
) -> int:
    """A new ablation, from inside the target; nothing of it stays if it is only planned or refused.

    `build`: the ablation's own manifests folder, to which it may add → the knobs, and notes for the result.
    """
    from lab.experiments.ablation.folder import new_manifests, planned

    with new_manifests(f"ablate-{Path(subject).stem.replace('+', '-')[:40]}") as (manifests, keep):
        target.check()
        found, notes = build(manifests)
        say(talk, "checking", f"{len(found)} knobs of {subject}, alone and together")
        seed = options.seed if options.seed is not None else secrets.randbelow(2**31)
        store = planned(manifests.parent, found, notes, target, subject, command, options.blocks, seed)
        return _go_on(options, talk, target, store, keep)


def _go_on(
    options: argparse.Namespace,
    talk: Console,
    target: Target,
    store: AblationStore,
    keep: Callable[[], object] | None = None,
) -> int:
    """Print the plan of every run, then measure what is left of them; `keep`: of a new one, keeps its folder."""
    from lab.experiments.ablation.folder import prepared

    ready = prepared(store, target, trials(options, talk))
    _print_plan(talk, store, ready)
    if options.plan:
        runs = [(each.prepared, done_samples(each.run)) for each in ready if each.prepared]
        left_out = [item for each in ready for item in each.planned.not_measurable]
        return answer_plan(options, runs, store.record, left_out)
    if keep is not None:
        store.write(store.record)
        keep()
    resume = resume_command(options, "ablate", store.record.id)
    for number, each in enumerate(ready, 1):
        done = done_samples(each.run)
        if each.prepared is None or done == len(each.prepared.plan.slots):
            continue
        say(talk, f"run {number}/{len(ready)}", f"{each.planned.sweep} of {store.record.id}")
        print_plan(talk, each.prepared, done)
        store.note_run(each.planned.sweep, each.prepared.record.id)
        if measure(talk, each.prepared, each.run, target, resume) is None:
            return 1
    return print_ablation(options, store)


def _print_plan(talk: Console, store: AblationStore, ready: Sequence[Ready]) -> None:
    record = store.record
    say(talk, "ablation", f"{record.id}: {len(record.steps)} knobs of {record.subject}")
    for step in record.steps:
        how = ["alone"] if step.alone else []
        how += ["cumulatively"] if step.cumulative and step.cumulative != step.alone else []
        on = f", on {step.against}" if step.against != step.root else ""
        why = "".join(f"; {text}" for text in step.why)
        say(talk, "knob", f"{step.knob}: {step.metric} in {step.sweep}{on}: {' and '.join(how) or 'not'}{why}")
    for note in record.notes:
        say(talk, "note", note)
    total_s = 0.0
    for number, each in enumerate(ready, 1):
        say_left_out(talk, each.planned.not_measurable)
        if each.prepared is None:
            say(talk, f"run {number}/{len(ready)}", f"{each.planned.sweep}: nothing measurable here")
            continue
        plan, done = each.prepared.plan, done_samples(each.run)
        left_s = each.prepared.design.duration_s * (1 - done / len(plan.slots))
        total_s += left_s
        arms = len([arm for arm in plan.arms if arm.role != "reference"])
        text = f"{each.planned.sweep}: {arms} arms, {len(plan.points)} points, {plan.blocks} blocks, {len(plan.slots)} samples"
        say(
            talk,
            f"run {number}/{len(ready)}",
            f"{text}{f', {done} done' if done else ''}, about {format_duration(left_s)}",
        )
    say(talk, "duration", f"about {format_duration(total_s)} in all\n")


def print_ablation(options: argparse.Namespace, store: AblationStore) -> int:
    """The ranked table; the exit status: 0 when every run is there and complete."""
    from lab.analysis.summary import summarise_run
    from lab.records.store import RunStore, run_names
    from lab.report.json.answers import ABLATION
    from lab.report.tables.ablation import page, ranked

    begun = set(run_names())
    runs = {each.sweep: RunStore.open(each.run) for each in store.record.runs if each.run and each.run in begun}
    summaries, disturbed = (
        {sweep: summarise_run(run.record, run.samples(), run.histogram, each) for sweep, run in runs.items()}
        for each in (False, True)
    )
    outcomes = {sweep: found for sweep, found in disturbed.items() if found.rows}
    lines = ranked(store.record, summaries, outcomes)
    wanted = [each.sweep for each in store.record.runs if not each.skipped]
    complete = all(
        sweep in summaries and summaries[sweep].complete and (sweep not in outcomes or outcomes[sweep].complete)
        for sweep in wanted
    )
    print_answer(
        options,
        lambda: page(store.record, lines),
        lambda: ABLATION.dumps(store.record, complete=complete, knobs=lines),
        [f"{sweep}: just table {run.record.id}" for sweep, run in runs.items()],
    )
    return 0 if complete else 1


ABLATE = Verb(
    "a variant's or study's knobs one at a time and cumulatively, ranked by effect",
    _ablate,
    {
        "subject": {"nargs": "?", "type": variant_name, "metavar": "STUDY|VARIANT"},
        "--variant": {"action": "store_true", "help": "the variant, where a study has the same name"},
        "--resume": {"metavar": "ABLATION", "help": "go on with an interrupted ablation"},
    },
    MEASURING,
)
