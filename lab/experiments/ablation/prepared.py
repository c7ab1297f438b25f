"""An ablation ready to be measured: its steps planned on a target, and every run of theirs checked before the first begins.

Writes only into the ablation's own manifests; nothing is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lab.base.errors import NotMeasurableError, UsageError
from lab.experiments import bench
from lab.experiments.ablation.folder import AblationStore, refusal_in, write_overlays
from lab.experiments.ablation.plan import Cumulative, Owned, overlays_of, plan_steps, runs_of
from lab.experiments.bench.measurable import NothingMeasurableError
from lab.experiments.bench.probing import Trials
from lab.experiments.bench.request import fixtures_of
from lab.model.run import NotMeasured, now
from lab.model.variants.variants import load_variant
from lab.records.ablation import AblationRecord, AblationRun
from lab.records.store import RunStore, run_names
from lab.records.sweep_files import load_sweep
from lab.targets.base import Target
from lab.targets.survey import checked


@dataclass(frozen=True, slots=True)
class Ready:
    """One sweep's run, prepared; None where nothing of it is measurable. `run` is the one to go on with."""

    planned: AblationRun
    prepared: bench.Prepared | None
    run: RunStore | None = None


def planned(
    folder: Path,
    found: Sequence[Owned],
    notes: Sequence[str],
    target: Target,
    subject: str,
    command: Sequence[str],
    blocks: int | None,
    seed: int,
) -> AblationStore:
    """A new ablation, not written yet. `folder`: its own, with its manifests; `found`: its knobs."""
    manifests = folder / "manifests"
    steps = plan_steps(
        found,
        overlays_of(manifests),
        partial(refusal_in, manifests, target),
        partial(unmeasurable, target, manifests),
        partial(_first_refused, target, manifests),
    )
    record = AblationRecord(
        id=folder.name,
        created_at=now(),
        command=tuple(command),
        subject=subject,
        target=target.name,
        blocks=blocks,
        seed=seed,
        steps=steps,
        runs=tuple(AblationRun(sweep=sweep, variants=variants) for sweep, variants in runs_of(steps).items()),
        notes=tuple(notes),
    )
    return AblationStore(folder, record)


def prepared(store: AblationStore, target: Target, trials: Trials | None = None) -> list[Ready]:
    """Prepare every run. `trials` as `bench.prepare` has it. NothingMeasurableError if none of them has anything to measure."""
    begun, ready = set(run_names()), list[Ready]()
    for each in store.record.runs:
        if each.run is not None and each.run in begun:
            ready.append(Ready(each, *bench.resume(each.run, target)))
        else:
            ready.append(_new(store, target, each, trials))
    if not any(each.prepared for each in ready):
        missing = [item for each in ready for item in each.planned.not_measurable]
        refused = (
            NotMeasured(variant=step.knob, what="refused", why="; ".join(step.why)) for step in store.record.steps
        )
        raise NothingMeasurableError(missing or list(refused), store.record.notes)
    store.record = store.record.model_copy(update={"runs": tuple(each.planned for each in ready)})
    return ready


def _new(store: AblationStore, target: Target, each: AblationRun, trials: Trials | None) -> Ready:
    record = store.record
    request = bench.Request(
        each.variants, each.sweep, record.blocks, record.seed, label=record.id[16:], manifests=store.manifests
    )
    try:
        made = bench.prepare(request, target, record.command, trials)
    except NothingMeasurableError as error:
        return Ready(each.model_copy(update={"skipped": True, "not_measurable": error.missing}), None)
    return Ready(each.model_copy(update={"not_measurable": made.record.not_measurable}), made)


def unmeasurable(target: Target, manifests: Path, variant: str, sweep: str) -> str | None:
    """Why this variant cannot be measured here in this sweep, None if it can."""
    points = load_sweep(sweep)[1].expanded()
    try:
        checked(load_variant(variant, manifests, fixtures_of(points)), target, points)
    except NotMeasurableError as error:
        return f"not measurable here: {error.what}"
    except UsageError as error:
        return f"{error.place}: {error.fault}"
    return None


def _first_refused(target: Target, manifests: Path, wanted: Sequence[Cumulative]) -> tuple[str, str] | None:
    write_overlays(manifests, wanted)
    for each in wanted:
        told = refusal_in(manifests, target, each.name, each.sweep)
        if told := told or unmeasurable(target, manifests, each.name, each.sweep):
            return each.name, told
    return None
