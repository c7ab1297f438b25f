"""The renaming of the variants and components (settings) of a stored run to their present names, and back.

The files of a run always have the names under which it was measured:

    baseline, baseline-again, backlog-1  ↔  ingress-nginx, ingress-nginx-again, ingress-nginx+somaxconn-1

Refuses to give two variants of one run the same name: the later one then keeps its stored name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lab.model.design import Design
from lab.model.run import RunRecord
from lab.model.samples import Sample
from lab.model.variants.naming import aliases, stored_name


@dataclass(frozen=True, slots=True)
class RenamedNames:
    """The names of variants, arms and components (settings) in one stored run that have changed since, as old → new.

    `variants` has the names of variants and of arms (variants in the run).
    """

    variants: Mapping[str, str] = field(default_factory=dict[str, str])
    components: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def inverse(self) -> RenamedNames:
        """A copy of the renamings with old and new names exchanged, to write a run under its stored names."""
        return RenamedNames(*({new: old for old, new in names.items()} for names in (self.variants, self.components)))

    def of(self, name: str) -> str:
        """Return the new name of a variant or arm; a name that has not changed is returned as it is."""
        return self.variants.get(name, name)

    def in_fields(self, owner: object, *fields: str) -> dict[str, Any]:
        """Return the new names for some fields of an object, by the name of the field.

        Args:
            owner: An object whose fields have names of variants or arms.
            fields: The names of the fields; an empty or missing name stays as it is.

        """
        return {name: value and self.of(value) for name in fields for value in [getattr(owner, name)]}


def find_renamed(record: RunRecord) -> RenamedNames:
    """Return the names of variants, arms and components (settings) in a stored run that have changed, as old → new."""
    names = [name for variant in record.variants.values() for name in (variant.name, variant.baseline)]
    names += [*(arm.variant for arm in record.arms), *(missing.variant for missing in record.not_measurable)]
    names += [record.at_knee.variant] if record.at_knee else []
    stored = dict.fromkeys(name for name in names if name)
    variants: dict[str, str] = {}
    for name in stored:
        present = stored_name(name)
        if present not in stored and present not in variants.values():
            variants[name] = present
    variants |= {
        arm.name: variants[arm.variant] + arm.name.removeprefix(arm.variant)
        for arm in record.arms
        if arm.variant in variants and arm.name.startswith(arm.variant)
    }
    former = aliases().components
    stored_knobs = {knob for variant in record.variants.values() for knob in variant.knobs}
    return RenamedNames(variants, {knob: former[knob] for knob in stored_knobs & former.keys()})


def rename_run(record: RunRecord, names: RenamedNames) -> RunRecord:
    """Return a copy of a run's record in which variants, arms and components (settings) have their new names.

    Args:
        record: The record.
        names: The renamings; with `names.inverse` the record gets its stored names back.

    """
    if not names.variants and not names.components:
        return record

    def knobs(components: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(names.components.get(name, name) for name in components)

    at_knee = record.at_knee
    variants = {
        names.of(name): variant.model_copy(
            update=names.in_fields(variant, "name", "baseline")
            | {"knobs": knobs(variant.knobs), "own_knobs": knobs(variant.own_knobs)}
        )
        for name, variant in record.variants.items()
    }
    missing = (item.model_copy(update=names.in_fields(item, "variant")) for item in record.not_measurable)
    return record.model_copy(
        update={
            "arms": tuple(replace(arm, **names.in_fields(arm, "name", "variant", "baseline")) for arm in record.arms),
            "slots": tuple((block, names.of(arm), point) for block, arm, point in record.slots),
            "pairs": tuple(pair.model_copy(update=names.in_fields(pair, "against")) for pair in record.pairs),
            "variants": variants,
            "not_measurable": tuple(missing),
            "at_knee": at_knee and at_knee.model_copy(update=names.in_fields(at_knee, "variant")),
            "design": record.design and _rename_design(record.design, names),
        }
    )


def _rename_design(design: Design, names: RenamedNames) -> Design:
    loads = (load.partition(" at ") for load in design.fresh.loads)  # `variant at point`
    places = (place.model_copy(update=names.in_fields(place, "arm", "against")) for place in design.places)
    return design.model_copy(
        update={
            "places": tuple(places),
            "systems": tuple(map(names.of, design.systems)),
            "fixed_workers": tuple(map(names.of, design.fixed_workers)),
            "fresh": replace(
                design.fresh, loads=tuple(f"{names.of(variant)}{infix}{point}" for variant, infix, point in loads)
            ),
        }
    )


def rename_sample(sample: Sample, names: RenamedNames) -> Sample:
    """Return a copy of a sample's record in which its arm, its variant and its baseline have their new names.

    Args:
        sample: The record.
        names: The renamings; with `names.inverse` the sample gets its stored names back.

    """
    if not names.variants:
        return sample
    pair = sample.pair and sample.pair.model_copy(update=names.in_fields(sample.pair, "against"))
    return sample.model_copy(update={**names.in_fields(sample, "arm", "variant", "baseline"), "pair": pair})
