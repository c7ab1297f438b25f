"""What one attempt at a slot leaves behind: a `Sample` with its verdict, and what is stored beside it; and what its regime tells of its load."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from lab.generators import Generator
from lab.measure.canary import Canary
from lab.measure.validity import Fault
from lab.model.endpoint import Endpoint
from lab.model.load import Load, Result
from lab.model.pairs import PairSide
from lab.model.plan import Slot
from lab.model.run import now
from lab.model.samples import Reason, Sample
from lab.model.usage import USAGE_SCHEMA, Observation, Usage
from lab.records.steadiness import with_cause
from lab.records.store import reported
from lab.records.tables import join_raw
from lab.stats.histogram import Histogram
from lab.targets.base import Target
from lab.targets.common.process import Ended

OTHERS_HIDDEN = "what else ran there could not be seen, and is not judged"


@dataclass(frozen=True, slots=True)
class ChosenGenerator:
    """The generator of one point: which, where it is installed, and the one it stands in for."""

    generator: Generator
    path: str
    version: str | None
    stand_in_for: str | None
    notes: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    """Files that it leaves in its scratch folder and that are kept beside the sample."""


@dataclass(frozen=True, slots=True)
class LoadRun:
    """A load that was made, and everything that was seen of it."""

    endpoint: Endpoint
    """Where the canaries go."""
    load: Load
    ended: Ended
    seen: Observation
    result: Result | None
    """What the generator reported; None: nothing, and `faults` say why."""
    faults: Sequence[Fault]
    cores: Mapping[str, float | None]
    """How busy the CPUs of proxy and generator were; None: not seen."""
    first: Canary
    """Before the load."""
    generator_cpus: int | None = None
    """How many it may use; None: not known."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What a load comes to: all that speaks against it, and what its sample says beside the measurements."""

    faults: Sequence[Fault]
    notes: Sequence[str] = ()
    columns: Mapping[str, Any] = field(default_factory=dict[str, Any])
    events: pl.DataFrame | None = None
    """Of a disturbed load: EVENTS_SCHEMA."""


class Regime(Protocol):
    """What a steady load and a disturbed one do differently around the same measuring: one sample's, its methods called in this order, once each.

    As it is here nothing is prepared, and the load goes where the canary goes.
    """

    def prepare(self, lasting: ExitStack) -> tuple[Mapping[str, Any], Sequence[Fault]]:
        """Before anything is asked of the system: columns of the sample, and why it cannot go on. What `lasting` holds ends with the load."""
        return {}, []

    def asked(self, endpoint: Endpoint) -> Endpoint:
        """Where the load goes, of a system whose canary goes to `endpoint`."""
        return endpoint

    def run(self, warm_up: Callable[[], object], load: Callable[[], Ended], folder: Path) -> tuple[Ended, Observation]:
        """Warm up, then load while the system is watched. `folder`: where the generator's output goes."""
        ...

    def findings(self, run: LoadRun) -> Findings:
        """After the load."""
        ...


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one attempt at a slot left behind: the record and what is stored beside it."""

    sample: Sample
    raw: str
    histograms: Mapping[str, Histogram]
    usage: pl.DataFrame
    events: pl.DataFrame | None = None
    """Of a disturbed sample: the columns of `lab.model.events.EVENTS_SCHEMA`."""
    left: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """File name → content of what the generator itself wrote (`ChosenGenerator.keep`)."""


def blank_sample(
    target: Target,
    slot: Slot,
    chosen: ChosenGenerator,
    generation: int,
    attempt: int,
    bring_up_s: float | None,
) -> Sample:
    """The record of a slot before anything is known about it."""
    pair, layout, scheme = None, slot.layout, slot.point.scheme
    if layout is not None:
        pair = PairSide(
            against=slot.other,
            side=layout.side,
            scheme=scheme,
            first_up=layout.first_up == layout.side,
            first_slice=scheme == "slices" and layout.first_slice == layout.side,
            reload=slot.reload,
            repeat=slot.repeat,
        )
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
        latency_from=chosen.generator.latency_from,
        notes=chosen.notes,
        argv=(),
        started_at=now(),
        bring_up_s=bring_up_s,
        offered_rps=slot.point.rate_rps,
        pair=pair,
        achieved_rps=None,
        requests=None,
        duration_s=None,
        recorded_s=None,
        verdict="valid",
        reason=None,
    )


def unmeasured(blank: Sample, found: Sequence[Fault]) -> Measurement:
    """Nothing was loaded, for these faults."""
    return Measurement(blank.model_copy(update=_verdict(found)), "", {}, pl.DataFrame(schema=USAGE_SCHEMA))


def not_brought_up(blank: Sample, error: Exception) -> Measurement:
    """The record of a slot whose system did not come up."""
    verdict = {"verdict": "invalid", "reason": Reason.BRING_UP_FAILED, "detail": str(error)}
    return Measurement(blank.model_copy(update=verdict), "", {}, pl.DataFrame(schema=USAGE_SCHEMA))


def measurement(blank: Sample, run: LoadRun, findings: Findings, left: Mapping[str, bytes]) -> Measurement:
    """Everything that is known in the end. `left`: what the generator itself wrote."""
    result, ended, seen = run.result, run.ended, run.seen
    most = seen.usage.get("generator")  # several at once, where it has one for every host
    generator = Usage(
        cpu_s=ended.cpu_s,
        rss_bytes=max(ended.rss_bytes, most.rss_bytes if most else 0),
        processes=most.processes if most else 1,
    )
    unseen = [OTHERS_HIDDEN] if seen.others is None else []
    sample = blank.model_copy(
        update={
            **_verdict(findings.faults),
            **reported(result),
            "usage": {**seen.usage, "generator": generator},
            "busy": {str(cpu): share for cpu, share in seen.busy.items()},
            "steal": seen.steal,
            "others": seen.others,
            "counters": dict(seen.counters),
            "notes": (*blank.notes, *unseen, *(result.notes if result is not None else ()), *findings.notes),
            "proxy_core": run.cores["proxy"],
            "generator_core": run.cores["generator"],
            **findings.columns,
        }
    )
    histograms = result.histograms if result is not None else {}
    raw = join_raw(ended.stdout, ended.stderr)
    return Measurement(with_cause(sample), raw, histograms, seen.rows, findings.events, left)


def _verdict(found: Sequence[Fault]) -> dict[str, Any]:
    """The first reason in the list's own order stands for all; `detail` tells every one."""
    if not found:
        return {"verdict": "valid", "reason": None, "detail": ""}
    order = list(Reason)
    first = min((reason for reason, _ in found), key=order.index)
    detail = "; ".join(f"{reason}: {what}" for reason, what in found)
    return {"verdict": "invalid", "reason": first, "detail": detail}
