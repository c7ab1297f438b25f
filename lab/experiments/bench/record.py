"""What run.json says of a run before its first sample, but for its loads' generators, its slots and its design."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.analysis.noise import PRIMARY
from lab.base.files import runs_folder
from lab.experiments.bench.measurable import MeasurableRun
from lab.experiments.bench.request import LoadedRequest, named_against
from lab.model import facts
from lab.model.metrics import RATIOS
from lab.model.plan import Arm
from lab.model.run import RunRecord, VariantRecord, now
from lab.model.sweeps import Point
from lab.model.variants.variants import AT, Variant, config_snippet
from lab.records import store
from lab.targets.base import Target


def record_of(loaded: LoadedRequest, shown: MeasurableRun, target: Target, command: Sequence[str]) -> RunRecord:
    """A bench's, without generators and slots.

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
            changed["shared_cost"] = shares_cost(loaded, shown, name)
        if name in against:
            metric = request.primary or variant.primary_metric or PRIMARY
            changed |= {"baseline": against[name], "primary_metric": metric}
            changed |= {} if against[name] == variant.compared_with else {"snippet": "", "own_knobs": ()}
        variants[name] = variant_record(variant, loaded.manifests).model_copy(update=changed)
    label = request.label or "-".join(request.variants)
    record = new_record(label, loaded.sweep_name, target, command, shown.arms, shown.points, variants, shown.facts)
    more = {
        "not_measurable": shown.left_out,
        "study": request.study,
        "manifests": str(request.manifests.relative_to(runs_folder())) if request.manifests else None,
        "at_knee": shown.at_knee,
        "worth": request.worth,
    }
    return record.model_copy(update=more)


def shares_cost(loaded: LoadedRequest, shown: MeasurableRun, name: str) -> bool:
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
