"""One measurement: canary, warm-up, load, canary, and everything seen meanwhile, as one `Sample` with its verdict.

Refuses to decide what happens next: measuring again, storing and ordering belong to `run`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from lab.generators import Generator, command
from lab.generators.loads import load_of
from lab.measure import validity
from lab.measure.canary import Canary, canary
from lab.model.bottleneck import fullness, limited_by
from lab.model.load import Load, OutputError, Result
from lab.model.plan import Slot
from lab.model.run import now
from lab.model.samples import Reason, Sample
from lab.model.sweeps import Point
from lab.model.usage import USAGE_SCHEMA, Observation, Usage
from lab.records.reparse import reported
from lab.records.tables import join_raw
from lab.stats.histogram import Histogram
from lab.targets.base import System, Target
from lab.targets.common.process import GRACE_S, Ended, run_generator, scratch, taken
from lab.targets.common.sampler import RESIDUAL_NOISE
from lab.targets.readback import Reading

NO_TLS = "no TLS on the way: there is no session to resume"
MANY = (
    "many generators at once: their own CPU is not seen; saturated ones show as dropped requests or a rate not achieved"
)
OTHERS_HIDDEN = "what else ran there could not be seen, and is not judged"
NOT_COUNTED = "no TLS ends at the proxy here: whether sessions were resumed was not counted"


Running = tuple[dict[str, int], set[int], set[int]]
"""Restarts by container, processes of the proxy, processes of the backend."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The generator of one point: which, where it is installed, and the one it stands in for."""

    generator: Generator
    path: str
    version: str | None
    stand_in_for: str | None
    notes: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    """Files that it leaves in its scratch folder and that are kept beside the sample."""


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
    """File name → content of what the generator itself wrote (`Chosen.keep`)."""


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
    workers: int | None = None
    """Of the proxy, as the manifests ask; None: one for each of its CPUs."""

    def once(self, attempt: int) -> Measurement:
        """Measure, unless a knob did not take or the wrong backend answers: then there is nothing worth a number."""
        point, generator = self.slot.point, self.chosen.generator
        endpoint = self.system.endpoint(point)
        load = load_of(point, endpoint)
        blank = self.blank(attempt)
        blank = blank.model_copy(update={"notes": (*blank.notes, *filter(None, [endpoint.way]))})
        argv = tuple(command(generator, self.chosen.path, load))
        blank = blank.model_copy(update={"argv": argv, "gauges": dict(self.system.gauges())})
        first = canary(self.system, endpoint, point)
        blank = blank.model_copy(update={"tls": first.tls})
        if before := self.standing_faults(load) + first.faults:
            return self.unmeasured(blank, before)

        running = self._running()
        with scratch() as folder, self._shaped(point.link_mbit):
            if point.warmup_s:
                warm_up = replace(load, duration_s=max(1.0, point.warmup_s), requests=None, generators=1)
                run_generator(self.system, generator, self.chosen.path, warm_up, folder)
                taken(folder, self.chosen.keep)  # of the warm-up: nothing is recorded of it
            with self.system.watch() as watch:
                ended = run_generator(self.system, generator, self.chosen.path, load, folder)
            left = taken(folder, self.chosen.keep)
        ended, seen, own_cpu_s = self.observed(watch.observation(), ended)

        result, found = self.parsed(load, ended)
        if changed := _changes(running, self._running()):
            found.append((Reason.PROXY_DIED, "\n".join(filter(None, (changed, self.system.log_tail())))))
        cores = self.cores(seen, own_cpu_s, result, ended)
        limit, said = None, list[str]()
        if result is not None:
            core = cores["generator"] or 0.0
            calibration_s = generator.calibration_s(load)
            found += validity.faults(point, result, seen, core, calibration_s, first.body_bytes, first.chunked)
            judged, said = _afterwards(point, first, canary(self.system, endpoint, point))
            found += judged
            if endpoint.tls in ("edge", "reencrypt"):
                found += validity.resumption(point, seen.counters)
            elif point.resumption is not None:
                said.append(NO_TLS if endpoint.tls == "none" else NOT_COUNTED)
            seen_core = core if ended.cpu_s is not None else None
            limit = limited_by(point, result, seen.counters, cores["proxy"], seen_core)
        blank = blank.model_copy(update={"limited_by": limit})
        return replace(self.finished(blank, found, result, seen, ended, cores, said), left=left)

    def blank(self, attempt: int) -> Sample:
        """The record before anything is known."""
        return blank_sample(self.target, self.slot, self.chosen, self.generation, attempt, self.bring_up_s)

    def unmeasured(self, blank: Sample, found: Sequence[validity.Fault]) -> Measurement:
        """Nothing was loaded, for these faults."""
        return Measurement(blank.model_copy(update=_verdict(found)), "", {}, pl.DataFrame(schema=USAGE_SCHEMA))

    def observed(self, seen: Observation, ended: Ended) -> tuple[Ended, Observation, dict[int, float]]:
        """With the generator's CPU from whoever saw it, other people's work on our CPUs, and CPU → seconds of ours on it."""
        if seen.generator_cpu_s is not None and ended.cpu_s is not None:
            ended = replace(ended, cpu_s=seen.generator_cpu_s)
        own_cpu_s = self._own_cpu_s(seen, ended.cpu_s or 0.0)
        return ended, with_unexplained(seen, own_cpu_s), own_cpu_s

    def parsed(self, load: Load, ended: Ended) -> tuple[Result | None, list[validity.Fault]]:
        return _parsed(self.chosen.generator, load, ended)

    def finished(
        self,
        blank: Sample,
        found: Sequence[validity.Fault],
        result: Result | None,
        seen: Observation,
        ended: Ended,
        cores: Mapping[str, float | None],
        said: Sequence[str] = (),
    ) -> Measurement:
        """Everything that is known in the end. `said`: notes of what was found afterwards."""
        unseen = [MANY] * (ended.cpu_s is None) + [OTHERS_HIDDEN] * (seen.others is None)
        told = (*result.notes, *said) if result is not None else ()
        sample = blank.model_copy(
            update={
                **_verdict(found),
                **reported(result),
                **_observed(seen, ended),
                "notes": (*blank.notes, *unseen, *told),
                "proxy_core": cores["proxy"],
                "generator_core": cores["generator"],
            }
        )
        return Measurement(sample, join_raw(ended.stdout, ended.stderr), _histograms(result), seen.rows)

    def standing_faults(self, load: Load) -> list[validity.Fault]:
        """What speaks against measuring at all: a knob or limit that did not take, a load that cannot be made here."""
        wrong = [reading for reading in self.readings if not reading.ok]
        faults = [(Reason.KNOB_NOT_APPLIED, str(reading)) for reading in wrong]
        faults += [(Reason.LIMIT_NOT_APPLIED, what) for what in self.system.unapplied()]
        return faults + _refused(self.chosen.generator, load)

    @contextmanager
    def _shaped(self, link_mbit: float | None) -> Iterator[None]:
        """The client's link as the point wants it for as long as the load lasts: canaries take the link as it is."""
        self.system.shape(link_mbit)
        try:
            yield
        finally:
            self.system.shape(None)

    def _running(self) -> Running:
        """What must be the same before and after: restarts, and every process of proxy and backend (a master respawns its workers)."""
        return (
            dict(self.system.restarts()),
            set(self.system.processes("proxy")),
            set(self.system.processes("backend")),
        )

    def _own_cpu_s(self, seen: Observation, generator_s: float) -> dict[int, float]:
        """CPU → seconds of ours on it; a role on several CPUs is spread over them as they were busy: one worker fills one of many."""
        used = {role: usage.cpu_s for role, usage in seen.usage.items()} | {"generator": generator_s}
        own: dict[int, float] = {}
        for role, cpus in self.target.cpus().items():
            busy = sum(seen.busy.get(cpu, 0.0) for cpu in cpus)
            for cpu in cpus:
                part = seen.busy.get(cpu, 0.0) / busy if busy else 1 / len(cpus)
                own[cpu] = own.get(cpu, 0.0) + used.get(role, 0.0) * part
        return own

    def cores(
        self, seen: Observation, own_cpu_s: Mapping[int, float], result: Result | None, ended: Ended
    ) -> dict[str, float | None]:
        """How busy a role's CPUs were while the generator ran: the proxy's least busy one (of those that its workers can fill), the
        generator's busiest (None: not seen).

        Clock ticks miss short bursts of work, so what the scheduler counted for our own processes is the least.
        Where roles are not pinned, a role's CPUs are its node's, and a generator is no less busy than its busiest thread.
        """
        span_s = min(seen.elapsed_s, result.duration_s) if result and result.duration_s else seen.elapsed_s
        if seen.cores is not None:
            shares = {role: min(1.0, share * seen.elapsed_s / span_s) for role, share in seen.cores.items()}
            least = [share for share in (shares.get("generator"), seen.busiest_thread) if share is not None]
            seen_busy = max(least, default=None) if ended.cpu_s is not None else None
            return {"proxy": shares.get("proxy"), "generator": seen_busy}
        busy = {
            cpu: min(1.0, max(share * seen.elapsed_s, own_cpu_s.get(cpu, 0.0)) / span_s)
            for cpu, share in seen.busy.items()
        }
        cpus = self.target.cpus()
        has_proxy = bool(self.system.processes("proxy"))
        proxy = [busy[cpu] for cpu in cpus.get("proxy", ()) if cpu in busy and has_proxy]
        generator = [busy[cpu] for cpu in cpus.get("generator", ()) if cpu in busy]
        own = max(generator, default=None) if ended.cpu_s is not None else None
        used = seen.usage["proxy"].cpu_s / span_s if "proxy" in seen.usage else 0.0
        return {"proxy": fullness(proxy, self.workers, used), "generator": own}


def _changes(before: Running, after: Running) -> str:
    """In words, of restarts (containers that are gone too) and of the processes of proxy and backend; empty = none."""
    restarts, now = before[0], after[0]
    said = [f"{name} restarted" for name, count in now.items() if count != restarts.get(name, count)]
    said += [f"{name} is gone" for name in restarts if name not in now]
    for role, was, are in (("proxy", before[1], after[1]), ("backend", before[2], after[2])):
        if was != are:
            said.append(f"processes of the {role}: {len(was - are)} of {len(was)} ended, {len(are - was)} began")
    return "; ".join(said)


def with_unexplained(seen: Observation, own_cpu_s: Mapping[int, float]) -> Observation:
    """Work on our CPUs that none of our processes did, beyond what clock ticks get wrong, is somebody else's.

    It catches what no process list shows: processes in other containers, or ones that nobody waited for. Interrupts are nobody's: those
    that come in a process are in its time, and the rest (a disk's, of a log whose every line it confirms) in the CPU's idle share.
    """
    own = {cpu: own_s / seen.elapsed_s for cpu, own_s in own_cpu_s.items() if cpu in seen.busy}
    outside = {cpu: seen.interrupts.get(cpu, 0.0) * max(0.0, 1 - share) for cpu, share in own.items()}
    residual = [seen.busy[cpu] - share - outside[cpu] for cpu, share in own.items()]
    unexplained = sum(share for share in residual if share > RESIDUAL_NOISE)
    return replace(seen, others=max(seen.others or 0.0, unexplained)) if unexplained else seen


def _refused(generator: Generator, load: Load) -> list[validity.Fault]:
    """What could not be known before the system was up: how many hosts it has and where its TLS ends."""
    refusal = generator.refusal(load)
    return [(Reason.GENERATOR_FAILED, f"{generator.name} cannot make this load: {refusal}")] if refusal else []


def _afterwards(point: Point, before: Canary, after: Canary) -> tuple[list[validity.Fault], list[str]]:
    """(faults, notes) of the second canary. Where errors are the subject, that it too was refused is one of them."""
    if after.refusal and "errors" in point.subject:
        return [], [f"refused afterwards, too: {after.refusal}"]
    apart = abs(after.body_bytes - before.body_bytes)
    if not after.faults and apart > validity.size_slack(point, before.body_bytes):
        said = f"the canary weighed {before.body_bytes} bytes before and {after.body_bytes} after"
        return [(Reason.WRONG_SIZE, said)], []
    return after.faults, []


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
        latency_from=chosen.generator.latency_from,
        notes=chosen.notes,
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


def _observed(seen: Observation, ended: Ended) -> dict[str, Any]:
    most = seen.usage.get("generator")  # several at once, where it has one for every host
    usage = {role: used for role, used in seen.usage.items() if role != "generator"}
    if ended.cpu_s is not None:
        usage["generator"] = Usage(
            cpu_s=ended.cpu_s,
            rss_bytes=max(ended.rss_bytes, most.rss_bytes if most else 0),
            processes=most.processes if most else 1,
        )
    return {
        "usage": usage,
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
