"""The verb `ablate`: it measures each knob (setting) of a variant or study, alone and cumulatively, and ranks the effects."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from lab.base.errors import refuse_first
from lab.commands import MEASURING, Options, Verb, command_for_record, new_run_options, print_answer, variant_name
from lab.commands.measuring import (
    answer_plan,
    done_samples,
    enter_target,
    measure,
    print_plan,
    print_plan_line,
    print_plan_lines,
    probe_trials,
    resume_command,
)
from lab.stats.units import format_duration

if TYPE_CHECKING:
    from lab.experiments.ablation.folder import AblationStore, ReadyRun
    from lab.experiments.ablation.plan import OwnedKnob
    from lab.targets.base import Target


def _run_ablate(options: Options, talk: Console) -> int:
    from lab.experiments.ablation.folder import AblationStore
    from lab.experiments.ablation.plan import knobs_of
    from lab.studies.study_files import resolve_variants

    refuse_first(
        (
            options.resume and (options.target or new_run_options(options) - {"variant"}),
            "ablate",
            "--resume goes on with the ablation's own knobs, target, blocks and seed",
            "leave them out",
        ),
        (
            not options.resume and not options.subject,
            "ablate",
            "no study or variant named",
            "`just list` shows them; try `just ablate keepalive`",
        ),
    )
    if options.resume:
        store = AblationStore.open(options.resume)
        return _measure_runs(options, talk, enter_target(options, store.record.target), store)
    names, study = resolve_variants(options.subject, options.variant)
    target, command = enter_target(options, options.target), command_for_record(options, "subject")
    return ablate(options, talk, target, options.subject, command, lambda folder: (knobs_of(names, folder, study), []))


def ablate(
    options: Options,
    talk: Console,
    target: Target,
    subject: str,
    command: Sequence[str],
    build: Callable[[Path], tuple[Sequence[OwnedKnob], Sequence[str]]],
) -> int:
    """Plan and measure a new ablation: the effect of each single setting (knob) of a variant, study or file.

    If `--plan` is given, or an error occurs before the measuring, no files are left behind. The function must run
    inside the target's namespaces.

    Args:
        options: The parsed options.
        talk: The console of stderr.
        target: The target (where systems run).
        subject: The name of the variant, study or file.
        command: The command line, for the record.
        build: A function that returns the settings to measure, and notes for the result. It gets the ablation's folder
            of manifests, and may add manifests to it.

    Returns:
        The exit status: 0 if the ablation is complete, or if only the plan was requested; else 1.

    """
    from lab.experiments.ablation.folder import new_manifests, plan_ablation

    with new_manifests(f"ablate-{Path(subject).stem.replace('+', '-')[:40]}") as (manifests, keep):
        target.check()
        knobs, notes = build(manifests)
        print_plan_line(talk, "checking", f"{len(knobs)} knobs of {subject}, alone and together")
        seed = options.seed if options.seed is not None else secrets.randbelow(2**31)
        store = plan_ablation(manifests.parent, knobs, notes, target, subject, command, options.blocks, seed)
        return _measure_runs(options, talk, target, store, keep)


def _measure_runs(
    options: Options,
    talk: Console,
    target: Target,
    store: AblationStore,
    keep: Callable[[], object] | None = None,
) -> int:
    """Print the plan of all runs of an ablation (one for each sweep), and measure those that are not complete.

    Args:
        options: The parsed options.
        talk: The console of stderr.
        target: The target (where systems run).
        store: The ablation.
        keep: For a new ablation: a function that makes its temporary folder permanent.

    Returns:
        The exit status: 0 if the ablation is complete, or if only the plan was requested; else 1.

    """
    from lab.experiments.ablation.folder import prepare_runs

    ready = prepare_runs(store, target, probe_trials(options, talk))
    _print_plan(talk, store, ready)
    if options.plan:
        runs = [(run.prepared, done_samples(run.run)) for run in ready if run.prepared]
        left_out = [item for run in ready for item in run.planned.not_measurable]
        return answer_plan(options, runs, store.record, left_out)
    if keep is not None:
        store.write(store.record)
        keep()
    resume = resume_command(options, "ablate", store.record.id)
    for number, run in enumerate(ready, 1):
        done = done_samples(run.run)
        if run.prepared is None or done == len(run.prepared.plan.slots):
            continue
        print_plan_line(talk, f"run {number}/{len(ready)}", f"{run.planned.sweep} of {store.record.id}")
        print_plan(talk, run.prepared, done)
        store.note_run(run.planned.sweep, run.prepared.record.id)
        if measure(talk, run.prepared, run.run, target, resume) is None:
            return 1
    return print_ablation(options, store)


def _print_plan(talk: Console, store: AblationStore, ready: Sequence[ReadyRun]) -> None:
    from lab.report.plan import describe_left_out

    record = store.record
    print_plan_line(talk, "ablation", f"{record.id}: {len(record.steps)} knobs of {record.subject}")
    for step in record.steps:
        how = ["alone"] if step.alone else []
        how += ["cumulatively"] if step.cumulative and step.cumulative != step.alone else []
        base = f", on {step.against}" if step.against != step.root else ""
        reasons = "".join(f"; {text}" for text in step.why)
        print_plan_line(
            talk, "knob", f"{step.knob}: {step.metric} in {step.sweep}{base}: {' and '.join(how) or 'not'}{reasons}"
        )
    print_plan_lines(talk, (("note", note) for note in record.notes))
    total_s = 0.0
    for number, run in enumerate(ready, 1):
        print_plan_lines(talk, describe_left_out(run.planned.not_measurable))
        text = "nothing measurable here"
        if run.prepared is not None:
            plan, done = run.prepared.plan, done_samples(run.run)
            left_s = run.prepared.design.duration_s * (1 - done / len(plan.slots))
            total_s += left_s
            arms = len([arm for arm in plan.arms if arm.role != "reference"])
            size = f"{arms} arms, {len(plan.points)} points, {plan.blocks} blocks, {len(plan.slots)} samples"
            text = f"{size}{f', {done} done' if done else ''}, about {format_duration(left_s)}"
        print_plan_line(talk, f"run {number}/{len(ready)}", f"{run.planned.sweep}: {text}")
    print_plan_line(talk, "duration", f"about {format_duration(total_s)} in all\n")


def print_ablation(options: Options, store: AblationStore) -> int:
    """Print the settings of an ablation, ranked by their effects.

    Returns:
        The exit status: 0 if every planned run exists and is complete, else 1.

    """
    from lab.analysis.summary import summarise_run
    from lab.records.store import RunStore, run_names
    from lab.report.grid import make_sentence
    from lab.report.json.answers import ABLATION
    from lab.report.result import describe_programs
    from lab.report.tables.ablation import page, rank_knobs

    begun = set(run_names())
    runs = {item.sweep: RunStore.open(item.run) for item in store.record.runs if item.run and item.run in begun}
    summaries, disturbed = (
        {sweep: summarise_run(run.record, run.samples(), run.histogram, disruption) for sweep, run in runs.items()}
        for disruption in (False, True)
    )
    outcomes = {sweep: summary for sweep, summary in disturbed.items() if summary.rows}
    lines = rank_knobs(store.record, summaries, outcomes)
    planned = [item.sweep for item in store.record.runs if not item.skipped]
    complete = all(
        sweep in summaries and summaries[sweep].complete and (sweep not in outcomes or outcomes[sweep].complete)
        for sweep in planned
    )
    print_answer(
        options,
        lambda: [
            *(make_sentence(text, "dim") for text in dict.fromkeys(map(describe_programs, runs.values()))),
            *page(store.record, lines),
        ],
        lambda: ABLATION.dumps(store.record, complete=complete, knobs=lines),
        [f"{sweep}: just table {run.record.id}" for sweep, run in runs.items()],
    )
    return 0 if complete else 1


ABLATE = Verb(
    "measure each setting of a variant or study one at a time and cumulatively, and rank them by effect",
    _run_ablate,
    {
        "subject": {
            "nargs": "?",
            "type": variant_name,
            "metavar": "STUDY|VARIANT",
            "help": "the variant or study whose settings (knobs) are measured, such as qinng-tuned or digitalocean",
        },
        "--variant": {"action": "store_true", "help": "take the name as a variant's, where a study has the same name"},
        "--resume": {"metavar": "ABLATION", "help": "continue an interrupted ablation, named by its name or folder"},
    },
    MEASURING,
    examples=("just ablate qinng-tuned --plan", "just ablate digitalocean --blocks 3"),
)
