"""The survey that finds out, before anything is started, which variants a target can measure under which loads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lab.base.errors import NotMeasurableError, UsageError
from lab.model import facts
from lab.model.endpoint import Endpoint
from lab.model.run import NotMeasured
from lab.model.sweeps import LoadPoint
from lab.model.variants.variants import Variant
from lab.targets.base import Target


@dataclass(frozen=True, slots=True)
class Survey:
    """A target's answer to the question which variants it can measure under which load points (loads of a sweep).

    In the mappings below, variants and load points are given by their names.

    Attributes:
        facts: The facts of this machine, of the target on it, and of programs that the variants run and that the lab has
            fetched or built itself.
        points: The load points, with the number of threads of each adapted to the load generator's CPUs.
        endpoints: Variant → load point → the endpoint that the load goes to, for each variant that can be measured.
        missing: Variant → why it cannot be measured, for each variant that cannot.
        unpaired: Variant → why no other variant can be up at the same time, for each variant that can be measured. The
            reason is empty if another variant can be up.

    """

    facts: Mapping[str, str]
    points: tuple[LoadPoint, ...]
    endpoints: Mapping[str, Mapping[str, Endpoint]]
    missing: Mapping[str, NotMeasured]
    unpaired: Mapping[str, str]


def survey_target(target: Target, variants: Iterable[Variant], points: Iterable[LoadPoint]) -> Survey:
    """Check the target, and find out which of these variants it can measure under these load points (loads of a sweep).

    A variant that cannot be measured raises no error; the reason is in `Survey.missing`.

    Raises:
        UsageError: A prerequisite is missing. Or a load point has more threads than the generator has CPUs. Or a
            variant, a load point or a disruption is wrong.

    """
    target.check()
    cpus = target.generator_cpus()
    settled = tuple(point.on_cpus(cpus) for point in points)
    if cpus is not None and (many := next((point for point in settled if point.threads > cpus), None)):
        # Too many threads disturb the generator's timing: 256 threads on one CPU send seven times the requested rate.
        fault = f"asks for {many.threads} threads, the generator has {cpus} CPU{'s' if cpus > 1 else ''} here"
        remedy = f"{cpus} at most, or `threads_at_most = {many.threads}` for as many as a machine has"
        raise UsageError(f"point {many.name}: threads", fault, remedy)
    measurable: list[Variant] = []
    endpoints: dict[str, Mapping[str, Endpoint]] = {}
    missing: dict[str, NotMeasured] = {}
    for variant in variants:
        try:
            endpoints[variant.name] = check_variant(variant, target, settled)
            measurable.append(variant)
        except NotMeasurableError as error:
            missing[variant.name] = NotMeasured(
                variant=variant.name, what=error.what, why=error.why, remedy=error.remedy
            )
    unpaired = {variant.name: target.unpaired(variant) for variant in measurable}
    return Survey({**collect_facts(target), **target.brought(measurable)}, settled, endpoints, missing, unpaired)


def collect_facts(target: Target) -> dict[str, str]:
    """Return the facts of this machine and of the target on it: name of the fact → text."""
    return facts.read_machine_facts() | dict(target.facts())


def check_variant(variant: Variant, target: Target, points: Sequence[LoadPoint]) -> Mapping[str, Endpoint]:
    """Check that a target can measure a variant under load points, and return the endpoint that each load will go to.

    Returns:
        Name of the load point → endpoint.

    Raises:
        NotMeasurableError: The target cannot measure the variant under a point, or a disruption cannot act on it.
        UsageError: The variant, a point or a disruption is wrong.

    """
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
