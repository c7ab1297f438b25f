"""What a target can show of some variants under some loads, asked in one place before anything is started."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lab.base.errors import NotMeasurableError, UsageError
from lab.model import facts
from lab.model.endpoint import Endpoint
from lab.model.run import NotMeasured
from lab.model.sweeps import Point
from lab.model.variants.variants import Variant
from lab.targets.base import Target


@dataclass(frozen=True, slots=True)
class Survey:
    """What a target says of variants and loads.

    Attributes:
        facts: Of this machine and of the target on it.
        brought: Further facts, of what the variants run that is neither the machine's own nor their manifests' images.
        points: The loads, with as many threads as a generator may have there.
        endpoints: Variant → point → where its load goes; of the variants that can be shown.
        missing: Variant → why it cannot be shown.
        unpaired: Variant → why no other can be up beside it; empty where one can.

    """

    facts: Mapping[str, str]
    brought: Mapping[str, str]
    points: tuple[Point, ...]
    endpoints: Mapping[str, Mapping[str, Endpoint]]
    missing: Mapping[str, NotMeasured]
    unpaired: Mapping[str, str]


def survey(target: Target, variants: Iterable[Variant], points: Iterable[Point]) -> Survey:
    """Ask a target all of that. UsageError on the first fault; what it cannot show is no fault."""
    target.check()
    cpus = target.generator_cpus()
    settled = tuple(point.on_cpus(cpus) for point in points)
    if cpus is not None and (many := next((point for point in settled if point.threads > cpus), None)):
        # They hinder each other, and its own clock first: 256 on one CPU make seven times the rate.
        fault = f"asks for {many.threads} threads, the generator has {cpus} CPU{'s' if cpus > 1 else ''} here"
        remedy = f"{cpus} at most, or `threads_at_most = {many.threads}` for as many as a machine has"
        raise UsageError(f"point {many.name}: threads", fault, remedy)
    shown: list[Variant] = []
    endpoints: dict[str, Mapping[str, Endpoint]] = {}
    missing: dict[str, NotMeasured] = {}
    for variant in variants:
        try:
            endpoints[variant.name] = checked(variant, target, settled)
            shown.append(variant)
        except NotMeasurableError as error:
            fields = {"what": error.what, "why": error.why, "remedy": error.remedy}
            missing[variant.name] = NotMeasured(variant=variant.name, **fields)
    unpaired = {variant.name: target.unpaired(variant) for variant in shown}
    return Survey(facts_of(target), target.brought(shown), settled, endpoints, missing, unpaired)


def facts_of(target: Target) -> dict[str, str]:
    """Of this machine and of the target on it."""
    return facts.machine() | dict(target.facts())


def checked(variant: Variant, target: Target, points: Sequence[Point]) -> Mapping[str, Endpoint]:
    """Where each point's load goes. UsageError, or NotMeasurableError, for what the target or a disturbance cannot do to this variant."""
    endpoints = target.check_variant(variant, points)
    for point in points:
        if point.disturbance is not None:
            try:
                point.disturbance.vet(variant.manifests)
            except NotMeasurableError as error:
                place = f"{variant.name}: {error.place}"
                raise NotMeasurableError(error.what, place, error.why, error.remedy) from None
            except UsageError as error:
                raise UsageError(f"{variant.name}: {error.place}", error.fault, error.remedy) from None
    return endpoints
