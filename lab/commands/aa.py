"""The verb `aa`: it measures a variant against itself, which shows the noise of this machine and the smallest visible effect."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rich.console import Console

from lab.base.errors import UsageError
from lab.base.quantities import whole_number_in
from lab.commands import (
    KNEE,
    MEASURING,
    RESUME,
    SWEEPS_HELP,
    Options,
    Verb,
    new_run_options,
    print_answer,
    variant_name,
)
from lab.commands.measuring import enter_target, plan_and_measure, target_of
from lab.model.sweeps import DEFAULT_SWEEP

if TYPE_CHECKING:
    from lab.records.store import RunStore
    from lab.report.tables.noise import NextMeasurement, Report

BLOCKS = 10
NULLS, NULLS_MOST = 1, 20


def _run_aa(options: Options, talk: Console) -> int:
    from lab.model.variants.naming import is_variant
    from lab.records.store import RunStore, run_names

    name = options.subject  # a variant has no slash in its name, and takes precedence over a run
    is_run = name and ("/" in name or (not is_variant(name) and name in run_names()))
    if is_run or options.resume:
        extra = new_run_options(options) - {"subject"}
        target_given = is_run and (options.target or options.plan or options.resume)
        if extra or target_given or (name and not is_run):
            verb = "goes on with" if options.resume else "prints"
            raise UsageError("aa", f"one run is named: it {verb} what that one has", "leave everything else out")
    if is_run:
        return _print(options, _require_pair(RunStore.open(name)))
    if options.sweep is not None:
        from lab.records.sweep_files import load_sweep

        if any(point.has_outcome for point in load_sweep(options.sweep)[1].load_points):
            fault = f"what comes of the load in sweep '{options.sweep}' varies in its own unit, not by per cent"
            remedy = f"`just bench ingress-nginx --sweep {options.sweep}` shows what its A/A pair leaves open"
            raise UsageError("--sweep", fault, remedy)
    if options.resume:
        _require_pair(RunStore.open(options.resume))

    target = enter_target(options, target_of(options))

    from lab.analysis.noise import BASELINE
    from lab.experiments import bench

    variant = options.subject or BASELINE
    request = bench.BenchRequest(
        (variant,),
        DEFAULT_SWEEP if options.sweep is None else options.sweep,
        options.blocks or BLOCKS,
        options.seed,
        label=f"{variant}-aa",
        nulls=NULLS if options.nulls is None else options.nulls,
        knee=options.knee,
        k6_out=options.k6_out,
    )
    return plan_and_measure(options, talk, target, request, "subject", partial(_print, options), "aa")


def _require_pair(run: RunStore) -> RunStore:
    """Check that a run has an A/A pair (a variant measured against itself), and return the run.

    Raises:
        UsageError: The run has no A/A pair under a load without disruption.

    """
    from lab.analysis.noise import list_aa_variants

    aa_variants = list_aa_variants(run.record.arms)
    if not aa_variants or all(point.has_outcome for point in run.record.points):
        reason = "every load in it has a disruption" if aa_variants else "no variant in it was measured against itself"
        raise UsageError(run.record.id, f"has no steady A/A pair: {reason}", "`just aa` measures one")
    return run


def _print(options: Options, run: RunStore) -> int:
    from lab.analysis import rerun
    from lab.analysis.noise import list_aa_variants
    from lab.analysis.past import past_of
    from lab.analysis.summary import summarise_run
    from lab.report.json.runs import AA
    from lab.report.tables import noise as noise_tables

    record = run.record
    samples = run.samples()
    summary = summarise_run(record, samples, run.histogram)
    report = noise_tables.make_report(record, past_of(record, samples, summary), summary.complete)
    again = f"just aa {list_aa_variants(record.arms)[0]}{rerun.load(record)} --blocks {max(BLOCKS, record.blocks)}"
    advice = noise_tables.advise(report, _choose_example(report), again)
    print_answer(options, lambda: noise_tables.page(report, advice), lambda: AA.dumps(report, advice=advice))
    return 0 if report.complete else 1


def _choose_example(report: Report) -> NextMeasurement:
    """Return an example of a `just bench` command with enough blocks (repetitions) to detect a given effect.

    The command measures a variant that adds a single knob (setting) to the measured one, under the measured load. If
    there is no suitable variant, the example has the placeholder KNOB.

    Args:
        report: The noise that was measured.

    """
    from lab.analysis import rerun
    from lab.analysis.noise import list_aa_variants
    from lab.analysis.past import select_judged_noise
    from lab.model.variants.knobs import load_knob
    from lab.model.variants.variants import load_overlay, variant_names
    from lab.report.tables.noise import NextMeasurement

    base = next((noise.variant for noise in report.judged), list_aa_variants(report.record.arms)[0])
    points, load = report.record.points, rerun.load(report.record)
    noises = [noise for noise in report.noises if noise.variant == base]
    overlays = [overlay for overlay in map(load_overlay, variant_names()) if overlay.baseline == base]
    single = [overlay for overlay in overlays if len(overlay.own_knobs) == 1]
    for overlay in sorted(single, key=lambda overlay: overlay.study is None):  # published advice comes first
        knob = load_knob(overlay.own_knobs[0])
        metric = overlay.primary_metric or knob.primary_metric
        judged = select_judged_noise(noises, points, metric)
        if knob.sweep == report.record.sweep and not knob.needs and judged:
            return NextMeasurement(f"just bench {overlay.name}{load} --resolve {{}}", tuple(judged))
    metrics = [noise.metric for noise in noises if not noise.why]
    metric = "cpu_per_request" if "cpu_per_request" in metrics or not metrics else metrics[0]
    command = f"just bench {base}+KNOB{load} --resolve {{}},{metric}"
    return NextMeasurement(command, tuple(select_judged_noise(noises, points, metric, asked=True)))


AA = Verb(
    "measure this machine's noise (a variant against itself), and how small a difference it can detect",
    _run_aa,
    {
        "subject": {
            "nargs": "?",
            "type": variant_name,
            "metavar": "VARIANT|RUN",
            "help": "the variant to measure against itself (default: ingress-nginx), or a run whose noise is printed again",
        },
        "--sweep": {"metavar": "SWEEP", "help": SWEEPS_HELP.format("quick")},
        "--nulls": {
            "type": whole_number_in("--nulls", 0, NULLS_MOST),
            "metavar": "N",
            "help": "number of further copies of the variant that are judged as if they were other variants, which shows how"
            f" often a difference is claimed where there is none, 0 to {NULLS_MOST} (default: {NULLS})",
        },
        "--knee": KNEE,
        "--resume": RESUME,
    },
    ("--k6-out", *MEASURING),
    examples=("just aa", "just aa ingress-nginx --sweep latency --plan"),
)
