"""The verb `migrate`: how the successors of ingress-nginx treat a user's settings, and what changes after a migration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from lab.base.errors import refuse_if
from lab.base.handing import STDIN, hand_over, read_once
from lab.commands import MEASURING, SWEEPS_HELP, Options, Verb, command_for_record, print_answer, refuse_given
from lab.commands.measuring import (
    answer_plan,
    enter_target,
    measure,
    print_and_write_result,
    print_plan,
    print_plan_lines,
    probe_trials,
    resume_command,
)
from lab.commands.traffic import TRAFFIC, hand_over_traffic

if TYPE_CHECKING:
    from lab.analysis.migration.mapping import MigrationPlan

SWEEP = "migrate"
MEASURE = "--measure"
ONLY_MEASURED = ("target", "context", "blocks", "seed", "sustained", "traffic", "traffic_rate")
"""The names of options that have an effect only with a measurement."""


def _run_migrate(options: Options, talk: Console) -> int:
    """Run the verb `migrate`: print how each successor of ingress-nginx treats the user's settings.

    With `--measure`, a run compares each successor with ingress-nginx, which has the user's settings. Each successor
    is measured twice: as shipped, and with its equivalents of these settings. With `--verify`, the answers of all
    systems are compared.

    Returns:
        The exit status: 0, or 1 if a measurement is not complete. With `--verify` it is that of `run_verification`.

    """
    if not (options.measure or options.verify):
        refuse_given(options, ONLY_MEASURED, f"says nothing without {MEASURE}", f"leave it out, or add {MEASURE}")
    if not options.verify:
        refuse_given(options, ("requests", "learn"), "is of a verification", "add --verify")
    from lab.analysis.migration.table import read_seen
    from lab.records.sweep_files import load_sweep
    from lab.report.json.answers import MIGRATION
    from lab.report.tables.migration import overview, page

    load_sweep(options.sweep)  # complain before anything is written
    migration_plan, files = _read_files(options)
    if options.verify:
        from lab.commands.verifying import run_verification

        return run_verification(options, talk, migration_plan, files)
    if not options.measure:
        _write_manifests(options, talk, migration_plan)
        print_answer(
            options,
            lambda: page(migration_plan, read_seen(), every_line=options.all, one_line_each=not options.to),
            lambda: MIGRATION.dumps(migration_plan),
        )
        return 0
    with hand_over(*(content for _, content in files)), hand_over_traffic(options, SWEEP) as made:
        target = enter_target(options, options.target)

    from lab.experiments import bench
    from lab.experiments.ablation.folder import new_manifests
    from lab.experiments.migration.folder import add_variants
    from lab.report.result import RunResult
    from lab.report.tables.gauges import warnings_page

    _write_manifests(options, talk, migration_plan)
    with new_manifests(SWEEP) as (manifests, keep):
        target.check()
        baseline, names, notes = add_variants(migration_plan, manifests, target)
        print_plan_lines(talk, (("note", note) for note in notes))
        request = bench.BenchRequest(
            tuple(names),
            TRAFFIC if made else options.sweep,
            options.blocks,
            options.seed,
            made=made,
            label=SWEEP,
            manifests=manifests,
            against=(baseline,),
            sustained=options.sustained,
        )
        prepared = bench.prepare(request, target, command_for_record(options, "files"), probe_trials(options, talk))
        print_plan(talk, prepared, 0)
        if options.plan:
            return answer_plan(options, [(prepared, 0)])
        keep()
    store = measure(talk, prepared, None, target, resume_command(options, "bench", prepared.record.id))
    if store is None:
        return 1
    warnings = warnings_page(RunResult(store).shown_summaries)
    evidence = read_seen()
    full_page = page(migration_plan, evidence, every_line=True)
    return print_and_write_result(
        options, store, [*warnings, *overview(migration_plan, evidence)], [warnings, full_page]
    )


def _read_files(options: Options) -> tuple[MigrationPlan, list[tuple[str, bytes]]]:
    """Read the user's configuration files that the options name, and plan the migration of their settings.

    Returns:
        The plan, and the name and content of each file in the order in which they were read.

    Raises:
        UsageError: Two files are the standard input, or two files have a ConfigMap.

    """
    from lab.experiments.migration.plan import INGRESS_READER, READER, plan_migration, sort_files

    named = [options.configmap] * bool(options.configmap)
    names = [*named, *options.ingress, *options.files]
    refuse_if(names.count(STDIN) > 1, "migrate", "two files are the standard input", "give one of them by its name")
    contents = [read_once(name, INGRESS_READER if name in options.ingress else READER) for name in names]
    places = ("standard input" if name == STDIN else name for name in names)
    read, count = list(zip(places, contents, strict=True)), len(named) + len(options.ingress)
    configmap, ingresses = sort_files(read[count:], read[: len(named)])
    return plan_migration(*(configmap or ("", None)), [*read[len(named) : count], *ingresses], options.to), read


def _write_manifests(options: Options, talk: Console, migration_plan: MigrationPlan) -> None:
    """Write the manifests of the successors into the folder that `--out` names; do nothing without `--out`."""
    from lab.experiments.migration.folder import export_manifests

    if options.out:
        notes = (("note", note) for note in export_manifests(Path(options.out), migration_plan.migrations))
        where = f"{options.out}: kubectl apply -k {options.out}/overlays/SYSTEM, or SYSTEM-yours"
        print_plan_lines(talk, [*notes, ("manifests", where)])


MIGRATE = Verb(
    "what ingress-nginx's successors do with your settings: what breaks, what to set; measures with --measure only",
    _run_migrate,
    {
        "files": {
            "metavar": "FILE",
            "nargs": "*",
            "help": "your ConfigMap or Helm values, and your Ingresses, in any order (- = standard input; none: the defaults)",
        },
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
        "--all": {
            "action": "store_true",
            "help": "every setting with its counterpart, note and source, instead of a page",
        },
        MEASURE: {
            "action": "store_true",
            "help": "measure ingress-nginx with your file against each successor; says first how long that takes (with --plan: and stops)",
        },
        "--verify": {
            "action": "store_true",
            "help": "send ingress-nginx and each successor the same requests, and show where the answers differ",
        },
        "--requests": {
            "metavar": "FILE",
            "help": "send your own requests, too, with --verify: a HAR file, or lines METHOD URL",
        },
        "--learn": {
            "action": "store_true",
            "help": "add every difference that the migration table did not know to it, with --verify",
        },
        "--sweep": {"default": SWEEP, "metavar": "SWEEP", "help": SWEEPS_HELP.format(SWEEP)},
    },
    ("--traffic", "--traffic-rate", "--sustained", *MEASURING, "--markdown"),
    examples=(
        "just migrate data/examples/configmap.yaml",
        "just migrate data/examples/configmap.yaml --to traefik-ingress-nginx",
        "just migrate data/examples/configmap.yaml --to envoy --out moved",
    ),
)
