"""What run.json says of a run before its first sample, but for its design."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.analysis.noise import PRIMARY
from lab.base.files import runs_folder
from lab.experiments.bench.loads import generator_record
from lab.experiments.bench.measurable import MeasurableRun
from lab.experiments.bench.request import LoadedRequest, named_against
from lab.measure.measurement import ChosenGenerator
from lab.model import facts
from lab.model.metrics import RATIOS
from lab.model.plan import Plan
from lab.model.run import PairSlot, RunRecord, VariantRecord, now
from lab.model.variants.variants import AT, Variant, config_snippet
from lab.records import store
from lab.targets.base import Target


def record_of(
    loaded: LoadedRequest,
    shown: MeasurableRun,
    chosen: Mapping[str, ChosenGenerator],
    planned: Plan,
    target: Target,
    command: Sequence[str],
) -> RunRecord:
    """A bench's.

    A variant that is compared with itself adds nothing, there is nothing to apply, and any load shows that. One that is compared with
    another than its baseline is held against it as against another system: there is nothing to apply either.
    """
    request = loaded.request
    against = named_against(request)
    variants: dict[str, VariantRecord] = {}
    for name, variant in shown.variants.items():
        changed: dict[str, Any] = {"unpaired": shown.unpaired.get(name, "")}
        if request.nulls is not None and name in request.variants:
            metric = variant.primary_metric if variant.primary_metric in RATIOS else PRIMARY
            changed |= {"baseline": name, "own_knobs": (), "primary_metric": metric, "hypothesis_sweep": None}
            changed |= {"snippet": "", "needs": "", "shared_cost": False}
        else:
            changed["shared_cost"] = leads(loaded, shown, name)
        if name in against:
            changed |= {"baseline": against[name], "primary_metric": primary_of(loaded, name)}
            changed |= {} if against[name] == variant.compared_with else {"snippet": "", "own_knobs": ()}
        variants[name] = variant_record(variant, loaded.manifests).model_copy(update=changed)
    label = request.label or "-".join(request.variants)
    record = new_record(label, loaded.sweep_name, target, command, planned, variants, chosen, shown.facts)
    more = {
        "not_measurable": shown.left_out,
        "study": request.study,
        "manifests": str(request.manifests.relative_to(runs_folder())) if request.manifests else None,
        "at_knee": shown.at_knee,
        "worth": request.worth,
    }
    return record.model_copy(update=more)


def new_record(
    label: str,
    sweep: str,
    target: Target,
    command: Sequence[str],
    planned: Plan,
    variants: Mapping[str, VariantRecord],
    chosen: Mapping[str, ChosenGenerator],
    found_facts: Mapping[str, str],
) -> RunRecord:
    """What every run's record has, with an id of its own. `chosen`: point → its generator."""
    return RunRecord(
        id=store.new_id(f"{label.replace('+', '-')[:40]}-{sweep}"),
        created_at=now(),
        command=tuple(command),
        target=target.name,
        sweep=sweep,
        seed=planned.seed,
        blocks=planned.blocks,
        arms=planned.arms,
        points=planned.points,
        slots=tuple((slot.block, slot.arm.name, slot.point.name) for slot in planned.slots),
        pairs=tuple(
            PairSlot(
                order=slot.order,
                against=slot.other,
                reload=slot.reload,
                repeat=slot.repeat,
                **slot.layout.model_dump(),
            )
            for slot in planned.slots
            if slot.layout is not None
        ),
        variants=dict(variants),
        generators={point: generator_record(used) for point, used in chosen.items()},
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


def primary_of(loaded: LoadedRequest, name: str) -> str | None:
    """The metric in which a variant may claim: what was asked for, else its own; CPU per request where it has none and is compared."""
    request = loaded.request
    own = request.primary or loaded.variants[name].primary_metric
    return own or (PRIMARY if name in named_against(request) else None)


def leads(loaded: LoadedRequest, shown: MeasurableRun, name: str) -> bool:
    """Whether what a variant was alone leads: the cost of what tells it from what it is compared with can lie in what a pair shares, or it
    or its baseline bears no pair here.
    """
    if not {name, loaded.against.get(name)}.isdisjoint(shown.unpaired):
        return True
    variant, base = loaded.variants[name], loaded.variants.get(named_against(loaded.request).get(name, ""))
    if base is None:
        return variant.shared_cost
    if variant.root_cost != base.root_cost:
        return True
    mine, theirs = ({knob.name: knob for knob in each.knobs} for each in (variant, base))
    return any((mine | theirs)[knob].cost == "shared" for knob in mine.keys() ^ theirs.keys())
