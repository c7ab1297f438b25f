"""`study`: all variants of a publication in one run, and its tables in the published shape."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Console

from lab.base.errors import UsageError
from lab.commands import Adder
from lab.commands.arguments import (
    add_measuring,
    add_resolve,
    add_sustained,
    inside,
    recorded,
    refuse_blocks_beside_resolve,
)
from lab.commands.measuring import answer_plan, finish, measure, print_plan, resume_command, say, settle, trials

if TYPE_CHECKING:
    from lab.analysis.claims.studies import Study
    from lab.targets.base import Target


def add(adder: Adder) -> None:
    verb = adder(_study, "run a study's variants at published scale and print its tables")
    verb.add_argument("key", nargs="?", metavar="KEY", help="which study; `just list` shows them")
    verb.add_argument("--quick", action="store_true", help="the shortened load")
    verb.add_argument("--markdown", action="store_true", help="print the result as Markdown")
    add_measuring(verb)
    add_resolve(verb)
    add_sustained(verb)


def _study(options: argparse.Namespace, talk: Console) -> int:
    from lab.analysis.claims.studies import load_study, study_keys

    if options.key is None:
        raise UsageError("study", "no study named", f"known: {', '.join(study_keys())}")
    refuse_blocks_beside_resolve(options)
    study = load_study(options.key)
    return inside(options, options.target, partial(_study_here, options, talk, study))


def _study_here(options: argparse.Namespace, talk: Console, study: Study, target: Target) -> int:
    from lab.analysis import rerun
    from lab.experiments import bench
    from lab.stats.units import format_duration

    settle()
    file = study.file
    sweep = file.quick.sweep if options.quick else file.sweep
    blocks = options.blocks or (file.quick.blocks if options.quick and not options.resolve else None)
    label = f"{study.key}-study"
    request = bench.Request(
        tuple(file.variants),
        sweep,
        blocks,
        options.seed,
        label=label,
        study=study.key,
        resolve=options.resolve,
        sustained=options.sustained,
    )
    prepared = bench.prepare(request, target, recorded(options, "key"), trials(options, talk))
    say(talk, "study", f"{study.key}: {file.title}")
    say(talk, "question", file.question)
    print_plan(talk, prepared, 0)
    arms = [arm for arm in prepared.plan.arms if arm.role != "reference"]
    took = format_duration(prepared.design.duration_s)
    place = rerun.place(target.name)
    longer = "" if options.quick else f"; shortened: just study {study.key} --quick{place}"
    for change in file.changes:
        say(talk, "beside it", f"{change.question} {change.command(options.quick, place)}")
    say(talk, "in all", f"{len(arms)} arms at {len(prepared.plan.points)} points, about {took}{longer}\n")
    if options.plan:
        beside = {change.question: change.command(options.quick, place) for change in file.changes}
        return answer_plan(options, [(prepared, 0)], beside=beside)
    store = measure(talk, prepared, None, target, resume_command(options, "bench", prepared.record.id))
    return 1 if store is None else finish(options, store)
