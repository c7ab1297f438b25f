"""A search for the knee as a run: prepared like any other, but its plan grows by one sample at a time, each as the trials before say.

Every trial is a block of its own at a point `rate-<r>`, in run.json before it is measured, so that whatever ends the lab, `just knee
--resume` replays the trials that are stored and goes on. A system is brought up for the ramp and the bisection together, for each
confirmation anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from lab import generators
from lab.analysis import rerun
from lab.analysis.knee.report import SWEEP, search_of, step_of, trials_of
from lab.base.errors import UsageError
from lab.base.files import check_writable, runs_folder
from lab.experiments import bench
from lab.experiments.bench.measurable import choose, generator_record
from lab.generators import load_of
from lab.measure.loop import Loop, Observer, nothing
from lab.measure.measurement import ChosenGenerator
from lab.measure.validity import MIN_ACHIEVED
from lab.model.bottleneck import BUSY
from lab.model.facts import differing
from lab.model.plan import SAMPLE_OVERHEAD_S, Arm, Plan, Slot
from lab.model.run import KneeSearch, VariantRecord
from lab.model.sweeps import Point
from lab.model.variants.knobs import MANIFESTS
from lab.model.variants.variants import Variant, load_variant
from lab.records import store
from lab.records.store import RunStore
from lab.stats.knee_search import LEAST_RPS, Try, sought
from lab.targets.base import Target
from lab.targets.survey import checked, facts_of

WARMUP_S = 1.0
DURATION_S = 10.0
START_RPS = 100
ASSUMED_RPS = 5000
"""The knee that a forecast assumes: of a search, nothing better is known beforehand."""
ENOUGH_S, ENOUGH_RPS = 3600.0, 1000
"""A load that no generator refuses for being short or slow."""
SEED = 0
"""Nothing is shuffled: which rate comes next, the trials say."""


def prepare(
    names: Sequence[str],
    target: Target,
    command: Sequence[str],
    p99_s: float = 0.05,
    precision: float = 0.05,
    connections: int = 100,
    **load: Any,
) -> bench.Prepared:
    """Load and check everything; UsageError on the first fault. Starts nothing, writes nothing.

    `load`: `generator`, `duration_s`, `start_rps` (see `_load`), and fields of a Point.
    """
    variants = {variant.name: variant for variant in map(load_variant, names)}
    target.check()
    point, chosen = _load(target, connections, **load)
    slowest = point.model_copy(update={"rate_rps": float(LEAST_RPS)})
    any_rate = chosen.generator.refusal(load_of(slowest, store.NOWHERE)) is None
    found = KneeSearch(
        p99_s=p99_s,
        min_achieved=MIN_ACHIEVED,
        max_generator_core=BUSY,
        start_rps=int(point.rate_rps or 0),
        least_rps=LEAST_RPS if any_rate else connections,  # wrk2: a request per second for each
        precision=precision,
    )
    for variant in variants.values():
        ends = checked(variant, target, [point])
        if refusal := chosen.generator.refusal(load_of(point, ends[point.name])):
            raise UsageError(
                variant.name, f"{chosen.generator.name} cannot make this load: {refusal}", "choose another"
            )
    arms = tuple(Arm(name, name, "baseline", None) for name in variants)
    planned = Plan(arms, (point,), 1, SEED, (Slot(1, 1, arms[0], point),))
    check_writable(runs_folder(), 50 * bench.SAMPLE_BYTES)
    recorded = {name: VariantRecord.of(variant, MANIFESTS) for name, variant in variants.items()}
    label, facts = "-".join(variants), facts_of(target)
    record = store.new_record(label, SWEEP, target.name, command, arms, (point,), recorded, facts).with_plan(planned)
    record = record.model_copy(update={"knee": found, "generators": {point.name: generator_record(chosen)}})
    _, trials = sought(search_of(found), lambda rate: "pass" if rate <= ASSUMED_RPS else "fail")
    each_s = point.warmup_s + point.duration_s + SAMPLE_OVERHEAD_S
    lasts_s = (len(trials) * each_s + 5 * target.bring_up_s) * len(arms)
    by = f"if the knee is near {ASSUMED_RPS:,} req/s"
    design = record.designed.model_copy(update={"duration_s": lasts_s, "promised_by": by})
    return bench.Prepared(record.model_copy(update={"design": design}), planned, variants, {point.name: chosen})


def _load(
    target: Target,
    connections: int,
    generator: str = "wrk2",
    duration_s: float | None = None,
    start_rps: int | None = None,
    page: str = "1kB.bin",
    **fields: Any,
) -> tuple[Point, ChosenGenerator]:
    """The first trial's, and who makes it.

    None of `duration_s`: as long as the generator needs, DURATION_S at least; of `start_rps`: START_RPS, or a request per second for each
    connection where the generator refuses fewer.
    """
    rate_rps, lasts_s = float(start_rps or START_RPS), duration_s or DURATION_S
    point = Point(
        name=point_name(int(rate_rps)),
        generator=generator,
        connections=connections,
        rate_rps=rate_rps,
        duration_s=lasts_s,
        warmup_s=WARMUP_S,
        threads=1,
        page=page,
        **fields,
    )
    wanted = generators.generator(generator)
    if "open" not in wanted.models:
        known = ", ".join(name for name, found in generators.GENERATORS.items() if "open" in found.models)
        raise UsageError(
            "--generator", f"{wanted.name} makes closed loops only, and a knee is about rates", f"try {known}"
        )
    if target.installed(wanted) is not None:
        if duration_s is None:
            least_s = 3 * wanted.calibration_s(load_of(point, store.NOWHERE))
            point = point.model_copy(update={"duration_s": max(DURATION_S, float(round(least_s)))})
        if start_rps is None and wanted.refusal(load_of(point, store.NOWHERE)):  # wrk2: one per connection
            enough = max(START_RPS, connections)
            point = point.model_copy(update={"name": point_name(enough), "rate_rps": float(enough)})
    return point, choose_for_trials(point, target)


def choose_for_trials(point: Point, target: Target) -> ChosenGenerator:
    """A trial's generator. What only wrk2 needs (30 s, a request per second for each connection) binds none that stands in for it."""
    if target.installed(generators.generator(point.generator)) is not None:
        return choose(point, target)
    enough = point.model_copy(update={"duration_s": ENOUGH_S, "rate_rps": float(max(ENOUGH_RPS, point.connections))})
    found = choose(enough, target)
    if refusal := found.generator.refusal(load_of(point, store.NOWHERE)):
        raise UsageError(f"generator {found.generator.name}", refusal, "change that, or name another by --generator")
    return found


def point_name(rate_rps: int) -> str:
    return f"rate-{rate_rps}"


def resume(name: str, target: Target) -> tuple[bench.Prepared, RunStore]:
    """A search ready to go on, or UsageError: also under other facts than those of its trials, but for the boot's, as nothing pairs trials."""
    prepared, run = bench.resume(name, target, choose_for_trials)
    record = run.record
    if changed := sorted(differing(record.facts, facts_of(target))):
        fault = f"it began under other facts ({', '.join(changed)}), and a knee is of one place"
        anew = rerun.measure(record, " ".join(arm.variant for arm in record.arms))
        raise UsageError(record.id, fault, f"search anew: {anew}")
    return prepared, run


def search(
    target: Target, variants: Mapping[str, Variant], used: ChosenGenerator, store: RunStore, observer: Observer
) -> None:
    """Measure until every arm's search has ended; trials that are stored are replayed, not measured."""
    chosen = {point.name: used for point in store.record.points}
    loop = Loop(target, variants, chosen, store, observer)

    def due(arm: Arm) -> tuple[Slot, bool] | None:
        """The trial to measure next, in the plan from now on, and whether it wants a system of its own. None: the search has ended.

        Trials that were planned and not measured to their end come first: what is known has to be known in their order.
        """
        record = store.record
        found = trials_of(record, arm.name, store.samples(), store.histogram)
        slots = [slot for slot in record.plan().slots if slot.arm.name == arm.name]
        step = step_of(record, found)
        fresh = isinstance(step, Try) and step.fresh
        if len(slots) > len(found):
            return slots[len(found)], fresh
        if not isinstance(step, Try):
            return None
        named = {"name": point_name(step.rate_rps), "rate_rps": float(step.rate_rps)}
        point, block = record.points[0].model_copy(update=named), len(record.slots) + 1
        store.extend(point, (block, arm.name, point.name), generator_record(used))
        chosen[point.name] = used
        return Slot(block, block, arm, point), fresh

    def following(arm: Arm) -> Slot | None:
        """What is due next, unless it wants a system of its own."""
        next_one = due(arm)
        return None if next_one is None or next_one[1] else next_one[0]

    for arm in store.record.arms:
        while (found := due(arm)) is not None:
            loop.on_systems([found[0]], nothing if found[1] else partial(following, arm))
