"""The matrix of the targets: the evidence about each published parameter, published load and sweep of the studies.

The state in a cell is `measured`, `works`, `accepted`, `not possible` or `not shown`; no cell is empty. The states are computed
from data/published, the annotations of manifests, the studies' files, the committed runs and the committed trials
(`lab.records.trials`). Each state except `not shown` has its evidence in words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from rich.text import Text

from lab.base.errors import LabError, UsageError
from lab.base.files import reference_folder
from lab.model.names import BRING_UP_S, DEFAULT_TARGET
from lab.model.sweeps import sweep_names
from lab.model.variants.knobs import knob_names, load_knob
from lab.model.variants.variants import load_chain, variant_names
from lab.records import published, trials
from lab.records.store import RunStore, run_names
from lab.records.sweep_files import load_sweep
from lab.records.trials import TrialResult
from lab.report.grid import Notes, Part, TableCell, make_text_table, make_title
from lab.studies.study_files import LOAD, StudyFile, list_studies, load_study

HOLDS = "holds"
"""The outcome of a trial in which a variant came up and was read back."""


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """One cell of the matrix of rows and targets: what committed runs and trials have shown about the row on this target.

    A row is about a published parameter, a published load or a sweep (a named list of load points). A trial brings up variants and checks
    sweeps on a target, without measuring.

    Attributes:
        kind: `measured`: a committed run measured it. `works`: a variant with it came up in a trial, and its settings were read back.
            `accepted`: a trial accepted the sweep, but no run has used it. `not possible`: it cannot be done on this target. `not shown`:
            neither a run nor a trial has shown that it works, or that it is not possible.
        said: The evidence in words.
        where: The path of the evidence, from the top of the checkout.

    """

    kind: Literal["measured", "works", "accepted", "not possible", "not shown"]
    said: str = ""
    where: str = ""


@dataclass(frozen=True, slots=True)
class MatrixLine:
    """A row of the matrix: what has been shown on every target about one parameter, published load or sweep.

    Attributes:
        study: The study's key; for a sweep, the keys of all its studies.
        name: The name of the parameter, published load or sweep.
        by: How the lab covers the subject of the row: the names of knobs (settings) for a parameter, of sweeps for a load, or of variants
            for a sweep. If nothing covers it, or something other than these, a sentence about it.
        cells: Target → the state there.

    """

    study: str
    name: str
    by: str
    cells: Mapping[str, MatrixCell]


@dataclass(frozen=True, slots=True)
class CommittedRun:
    """A run that is committed in data/reference, with the numbers of its valid samples.

    Attributes:
        name: The name of the run's folder.
        target: The run's target.
        sweep: The name of the run's sweep (a list of load points).
        variants: Variant → the number of its valid samples.

    """

    name: str
    target: str
    sweep: str
    variants: Mapping[str, int]


def list_targets() -> list[str]:
    """Return the names of the targets (`local`, `kind` …), the default one first."""
    return sorted(BRING_UP_S, key=lambda name: (name != DEFAULT_TARGET, name))


def make_matrix() -> tuple[Sequence[MatrixLine], Sequence[MatrixLine], Sequence[MatrixLine]]:
    """Return the matrix: for each target, what committed runs and trials have shown about the parameters and loads of the studies.

    A study is a publication. A trial brings up variants and checks sweeps on a target, without measuring.

    Returns:
        The rows of three tables: the parameters that studies published, the loads that studies published, and the lab's sweeps (named lists
        of load points) that belong to a study.

    Raises:
        UsageError: A run, trial or study is damaged.

    """
    files = _load_files()
    parameters = [
        make_parameter_line(row["source"], row["parameter"], files[row["source"]])
        for row in published.read_texts("parameters")
    ]
    loads = [
        _make_load_line(row["source"], row["sweep_id"], files[row["source"]]) for row in published.read_texts("sweeps")
    ]
    sweeps = [
        MatrixLine(
            ", ".join(_find_studies(name)),
            name,
            ", ".join(variants),
            {target: find_cell_of_sweep(target, [name], None) for target in list_targets()},
        )
        for name, variants in map_study_sweeps().items()
    ]
    return parameters, loads, sweeps


@cache
def _load_files() -> Mapping[str, StudyFile]:
    """Return the content of every study's file: key of the study (`okd`) → content.

    Raises:
        UsageError: A file is damaged.

    """
    return {key: load_study(key) for key in list_studies()}


@cache
def map_study_sweeps() -> Mapping[str, Sequence[str]]:
    """Return the variants to measure with each sweep (named list of load points) of a study: sweep → names of variants.

    A sweep belongs to the study that its own `study` key names, and to every study whose file lists it. Other sweeps are left
    out.
    """
    by_sweep: dict[str, list[str]] = {}
    for file in _load_files().values():
        for name, variants in _map_sweeps(file).items():
            by_sweep.setdefault(name, []).extend(variants)
    last = ((name, load_chain(name)[-1].own_knobs) for name in variant_names())
    showing = {name: load_knob(knobs[-1]).sweep for name, knobs in last if knobs}
    for name in sweep_names():
        if (study := load_sweep(name)[1].study) is not None:
            # Overlays whose last knob could show its effect in the sweep; without any, the study's first variant.
            overlays = [overlay for overlay, sweep in showing.items() if sweep == name]
            by_sweep.setdefault(name, []).extend(overlays or _load_files()[study].variants[:1])
    return {name: list(dict.fromkeys(variants)) for name, variants in sorted(by_sweep.items())}


@cache
def _map_knobs() -> Mapping[str, Sequence[str]]:
    """Return the published parameters that each knob (setting) sets: name of the knob → parameters as `STUDY/PARAMETER`.

    A knob that sets no published parameter is left out.
    """
    return {knob.name: knob.parameters for knob in map(load_knob, knob_names()) if knob.parameters}


def list_untried_knobs(tried: Mapping[str, TrialResult]) -> list[str]:
    """Return the variants that still need a trial, so that each knob (setting) for a published parameter has come up once.

    Each variant is a root with a single knob, named `ROOT+KNOB`. A knob needs such a trial if no variant with the knob has come
    up, since a failed trial of several knobs shows nothing about a single one.

    Args:
        tried: Variant → the result of its trial.

    """
    by_knob = {knob: [name for name in variant_names() if knob in _list_knobs(name)] for knob in _map_knobs()}
    return [
        f"{load_chain(names[0])[0].name}+{knob}"
        for knob, names in by_knob.items()
        if names and not any(name in tried and tried[name].outcome == HOLDS for name in names)
    ]


@cache
def _find_studies(sweep: str) -> Sequence[str]:
    """Return the keys of the studies to which a sweep (named list of load points) belongs.

    These are the study that the sweep's `study` key names, and all studies whose files list the sweep.
    """
    study = load_sweep(sweep)[1].study
    return [key for key, file in _load_files().items() if study == key or sweep in _map_sweeps(file)]


def _map_sweeps(file: StudyFile) -> Mapping[str, Sequence[str]]:
    """Return the variants to measure with each sweep (named list of load points) in a study's file: sweep → names of variants.

    The file names sweeps for the study itself, for its changes (questions about a changing system), and for its published loads.
    For the first two it also names shortened sweeps.
    """
    groups = [([file.sweep, file.quick.sweep], file.variants)]
    groups += [([change.sweep, change.quick], change.variants) for change in file.changes]
    groups += [(load.sweeps, load.variants) for load in file.published_loads.values()]
    by_sweep: dict[str, list[str]] = {}
    for sweeps, variants in groups:
        for name in dict.fromkeys(sweeps):
            by_sweep.setdefault(name, []).extend(variants)
    return by_sweep


def make_parameter_line(study: str, parameter: str, file: StudyFile) -> MatrixLine:
    """Return the matrix's row about one parameter that a study published.

    Args:
        study: The study's key.
        parameter: The parameter, as parameters.csv names it.
        file: The content of the study's file.

    """
    if (entry := file.not_a_knob.get(parameter)) is None:
        knobs = [name for name, rows in _map_knobs().items() if f"{study}/{parameter}" in rows]
        # A parameter is shown best by a variant's own knob, but a root's knob counts, too, as does one of an entire set.
        variants = [name for name in list_shown_variants() if _list_knobs(name) & set(knobs)]
        return MatrixLine(
            study,
            parameter,
            ", ".join(knobs),
            {target: find_cell_of_variants(target, variants) for target in list_targets()},
        )
    if entry.by is None:
        return _rule_out(study, parameter, entry.why)
    if entry.by == LOAD:
        loads = [name for name in map_study_sweeps() if study in _find_studies(name)]
        return MatrixLine(
            study, parameter, entry.why, {target: find_cell_of_sweep(target, loads, None) for target in list_targets()}
        )
    return MatrixLine(
        study, parameter, entry.why, {target: find_cell_of_variants(target, [entry.by]) for target in list_targets()}
    )


def _rule_out(study: str, name: str, reason: str) -> MatrixLine:
    """Return the matrix's row of a parameter or load that the lab does not measure: `not possible` on every target.

    Args:
        study: The study's key.
        name: The name of the parameter or load.
        reason: The reason why it is not measured.

    """
    return MatrixLine(
        study, name, reason, dict.fromkeys(list_targets(), MatrixCell("not possible", "no part of what is measured"))
    )


def _make_load_line(study: str, name: str, file: StudyFile) -> MatrixLine:
    """Return the matrix's row about a load that a study published.

    Args:
        study: The study's key.
        name: The id of the load in sweeps.csv.
        file: The content of the study's file.

    Raises:
        UsageError: The study's file has no entry for the load.

    """
    load = file.published_loads.get(name)
    if load is None:
        raise UsageError(f"lab/studies/{study}.toml", f"published_loads: nothing says what makes {name}", "add it")
    if load.why:
        return _rule_out(study, name, load.why)
    cells = {target: find_cell_of_sweep(target, load.sweeps, load.variants) for target in list_targets()}
    return MatrixLine(study, name, ", ".join(load.sweeps), cells)


def find_cell_of_variants(target: str, variants: Collection[str]) -> MatrixCell:
    """Return the matrix's cell about some variants on a target: whether any of them was measured or at least brought up there.

    A trial brings up a variant on a target, without measuring. A committed run is better evidence than a trial. If all trials
    failed, the cell has the result for the variant with the fewest knobs (settings).

    Args:
        target: The target.
        variants: The names of the variants.

    """
    measured, trial = _find_measured(target, None, variants), trials.read_trials().get(target)
    results = {name: trial.variants[name] for name in variants if name in trial.variants} if trial else {}
    if measured is not None or trial is None or not results:
        return measured or MatrixCell("not shown")
    held = next((name for name, tried in results.items() if tried.outcome == HOLDS), None)
    if held is not None:
        return MatrixCell("works", f"{held} came up and was read back", trial.place)
    return _explain_trial(results[min(results, key=lambda name: len(_list_knobs(name)))], trial.place)


def find_cell_of_sweep(target: str, names: Sequence[str], variants: Collection[str] | None) -> MatrixCell:
    """Return the matrix's cell about some sweeps (named lists of load points): whether any was measured or at least accepted.

    Args:
        target: The target.
        names: The names of the sweeps.
        variants: The names of the variants that a run must have measured; None: any variant.

    """
    measured, trial = _find_measured(target, names, variants), trials.read_trials().get(target)
    results = {name: trial.sweeps[name] for name in names if name in trial.sweeps} if trial else {}
    if measured is not None or trial is None or not results:
        return measured or MatrixCell("not shown")
    for name, tried in results.items():
        if tried.outcome == "accepted":
            return MatrixCell("accepted", f"{name} {tried.detail}, and not run yet", trial.place)
    return _explain_trial(next(iter(results.values())), trial.place)


def _find_measured(target: str, sweeps: Collection[str] | None, variants: Collection[str] | None) -> MatrixCell | None:
    """Return a cell with the state `measured` and the best run on a target; None if no run has a valid sample.

    The best run is the one with the most valid samples.

    Args:
        target: The target.
        sweeps: The names of the sweeps that a run may have; None: any sweep.
        variants: The names of the variants whose samples count; None: any variant.

    """
    counted = {
        run.name: sum(count for name, count in run.variants.items() if variants is None or name in variants)
        for run in read_runs()
        if run.target == target and (sweeps is None or run.sweep in sweeps)
    }
    names = sorted((name for name in counted if counted[name]), key=lambda name: (-counted[name], name))
    if not names:
        return None
    further = f" and {len(names) - 1} more" if names[1:] else ""
    return MatrixCell("measured", f"{names[0]}{further}", f"data/reference/{names[0]}")


def _explain_trial(tried: TrialResult, place: str) -> MatrixCell:
    """Return the matrix's cell for a failed trial: `not possible` if the target is unable to do it, and otherwise `not shown`.

    A trial is an attempt to bring up a variant, or to check a sweep (list of loads), on a target without measuring.

    Args:
        tried: The result of the trial.
        place: The path of the file with the trials.

    """
    return MatrixCell("not possible" if tried.outcome == "not measurable" else "not shown", tried.detail, place)


@cache
def list_shown_variants() -> tuple[str, ...]:
    """Return the names of all variants about which anything can be known: those of the manifests, of runs and of trials.

    Runs and trials (attempts to bring a variant up) may name combinations that have no manifest of their own, such as `ROOT+KNOB`.
    """
    names = [name for run in read_runs() for name in run.variants]
    names += [name for trial in trials.read_trials().values() for name in trial.variants]
    return tuple(dict.fromkeys([*variant_names(), *names]))


@cache
def _list_knobs(name: str) -> frozenset[str]:
    """Return the names of all knobs (settings) in a variant's present manifests; empty if the variant no longer exists."""
    try:
        return frozenset(knob for overlay in load_chain(name) for knob in overlay.own_knobs)
    except UsageError:
        return frozenset()


@cache
def read_runs() -> tuple[CommittedRun, ...]:
    """Return the committed runs with the numbers of their valid samples; a run that cannot be read is left out."""
    measured: list[CommittedRun] = []
    for name in run_names(reference_folder()):
        try:
            store = RunStore.open(str(reference_folder() / name))
            samples = store.samples()
        except LabError:  # a damaged run shows nothing; the ledger reports it
            continue
        variants = {arm.name: arm.variant for arm in store.record.arms}
        counts = Counter(variants[sample.arm] for sample in samples if sample.valid)
        measured.append(CommittedRun(name, store.record.target, store.record.sweep, counts))
    return tuple(measured)


# -- as a table ---------------------------------------------------------------------------------------------


def page() -> list[Part]:
    """Return the matrix as three tables (parameters, published loads, sweeps), with a summary for each target below them.

    Links are relative to the top of the checkout.
    """
    heads = (
        ("Parameters", "data/published/parameters.csv", "parameter", "knobs, or what has it"),
        ("Published loads", "data/published/sweeps.csv", "load", "sweeps"),
        ("Sweeps", "lab/sweeps", "sweep", "on"),
    )
    parts: list[Part] = []
    every: list[MatrixLine] = []
    for (head, place, name, by), lines in zip(heads, make_matrix(), strict=True):
        rows = [(line.study, line.name, line.by, *map(_format_cell, line.cells.values())) for line in lines]
        parts += [make_title(head, place), make_text_table(("study", name, by, *list_targets()), rows)]
        every += lines
    return [*parts, Notes(tuple(Text(_sum_up(target, every)) for target in list_targets()))]


def _format_cell(cell: MatrixCell) -> TableCell:
    """Return a cell as the page prints it: its kind, in bold if a run measured it, and then the evidence, as a link if it has one."""
    linked = cell.where and cell.kind in ("measured", "works")
    evidence = f"[{cell.said}]({cell.where})" if linked else cell.said
    return TableCell(cell.kind, tail=f": {evidence}" if evidence else "", strong=cell.kind == "measured")


def _sum_up(target: str, lines: Sequence[MatrixLine]) -> str:
    """Return a sentence about a target: how many cells of each kind its column has, and when it was tried.

    Args:
        target: The target.
        lines: The rows of all tables of the matrix.

    """
    kinds = Counter(line.cells[target].kind for line in lines)
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    trial = trials.read_trials().get(target)
    if trial is None:
        return (
            f"{target}: {counts}; not tried as a whole yet: `just sabotage --intact --record --target {target}` does it"
        )
    facts = trial.facts
    machine = f"{facts['provider']}, {facts['nodes']}" if "nodes" in facts else f"{facts.get('cpus', '?')} CPUs"
    commit = (trial.git_commit or "an unknown commit")[:8]
    again = f", {len(trial.again)} of the variants again later" if trial.again else ""
    return f"{target}: {counts}; tried {trial.tried_at[:10]} on {machine} at {commit}{again}"
