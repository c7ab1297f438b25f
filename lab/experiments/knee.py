"""The search for the knee (the highest rate that a variant serves within a latency bound), as a run of successive trials.

The rate of each trial depends on the results of the earlier trials. A trial is a separate block at a load point
`rate-<r>`, and is written into run.json before it is measured. So `just knee --resume` can continue after any
interruption, with the results of the stored trials. One started system serves for rising rates and for the bisection;
each confirmation of the result has a freshly started system.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from lab import generators
from lab.analysis import rerun
from lab.analysis.knee.report import SWEEP, build_search, choose_rate, list_trials
from lab.base.errors import UsageError
from lab.base.files import check_writable, runs_folder
from lab.experiments import bench
from lab.experiments.bench.measurable import choose_generator, generator_record
from lab.generators import make_load
from lab.measure.loop import MeasuringLoop, Observer, do_nothing
from lab.measure.measurement import ChosenGenerator
from lab.measure.validity import MIN_ACHIEVED
from lab.model.bottleneck import BUSY
from lab.model.facts import list_differences
from lab.model.plan import SAMPLE_OVERHEAD_S, Arm, Plan, Slot
from lab.model.run import KneeSearch, VariantRecord
from lab.model.sweeps import LoadPoint
from lab.model.traffic import Traffic
from lab.model.variants.knobs import MANIFESTS
from lab.model.variants.variants import Variant, load_variant
from lab.records.store import ANY_ENDPOINT, RunStore, new_record
from lab.stats.knee_search import LEAST_RPS, NextTrial, simulate_search
from lab.targets.base import Target
from lab.targets.survey import check_variant, collect_facts

WARMUP_S = 1.0
DURATION_S = 10.0
START_RPS = 100
ASSUMED_RPS = 5000
"""The knee that a forecast of the duration assumes, since nothing better is known before a search."""
UNREFUSED_S, UNREFUSED_RPS = 3600.0, 1000
"""The duration and rate of a load that no generator refuses as too short or too slow."""
SEED = 0
"""The seed, without effect: nothing is shuffled, since the trials determine the next rate."""


def prepare(
    names: Sequence[str],
    target: Target,
    command: Sequence[str],
    p99_s: float = 0.05,
    precision: float = 0.05,
    connections: int = 100,
    **load: Any,
) -> bench.PreparedRun:
    """Load and check everything for a search for the knee (the highest rate within the latency bound).

    Nothing is started or written.

    Args:
        names: The names of the variants.
        target: The target.
        command: The command line for the record.
        p99_s: The latency bound: the highest p99 with which a rate passes, in seconds.
        precision: How close the highest rate that passed and the lowest rate that failed must be for a search to end: 0.05 is 5 %.
        connections: The connections of the load generator.
        load: Further properties of the load: `generator`, `duration_s`, `start_rps`, `page`, `traffic` (see `_build_point`), and fields of
            a `LoadPoint`.

    Raises:
        UsageError: The search cannot be carried out; the error is the first fault.

    """
    target.check()
    point, chosen = _build_point(target, connections, **load)
    fixtures = bench.fixtures_of([point])
    variants = {variant.name: variant for variant in (load_variant(name, fixtures=fixtures) for name in names)}
    slowest = point.model_copy(update={"rate_rps": float(LEAST_RPS)})
    any_rate = chosen.generator.refusal(make_load(slowest, ANY_ENDPOINT)) is None
    settings = KneeSearch(
        p99_s=p99_s,
        min_achieved=MIN_ACHIEVED,
        max_generator_core=BUSY,
        start_rps=int(point.rate_rps or 0),
        least_rps=LEAST_RPS if any_rate else connections,  # wrk2: a request per second for each connection
        precision=precision,
    )
    for variant in variants.values():
        endpoints = check_variant(variant, target, [point])
        if refusal := chosen.generator.refusal(make_load(point, endpoints[point.name])):
            raise UsageError(
                variant.name, f"{chosen.generator.name} cannot make this load: {refusal}", "choose another"
            )
    arms = tuple(Arm(name, name, "baseline", None) for name in variants)
    plan = Plan(arms, (point,), 1, SEED, (Slot(1, 1, arms[0], point),))
    check_writable(runs_folder(), 50 * bench.SAMPLE_BYTES)
    recorded = {name: VariantRecord.of(variant, MANIFESTS) for name, variant in variants.items()}
    label, facts = "-".join(variants), collect_facts(target)
    record = new_record(label, SWEEP, target.name, command, arms, (point,), recorded, facts).with_plan(plan)
    record = record.model_copy(update={"knee": settings, "generators": {point.name: generator_record(chosen)}})
    _, trials = simulate_search(build_search(settings), lambda rate: "pass" if rate <= ASSUMED_RPS else "fail")
    trial_s = point.warmup_s + point.duration_s + SAMPLE_OVERHEAD_S
    lasts_s = (len(trials) * trial_s + 5 * target.bring_up_s) * len(arms)
    assumption = f"if the knee is near {ASSUMED_RPS:,} req/s"
    design = record.designed.model_copy(update={"duration_s": lasts_s, "promised_by": assumption})
    return bench.PreparedRun(record.model_copy(update={"design": design}), plan, variants, {point.name: chosen})


def _build_point(
    target: Target,
    connections: int,
    generator: str = "wrk2",
    duration_s: float | None = None,
    start_rps: int | None = None,
    page: str = "1kB.bin",
    traffic: Traffic | None = None,
    **fields: Any,
) -> tuple[LoadPoint, ChosenGenerator]:
    """Return the load point of the first trial in a search for the knee (the highest rate within the latency bound), and its load generator.

    Args:
        target: The target.
        connections: The connections of the generator.
        generator: The name of the generator.
        duration_s: The duration of a trial in seconds. None: as long as the generator needs, and at least DURATION_S.
        start_rps: The rate of the first trial in requests per second. None: START_RPS, or one request per second and connection if the
            generator refuses a lower rate.
        page: The page to request.
        traffic: A mix of requests in place of the page; None: the page.
        fields: Further fields of the load point.

    """
    rate_rps, lasts_s = float(start_rps or START_RPS), duration_s or DURATION_S
    point = LoadPoint(
        name=point_name(int(rate_rps)),
        generator=generator,
        connections=connections,
        rate_rps=rate_rps,
        duration_s=lasts_s,
        warmup_s=WARMUP_S,
        threads=1,
        page=page,
        **fields,
    ).with_traffic(traffic)
    requested = generators.get_generator(generator)
    if "open" not in requested.models:
        table = generators.GENERATORS.items()
        names = ", ".join(name for name, item in table if "open" in item.models and not item.own_backend)
        raise UsageError(
            "--generator", f"{requested.name} makes closed loops only, and a knee is about rates", f"try {names}"
        )
    if target.installed(requested) is not None:
        if duration_s is None:
            minimum_s = 3 * requested.calibration_s(make_load(point, ANY_ENDPOINT))
            point = point.model_copy(update={"duration_s": max(DURATION_S, float(round(minimum_s)))})
        if start_rps is None and requested.refusal(make_load(point, ANY_ENDPOINT)):  # wrk2: one per connection
            enough = max(START_RPS, connections)
            point = point.model_copy(update={"name": point_name(enough), "rate_rps": float(enough)})
    return point, choose_for_trials(point, target)


def choose_for_trials(point: LoadPoint, target: Target) -> ChosenGenerator:
    """Return the load generator for a search for the knee: the one that the load point names, or a substitute if it is not installed.

    The substitute wrk2 needs a load of at least 30 s, with one request per second and connection. If the load is shorter or
    slower, the error names this limit, instead of reporting that a generator is missing.

    Raises:
        UsageError: The generator refuses the load, or neither it nor a substitute is installed.

    """
    if target.installed(generators.get_generator(point.generator)) is not None:
        return choose_generator(point, target)
    enough = point.model_copy(
        update={"duration_s": UNREFUSED_S, "rate_rps": float(max(UNREFUSED_RPS, point.connections))}
    )
    chosen = choose_generator(enough, target)
    if refusal := chosen.generator.refusal(make_load(point, ANY_ENDPOINT)):
        raise UsageError(f"generator {chosen.generator.name}", refusal, "change that, or name another by --generator")
    return chosen


def point_name(rate_rps: int) -> str:
    """Return the name of the load point with an offered rate: `200` → `rate-200`."""
    return f"rate-{rate_rps}"


def resume(name: str, target: Target) -> tuple[bench.PreparedRun, RunStore]:
    """Prepare a stored search for the knee (the highest rate within the latency bound), so that it can continue.

    A trial measures one variant at one rate, and is not compared with another trial. So the machine may have been rebooted in the
    meantime. All other facts about the machine must be the same as in the stored trials.

    Returns:
        (the prepared run, the folder with its stored trials).

    Raises:
        UsageError: The search cannot continue here.

    """
    prepared, run = bench.resume(name, target, choose_for_trials)
    record = run.record
    if changed := sorted(list_differences(record.facts, collect_facts(target))):
        fault = f"it began under other facts ({', '.join(changed)}), and a knee is of one place"
        anew = rerun.measure_command(record, " ".join(arm.variant for arm in record.arms))
        raise UsageError(record.id, fault, f"search anew: {anew}")
    return prepared, run


def search(
    target: Target, variants: Mapping[str, Variant], used: ChosenGenerator, store: RunStore, observer: Observer
) -> None:
    """Measure trials until the search for the knee of every arm (variant of the run) has ended.

    A stored trial is not measured again: its stored result is used.

    Args:
        target: The target.
        variants: The variants by name.
        used: The load generator of all trials.
        store: The folder of the search's run, to which every trial is added.
        observer: Receives what happens, for the display.

    """
    chosen = {point.name: used for point in store.record.points}
    loop = MeasuringLoop(target, variants, chosen, store, observer)

    def plan_next(arm: Arm) -> tuple[Slot, bool] | None:
        """Return (next trial of an arm, whether it needs a freshly started system); None when the search for this variant has ended.

        A trial that was planned but not completed comes first, because the search depends on the order of its trials.
        """
        record = store.record
        trials = list_trials(record, arm.name, store.samples(), store.histogram)
        slots = [slot for slot in record.plan().slots if slot.arm.name == arm.name]
        step = choose_rate(record, trials)
        fresh = isinstance(step, NextTrial) and step.fresh
        if len(slots) > len(trials):
            return slots[len(trials)], fresh
        if not isinstance(step, NextTrial):
            return None
        changes = {"name": point_name(step.rate_rps), "rate_rps": float(step.rate_rps)}
        point, block = record.points[0].model_copy(update=changes), len(record.slots) + 1
        store.extend(point, (block, arm.name, point.name), generator_record(used))
        chosen[point.name] = used
        return Slot(block, block, arm, point), fresh

    def next_on_system(arm: Arm) -> Slot | None:
        """Return the next trial of an arm (variant of the run); None if it needs a freshly started system, or if the search has ended."""
        trial = plan_next(arm)
        return None if trial is None or trial[1] else trial[0]

    for arm in store.record.arms:
        while (trial := plan_next(arm)) is not None:
            loop.on_systems([trial[0]], do_nothing if trial[1] else partial(next_on_system, arm))
