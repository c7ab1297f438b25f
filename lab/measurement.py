"""One measurement: canary, warm-up, load, canary, and everything seen meanwhile, as one `Sample` with its verdict.

Refuses to decide what happens next: measuring again, storing and ordering belong to `run`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from lab import validity
from lab.generators import Generator, Load, OutputError, Result
from lab.histogram import Histogram
from lab.plan import Slot
from lab.process import GRACE_S, Ended, run_generator
from lab.readback import Reading
from lab.sampler import Observation, Sampler
from lab.samples import Reason, Sample, Usage
from lab.store import USAGE_SCHEMA, join_raw, now
from lab.sweeps import Point
from lab.targets.base import Endpoint, System, Target

FETCH_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Chosen:
    """The generator of one point: which, where it is installed, and the one it stands in for."""

    generator: Generator
    path: str
    version: str | None
    stand_in_for: str | None


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one attempt at a slot left behind: the record and what is stored beside it."""

    sample: Sample
    raw: str
    histograms: Mapping[str, Histogram]
    usage: pl.DataFrame


@dataclass(frozen=True, slots=True)
class Measuring:
    """One slot on one running system."""

    target: Target
    system: System
    slot: Slot
    chosen: Chosen
    generation: int
    bring_up_s: float
    readings: Sequence[Reading]

    def once(self, attempt: int) -> Measurement:
        """Measure, unless a knob did not take or the wrong backend answers: then there is nothing worth a number."""
        point, generator = self.slot.point, self.chosen.generator
        endpoint = self.system.endpoint(point)
        load = load_of(point, endpoint)
        blank = blank_sample(
            self.target,
            self.slot,
            self.chosen,
            self.generation,
            attempt,
            self.bring_up_s,
        )
        blank = blank.model_copy(update={"argv": (self.chosen.path, *generator.argv(load)[1:])})
        if before := self._standing_faults() + canary(self.system, endpoint, point):
            return Measurement(
                blank.model_copy(update=_verdict(before)),
                "",
                {},
                pl.DataFrame(schema=USAGE_SCHEMA),
            )

        containers = self._containers()
        with TemporaryDirectory(prefix="lab-") as scratch:
            if point.warmup_s:
                warm_up = replace(load, duration_s=max(1.0, point.warmup_s), requests=None)
                run_generator(self.system, generator, self.chosen.path, warm_up, Path(scratch))
            with Sampler(self._pids) as sampler:
                ended = run_generator(self.system, generator, self.chosen.path, load, Path(scratch))
        seen = sampler.observation()

        result, found = _parsed(generator, load, ended)
        if self._containers() != containers:
            found.append(
                (
                    Reason.PROXY_DIED,
                    self.system.log_tail() or "a container ended during the sample",
                )
            )
        proxy_core, generator_core = self._cores(seen, result)
        limited_by = None
        if result is not None:
            found += validity.faults(
                point,
                result,
                seen,
                generator_core or 0.0,
                generator.calibration_s(load),
            )
            found += canary(self.system, endpoint, point)
            limited_by = validity.limited_by(point, proxy_core, generator_core or 0.0)
        cores = {
            "proxy_core": proxy_core,
            "generator_core": generator_core,
            "limited_by": limited_by,
        }
        sample = blank.model_copy(
            update={
                **_verdict(found),
                **reported(result),
                **_observed(seen, ended),
                **cores,
            }
        )
        return Measurement(sample, join_raw(ended.stdout, ended.stderr), _histograms(result), seen.rows)

    def _standing_faults(self) -> list[validity.Fault]:
        wrong = [reading for reading in self.readings if not reading.ok]
        faults = [(Reason.KNOB_NOT_APPLIED, str(reading)) for reading in wrong]
        return faults + [(Reason.LIMIT_NOT_APPLIED, what) for what in self.system.unapplied()]

    def _pids(self) -> Mapping[str, list[int]]:
        own = {"lab": [os.getpid()]}
        return {role: self.system.processes(role) for role in ("proxy", "backend", "generator")} | own  # type: ignore[arg-type]

    def _containers(self) -> tuple[dict[str, int], bool, bool]:
        """What must be the same before and after: restarts, and whether each role runs at all."""
        alive = (
            bool(self.system.processes("proxy")),
            bool(self.system.processes("backend")),
        )
        return dict(self.system.restarts()), *alive

    def _cores(self, seen: Observation, result: Result | None) -> tuple[float | None, float | None]:
        """(least busy CPU of the proxy, busiest of the generator) over the generator's own run time."""
        stretch = seen.elapsed_s / result.duration_s if result and result.duration_s else 1.0
        busy = {cpu: min(1.0, share * stretch) for cpu, share in seen.busy.items()}
        cpus = self.target.cpus()
        proxy = [busy[cpu] for cpu in cpus.get("proxy", ()) if cpu in busy]
        generator = [busy[cpu] for cpu in cpus.get("generator", ()) if cpu in busy]
        has_proxy = bool(self.system.processes("proxy"))
        return min(proxy) if proxy and has_proxy else None, max(generator) if generator else None


def load_of(point: Point, endpoint: Endpoint) -> Load:
    """What the generator is told at this point on this system."""
    return Load(
        url=f"{endpoint.base_url}/{point.page}",
        host=endpoint.host,
        connections=point.connections,
        duration_s=point.duration_s,
        rate_rps=point.rate_rps,
        threads=point.threads,
        requests=point.requests,
        keepalive=point.keepalive,
    )


def canary(system: System, endpoint: Endpoint, point: Point) -> list[validity.Fault]:
    """One request through the proxy must bring the very bytes that the backend gives when asked directly."""
    path = f"/{point.page}"
    try:
        wanted = system.fetch(system.backend_endpoint(), path, FETCH_TIMEOUT_S)
        got = system.fetch(endpoint, path, FETCH_TIMEOUT_S)
    except OSError as error:
        return [(Reason.WRONG_BACKEND, f"canary {endpoint.base_url}{path}: {error}")]
    if wanted.status != 200 or not wanted.body:
        return [
            (
                Reason.WRONG_BACKEND,
                f"the backend itself answers {wanted.status} to {path}",
            )
        ]
    if got.status != 200 or got.body != wanted.body:
        return [
            (
                Reason.WRONG_BACKEND,
                f"canary {endpoint.base_url}{path}: status {got.status}, {len(got.body)} bytes that are not the backend's",
            )
        ]
    return []


def blank_sample(
    target: Target,
    slot: Slot,
    chosen: Chosen,
    generation: int,
    attempt: int,
    bring_up_s: float | None,
) -> Sample:
    """The record of a slot before anything is known about it."""
    return Sample(
        id=slot.sample_id(attempt, generation),
        order=slot.order,
        block=slot.block,
        generation=generation,
        attempt=attempt,
        arm=slot.arm.name,
        role=slot.arm.role,
        variant=slot.arm.variant,
        baseline=slot.arm.baseline,
        target=target.name,
        point=slot.point,
        generator=chosen.generator.name,
        generator_version=chosen.version,
        stand_in_for=chosen.stand_in_for,
        argv=(),
        started_at=now(),
        bring_up_s=bring_up_s,
        offered_rps=slot.point.rate_rps,
        achieved_rps=None,
        requests=None,
        duration_s=None,
        recorded_s=None,
        verdict="valid",
        reason=None,
    )


def _parsed(generator: Generator, load: Load, ended: Ended) -> tuple[Result | None, list[validity.Fault]]:
    """What the generator reported, or why it reported nothing."""
    if ended.hung:
        return None, [
            (
                Reason.GENERATOR_HUNG,
                f"still running {GRACE_S:g} s after its time, killed",
            )
        ]
    try:
        return generator.parse(ended.stdout, ended.stderr, ended.exit_status, load), []
    except OutputError as error:
        reason = Reason.GENERATOR_FAILED if ended.exit_status else Reason.GENERATOR_OUTPUT
        return None, [(reason, f"exit status {ended.exit_status}: {error}")]


def _histograms(result: Result | None) -> Mapping[str, Histogram]:
    if result is None:
        return {}
    return {"latency": result.latency} | ({"service": result.service} if result.service else {})


def _verdict(found: Sequence[validity.Fault]) -> dict[str, Any]:
    """The first reason in the list's own order stands for all; `detail` tells every one."""
    if not found:
        return {"verdict": "valid", "reason": None, "detail": ""}
    order = list(Reason)
    first = min((reason for reason, _ in found), key=order.index)
    detail = "; ".join(f"{reason}: {what}" for reason, what in found)
    return {"verdict": "invalid", "reason": first, "detail": detail}


def reported(result: Result | None) -> dict[str, Any]:
    if result is None:
        return {}
    return {
        "achieved_rps": result.achieved_rps,
        "requests": result.requests,
        "duration_s": result.duration_s,
        "recorded_s": result.recorded_s,
        "errors": {str(kind): count for kind, count in result.errors.items() if count},
        "dropped": result.dropped,
        "size_bytes": result.size_bytes,
        "histogram": result.latency.kind,
    }


def _observed(seen: Observation, ended: Ended) -> dict[str, Any]:
    generator = Usage(cpu_s=ended.cpu_s, rss_bytes=ended.rss_bytes, processes=1)
    return {
        "usage": {**seen.usage, "generator": generator},
        "busy": {str(cpu): share for cpu, share in seen.busy.items()},
        "steal": seen.steal,
        "others": seen.others,
        "counters": dict(seen.counters),
    }


def not_measured(blank: Sample, error: Exception) -> Measurement:
    """The record of a slot whose system did not come up."""
    update = {
        "verdict": "invalid",
        "reason": Reason.BRING_UP_FAILED,
        "detail": str(error),
    }
    return Measurement(blank.model_copy(update=update), "", {}, pl.DataFrame(schema=USAGE_SCHEMA))
