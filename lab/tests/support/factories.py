"""Realistic fake plans and samples for tests: nothing here measures, and every number follows from a seed."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lab.model.pairs import PairSide
from lab.model.plan import Plan, Shape, Slot, list_arms, plan_samples
from lab.model.samples import Reason, Sample
from lab.model.sweeps import LoadPoint
from lab.model.usage import Usage
from lab.model.variants.labels import ROLE_LABEL
from lab.model.variants.variants import Variant, load_overlay, variant_names
from lab.stats.histogram import Histogram


def make_point(name: str = "rate-1000", **overrides: Any) -> LoadPoint:
    """A steady 5 s point at 1000 req/s over 100 connections; `rate_rps=None` makes it a ceiling."""
    fields: dict[str, Any] = {
        "generator": "wrk2",
        "connections": 100,
        "rate_rps": 1000.0,
        "duration_s": 5.0,
        "warmup_s": 1.0,
        "threads": 1,
        "page": "1kB.bin",
    }
    return LoadPoint(name=name, **{**fields, **overrides})


def make_sample(**overrides: Any) -> Sample:
    """A valid sample of `baseline` at `make_point()`, measured by k6 in wrk2's place; any field can be given."""
    point: LoadPoint = overrides.get("point") or make_point()
    achieved = overrides.get("achieved_rps", point.rate_rps or 20_000.0)
    requests = overrides.get("requests", round(achieved * point.duration_s) if achieved is not None else None)
    fields: dict[str, Any] = {
        "id": "0001-b01-baseline-rate-1000",
        "order": 1,
        "block": 1,
        "attempt": 1,
        "arm": "baseline",
        "role": "baseline",
        "variant": "baseline",
        "baseline": None,
        "target": "local",
        "point": point,
        "generator": "k6",
        "generator_version": "1.8.1",
        "stand_in_for": None if point.generator == overrides.get("generator", "k6") else point.generator,
        "latency_from": "sent",
        "argv": ("k6", "run", "script.js"),
        "started_at": "2026-11-21T12:00:00Z",
        "bring_up_s": 0.4,
        "offered_rps": point.rate_rps,
        "achieved_rps": achieved,
        "requests": requests,
        "duration_s": point.duration_s,
        "recorded_s": point.duration_s,
        "histogram": "quantiles",
        "dropped": 0,
        "size_bytes": 1024,
        "usage": {
            "proxy": Usage(cpu_s=25e-6 * (requests or 0), rss_bytes=30_000_000, processes=2),
            "backend": Usage(cpu_s=15e-6 * (requests or 0), rss_bytes=20_000_000, processes=2),
            "generator": Usage(cpu_s=1.5, rss_bytes=90_000_000, processes=1),
        },
        "limited_by": "proxy" if point.rate_rps is None else None,
        "verdict": "invalid" if overrides.get("reason") else "valid",
        "reason": None,
    }
    return Sample(**{**fields, **overrides})


def make_plan(
    variants: Sequence[tuple[str, str | None]] = (("keepalive", "baseline"),),
    points: Sequence[LoadPoint] | None = None,
    blocks: int = 6,
    seed: int = 1,
    reference: str | None = "direct",
    shape: Shape | None = None,
) -> Plan:
    """A run of the given (variant, baseline) pairs; by default at a ceiling and one rate, and every arm alone."""
    loads = points or [make_point("ceiling", rate_rps=None), make_point()]
    return plan_samples(list_arms(variants, reference), loads, blocks, seed, shape)


def make_run(
    run: Plan,
    effects: Mapping[str, float] | None = None,
    noise: float = 0.02,
    seed: int = 1,
    change: Callable[[Slot, Sample], Sample | None] = lambda _slot, sample: sample,
) -> tuple[list[Sample], dict[str, Histogram]]:
    """Every sample of a plan and the histograms by sample id.

    `effects`: variant → factor on latency and CPU per request (rates divide by it). `noise`: standard deviation of one
    measurement's logarithm; a side of a pair has `PAIRED` times that. `change` may alter a sample or, by returning None, leave it out.
    """
    samples: list[Sample] = []
    histograms: dict[str, Histogram] = {}
    for slot in (side for planned in run.slots for side in planned.sides):
        where = f"{slot.arm.name} {slot.point.name}" + (f" beside {slot.other}" if slot.other else "")
        rng = np.random.default_rng(zlib.crc32(f"{seed} {slot.block} {where}".encode()))
        factor = (effects or {}).get(slot.arm.variant, 1.0) * (0.5 if slot.arm.role == "reference" else 1.0)
        own_noise = noise * PAIRED if slot.other else noise
        wobble = [float(value) for value in np.exp(rng.normal(0, own_noise, 3))]
        achieved = slot.point.rate_rps or 20_000 / factor * wobble[0]
        requests = round(achieved * slot.point.duration_s)
        role = "backend" if slot.arm.role == "reference" else "proxy"
        made = of_slot(slot)
        untimed = slot.other and slot.point.scheme == "slices"
        if untimed:
            requests //= 2
            made |= {"duration_s": None, "recorded_s": None, "histogram": None}
        usage = {role: Usage(cpu_s=25e-6 * factor * wobble[1] * requests, rss_bytes=30_000_000, processes=2)}
        if slot.other:
            usage["backend"] = Usage(cpu_s=15e-6 * requests, rss_bytes=20_000_000, processes=2)
        sample = make_sample(**made, achieved_rps=None if untimed else achieved, requests=requests, usage=usage)
        kept = change(slot, sample)
        if kept is not None:
            samples.append(kept)
            if not untimed:
                latencies = np.exp(np.linspace(-2, 2, min(requests, 5000)) ** 3 / 4) * 800e-6 * factor * wobble[2]
                histograms[kept.id] = Histogram.of_values(latencies)
    return samples, histograms


PAIRED = 0.1


def of_slot(slot: Slot) -> dict[str, Any]:
    """What a sample's first attempt has of its slot: fields for `make_sample`."""
    return {
        "id": slot.sample_id(1),
        "order": slot.order,
        "block": slot.block,
        "arm": slot.arm.name,
        "role": slot.arm.role,
        "variant": slot.arm.variant,
        "baseline": slot.arm.baseline,
        "point": slot.point,
        "pair": _pair_of(slot),
    }


def _pair_of(slot: Slot) -> PairSide | None:
    if slot.layout is None:
        return None
    layout, scheme = slot.layout, slot.point.scheme
    up_first = layout.first_up == layout.side
    repeated: dict[str, Any] = {"reload": slot.reload, "repeat": slot.repeat}
    side = PairSide(against=slot.other, side=layout.side, scheme=scheme, first_up=up_first, **repeated)
    if scheme == "together":
        return side
    length_s, own_s = 0.1 if layout.longer else 0.05, slot.point.duration_s / 2
    timed = {"slice_s": length_s, "own_s": own_s, "slices": round(own_s / length_s), "in_flight": 0.001}
    return side.model_copy(update={"first_slice": layout.first_slice == layout.side, **timed})


Change = Callable[[Slot, Sample], Sample]


def made_invalid(sample: Sample, reason: Reason, **fields: Any) -> Sample:
    return sample.model_copy(update={"verdict": "invalid", "reason": reason, **fields})


def lose(where: Callable[[Slot], object], reason: Reason = Reason.STEAL, **fields: Any) -> Change:
    """Every sample of a slot of which that holds does not count, for this reason."""
    return lambda slot, sample: made_invalid(sample, reason, **fields) if where(slot) else sample


def alter(where: Callable[[Slot], object], fields: Callable[[Sample], Mapping[str, Any]]) -> Change:
    """Every sample of a slot of which that holds, with these fields instead."""
    return lambda slot, sample: sample.model_copy(update={**fields(sample)}) if where(slot) else sample


def answering(share: float) -> Callable[[Sample], Mapping[str, Any]]:
    """For `alter`: that share of the answers."""
    return lambda sample: {"achieved_rps": share * (sample.achieved_rps or 0)}


def costing(factor: float) -> Callable[[Sample], Mapping[str, Any]]:
    """For `alter`: so many times the CPU time, of every role."""
    return lambda sample: {
        "usage": {name: used.model_copy(update={"cpu_s": factor * used.cpu_s}) for name, used in sample.usage.items()}
    }


def plain_systems(target: str = "") -> list[str]:
    """A root of each system that nothing was changed of; `target`: of those that it can run."""
    return [
        overlay.name
        for overlay in map(load_overlay, variant_names())
        if overlay.baseline is None and not overlay.own_knobs and not overlay.reference
        if not target or not overlay.only_on or target in overlay.only_on.split()
    ]


def limited(variant: Variant, cpu: str | None) -> list[dict[str, Any]]:
    """Its objects, every container of its proxy with this limit of CPU, or none."""
    objects = copy.deepcopy(list(variant.manifests))
    for obj in objects:
        if obj["kind"] == "Deployment" and obj["metadata"]["labels"][ROLE_LABEL] == "proxy":
            for container in obj["spec"]["template"]["spec"]["containers"]:
                container["resources"] = {} if cpu is None else {"limits": {"cpu": cpu}}
    return objects
