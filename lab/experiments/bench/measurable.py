"""What can be shown on a target: its facts, the loads with their rates, and the variants that are left, as arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab.analysis.noise import aa_arms
from lab.base.errors import NotMeasurableError, UsageError
from lab.experiments.at_knee import Place, placed
from lab.experiments.bench.request import LoadedRequest
from lab.model import facts
from lab.model.endpoint import Endpoint
from lab.model.plan import Arm, arms_for
from lab.model.run import AtKnee, NotMeasured
from lab.model.sweeps import Point
from lab.model.variants.variants import Variant
from lab.targets.base import Target


class NothingMeasurableError(UsageError):
    """Nothing that was asked for can be shown here (exit 2); `missing` says why, one by one; `notes`: what else there is to tell."""

    def __init__(self, missing: Sequence[NotMeasured], notes: Sequence[str] = ()) -> None:
        self.missing = tuple(missing)
        named = "; ".join(map(str, missing))
        told = [item for item in missing if item.remedy]
        alike = len({item.remedy for item in told}) == 1
        remedies = dict.fromkeys(item.remedy if alike else f"{item.variant}: {item.remedy}" for item in told)
        remedy = "; ".join(remedies) or "name another: see `just list`"
        super().__init__("bench", f"nothing to measure: {named}", "\n  ".join([remedy, *notes]))


@dataclass(frozen=True, slots=True)
class MeasurableRun:
    """What of a request is measured on a target."""

    facts: Mapping[str, str]
    points: tuple[Point, ...]
    at_knee: AtKnee | None
    """At which the points were placed; None: none of them asks for one."""
    asked: Mapping[str, Variant]
    """Those asked for that are left."""
    arms: tuple[Arm, ...]
    variants: Mapping[str, Variant]
    """Of the arms."""
    endpoints: Mapping[str, Mapping[str, Endpoint]]
    """Variant → point → where its load goes."""
    left_out: tuple[NotMeasured, ...]
    unpaired: Mapping[str, str]
    """Variant → why no other can be up beside it."""


def measurable(loaded: LoadedRequest, target: Target) -> MeasurableRun:
    """UsageError on the first fault; what cannot be shown here is left out, NothingMeasurableError if that leaves nothing.

    A variant is left out with its baseline, too.
    """
    target.check()
    found_facts = facts_of(target)
    digests = loaded.baseline_digests
    as_searched = {} if loaded.fixtures else digests  # a search has none of them
    place = Place(tuple(digests), target.name, found_facts, as_searched)
    settled = [point.on_cpus(target.generator_cpus()) for point in loaded.points]
    points, at_knee = placed(settled, loaded.request.knee, place)
    missing: dict[str, NotMeasured] = {}
    endpoints: dict[str, Mapping[str, Endpoint]] = {}
    for name, variant in loaded.variants.items():
        try:
            endpoints[name] = checked(variant, target, points)
        except NotMeasurableError as error:
            missing[name] = NotMeasured(variant=name, what=error.what, why=error.why, remedy=error.remedy)
    against = loaded.against
    for name in loaded.variants:
        base = missing.get(against.get(name) or "")
        if base and name not in missing:
            why = f"its baseline {base.variant} is not measurable here: {base.why}"
            missing[name] = NotMeasured(variant=name, what=base.what, why=why, remedy=base.remedy)
    asked = {name: variant for name, variant in loaded.asked.items() if name not in missing}
    if not asked:
        raise NothingMeasurableError([missing[name] for name in loaded.asked])
    reference = None if loaded.reference in missing else loaded.reference
    if loaded.request.nulls is not None:
        arms = aa_arms(next(iter(asked)), loaded.request.nulls, reference)
    else:
        arms = arms_for([(name, against[name]) for name in asked], reference)
    variants = {arm.variant: loaded.variants[arm.variant] for arm in arms}
    left_out = tuple(missing[name] for name in dict.fromkeys((*loaded.asked, *missing)) if name in missing)
    found_facts |= target.brought(variants.values())
    unpaired = {name: why for name, variant in variants.items() if (why := target.unpaired(variant))}
    return MeasurableRun(found_facts, tuple(points), at_knee, asked, arms, variants, endpoints, left_out, unpaired)


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
                raise NotMeasurableError(
                    error.what, f"{variant.name}: {error.place}", error.why, error.remedy
                ) from None
            except UsageError as error:
                raise UsageError(f"{variant.name}: {error.place}", error.fault, error.remedy) from None
    return endpoints
