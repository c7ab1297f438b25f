"""Each parameter and each sweep of the studies × each target: measured there, seen to work there, not possible there, or not shown.

All from data: data/published, components' annotations, the studies' files, the committed runs and the committed trials
(`lab.records.trials`). Refuses to leave a cell empty and to call anything possible that
nothing has shown.
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
from lab.model.variants.variants import chain, variant_names
from lab.records import published, trials
from lab.records.store import RunStore, run_names
from lab.records.sweep_files import load_sweep
from lab.records.trials import Tried
from lab.report.grid import Cell as Shown
from lab.report.grid import Notes, Part, texts, title
from lab.studies.study_files import LOAD, StudyFile, load_study, study_keys

HOLDS = "holds"


@dataclass(frozen=True, slots=True)
class Cell:
    """`where`: from the checkout's top, what shows it; `said`: by what in words."""

    kind: Literal["measured", "works", "accepted", "not possible", "not shown"]
    said: str = ""
    where: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A row: what it is about, what of the lab realises it (names, or why nothing does), target → cell."""

    study: str
    name: str
    by: str
    cells: Mapping[str, Cell]


@dataclass(frozen=True, slots=True)
class Measured:
    """A committed run: what of it has a sample that counts. `variants`: each → how many."""

    name: str
    target: str
    sweep: str
    variants: Mapping[str, int]


def places() -> list[str]:
    """The targets, the default one first."""
    return sorted(BRING_UP_S, key=lambda name: (name != DEFAULT_TARGET, name))


def matrix() -> tuple[Sequence[Line], Sequence[Line], Sequence[Line]]:
    """(the parameters, the studies' own loads of data/published/sweeps.csv, the lab's sweeps of the studies). UsageError for a damaged run,
    trial or study.
    """
    files = _files()
    parameters = [
        parameter_line(row["source"], row["parameter"], files[row["source"]]) for row in published.texts("parameters")
    ]
    loads = [_published(row["source"], row["sweep_id"], files[row["source"]]) for row in published.texts("sweeps")]
    own = [
        Line(
            ", ".join(_studies_of(name)), name, ", ".join(on), {each: of_sweep(each, [name], None) for each in places()}
        )
        for name, on in study_sweeps().items()
    ]
    return parameters, loads, own


@cache
def _files() -> Mapping[str, StudyFile]:
    """By study. UsageError for a damaged one."""
    return {key: load_study(key).file for key in study_keys()}


@cache
def study_sweeps() -> Mapping[str, Sequence[str]]:
    """Each sweep that is of a study, by itself or by the study's file → the variants that are measured with it there."""
    found: dict[str, list[str]] = {}
    for file in _files().values():
        for name, variants in _named(file).items():
            found.setdefault(name, []).extend(variants)
    last = ((name, chain(name)[-1].own_knobs) for name in variant_names())
    showing = {name: load_knob(knobs[-1]).sweep for name, knobs in last if knobs}
    for name in sweep_names():
        if (study := load_sweep(name)[1].study) is not None:
            # overlays whose last knob could show its effect in it; where there is none, the study's first
            on = [overlay for overlay, sweep in showing.items() if sweep == name]
            found.setdefault(name, []).extend(on or _files()[study].variants[:1])
    return {name: list(dict.fromkeys(on)) for name, on in sorted(found.items())}


@cache
def _realising() -> Mapping[str, Sequence[str]]:
    """Each knob that realises published parameters → these, as STUDY/PARAMETER."""
    return {knob.name: knob.parameters for knob in map(load_knob, knob_names()) if knob.parameters}


def alone(tried: Mapping[str, Tried]) -> list[str]:
    """`ROOT+KNOB` of each knob of a published parameter with which no variant came up: what one cannot have says nothing of another."""
    having = {knob: [name for name in variant_names() if knob in _knobs(name)] for knob in _realising()}
    return [
        f"{chain(names[0])[0].name}+{knob}"
        for knob, names in having.items()
        if names and not any(name in tried and tried[name].outcome == HOLDS for name in names)
    ]


@cache
def _studies_of(sweep: str) -> Sequence[str]:
    """That it is of by itself, or by the study's file."""
    own = load_sweep(sweep)[1].study
    return [key for key, file in _files().items() if own == key or sweep in _named(file)]


def _named(file: StudyFile) -> Mapping[str, Sequence[str]]:
    """Sweep → the variants that the study measures with it, whole or shortened, or with which it makes a published load."""
    told = [([file.sweep, file.quick.sweep], file.variants)]
    told += [([change.sweep, change.quick], change.variants) for change in file.changes]
    told += [(load.sweeps, load.variants) for load in file.published_loads.values()]
    found: dict[str, list[str]] = {}
    for named, variants in told:
        for name in dict.fromkeys(named):
            found.setdefault(name, []).extend(variants)
    return found


def parameter_line(study: str, parameter: str, file: StudyFile) -> Line:
    if (other := file.not_a_knob.get(parameter)) is None:
        knobs = [name for name, rows in _realising().items() if f"{study}/{parameter}" in rows]
        # best shown where it is a variant's own knob; a root's counts, too, and one of a whole set
        having = [name for name in shown_variants() if _knobs(name) & set(knobs)]
        return Line(study, parameter, ", ".join(knobs), {each: of_variants(each, having) for each in places()})
    if other.by is None:
        return _no_part(study, parameter, other.why)
    if other.by == LOAD:
        loads = [name for name in study_sweeps() if study in _studies_of(name)]
        return Line(study, parameter, other.why, {each: of_sweep(each, loads, None) for each in places()})
    return Line(study, parameter, other.why, {each: of_variants(each, [other.by]) for each in places()})


def _no_part(study: str, name: str, why: str) -> Line:
    return Line(study, name, why, dict.fromkeys(places(), Cell("not possible", "no part of what is measured")))


def _published(study: str, name: str, file: StudyFile) -> Line:
    load = file.published_loads.get(name)
    if load is None:
        raise UsageError(f"lab/studies/{study}.toml", f"published_loads: nothing says what makes {name}", "add it")
    if load.why:
        return _no_part(study, name, load.why)
    cells = {each: of_sweep(each, load.sweeps, load.variants) for each in places()}
    return Line(study, name, ", ".join(load.sweeps), cells)


def of_variants(target: str, variants: Collection[str]) -> Cell:
    """What any of these has shown there."""
    shown, trial = _measured(target, None, variants), trials.committed().get(target)
    told = {name: trial.variants[name] for name in variants if name in trial.variants} if trial else {}
    if shown is not None or trial is None or not told:
        return shown or Cell("not shown")
    held = next((name for name, tried in told.items() if tried.outcome == HOLDS), None)
    if held is not None:
        return Cell("works", f"{held} came up and was read back", trial.place)
    return _why(told[min(told, key=lambda name: len(_knobs(name)))], trial.place)


def of_sweep(target: str, names: Sequence[str], variants: Collection[str] | None) -> Cell:
    shown, trial = _measured(target, names, variants), trials.committed().get(target)
    told = {name: trial.sweeps[name] for name in names if name in trial.sweeps} if trial else {}
    if shown is not None or trial is None or not told:
        return shown or Cell("not shown")
    for name, tried in told.items():
        if tried.outcome == "accepted":
            return Cell("accepted", f"{name} {tried.detail}, and not run yet", trial.place)
    return _why(next(iter(told.values())), trial.place)


def _measured(target: str, sweeps: Collection[str] | None, variants: Collection[str] | None) -> Cell | None:
    """By the run there under one of these sweeps with the most samples of these variants that count (None: any)."""
    counted = {
        run.name: sum(count for name, count in run.variants.items() if variants is None or name in variants)
        for run in runs()
        if run.target == target and (sweeps is None or run.sweep in sweeps)
    }
    found = sorted((name for name in counted if counted[name]), key=lambda name: (-counted[name], name))
    if not found:
        return None
    more = f" and {len(found) - 1} more" if found[1:] else ""
    return Cell("measured", f"{found[0]}{more}", f"data/reference/{found[0]}")


def _why(tried: Tried, place: str) -> Cell:
    return Cell("not possible" if tried.outcome == "not measurable" else "not shown", tried.detail, place)


@cache
def shown_variants() -> tuple[str, ...]:
    """Every name under which something was shown: overlays, and what runs and trials put together with `+`."""
    told = [name for run in runs() for name in run.variants]
    told += [name for trial in trials.committed().values() for name in trial.variants]
    return tuple(dict.fromkeys([*variant_names(), *told]))


@cache
def _knobs(name: str) -> frozenset[str]:
    """Of a variant as it is now; none of one that is no more."""
    try:
        return frozenset(knob for overlay in chain(name) for knob in overlay.own_knobs)
    except UsageError:
        return frozenset()


@cache
def runs() -> tuple[Measured, ...]:
    found: list[Measured] = []
    for name in run_names(reference_folder()):
        try:
            store = RunStore.open(str(reference_folder() / name))
            samples = store.samples()
        except LabError:  # a damaged one shows nothing; the ledger tells of it
            continue
        of_arm = {arm.name: arm.variant for arm in store.record.arms}
        counts = Counter(of_arm[sample.arm] for sample in samples if sample.valid)
        found.append(Measured(name, store.record.target, store.record.sweep, counts))
    return tuple(found)


# -- as a table ---------------------------------------------------------------------------------------------


def page() -> list[Part]:
    """Return all of it as tables, with how much of it each target has shown; links are as from the checkout's top."""
    heads = (
        ("Parameters", "data/published/parameters.csv", "parameter", "knobs, or what has it"),
        ("Published loads", "data/published/sweeps.csv", "load", "sweeps"),
        ("Sweeps", "lab/sweeps", "sweep", "on"),
    )
    parts: list[Part] = []
    every: list[Line] = []
    for (head, place, name, by), lines in zip(heads, matrix(), strict=True):
        rows: list[list[str | Shown]] = []
        for line in lines:
            rows.append([line.study, line.name, line.by])
            for cell in line.cells.values():
                linked = cell.where and cell.kind in ("measured", "works")
                said = f"[{cell.said}]({cell.where})" if linked else cell.said
                rows[-1].append(Shown(cell.kind, tail=f": {said}" if said else "", strong=cell.kind == "measured"))
        parts += [title(head, place), texts(("study", name, by, *places()), rows)]
        every += lines
    return [*parts, Notes(tuple(Text(_summed_up(target, every)) for target in places()))]


def _summed_up(target: str, lines: Sequence[Line]) -> str:
    kinds = Counter(line.cells[target].kind for line in lines)
    told = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    trial = trials.committed().get(target)
    if trial is None:
        return (
            f"{target}: {told}; not tried as a whole yet: `just sabotage --intact --record --target {target}` does it"
        )
    facts = trial.facts
    where = f"{facts['provider']}, {facts['nodes']}" if "nodes" in facts else f"{facts.get('cpus', '?')} CPUs"
    commit = (trial.git_commit or "an unknown commit")[:8]
    again = f", {len(trial.again)} of the variants again later" if trial.again else ""
    return f"{target}: {told}; tried {trial.tried_at[:10]} on {where} at {commit}{again}"
