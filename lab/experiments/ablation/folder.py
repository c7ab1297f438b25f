"""The folder of an ablation, and the preparation of its runs; all of them are checked before the first one begins.

    data/runs/<ablation>/ablation.json   subject, steps, and its runs in order: sweep, variants, run or null
                         manifests/      the checkout's manifests when it began, and the overlays made for it

An ablation measures the knobs (settings) of a variant or study, one at a time and cumulatively. Each of its runs is an
ordinary run with its own folder in data/runs. The copy of the manifests lets the runs continue after Ctrl-C, after a
reboot, and after a change of the checkout. Nothing is measured in this module.
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
from lab.base.files import json_bytes, read_record, replace_file, runs_folder, writing
from lab.experiments import bench
from lab.experiments.ablation.plan import CumulativeVariant, OwnedKnob, overlays_of, plan_steps, runs_of
from lab.experiments.bench.measurable import NothingMeasurableError
from lab.experiments.bench.probing import ProbeTrials
from lab.experiments.bench.request import fixtures_of
from lab.model.run import NotMeasured, format_now
from lab.model.variants.knobs import MANIFESTS
from lab.model.variants.variants import load_variant
from lab.records.ablation import AblationRecord, AblationRun
from lab.records.store import ABLATION, RunStore, new_id, run_names
from lab.records.sweep_files import load_sweep
from lab.records.tables import has_file
from lab.targets.base import Target
from lab.targets.survey import check_variant


class AblationStore:
    """The folder of an ablation, with its record in `ablation.json`.

    An ablation measures each knob (setting) of a variant or study, alone and together with others.
    """

    def __init__(self, folder: Path, record: AblationRecord) -> None:
        self.folder, self.record = folder, record

    @classmethod
    def open(cls, name: str) -> AblationStore:
        """Open a stored ablation by its name, or by the path of its folder (a text with a slash).

        Raises:
            UsageError: The ablation does not exist, or its record is damaged.

        """
        folder = Path(name) if "/" in name else runs_folder() / name
        if not is_ablation(name):
            names = sorted(path.parent.name for path in runs_folder().glob(f"*/{ABLATION}"))
            raise UsageError("ablation", f"unknown ablation '{name}'", did_you_mean(name, names))
        return cls(folder, read_record(folder / ABLATION, AblationRecord, "restore it from a copy"))

    def write(self, record: AblationRecord) -> None:
        """Replace the ablation's record, in this object and in the file `ablation.json`."""
        self.record = record
        with writing(self.folder):
            replace_file(self.folder / ABLATION, json_bytes(record))

    def note_run(self, sweep: str, run: str) -> None:
        """Add the id of a run that is about to begin to the ablation's record, as the run that measures a sweep.

        Args:
            sweep: The name of the sweep (a list of load points).
            run: The id of the run.

        """
        runs = tuple(item.model_copy(update={"run": run}) if item.sweep == sweep else item for item in self.record.runs)
        self.write(self.record.model_copy(update={"runs": runs}))


def is_ablation(name: str) -> bool:
    """Return whether a name is that of a stored ablation (a series of runs); a name with a slash is the path of its folder."""
    return has_file(Path(name) if "/" in name else runs_folder() / name, ABLATION)


def copy_manifests(folder: Path) -> None:
    """Copy the checkout's manifests to `folder`, which must not exist yet."""
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(MANIFESTS, folder)


@contextmanager
def new_manifests(label: str) -> Iterator[tuple[Path, Callable[[], object]]]:
    """Copy the checkout's manifests into a new folder in the folder of runs, for the duration of a `with` statement.

    At the end of the `with` statement the folder is removed, unless the yielded function was called.

    Args:
        label: The middle part of the folder's name, between its time and a random number.

    Yields:
        (path of the copied manifests, function that prevents the removal of the folder).

    """
    folder = runs_folder() / new_id(label)
    with ExitStack() as undo:
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        copy_manifests(folder / "manifests")
        yield folder / "manifests", undo.pop_all


def find_refusal(manifests: Path, target: Target, name: str, sweep: str | None = None) -> str | None:
    """Return the reason why a target cannot run a variant on any machine; None if it can.

    Reasons that apply only to this machine, such as too few CPUs, are ignored.

    Args:
        manifests: The folder of manifests.
        target: The target.
        name: The name of the variant.
        sweep: The name of a sweep (a list of load points). If it has disruptions, streams or WebSockets, the target must also be
            able to run these, with the variant and with its baseline. None: only the variant is checked.

    """
    points = [point for point in load_sweep(sweep)[1].load_points if point.has_outcome] if sweep else []
    fixtures = fixtures_of(points)
    try:
        variant = load_variant(name, manifests, fixtures)
        base = variant.compared_with if points else None
        for side in (variant, *([load_variant(base, manifests, fixtures)] if base else [])):
            with suppress(NotMeasurableError):
                check_variant(side, target, points)
    except NotMeasurableError:
        return None
    except UsageError as error:
        return f"{error.place}: {error.fault}"
    return None


def write_overlays(manifests: Path, variants: Sequence[CumulativeVariant]) -> None:
    """Write an overlay (a folder with a kustomization) for each variant that has none. Overlays of an earlier call are removed first.

    A variant named `ROOT+KNOB` needs no overlay. All overlays are written before any variant is rendered, so that each variant is
    rendered only once.
    """
    for folder in (manifests / "overlays").glob("*-upto-*"):
        if not (MANIFESTS / "overlays" / folder.name).exists():
            shutil.rmtree(folder)
    for variant in variants:
        if "+" not in variant.name and not (manifests / "overlays" / variant.name).exists():
            write_overlay(manifests, variant.name, " + ".join(variant.knobs), variant.root, variant.knobs)


def write_overlay(manifests: Path, name: str, title: str, root: str, knobs: Sequence[str]) -> None:
    """Write an overlay (a folder with a kustomization) that adds knobs (settings) to a root (a variant without a baseline).

    Args:
        manifests: The folder of manifests to write into.
        name: The name of the overlay, which becomes the variant's name.
        title: The variant's title.
        root: The name of the variant to add the knobs to.
        knobs: The names of the knobs, in their order.

    """
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


# -- the plan of an ablation's steps on a target, and the preparation of its runs ----------------------------


@dataclass(frozen=True, slots=True)
class ReadyRun:
    """One run of an ablation, ready to begin or to continue. An ablation has a run for each sweep (list of load points).

    Attributes:
        planned: The entry of the run in the ablation's record.
        prepared: The prepared run; None where none of its variants is measurable.
        run: The run to continue; None for a new run.

    """

    planned: AblationRun
    prepared: bench.PreparedRun | None
    run: RunStore | None = None


def plan_ablation(
    folder: Path,
    knobs: Sequence[OwnedKnob],
    notes: Sequence[str],
    target: Target,
    subject: str,
    command: Sequence[str],
    blocks: int | None,
    seed: int,
) -> AblationStore:
    """Plan a new ablation: which knobs (settings) are measured one at a time, which cumulatively, and in which runs.

    The record of the returned ablation is not written yet.

    Args:
        folder: The folder of the ablation, which already has its manifests.
        knobs: The knobs to measure.
        notes: Notes for the record.
        target: The target.
        subject: The name of the variant or study whose knobs these are.
        command: The command line for the record.
        blocks: The number of blocks (repetitions) of each run; None: the number that its sweep (list of load points) names.
        seed: The seed of the randomized order.

    """
    manifests = folder / "manifests"
    refusal, unable = partial(find_refusal, manifests, target), partial(find_unmeasurable, target, manifests)

    def first_refused(variants: Sequence[CumulativeVariant]) -> tuple[str, str] | None:
        write_overlays(manifests, variants)
        reasons = (
            (variant.name, refusal(variant.name, variant.sweep) or unable(variant.name, variant.sweep))
            for variant in variants
        )
        return next(((name, reason) for name, reason in reasons if reason), None)

    steps = plan_steps(knobs, overlays_of(manifests), refusal, unable, first_refused)
    record = AblationRecord(
        id=folder.name,
        created_at=format_now(),
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


def prepare_runs(store: AblationStore, target: Target, trials: ProbeTrials | None = None) -> list[ReadyRun]:
    """Prepare every run of an ablation, and return the runs in order.

    A run that has begun is prepared to continue. The ablation's record receives the variants that are not measurable.

    Args:
        store: The ablation.
        target: The target.
        trials: The function that finds out whether two systems at once can serve a load on the target (see `bench.prepare`); None: no
            trials.

    Raises:
        NothingMeasurableError: No run has anything to measure.

    """
    record, begun, ready = store.record, set(run_names()), list[ReadyRun]()
    for item in record.runs:
        if item.run is not None and item.run in begun:
            ready.append(ReadyRun(item, *bench.resume(item.run, target)))
            continue
        request = bench.BenchRequest(
            item.variants,
            item.sweep,
            record.blocks,
            record.seed,
            label=record.id[16:],
            manifests=store.folder / "manifests",
        )
        try:
            new = bench.prepare(request, target, record.command, trials)
        except NothingMeasurableError as error:
            ready.append(ReadyRun(item.model_copy(update={"skipped": True, "not_measurable": error.missing}), None))
        else:
            ready.append(ReadyRun(item.model_copy(update={"not_measurable": new.record.not_measurable}), new))
    if not any(run.prepared for run in ready):
        missing = [item for run in ready for item in run.planned.not_measurable]
        refused = (NotMeasured(variant=step.knob, what="refused", why="; ".join(step.why)) for step in record.steps)
        raise NothingMeasurableError(missing or list(refused), record.notes)
    store.record = record.model_copy(update={"runs": tuple(run.planned for run in ready)})
    return ready


def find_unmeasurable(target: Target, manifests: Path, variant: str, sweep: str) -> str | None:
    """Return why a variant cannot be measured here at the loads of a sweep; None if it can.

    Args:
        target: The target.
        manifests: The folder of manifests.
        variant: The name of the variant.
        sweep: The name of the sweep (a list of load points).

    """
    points = load_sweep(sweep)[1].load_points
    try:
        check_variant(load_variant(variant, manifests, fixtures_of(points)), target, points)
    except NotMeasurableError as error:
        return f"not measurable here: {error.what}"
    except UsageError as error:
        return f"{error.place}: {error.fault}"
    return None
