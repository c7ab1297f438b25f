"""What can be shown on a target: its facts, the loads with their rates, the variants that are left, as arms; and the record of such a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.analysis.noise import PRIMARY, aa_arms
from lab.base.errors import NotMeasurableError, UsageError
from lab.base.files import runs_folder
from lab.experiments.at_knee import Place, placed
from lab.experiments.bench.request import LoadedRequest, named_against
from lab.model import facts
from lab.model.endpoint import Endpoint
from lab.model.metrics import RATIOS
from lab.model.plan import Arm, arms_for
from lab.model.run import NotMeasured, RunRecord, VariantRecord, now
from lab.model.sweeps import Point
from lab.model.variants.variants import AT, Variant, config_snippet
from lab.records import store
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

    record: RunRecord
    """run.json as it begins: without generators, slots and design."""
    asked: Mapping[str, Variant]
    """Those asked for that are left."""
    variants: Mapping[str, Variant]
    """Of the arms."""
    endpoints: Mapping[str, Mapping[str, Endpoint]]
    """Variant → point → where its load goes."""


def measurable(loaded: LoadedRequest, target: Target, command: Sequence[str]) -> MeasurableRun:
    """UsageError on the first fault; what cannot be shown here is left out, NothingMeasurableError if that leaves nothing.

    A variant is left out with its baseline, too.
    """
    target.check()
    request, found_facts, against = loaded.request, facts_of(target), loaded.against
    digests = {name: loaded.variants[name].manifests_sha256 for name in loaded.baselines.values()}
    as_searched = {} if loaded.fixtures else digests  # a search has none of them
    place = Place(tuple(digests), target.name, found_facts, as_searched)
    settled = [point.on_cpus(target.generator_cpus()) for point in loaded.points]
    points, at_knee = placed(settled, request.knee, place)
    missing: dict[str, NotMeasured] = {}
    endpoints: dict[str, Mapping[str, Endpoint]] = {}
    for name, variant in loaded.variants.items():
        try:
            endpoints[name] = checked(variant, target, points)
        except NotMeasurableError as error:
            missing[name] = NotMeasured(variant=name, what=error.what, why=error.why, remedy=error.remedy)
    for name in loaded.variants:
        base = missing.get(against.get(name) or "")
        if base and name not in missing:
            why = f"its baseline {base.variant} is not measurable here: {base.why}"
            missing[name] = NotMeasured(variant=name, what=base.what, why=why, remedy=base.remedy)
    asked = {name: variant for name, variant in loaded.asked.items() if name not in missing}
    if not asked:
        raise NothingMeasurableError([missing[name] for name in loaded.asked])
    reference = None if loaded.reference in missing else loaded.reference
    if request.nulls is not None:
        arms = aa_arms(next(iter(asked)), request.nulls, reference)
    else:
        arms = arms_for([(name, against[name]) for name in asked], reference)
    variants = {arm.variant: loaded.variants[arm.variant] for arm in arms}
    found_facts |= target.brought(variants.values())
    unpaired = {name: target.unpaired(variant) for name, variant in variants.items()}
    records = {name: _compared_record(loaded, name, unpaired) for name in variants}
    label = request.label or "-".join(request.variants)
    record = new_record(label, loaded.sweep_name, target, command, arms, tuple(points), records, found_facts)
    more = {
        "not_measurable": tuple(missing[name] for name in dict.fromkeys((*loaded.asked, *missing)) if name in missing),
        "study": request.study,
        "manifests": str(request.manifests.relative_to(runs_folder())) if request.manifests else None,
        "at_knee": at_knee,
        "worth": request.worth,
    }
    return MeasurableRun(record.model_copy(update=more), asked, variants, endpoints)


def _compared_record(loaded: LoadedRequest, name: str, unpaired: Mapping[str, str]) -> VariantRecord:
    """What a run keeps of a variant beside what it is compared with there. `unpaired`: variant → why no other can be up beside it, or empty.

    A variant that is compared with itself adds nothing, there is nothing to apply, and any load shows that. One that is compared with
    another than its baseline is held against it as against another system: there is nothing to apply either. What a variant was alone
    leads where the cost of what tells it from that other one can lie in what a pair shares, or where one of the two bears no pair here.
    """
    request, variant = loaded.request, loaded.variants[name]
    changed: dict[str, Any] = {"unpaired": unpaired[name]}
    if request.nulls is not None and name in request.variants:
        metric = variant.primary_metric if variant.primary_metric in RATIOS else PRIMARY
        changed |= {"baseline": name, "own_knobs": (), "primary_metric": metric, "hypothesis_sweep": None}
        changed |= {"snippet": "", "needs": "", "shared_cost": False}
    elif unpaired[name] or unpaired.get(loaded.against.get(name) or ""):
        changed["shared_cost"] = True
    if (other := named_against(request).get(name)) is not None:
        base = loaded.variants[other]
        changed |= {"baseline": other, "primary_metric": request.primary or variant.primary_metric or PRIMARY}
        changed |= {} if other == variant.compared_with else {"snippet": "", "own_knobs": ()}
        mine, theirs = ({knob.name: knob for knob in each.knobs} for each in (variant, base))
        apart = any((mine | theirs)[knob].cost == "shared" for knob in mine.keys() ^ theirs.keys())
        changed.setdefault("shared_cost", variant.root_cost != base.root_cost or apart)
    return variant_record(variant, loaded.manifests).model_copy(update=changed)


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


def new_record(
    label: str,
    sweep: str,
    target: Target,
    command: Sequence[str],
    arms: tuple[Arm, ...],
    points: tuple[Point, ...],
    variants: Mapping[str, VariantRecord],
    found_facts: Mapping[str, str],
) -> RunRecord:
    """What every run's record has, with an id of its own; neither generators nor slots yet."""
    return RunRecord(
        id=store.new_id(f"{label.replace('+', '-')[:40]}-{sweep}"),
        created_at=now(),
        command=tuple(command),
        target=target.name,
        sweep=sweep,
        seed=0,
        blocks=0,
        arms=arms,
        points=points,
        slots=(),
        variants=dict(variants),
        generators={},
        facts=dict(found_facts),
        git_commit=facts.git_commit(),
    )


def variant_record(variant: Variant, manifests: Path) -> VariantRecord:
    """`manifests`: the folder that it was rendered from."""
    return VariantRecord(
        name=variant.name,
        title=variant.title,
        baseline=variant.compared_with,
        knobs=tuple(knob.name for knob in variant.knobs),
        own_knobs=variant.own_knobs,
        primary_metric=variant.primary_metric,
        hypothesis_sweep=variant.sweep,
        manifests_sha256=variant.manifests_sha256,
        snippet="" if AT in variant.name else config_snippet(variant, manifests),
        shared_cost=variant.shared_cost,
        needs=variant.needs,
        family=variant.family,
        only_to_measure_by=variant.only_to_measure_by,
        base=variant.base,
    )
