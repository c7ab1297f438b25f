"""A search for the knee as a run: prepared like any other, but its plan grows by one sample at a time, each as the trials before say.

Every trial is a block of its own at a point `rate-<r>`, in run.json before it is measured, so that whatever ends the lab, `just knee
--resume` replays the trials that are stored and goes on. A system is brought up for the ramp and the bisection together, for each
confirmation anew. Everything it touches is handed in, as to `lab.measure.loop`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from lab import generators
from lab.analysis import rerun
from lab.analysis.forecast import SAMPLE_OVERHEAD_S, Forecast
from lab.analysis.knee.report import SWEEP, search_of, step_of
from lab.analysis.knee.trials import Tried, tried
from lab.base.errors import LabError, LostError, UsageError
from lab.base.files import StoreError, check_writable, runs_folder
from lab.experiments import bench
from lab.experiments.bench.loads import choose, generator_record
from lab.experiments.bench.measurable import checked, facts_of
from lab.experiments.bench.record import new_record, variant_record
from lab.generators.loads import load_of
from lab.measure.loop import Observer
from lab.measure.steady import Chosen, Measurement, Measuring, blank_sample, not_measured
from lab.measure.validity import MIN_ACHIEVED
from lab.model.bottleneck import BUSY
from lab.model.endpoint import Tls
from lab.model.facts import lasting
from lab.model.plan import Arm, Plan, Slot
from lab.model.run import KneeSearch, RunRecord
from lab.model.samples import ATTEMPTS, Sample, counts, settled
from lab.model.sweeps import Point
from lab.model.variants import workers
from lab.model.variants.knobs import MANIFESTS
from lab.model.variants.variants import Variant, load_variant
from lab.records import store
from lab.records.store import RunStore
from lab.stats.knee_search import LEAST_RPS, Try, sought
from lab.targets.base import System, Target
from lab.targets.readback import Reading, read_back

WARMUP_S = 1.0
DURATION_S = 10.0
START_RPS = 100
ASSUMED_RPS = 5000
"""The knee that a forecast assumes: of a search, nothing better is known beforehand."""
ENOUGH_S, ENOUGH_RPS = 3600.0, 1000
"""A load that no generator refuses for being short or slow."""
SEED = 0
"""Nothing is shuffled: which rate comes next, the trials say."""


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asked for. None of `duration_s`: as long as the generator needs, DURATION_S at least; of `start_rps`:
    START_RPS, or a request per second for each connection where the generator refuses fewer.
    """

    variants: tuple[str, ...]
    generator: str = "wrk2"
    connections: int = 100
    duration_s: float | None = None
    start_rps: int | None = None
    p99_s: float = 0.05
    precision: float = 0.05
    page: str = "1kB.bin"
    tls: Tls | Literal["routed"] = "routed"
    accept_encoding: Literal["identity", "gzip"] = "identity"
    keepalive: bool = True


def prepare(request: Request, target: Target, command: Sequence[str]) -> bench.Prepared:
    """Load and check everything; UsageError on the first fault. Starts nothing, writes nothing."""
    variants = {name: load_variant(name) for name in dict.fromkeys(request.variants)}
    target.check()
    point, chosen = _load(request, target)
    slowest = point.model_copy(update={"rate_rps": float(LEAST_RPS)})
    any_rate = chosen.generator.refusal(load_of(slowest, store.NOWHERE)) is None
    search = KneeSearch(
        p99_s=request.p99_s,
        min_achieved=MIN_ACHIEVED,
        max_generator_core=BUSY,
        start_rps=int(point.rate_rps or 0),
        least_rps=LEAST_RPS if any_rate else request.connections,  # wrk2: a request per second for each
        precision=request.precision,
    )
    for variant in variants.values():
        ends = checked(variant, target, [point])
        if refusal := chosen.generator.refusal(load_of(point, ends[point.name])):
            raise UsageError(variant.name, f"{chosen.generator.name} cannot make this load: {refusal}")
    arms = tuple(Arm(name, name, "baseline", None) for name in variants)
    slots = (Slot(1, 1, arms[0], point),)
    planned = Plan(arms, (point,), 1, SEED, slots)
    check_writable(runs_folder(), 50 * bench.SAMPLE_BYTES)
    record = _record(target, command, planned, variants, chosen, search)
    forecast = Forecast(
        _duration_s(search, point, target) * len(arms), (), f"if the knee is near {ASSUMED_RPS:,} req/s"
    )
    return bench.Prepared(record, planned, variants, {point.name: chosen}, forecast)


def _load(request: Request, target: Target) -> tuple[Point, Chosen]:
    """The first trial's, and who makes it."""
    start_rps = request.start_rps or START_RPS
    point = Point(
        name=point_name(start_rps),
        generator=request.generator,
        connections=request.connections,
        rate_rps=float(start_rps),
        duration_s=request.duration_s or DURATION_S,
        warmup_s=WARMUP_S,
        threads=1,
        page=request.page,
        tls=request.tls,
        accept_encoding=request.accept_encoding,
        keepalive=request.keepalive,
    )
    wanted = generators.generator(request.generator)
    if "open" not in wanted.models:
        known = ", ".join(name for name, found in generators.generators().items() if "open" in found.models)
        raise UsageError(
            "--generator", f"{wanted.name} makes closed loops only, and a knee is about rates", f"try {known}"
        )
    if target.installed(wanted) is None:
        return point, choose_for_trials(point, target)
    if request.duration_s is None:
        least_s = 3 * wanted.calibration_s(load_of(point, store.NOWHERE))
        point = point.model_copy(update={"duration_s": max(DURATION_S, float(round(least_s)))})
    if request.start_rps is None and wanted.refusal(load_of(point, store.NOWHERE)):  # wrk2: one per connection
        enough = max(START_RPS, request.connections)
        point = point.model_copy(update={"name": point_name(enough), "rate_rps": float(enough)})
    return point, choose_for_trials(point, target)


def choose_for_trials(point: Point, target: Target) -> Chosen:
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
    began, here = lasting(record.facts), lasting(facts_of(target))
    if changed := sorted(fact for fact in began.keys() | here.keys() if began.get(fact) != here.get(fact)):
        fault = f"it began under other facts ({', '.join(changed)}), and a knee is of one place"
        anew = rerun.measure(record, " ".join(arm.variant for arm in record.arms))
        raise UsageError(record.id, fault, f"search anew: {anew}")
    return prepared, run


def _duration_s(search: KneeSearch, point: Point, target: Target) -> float:
    _, trials = sought(search_of(search), lambda rate: "pass" if rate <= ASSUMED_RPS else "fail")
    each_s = point.warmup_s + point.duration_s + SAMPLE_OVERHEAD_S
    return len(trials) * each_s + 5 * target.bring_up_s


def _record(
    target: Target,
    command: Sequence[str],
    planned: Plan,
    variants: Mapping[str, Variant],
    chosen: Chosen,
    search: KneeSearch,
) -> RunRecord:
    recorded = {name: variant_record(variant, MANIFESTS) for name, variant in variants.items()}
    used = {point.name: chosen for point in planned.points}
    found_facts = facts_of(target)
    record = new_record("-".join(variants), SWEEP, target, command, planned, recorded, used, found_facts)
    return record.model_copy(update={"knee": search})


@dataclass(slots=True)
class Seeker:
    """A search's parts. `seek()` goes on until every arm's search has ended."""

    target: Target
    variants: Mapping[str, Variant]
    chosen: Chosen
    store: RunStore
    observer: Observer
    _samples: list[Sample] = field(default_factory=list[Sample])
    _tried: dict[str, list[Tried]] = field(default_factory=dict[str, list[Tried]])

    def seek(self) -> None:
        self._samples = self.store.samples()
        for arm in self.store.record.arms:
            while (due := self._due(arm)) is not None:
                self._stage(arm, *due)

    def _replay(self, arm: Arm) -> list[Tried]:
        """The arm's trials, in the plan's order up to the first that is not stored."""
        found = self._tried.setdefault(arm.name, [])
        done = {sample.block: sample for sample in self._samples if counts(sample) and settled(sample)}
        for slot in self._slots(arm)[len(found) :]:
            if slot.block not in done:
                break
            passed = any(each.outcome == "pass" for each in found)
            sample = done[slot.block]
            found.append(tried(slot, sample, self.store.histogram(sample), self.store.record, passed))
        return found

    def _slots(self, arm: Arm) -> list[Slot]:
        return [slot for slot in self.store.record.plan().slots if slot.arm.name == arm.name]

    def _due(self, arm: Arm) -> tuple[Slot, bool] | None:
        """The trial to measure next, in the plan from now on, and whether it wants a system of its own. None: the search has ended.

        Trials that were planned and not measured to their end come first: what is known has to be known in their order.
        """
        found = self._replay(arm)
        step = step_of(self.store.record, found)
        slots = self._slots(arm)
        fresh = isinstance(step, Try) and step.fresh
        if len(slots) > len(found):
            return slots[len(found)], fresh
        if not isinstance(step, Try):
            return None
        record = self.store.record
        first = record.points[0]
        point = first.model_copy(update={"name": point_name(step.rate_rps), "rate_rps": float(step.rate_rps)})
        block = len(record.slots) + 1
        self.store.extend(point, (block, arm.name, point.name), generator_record(self.chosen))
        return Slot(block, block, arm, point), fresh

    def _stage(self, arm: Arm, slot: Slot, fresh: bool) -> None:
        """One system for this trial, and for those after it as long as they do not want one of their own."""
        variant = self.variants[arm.variant]
        self.observer.bringing_up(slot)
        began = time.monotonic()
        generation = self._generation(slot)
        try:
            with self.target.up(variant) as system:
                took_s = time.monotonic() - began
                readings = read_back(system, variant.readback)
                said = [reading.as_json() for reading in readings]
                self.store.write_readback(slot.block, arm.name, generation, said)
                self.store.write_deployed(slot.block, arm.name, generation, system.deployed())
                self.observer.brought_up(slot, took_s, readings)
                while True:
                    self._until_settled(self._measuring(system, slot, took_s, readings))
                    due = self._due(arm)
                    if fresh or due is None or due[1]:
                        return
                    slot, fresh = due
        except (StoreError, LostError):
            raise
        except LabError as error:
            self.observer.failed(slot, error)
            if all(each.slot.block != slot.block for each in self._replay(arm)):
                blank = blank_sample(self.target, slot, self.chosen, generation, self._attempts(slot) + 1, None)
                self._keep(slot, not_measured(blank, error))

    def _measuring(self, system: System, slot: Slot, took_s: float, readings: Sequence[Reading]) -> Measuring:
        asked = workers.asked(self.variants[slot.arm.variant].manifests)
        return Measuring(self.target, system, slot, self.chosen, self._generation(slot), took_s, readings, asked)

    def _until_settled(self, measuring: Measuring) -> None:
        slot = measuring.slot
        for attempt in range(self._attempts(slot) + 1, ATTEMPTS + 1):
            self.observer.measuring(slot, attempt)
            if settled(self._keep(slot, measuring.once(attempt))):
                return

    def _keep(self, slot: Slot, made: Measurement) -> Sample:
        self.store.write_sample(made.sample, made.raw, made.histograms, made.usage, made.events, made.left)
        self._samples.append(made.sample)
        self.observer.measured(slot, made.sample, made.histograms.get("latency"), settled(made.sample))
        return made.sample

    def _attempts(self, slot: Slot) -> int:
        mine = [sample.attempt for sample in self._samples if sample.block == slot.block and counts(sample)]
        return max(mine, default=0)

    def _generation(self, slot: Slot) -> int:
        begun = [sample.generation for sample in self._samples if sample.block == slot.block and not counts(sample)]
        return 1 + max(begun, default=-1)
