"""`study`: all variants of a publication in one run, and its tables in the published shape."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rich.console import Console

from lab.base.errors import UsageError
from lab.commands import Adder
from lab.commands.arguments import MEASURING, add_options, recorded, refuse_blocks_beside_resolve
from lab.commands.measuring import answer_plan, finish, inside, measure, print_plan, resume_command, say, trials

if TYPE_CHECKING:
    from lab.targets.base import Target


def add(adder: Adder) -> None:
    verb = adder(_study, "run a study's variants at published scale and print its tables")
    verb.add_argument("key", nargs="?", metavar="KEY", help="which study; `just list` shows them")
    verb.add_argument("--quick", action="store_true", help="the shortened load")
    add_options(verb, "--markdown", *MEASURING, "--resolve", "--sustained")


def _study(options: argparse.Namespace, talk: Console) -> int:
    from lab.studies.study_files import load_study, study_keys

    if options.key is None:
        raise UsageError("study", "no study named", f"known: {', '.join(study_keys())}")
    refuse_blocks_beside_resolve(options)
    study = load_study(options.key)

    def here(target: Target) -> int:
        from lab.analysis import rerun
        from lab.experiments import bench
        from lab.stats.units import format_duration

        file = study.file
        request = bench.Request(
            tuple(file.variants),
            file.quick.sweep if options.quick else file.sweep,
            options.blocks or (file.quick.blocks if options.quick and not options.resolve else None),
            options.seed,
            label=f"{study.key}-study",
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
        beside = {change.question: change.command(options.quick, place) for change in file.changes}
        for question, command in beside.items():
            say(talk, "beside it", f"{question} {command}")
        say(talk, "in all", f"{len(arms)} arms at {len(prepared.plan.points)} points, about {took}{longer}\n")
        if options.plan:
            return answer_plan(options, [(prepared, 0)], beside=beside)
        store = measure(talk, prepared, None, target, resume_command(options, "bench", prepared.record.id))
        return 1 if store is None else finish(options, store)

    return inside(options, options.target, here)
