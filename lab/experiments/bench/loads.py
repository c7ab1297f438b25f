"""Which generator makes each point's load on a target, and whether it can, on every variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import get_args

from lab import generators
from lab.base.errors import UsageError
from lab.experiments.bench.measurable import MeasurableRun
from lab.experiments.bench.request import LoadedRequest
from lab.generators.base import load_of
from lab.generators.k6 import K6, Out
from lab.measure.measurement import ChosenGenerator
from lab.model.endpoint import Endpoint
from lab.model.names import DEFAULT_TARGET
from lab.model.run import K6_OUT, RunRecord
from lab.model.sweeps import Point
from lab.targets.base import Target

K6_WROTE = "k6 wrote rows of its own beside, which cost it CPU"


def choose_generators(loaded: LoadedRequest, shown: MeasurableRun, target: Target) -> dict[str, ChosenGenerator]:
    """Point → its generator. UsageError where there is none, or it cannot make the load on one of the variants.

    Where every load is about TLS sessions and none has TLS, nothing is measured; beside other loads it is noted in the samples.
    """
    out = loaded.request.k6_out
    chosen = {point.name: choose(point, target, out) for point in shown.record.points}
    if out and target.name != DEFAULT_TARGET:
        fault = f"on target '{target.name}' k6 runs in a pod, and the files it writes stay there"
        raise UsageError("--k6-out", fault, f"leave it out, or measure with --target {DEFAULT_TARGET}")
    if out and not any(used.keep for used in chosen.values()):
        made_by = ", ".join(dict.fromkeys(used.generator.name for used in chosen.values()))
        fault = f"no load of sweep '{loaded.sweep_name}' is made by k6 here, all by {made_by}"
        raise UsageError(
            "--k6-out", fault, 'leave it out, or name a sweep by --sweep whose points say generator = "k6"'
        )
    for name in shown.asked:
        endpoints = shown.endpoints[name]
        if all(point.resumption is not None and endpoints[point.name].tls == "none" for point in shown.record.points):
            fault = f"'{name}' is asked without TLS here: there is no session to resume, or not to"
            remedy = "variants whose routes have TLS, as 'tls' has; `just list` shows them"
            raise UsageError(f"point {shown.record.points[0].name}: resumption", fault, remedy)
    for name in shown.variants:
        refuse_loads(name, shown.record.points, chosen, shown.endpoints[name])
    return chosen


def choose(point: Point, target: Target, k6_out: Out | None = None) -> ChosenGenerator:
    """The generator for a point as the target has it, or the one that stands in for it; k6 leaves `k6_out` of its own.

    UsageError for more threads than the generator has CPUs: they hinder each other, and its own clock first (256 on one CPU: seven times
    the rate). Of the system only what the point says is known before it is up: `all` routes are more than one.
    """
    cpus = target.generator_cpus()
    if cpus is not None and point.threads > cpus:
        fault = f"asks for {point.threads} threads, the generator has {cpus} CPU{'s' if cpus > 1 else ''} here"
        remedy = f"{cpus} at most, or `threads_at_most = {point.threads}` for as many as a machine has"
        raise UsageError(f"point {point.name}: threads", fault, remedy)
    routes = max(2, point.connections) if point.routes == "all" else point.routes
    hosts = tuple(f"r{number}.lab.test" for number in range(routes))
    secure = "http" if point.tls in ("none", "routed") else "https"
    placeholder = Endpoint(f"{secure}://{hosts[0]}", hosts[0], hosts, "none" if point.tls == "routed" else point.tls)
    used, why = generators.choose(point.generator, load_of(point, placeholder), target.installed)
    installed = target.installed(used)
    assert installed is not None  # choose() has found it
    notes = () if why is None else (why,)
    keep: tuple[str, ...] = ()
    if isinstance(used, K6) and k6_out:
        used = replace(used, out=k6_out)
        keep = used.left
        notes += (f"{K6_WROTE} ({k6_out})",) if k6_out != "summary" else ()
    return ChosenGenerator(used, installed.path, installed.version, point.generator if why else None, notes, keep)


def choose_again(point: Point, target: Target, record: RunRecord) -> ChosenGenerator:
    """With what k6 keeps as the run began: all its samples are measured alike."""
    found = record.k6_out(point.name)
    return choose(point, target, next((known for known in get_args(Out) if known == found), None))


def refuse_loads(
    variant: str, points: Sequence[Point], chosen: Mapping[str, ChosenGenerator], endpoints: Mapping[str, Endpoint]
) -> None:
    """UsageError for a load that its generator cannot make on this variant's hosts, or where its TLS ends."""
    for point in points:
        used = chosen[point.name].generator
        if refusal := used.refusal(load_of(point, endpoints[point.name])):
            fault = f"{used.name} cannot make this load on '{variant}': {refusal}"
            raise UsageError(f"point {point.name}", fault, "choose another sweep, or measure the others without it")


def generator_record(used: ChosenGenerator) -> dict[str, str | None]:
    """As run.json has a point's."""
    return {
        "name": used.generator.name,
        "version": used.version,
        "stand_in_for": used.stand_in_for,
    } | ({K6_OUT: used.generator.out} if isinstance(used.generator, K6) and used.generator.out else {})
