"""An ablation's folder, beside the runs that it is made of, each of which is a run like any other; and those runs, checked before the first begins.

    data/runs/<ablation>/ablation.json   subject, steps, and its runs in order: sweep, variants, run or null
                         manifests/      the checkout's manifests when it began, and the overlays made for it

It has a copy of the manifests so that Ctrl-C, a reboot and a changed checkout cost nothing: the runs go on from it. Nothing is measured here.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import yaml

from lab.base.errors import NotMeasurableError, UsageError, did_you_mean
from lab.base.files import json_bytes, read_record, replace, runs_folder, writing
from lab.experiments import bench
from lab.experiments.ablation.plan import Cumulative, Owned, overlays_of, plan_steps, runs_of
from lab.experiments.bench.measurable import NothingMeasurableError
from lab.experiments.bench.probing import Trials
from lab.experiments.bench.request import fixtures_of
from lab.model.run import NotMeasured, now
from lab.model.variants.knobs import MANIFESTS
from lab.model.variants.variants import load_variant
from lab.records.ablation import AblationRecord, AblationRun
from lab.records.store import ABLATION, RunStore, new_id, run_names
from lab.records.sweep_files import load_sweep
from lab.records.tables import has
from lab.targets.base import Target
from lab.targets.survey import checked


class AblationStore:
    def __init__(self, folder: Path, record: AblationRecord) -> None:
        self.folder, self.record = folder, record

    @classmethod
    def open(cls, name: str) -> AblationStore:
        """UsageError when it is not there or damaged."""
        folder = Path(name) if "/" in name else runs_folder() / name
        if not is_ablation(name):
            known = sorted(path.parent.name for path in runs_folder().glob(f"*/{ABLATION}"))
            raise UsageError("ablation", f"unknown ablation '{name}'", did_you_mean(name, known))
        return cls(folder, read_record(folder / ABLATION, AblationRecord, "restore it from a copy"))

    def write(self, record: AblationRecord) -> None:
        self.record = record
        with writing(self.folder):
            replace(self.folder / ABLATION, json_bytes(record))

    def note_run(self, sweep: str, run: str) -> None:
        """Record that a sweep's run begins."""
        runs = tuple(each.model_copy(update={"run": run}) if each.sweep == sweep else each for each in self.record.runs)
        self.write(self.record.model_copy(update={"runs": runs}))


def is_ablation(name: str) -> bool:
    return has(Path(name) if "/" in name else runs_folder() / name, ABLATION)


def copy_manifests(folder: Path) -> None:
    """Copy the checkout's manifests to `folder`, which is new."""
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(MANIFESTS, folder)


@contextmanager
def new_manifests(label: str) -> Iterator[tuple[Path, Callable[[], object]]]:
    """Copy the checkout's manifests into a new folder beside the runs; yield them, and what keeps them: else nothing of it stays."""
    folder = runs_folder() / new_id(label)
    with ExitStack() as undo:
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        copy_manifests(folder / "manifests")
        yield folder / "manifests", undo.pop_all


def refusal_in(manifests: Path, target: Target, name: str, sweep: str | None = None) -> str | None:
    """Why this variant, or what it is compared with, cannot be on this target or under this sweep's disturbances; None if it can.

    What only this machine cannot show is no refusal.
    """
    points = [point for point in load_sweep(sweep)[1].expanded() if point.disturbance is not None] if sweep else []
    fixtures = fixtures_of(points)
    try:
        variant = load_variant(name, manifests, fixtures)
        base = variant.compared_with if points else None
        for side in (variant, *([load_variant(base, manifests, fixtures)] if base else [])):
            with suppress(NotMeasurableError):
                checked(side, target, points)
    except NotMeasurableError:
        return None
    except UsageError as error:
        return f"{error.place}: {error.fault}"
    return None


def write_overlays(manifests: Path, wanted: Sequence[Cumulative]) -> None:
    """An overlay for each that has no other name, all at once: each render then is made once. Those of an earlier call go."""
    for folder in (manifests / "overlays").glob("*-upto-*"):
        if not (MANIFESTS / "overlays" / folder.name).exists():
            shutil.rmtree(folder)
    for each in wanted:
        if "+" not in each.name and not (manifests / "overlays" / each.name).exists():
            write_overlay(manifests, each.name, " + ".join(each.knobs), each.root, each.knobs)


def write_overlay(manifests: Path, name: str, title: str, root: str, knobs: Sequence[str]) -> None:
    """One that adds these knobs to `root`."""
    content = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "metadata": {"annotations": {"lab/title": title}},
        "resources": [f"../{root}"],
        "components": [f"../../components/{knob}" for knob in knobs],
    }
    folder = manifests / "overlays" / name
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(content, sort_keys=False))


# -- its steps planned on a target, and every run of theirs prepared -----------------------------------------


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
    refusal, unable = partial(refusal_in, manifests, target), partial(unmeasurable, target, manifests)

    def first_refused(wanted: Sequence[Cumulative]) -> tuple[str, str] | None:
        write_overlays(manifests, wanted)
        told = ((each.name, refusal(each.name, each.sweep) or unable(each.name, each.sweep)) for each in wanted)
        return next(((name, why) for name, why in told if why), None)

    steps = plan_steps(found, overlays_of(manifests), refusal, unable, first_refused)
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
    record, begun, ready = store.record, set(run_names()), list[Ready]()
    for each in record.runs:
        if each.run is not None and each.run in begun:
            ready.append(Ready(each, *bench.resume(each.run, target)))
            continue
        request = bench.Request(
            each.variants,
            each.sweep,
            record.blocks,
            record.seed,
            label=record.id[16:],
            manifests=store.folder / "manifests",
        )
        try:
            made = bench.prepare(request, target, record.command, trials)
        except NothingMeasurableError as error:
            skipped = {"skipped": True, "not_measurable": error.missing}
            ready.append(Ready(each.model_copy(update=skipped), None))
        else:
            ready.append(Ready(each.model_copy(update={"not_measurable": made.record.not_measurable}), made))
    if not any(each.prepared for each in ready):
        missing = [item for each in ready for item in each.planned.not_measurable]
        refused = (NotMeasured(variant=step.knob, what="refused", why="; ".join(step.why)) for step in record.steps)
        raise NothingMeasurableError(missing or list(refused), record.notes)
    store.record = record.model_copy(update={"runs": tuple(each.planned for each in ready)})
    return ready


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
