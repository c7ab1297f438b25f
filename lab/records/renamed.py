"""A stored run under the names that its variants and components have now; its files keep those under which it was measured.

    baseline, baseline-again, backlog-1  ↔  ingress-nginx, ingress-nginx-again, ingress-nginx+somaxconn-1

Refuses to give two variants of one run one name: then the later one keeps its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lab.model.design import PlannedAnew
from lab.model.run import RunRecord, VariantRecord
from lab.model.samples import Sample
from lab.model.variants.naming import aliases, stored_name


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one run that have changed: stored → present. `variants`: those of arms, too."""

    variants: Mapping[str, str] = field(default_factory=dict[str, str])
    components: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def inverse(self) -> Names:
        """Present → stored."""
        return Names(*({new: old for old, new in each.items()} for each in (self.variants, self.components)))

    def of(self, name: str) -> str:
        """Return a variant's or arm's other name; its own where it has no other."""
        return self.variants.get(name, name)

    def knobs(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the components' other names."""
        return tuple(self.components.get(name, name) for name in names)


def names_in(record: RunRecord) -> Names:
    """Return the names of a run that have changed since it was stored."""
    told = [each for variant in record.variants.values() for each in (variant.name, variant.baseline)]
    told += [*(arm.variant for arm in record.arms), *(each.variant for each in record.not_measurable)]
    told += [record.at_knee.variant] if record.at_knee else []
    stored = dict.fromkeys(name for name in told if name)
    variants: dict[str, str] = {}
    for name in stored:
        now = stored_name(name)
        if now not in stored and now not in variants.values():
            variants[name] = now
    variants |= {
        arm.name: variants[arm.variant] + arm.name.removeprefix(arm.variant)
        for arm in record.arms
        if arm.variant in variants and arm.name.startswith(arm.variant)
    }
    former = aliases().components
    known = {knob for variant in record.variants.values() for knob in variant.knobs}
    return Names(variants, {knob: former[knob] for knob in known & former.keys()})


def renamed_run(record: RunRecord, names: Names) -> RunRecord:
    """Return the run with its variants, arms and components under their other names."""
    if not names.variants and not names.components:
        return record
    fresh = record.design.fresh if record.design else PlannedAnew()
    design = record.design and record.design.model_copy(
        update={
            "places": tuple(
                each.model_copy(update={"arm": names.of(each.arm), "against": names.of(each.against)})
                for each in record.design.places
            ),
            "systems": tuple(map(names.of, record.design.systems)),
            "fixed_workers": tuple(map(names.of, record.design.fixed_workers)),
            "fresh": replace(fresh, loads=tuple(_load(load, names) for load in fresh.loads)),
        }
    )
    at_knee = record.at_knee
    if at_knee and at_knee.variant:
        at_knee = at_knee.model_copy(update={"variant": names.of(at_knee.variant)})
    changes = {
        "arms": tuple(
            replace(
                arm,
                name=names.of(arm.name),
                variant=names.of(arm.variant),
                baseline=arm.baseline and names.of(arm.baseline),
            )
            for arm in record.arms
        ),
        "slots": tuple((block, names.of(arm), point) for block, arm, point in record.slots),
        "pairs": tuple(pair.model_copy(update={"against": names.of(pair.against)}) for pair in record.pairs),
        "variants": {names.of(name): _renamed(variant, names) for name, variant in record.variants.items()},
        "not_measurable": tuple(
            each.model_copy(update={"variant": names.of(each.variant)}) for each in record.not_measurable
        ),
        "at_knee": at_knee,
        "design": design,
    }
    return record.model_copy(update=changes)


def _load(load: str, names: Names) -> str:
    """Of `variant at point`."""
    variant, at, point = load.partition(" at ")
    return f"{names.of(variant)}{at}{point}"


def _renamed(variant: VariantRecord, names: Names) -> VariantRecord:
    changes = {
        "name": names.of(variant.name),
        "baseline": variant.baseline and names.of(variant.baseline),
        "knobs": names.knobs(variant.knobs),
        "own_knobs": names.knobs(variant.own_knobs),
    }
    return variant.model_copy(update=changes)


def renamed_sample(sample: Sample, names: Names) -> Sample:
    """Return a sample with its arm, its variant and what they are compared with under their other names."""
    if not names.variants:
        return sample
    changes = {
        "arm": names.of(sample.arm),
        "variant": names.of(sample.variant),
        "baseline": sample.baseline and names.of(sample.baseline),
        "pair": sample.pair and sample.pair.model_copy(update={"against": names.of(sample.pair.against)}),
    }
    return sample.model_copy(update=changes)
