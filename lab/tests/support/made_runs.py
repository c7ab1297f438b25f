"""Runs to compare with known answers: records and samples from a seed, as a store would give them. Nothing is measured or written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from lab.analysis.aggregate.cells import select_counted_solo_samples
from lab.analysis.evidence import Evidence
from lab.model.design import choose_shape
from lab.model.pairs import SIDES
from lab.model.plan import Arm, ArmAndPoint, Plan, Slot, list_arms, plan_samples
from lab.model.run import KneeSearch, RunRecord, VariantRecord
from lab.model.samples import Sample
from lab.model.sweeps import LoadPoint
from lab.records.store import RunStore
from lab.records.sweep_files import load_sweep
from lab.stats.histogram import Histogram
from lab.tests.support.factories import make_plan, make_point, make_run, make_sample, of_slot

FACTS = {"cpu": "Xeon", "cpus": "2", "memory_bytes": "25276510208", "kernel": "6.1", "boot_id": "a"}
SNIPPETS = {"keepalive": "data:\n  keep-alive-requests: '10000'\n"}
PRIMARY = {"keepalive": "p99", "backlog": "rate"}
SEARCH = KneeSearch(p99_s=0.05, min_achieved=0.99, max_generator_core=0.8, start_rps=100, least_rps=1, precision=0.1)
KILL = [point for point in load_sweep("kill")[1].load_points if point.name == "delete" or point.control]


class MadeStore(RunStore):
    """A run that lies in memory."""

    def __init__(self, record: RunRecord, samples: Sequence[Sample], histograms: Mapping[str, Histogram]) -> None:
        super().__init__(Path("/nowhere") / record.id, record)
        self._samples, self._histograms = list(samples), histograms

    def samples(self, wanted: Callable[[Sample], bool] = lambda _: True) -> list[Sample]:
        return [sample for sample in self._samples if wanted(sample)]

    def take(self, samples: Iterable[Sample]) -> None:
        self._samples = list(samples)

    def histogram(self, sample: Sample, series: Literal["latency", "service"] = "latency") -> Histogram | None:
        return self._histograms.get(sample.id)


def variant_record(name: str, **fields: Any) -> VariantRecord:
    bare: dict[str, Any] = {"title": name, "knobs": (), "own_knobs": (), "manifests_sha256": ""}
    nothing: dict[str, Any] = dict.fromkeys(("baseline", "primary_metric", "hypothesis_sweep"))
    given: dict[str, Any] = {"name": name, **bare, **nothing, **fields}
    return VariantRecord(**given)


def made_record(name: str, planned: Plan, **overrides: Any) -> RunRecord:
    variants = {
        arm.variant: variant_record(
            arm.variant,
            baseline=arm.baseline if arm.role == "variant" else None,
            knobs=(arm.variant,) if arm.role == "variant" else (),
            own_knobs=(arm.variant,) if arm.role == "variant" else (),
            primary_metric=PRIMARY.get(arm.variant),
            manifests_sha256=f"of {arm.variant}",
            snippet=SNIPPETS.get(arm.variant, ""),
        )
        for arm in sorted(planned.arms, key=lambda arm: arm.role == "variant")
    }
    fields: dict[str, Any] = {
        "id": name,
        "created_at": "2026-11-21T12:00:00.000+00:00",
        "command": ("lab", "bench"),
        "target": "local",
        "sweep": "quick",
        "variants": variants,
        "generators": {p.name: {"name": "k6", "version": "1.8.1", "stand_in_for": None} for p in planned.points},
        "facts": FACTS,
        "git_commit": "25a6612c76374bf2110dcb6501a19c74e9c2d722",
    }
    bare = RunRecord(**fields, seed=0, blocks=0, arms=(), points=(), slots=())
    return RunRecord(**{**dict(bare.with_plan(planned)), **overrides})


def made(
    name: str = "run-1",
    effects: Mapping[str, float] | None = None,
    planned: Plan | None = None,
    noise: float = 0.02,
    seed: int = 1,
    change: Callable[[Slot, Sample], Sample | None] = lambda _slot, sample: sample,
    **record: Any,
) -> MadeStore:
    """A steady run: `effects`, `noise`, `change` as in `make_run`; `record` overrides the record's fields."""
    planned = planned or make_plan()
    samples, histograms = make_run(planned, effects, noise, seed, change)
    return MadeStore(made_record(name, planned, **record), samples, histograms)


def with_variant(store: MadeStore, name: str = "keepalive", **update: Any) -> MadeStore:
    """The same run, of which a variant's record is another."""
    variants = store.record.variants
    changed = variants | {name: variants[name].model_copy(update=update)}
    store.record = store.record.model_copy(update={"variants": changed})
    return store


def paired_plan(points: Sequence[LoadPoint], blocks: int = 8, solo: Mapping[ArmAndPoint, str] | None = None) -> Plan:
    """`keepalive` against `baseline`, both up at once; `solo`: as in `lab.model.design.choose_shape`."""
    arms = list_arms([("keepalive", "baseline")], None)
    return plan_samples(arms, points, blocks, 1, choose_shape(arms, points, blocks, SIDES, solo))


def made_search(name: str, *tries: tuple[str, int], left: int = 0) -> MadeStore:
    """A search that tried these arms at these rates, a block each; the last `left` of them were planned and not measured."""
    arms = {arm: Arm(arm, arm, "baseline", None) for arm, _ in tries}
    points = {rate: make_point(f"rate-{rate}", rate_rps=float(rate)) for _, rate in tries}
    slots = tuple(Slot(n, n, arms[arm], points[rate]) for n, (arm, rate) in enumerate(tries, start=1))
    planned = Plan(tuple(arms.values()), tuple(points.values()), len(slots), 0, slots)
    done = len(slots) - left
    return made(name, planned=planned, change=lambda slot, one: one if slot.order <= done else None, knee=SEARCH)


def made_kill(name: str, gone_s: Callable[[Arm, int], float], **record: Any) -> MadeStore:
    """A pod is deleted in every block, and each arm is gone for so many seconds; control runs see nothing."""

    def outcome(arm: Arm, point: LoadPoint, block: int) -> dict[str, float | None]:
        gone = 0.0 if point.control else gone_s(arm, block)
        never = dict.fromkeys(("stale", "restarts", "failed_connect"), 0.0)
        return {"requests": 5200.0, "failed": 100 * gone, "gap_s": gone, **never}

    return made_disturbed(name, KILL, outcome, sweep="kill", **record)


def made_disturbed(
    name: str,
    points: Sequence[LoadPoint],
    outcome: Callable[[Arm, LoadPoint, int], Mapping[str, float | None] | None],
    variants: Sequence[tuple[str, str | None]] = (("keepalive", "baseline"),),
    blocks: int = 6,
    **record: Any,
) -> MadeStore:
    """A run of disturbances: (arm, point, block) → what came of it; None: there is no such sample."""
    planned = plan_samples(list_arms(variants, None), points, blocks, 1)
    samples: list[Sample] = []
    for slot in planned.slots:
        found = outcome(slot.arm, slot.point, slot.block)
        if found is not None:
            told = {"clock_error_s": 0.0002, **found}
            samples.append(make_sample(**of_slot(slot), outcome=told, clock_offset_s=0.0))
    return MadeStore(made_record(name, planned, **record), samples, {})


def evidence_of(store: RunStore, name: str = "made") -> Evidence:
    """The run as exhibits and claims are given it."""
    samples = tuple(store.samples())
    return Evidence(name, store, samples, select_counted_solo_samples(samples))
