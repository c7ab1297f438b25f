"""The verbs `bench` (variants against their baselines) and `study` (all variants of a publication in one run)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from lab.base.errors import refuse_first, refuse_if, refuse_unknown
from lab.base.handing import STDIN, hand_over, piped_command, read_once
from lab.commands import (
    KNEE,
    MEASURING,
    RESUME,
    SWEEPS_HELP,
    VARIANT,
    Options,
    Verb,
    command_for_record,
    new_run_options,
    refuse_blocks_with_resolve,
    refuse_given,
    variant_name,
)
from lab.commands.ablate import ablate
from lab.commands.measuring import (
    answer_plan,
    enter_target,
    measure,
    plan_and_measure,
    print_and_write_result,
    print_plan,
    print_plan_line,
    print_plan_lines,
    probe_trials,
    resume_command,
    target_of,
)
from lab.commands.traffic import TRAFFIC, hand_over_traffic
from lab.model.names import DEFAULT_TARGET, EQUIVALENCE_MARGIN
from lab.stats.units import format_duration

if TYPE_CHECKING:
    from lab.experiments.ablation.plan import OwnedKnob

_LONG = 200_000
"""The number of characters of settings from which reading them takes so long that a line announces it."""
RENDERED = (
    "read-backs are what the local target renders: where the controller writes a directive otherwise, samples"
    " are invalid as knob-not-applied"
)
_NEW_RUN_OPTIONS = {
    "resolve": ("a run that goes on has its blocks", "every key has a run of its own"),
    "knee": ("a run that goes on has its rates", "no key's sweep is placed at a knee"),
    "against": ("a run that goes on has its arms", "every key is compared with the shipped default"),
    "points": ("a run that goes on has its points", "every key has a load of its own"),
    "traffic": ("a run that goes on has its load", "every key has a load of its own"),
    "margin": (
        "a run that goes on has its equivalence margin",
        "every key is judged by the same equivalence margin, 2 %",
    ),
}
"""The reasons why an option does not go with --resume, and why it does not go with --config."""


def _run_bench(options: Options, talk: Console) -> int:
    from lab.model.variants.variants import load_variant

    refuse_blocks_with_resolve(options)
    if options.resume or options.config:
        for name, (with_resume, with_config) in _NEW_RUN_OPTIONS.items():
            refuse_given(options, [name], with_resume if options.resume else with_config)
    fault = "--resume goes on with the run's own variants, sweep, blocks, seed and outputs of k6"
    refuse_if(options.resume and new_run_options(options) - {"config"}, "bench", fault, "leave them out")
    if options.config:
        return _bench_config(options, talk)
    fault = "chooses what of a file is measured, and no file is given"
    refuse_given(options, ["whole", "only"], fault, "add --config FILE")
    remedy = "`just list` shows them; try `just bench ingress-nginx`"
    refuse_if(not options.variants and not options.resume, "bench", "no variant named", remedy)
    if options.against is not None:
        load_variant(options.against)  # complain before anything starts
    with hand_over_traffic(options) as made:
        target = enter_target(options, target_of(options))

    from lab.experiments import bench

    request = bench.BenchRequest(
        tuple(options.variants),
        TRAFFIC if made else options.sweep,
        options.blocks,
        options.seed,
        made=made,
        k6_out=options.k6_out,
        resolve=options.resolve,
        knee=options.knee,
        against=() if options.against is None else (options.against,),
        margin=options.margin or EQUIVALENCE_MARGIN,
        sustained=options.sustained,
        only=tuple(options.points.split(",")) if options.points else (),
    )
    return plan_and_measure(options, talk, target, request, "variants", partial(print_and_write_result, options))


def _bench_config(options: Options, talk: Console) -> int:
    """Measure the effects of the settings in a user's configuration file: of all together, and of each key alone.

    This is an ablation whose settings are the keys of the file (`--config`). With `--whole` only the whole file is
    measured, with `--only` only some keys.

    Returns:
        The exit status: 0 if everything was measured, or if only the plan was requested; else 1.

    """
    from lab.experiments.ablation.folder import find_unmeasurable
    from lab.experiments.configmap import knobs, reading, split

    refuse_first(
        (
            options.sustained,
            "--sustained",
            "every key is measured in the sweep of its own hypothesis, at the length that stands there",
            "leave it out",
        ),
        (
            options.k6_out,
            "--k6-out",
            "--config measures many runs, of which none keeps k6's own output",
            "leave it out",
        ),
        (
            options.variants or options.sweep or options.resume,
            "bench",
            "--config measures each of its keys against the shipped default, in the load that could show it",
            "leave variants and --sweep out; go on with `just ablate --resume`",
        ),
        (
            options.whole and options.only,
            "--whole",
            "measures the whole file, and --only measures some keys",
            "leave one of them out",
        ),
    )
    place = options.config if options.config != STDIN else "standard input"
    reader = piped_command("bench")
    # Complain before anything starts.
    given = reading.read_settings(place, content := read_once(options.config, reader), reader)
    only = [key.strip() for key in options.only.split(",")] if options.only else []
    for key in only:
        refuse_unknown(key, given.data, "--only", f"{place} has no key '{key}'")

    with hand_over(content):
        target = enter_target(options, options.target)
    elsewhere = target.name != DEFAULT_TARGET

    def build(manifests: Path) -> tuple[list[OwnedKnob], list[str]]:
        if (size := sum(map(len, given.data.values()))) > _LONG:
            slow = "nginx tries them for every arm, which for thousands of maps takes it minutes"
            print_plan_line(talk, "reading", f"{size // 1000} kB of settings: {slow}")
        parts = split.split(place, given, elsewhere=elsewhere)
        reasons = {remark.key: remark.text for remark in parts.remarks}
        for key in only:
            fault = f"{key} cannot be measured: {reasons.get(key, 'the controller realises it: --target apiserver')}"
            refuse_unknown(key, {name for item in parts.singles for name in item.values}, "--only", fault)
        unable = partial(find_unmeasurable, target, manifests)
        owned, notes = knobs.write_components(parts, manifests, unable, options.whole, only)
        return owned, [*notes, RENDERED] if elsewhere else notes

    return ablate(options, talk, target, place, command_for_record(options, "variants"), build)


def _run_study(options: Options, talk: Console) -> int:
    from lab.studies.study_files import list_studies, load_study

    refuse_if(options.key is None, "study", "no study named", f"known: {', '.join(list_studies())}")
    refuse_blocks_with_resolve(options)
    file = load_study(options.key)
    target = enter_target(options, options.target)

    from lab.analysis import rerun
    from lab.experiments import bench

    request = bench.BenchRequest(
        tuple(file.variants),
        file.quick.sweep if options.quick else file.sweep,
        options.blocks or (file.quick.blocks if options.quick and not options.resolve else None),
        options.seed,
        label=f"{options.key}-study",
        study=options.key,
        resolve=options.resolve,
        sustained=options.sustained,
    )
    prepared = bench.prepare(request, target, command_for_record(options, "key"), probe_trials(options, talk))
    print_plan_lines(talk, [("study", f"{options.key}: {file.title}"), ("question", file.question)])
    print_plan(talk, prepared, 0)
    arms = [arm for arm in prepared.plan.arms if arm.role != "reference"]
    duration = format_duration(prepared.design.duration_s)
    place = rerun.place(target.name)
    quick_form = "" if options.quick else f"; shortened: just study {options.key} --quick{place}"
    related = {change.question: change.command(options.quick, place) for change in file.changes}
    print_plan_lines(talk, (("also", f"{question} {command}") for question, command in related.items()))
    size = f"{len(arms)} arms at {len(prepared.plan.points)} points"
    print_plan_line(talk, "in all", f"{size}, about {duration}{quick_form}\n")
    if options.plan:
        return answer_plan(options, [(prepared, 0)], related=related)
    store = measure(talk, prepared, None, target, resume_command(options, "bench", prepared.record.id))
    return 1 if store is None else print_and_write_result(options, store)


BENCH = Verb(
    "measure what a setting or another proxy changes: variants against their baselines, in pairs",
    _run_bench,
    {
        "variants": {"nargs": "*", **VARIANT},
        "--sweep": {
            "metavar": "SWEEP",
            "help": SWEEPS_HELP.format("quick, or the knob's own sweep if that causes a disruption"),
        },
        "--points": {
            "metavar": "NAME[,NAME…]",
            "help": "measure only these loads of the sweep, by the names in its plan; a load with a disruption brings"
            " its control run without one (default: all loads)",
        },
        "--resume": RESUME,
        "--all": {"action": "store_true", "help": "in the plan, name every variant and load, however many"},
        "--config --configmap": {
            "metavar": "FILE",
            "help": "your own ingress-nginx ConfigMap or Helm values (- = standard input): the whole file, and key by key",
        },
        "--whole": {"action": "store_true", "help": "with --config: measure only the whole file against the baseline"},
        "--only": {
            "metavar": "KEYS",
            "help": "with --config: measure only these keys, each by itself, separated by commas (`just check` lists them)",
        },
        "--knee": KNEE,
        "--against": {
            "type": variant_name,
            "metavar": "VARIANT",
            "help": "compare every variant with this one instead of its own baseline; any system or variant, such as"
            " ingress-nginx",
        },
    },
    ("--traffic", "--traffic-rate", "--k6-out", *MEASURING, "--resolve", "--margin", "--sustained"),
    examples=(
        "just bench keepalive",
        "just bench traefik envoy haproxy --against ingress-nginx --plan",
        "just bench --config data/examples/configmap.yaml --whole --plan",
    ),
)
STUDY = Verb(
    "measure all variants of a published study in one run, and print its tables as they were published",
    _run_study,
    {
        "key": {
            "nargs": "?",
            "metavar": "STUDY",
            "help": "the study: aws-a1, digitalocean, nds, okd, qinng, streams or successors (`just list studies` describes them)",
        },
        "--quick": {"action": "store_true", "help": "use a shortened load: minutes instead of hours"},
    },
    ("--markdown", *MEASURING, "--resolve", "--sustained"),
    examples=("just study okd --quick --plan", "just study successors --quick"),
)
