"""The preparation of a run: it checks a request (variants, sweep, target), and turns it into a plan that can be measured.

    load_request → find_measurable → probe_points → design_run

Each step receives the results of the earlier steps. The steps use the target only through the methods of the class
`Target`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from lab.base.errors import UsageError
from lab.base.files import check_writable
from lab.experiments.bench.design import SAMPLE_BYTES, design_run, with_design
from lab.experiments.bench.measurable import choose_generator, find_measurable, generator_record, refuse_loads
from lab.experiments.bench.probing import ProbeTrials, probe_points
from lab.experiments.bench.request import BenchRequest, fixtures_of, load_request
from lab.generators.k6 import Out
from lab.measure.loop import find_stale_samples
from lab.measure.measurement import ChosenGenerator
from lab.model import facts
from lab.model.design import Design
from lab.model.plan import Plan
from lab.model.run import RunRecord
from lab.model.sweeps import LoadPoint
from lab.model.variants.knobs import MANIFESTS
from lab.model.variants.variants import Variant, load_variant
from lab.records.store import RunStore
from lab.targets.base import Target
from lab.targets.survey import check_variant, collect_facts

CLUSTER = "cluster"
"""The fact that identifies a cluster."""


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run that is ready to be measured: the content of run.json, the plan, the variants and the load generators."""

    record: RunRecord
    """The content of run.json at the beginning, with the design."""
    plan: Plan
    variants: Mapping[str, Variant]
    """The rendered variants of all arms, by name."""
    chosen: Mapping[str, ChosenGenerator]
    """The generator of each point's load, by the point's name."""
    to_probe: tuple[LoadPoint, ...] = ()
    """The load points that must be tried before the first sample, to see if two systems at once can serve them on the target."""

    @property
    def design(self) -> Design:
        """The design of the run: how often each variant is measured at each load point, and which effects the run can detect."""
        return self.record.designed


def prepare(
    request: BenchRequest, target: Target, command: Sequence[str], trials: ProbeTrials | None = None
) -> PreparedRun:
    """Load and check everything that a run needs, and return the prepared run.

    No system is started and nothing is written, except by `trials`. Variants that are not measurable here are left out, and
    recorded with the reason.

    Args:
        request: The request.
        target: The target.
        command: The command line for the record.
        trials: The function that finds out whether two systems at once can serve a load on the target. None: nothing is tried, and
            `PreparedRun.to_probe` has the load points that need a trial.

    Raises:
        NothingMeasurableError: No requested variant is measurable here.
        UsageError: The request cannot be carried out; the error is the first fault.

    """
    loaded = load_request(request)
    run = find_measurable(loaded, target, command)
    to_probe = run.to_probe
    if to_probe and trials is not None:
        base = next(iter(loaded.baselines.values()))
        run, to_probe = probe_points(run, target, base, request.k6_out, trials), ()
    record, chosen = design_run(loaded, run, target)
    return PreparedRun(record, record.plan(), run.variants, chosen, to_probe)


def resume(
    name: str, target: Target, choose_for_search: Callable[[LoadPoint, Target], ChosenGenerator] | None = None
) -> tuple[PreparedRun, RunStore]:
    """Prepare an interrupted run to continue, with the same cluster, manifests and load generators.

    If the cluster, the manifests or a generator have changed since the run began, it cannot continue: samples of two clusters, manifests or
    generators are never pooled.

    Args:
        name: The name of the run.
        target: The target.
        choose_for_search: The function that chooses the generator, if the run is a search for the knee (the highest rate within a latency
            bound). None: the run must not be such a search.

    Returns:
        (the prepared run, the folder with its stored samples).

    Raises:
        UsageError: The run cannot continue here.

    """
    run = RunStore.open(name)
    run.refuse_packed()
    record = run.record
    if (record.knee is None) != (choose_for_search is None):
        kind, verb = ("a run", "bench") if choose_for_search else ("a search for a knee", "knee")
        raise UsageError(record.id, f"is {kind}", f"go on with `just {verb} --resume {record.id}`")
    manifests = run.folder.parent / record.manifests if record.manifests else MANIFESTS
    fixtures = fixtures_of(record.points)
    names = dict.fromkeys(arm.variant for arm in record.arms)
    variants = {name: load_variant(name, manifests, fixtures) for name in names}
    target.check()
    first_cluster, cluster = record.facts.get(CLUSTER), target.facts().get(CLUSTER)
    if first_cluster != cluster:
        fault = f"it began on another cluster ({first_cluster}; this one is {cluster})"
        raise UsageError(record.id, fault, "name the context it began with, or start a new run")
    chosen = {
        point.name: choose_for_search(point, target)
        if choose_for_search
        else choose_generator(point, target, cast("Out | None", record.k6_out(point.name)))
        for point in record.points
    }
    for variant in variants.values():
        if variant.manifests_sha256 != record.variants[variant.name].manifests_sha256:
            fault = f"the manifests of '{variant.name}' have changed since this run began"
            raise UsageError(record.id, fault, "start a new run, or restore the manifests")
    for point, first_used in record.generators.items():
        used = generator_record(chosen[point])
        if used != first_used:
            fault = f"it measured {point} with {first_used['name']} {first_used['version']}, now there is {used['name']} {used['version']}"
            raise UsageError(record.id, fault, "start a new run, or restore the generator")
    endpoints = {name: check_variant(variant, target, record.points) for name, variant in variants.items()}
    if choose_for_search is None:
        refuse_loads(record.points, chosen, endpoints)
    check_writable(run.folder, SAMPLE_BYTES)
    return PreparedRun(with_design(record, target.bring_up_s), record.plan(), variants, chosen), run


def note_resumed(run: RunStore, target: Target) -> None:
    """Record in a run's folder that the run continues, and mark the blocks that must be measured anew.

    A block (repetition) must be measured anew if it is incomplete and its interruption was too long, or if the machine has changed since.

    Args:
        run: The run, whose folder this process has locked.
        target: The target.

    """
    current, commit = collect_facts(target), facts.read_git_commit()
    run.clear_partial()
    run.mark_interrupted(find_stale_samples(run, current))
    lab = {"git_commit": commit} if commit and commit != run.record.git_commit else {}
    run.note_resumed(current | lab)
