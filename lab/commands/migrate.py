"""The verb `migrate`: what the successors of ingress-nginx do with your settings, their costs, and the traps."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from lab.base.errors import UsageError
from lab.base.handing import STDIN, hand_over, read_once
from lab.commands import MEASURING, Verb, command_for_record, print_answer
from lab.commands.measuring import (
    enter_target,
    measure,
    print_and_write_result,
    print_plan,
    print_plan_line,
    probe_trials,
    resume_command,
)

if TYPE_CHECKING:
    from lab.experiments.migration.plan import MigrationPlan

SWEEP = "migrate"


def _run_migrate(options: argparse.Namespace, talk: Console) -> int:
    """Print the plan of a migration, and measure it in one run unless `--plan` is given.

    The run compares ingress-nginx with the file against each successor, as shipped and with its settings.
    """
    if not options.configmap:
        raise UsageError("migrate", "no file", "give it: --configmap FILE, or - for the standard input")
    if (options.requests or options.learn) and not options.verify:
        raise UsageError("--requests" if options.requests else "--learn", "is of a verification", "add --verify")
    files = [options.configmap, *options.ingress]
    if files.count(STDIN) > 1:
        raise UsageError("migrate", "two files are the standard input", "give one of them by its name")
    from lab.experiments.migration.plan import INGRESS_READER, READER, plan_migration
    from lab.records.sweep_files import load_sweep
    from lab.report.json.answers import MIGRATION
    from lab.report.tables.migration import page

    load_sweep(options.sweep)  # complain before anything is written
    places = ["standard input" if name == STDIN else name for name in files]
    content, *ingresses = [read_once(name, INGRESS_READER if index else READER) for index, name in enumerate(files)]
    migration_plan = plan_migration(places[0], content, list(zip(places[1:], ingresses, strict=True)), options.to)
    if options.verify:
        from lab.commands.verifying import run_verification

        return run_verification(options, talk, migration_plan, list(zip(places, (content, *ingresses), strict=True)))
    full_page = page(
        migration_plan.place,
        migration_plan.given,
        migration_plan.unknown,
        migration_plan.notes,
        migration_plan.migrations,
    )
    if options.plan:
        _write_manifests(options, talk, migration_plan)
        print_answer(options, lambda: full_page, lambda: MIGRATION.dumps(migration_plan))
        return 0
    with hand_over(content):
        target = enter_target(options, options.target)

    from lab.experiments import bench
    from lab.experiments.ablation.folder import new_manifests
    from lab.experiments.migration.folder import add_variants
    from lab.report.result import RunResult
    from lab.report.tables.migration import costs_page, traps_page, warnings_page

    _write_manifests(options, talk, migration_plan)
    with new_manifests(SWEEP) as (manifests, keep):
        target.check()
        baseline, names, notes = add_variants(migration_plan, manifests, target)
        for note in notes:
            print_plan_line(talk, "note", note)
        request = bench.BenchRequest(
            tuple(names),
            options.sweep,
            options.blocks,
            options.seed,
            label=SWEEP,
            manifests=manifests,
            against=(baseline,),
            sustained=options.sustained,
        )
        prepared = bench.prepare(request, target, command_for_record(options), probe_trials(options, talk))
        print_plan(talk, prepared, 0)
        keep()
    store = measure(talk, prepared, None, target, resume_command(options, "bench", prepared.record.id))
    if store is None:
        return 1
    summary = RunResult(store).told
    cost = [*costs_page(summary), *warnings_page(summary)]
    return print_and_write_result(options, store, [*cost, *traps_page(migration_plan.migrations)], [cost, full_page])


def _write_manifests(options: argparse.Namespace, talk: Console, migration_plan: MigrationPlan) -> None:
    """Write the manifests, if `--out` is given."""
    from lab.experiments.migration.folder import export_manifests

    if options.out:
        for note in export_manifests(Path(options.out), migration_plan.migrations):
            print_plan_line(talk, "note", note)
        print_plan_line(
            talk, "manifests", f"{options.out}: kubectl apply -k {options.out}/overlays/SYSTEM, or SYSTEM-yours"
        )


MIGRATE = Verb(
    "what ingress-nginx's successors do with your settings, and the traps in between",
    _run_migrate,
    {
        "--configmap": {
            "metavar": "FILE",
            "help": "your ingress-nginx ConfigMap or Helm values, in any form that bench takes (- = standard input)",
        },
        "--ingress": {
            "metavar": "FILE",
            "nargs": "+",
            "action": "extend",
            "default": [],
            "help": "Ingress objects, whose annotations are settings, too",
        },
        "--to": {
            "metavar": "SYSTEM",
            "nargs": "+",
            "action": "extend",
            "default": [],
            "help": "the successors (default: all that have a table)",
        },
        "--out": {
            "metavar": "FOLDER",
            "help": "write manifests there, of each as shipped and with your settings, to take away",
        },
        "--verify": {
            "action": "store_true",
            "help": "send ingress-nginx and each successor the same requests, and show where the answers differ",
        },
        "--requests": {"metavar": "FILE", "help": "of --verify: your own requests, as a HAR file or lines METHOD URL"},
        "--learn": {
            "action": "store_true",
            "help": "of --verify: make every difference that the migration table did not know a row of it",
        },
        "--sweep": {"default": SWEEP, "help": f"the loads (default: {SWEEP})"},
    },
    ("--sustained", *MEASURING, "--markdown"),
)
