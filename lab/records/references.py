"""A reference: data/reference/NAME is its first run, `boot-2`, `boot-3`, … in that folder are the same design measured on other boots.

    data/reference/slow-link  →  [data/reference/slow-link, data/reference/slow-link/boot-2]

Whoever reads NAME alone reads its first run, as ever. Refuses another design, a boot that is there already, a run that is not finished,
and one that is too large.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.base.errors import UsageError
from lab.base.files import reference_folder, sync, writing
from lab.model.facts import differing, machine
from lab.model.plan import Arm
from lab.model.run import RunRecord
from lab.model.sweeps import Point
from lab.records import packing
from lab.records.forms import RUN, has
from lab.records.store import RunStore, run_names
from lab.stats.boots import format_boots

BOOT = "boot-"
MOST_BYTES = 1_500_000
"""Of a run on a further boot: one arm, its baseline and the A/A twin at one point. Git keeps it for ever."""
PLACE = frozenset({"nodes", "cluster", "provider", "privilege", "open_files", "pinning"})
"""A target's facts that belong to where it runs, and not to what runs there."""
PRECISION = frozenset({"generations", "repeats", "attempts", "singly"})
"""Keys of a point that say how often it is measured and counted, and not what."""
UNKNOWN = "not visible"
BESIDE = ("report.html", "hist.parquet")
"""What the lab itself leaves in a run's folder and can make again."""
Manifests = Sequence[Mapping[str, Any]]
ReduceManifests = Callable[[str, Mapping[str, str], Manifests], Manifests]
"""Given a run's target and facts and a variant's rendered objects, returns the objects without what changes nothing in that run."""


def keep_all(_target: str, _facts: Mapping[str, str], manifests: Manifests) -> Manifests:
    """Return rendered manifests as they are: every difference between them counts."""
    return manifests


def boot_folders(folder: Path) -> list[Path]:
    """Return the folders of a reference's runs: its own, the first, then those of further boots by their number."""
    further = [path for path in folder.glob(f"{BOOT}*") if has(path, RUN) and _number(path)]
    return [folder, *sorted(further, key=_number)]


def _number(path: Path) -> int:
    digits = path.name.removeprefix(BOOT)
    return int(digits) if digits.isdecimal() else 0


def committed_runs(folder: Path | None = None) -> Iterator[RunStore]:
    """Open every run of every reference, further boots included. UsageError for one whose run.json is damaged."""
    top = folder or reference_folder()
    for name in run_names(top):
        for path in boot_folders(top / name):
            yield RunStore.open(str(path))


def boots_of(record: RunRecord) -> list[str]:
    """Return the ids of the boots on which a run was measured, in order: more than one where it was resumed on another."""
    resumed = (each["boot_id"] for each in record.resumed if "boot_id" in each)
    return list(dict.fromkeys([record.facts.get("boot_id", UNKNOWN), *resumed]))


def add_run(run: RunStore, name: str, reduce: ReduceManifests = keep_all) -> tuple[Path, list[str]]:
    """Pack a copy of a finished run into data/reference/NAME: as the reference's first run, or as one more boot of it.

    The run itself stays where and as it is.

    Args:
        run: the finished run.
        name: the reference's folder.
        reduce: leaves out of both runs' manifests what may differ between boots of one design.

    Returns:
        The new folder, and what is to be known of it: facts of the machine that differ from those of the first run.

    Raises:
        UsageError: another design, a boot that is there already, a run that is not finished, or a packed run above `MOST_BYTES`.

    """
    folder = refuse_bad_name(name)
    refuse_unfinished(run)
    if not has(folder, RUN):
        copy_packed(run, folder)
        return folder, []
    runs = [RunStore.open(str(path)) for path in boot_folders(folder)]
    first, added = runs[0].record, run.record
    refuse_known_boot([each.record for each in runs], added, name)
    refuse_other_design(runs[0], run, name, reduce)
    refuse_other_programs(first, added, name)
    new = folder / f"{BOOT}{max(len(runs), _number(boot_folders(folder)[-1])) + 1}"
    copy_packed(run, new, MOST_BYTES)
    return new, [
        f"{fact}: {first.facts.get(fact)} / {added.facts.get(fact)}" for fact in differing(first.facts, added.facts)
    ]


def replace_run(run: RunStore, name: str, keep: Callable[[RunStore, str], None]) -> Path:
    """Put a packed copy of a finished run in the place of a reference, all of whose boots go.

    Args:
        run: the new run.
        name: the reference's folder.
        keep: called with each run that goes and its folder's name before anything is removed: it writes the effects down.

    Raises:
        UsageError: no such reference, the same run, or a run that is not finished.

    """
    folder = refuse_bad_name(name)
    if not has(folder, RUN):
        raise UsageError("--replace", f"there is no reference '{name}'", "leave --replace out: --into alone makes it")
    refuse_unfinished(run)
    old = [RunStore.open(str(path)) for path in boot_folders(folder)]
    if run.record.id in [each.record.id for each in old]:
        raise UsageError(run.record.id, f"is a run of {name} already", "name another run")
    new = folder.with_name(f".{name}.new")
    copy_packed(run, new)
    try:
        for each in old:
            keep(each, str(each.folder.relative_to(folder.parent)))
    except BaseException:
        shutil.rmtree(new)
        raise
    with writing(folder, "LAB_REFERENCE"):
        gone = folder.with_name(f".{name}.old")
        shutil.rmtree(gone, ignore_errors=True)
        folder.rename(gone)
        new.rename(folder)
        sync(folder.parent)
        shutil.rmtree(gone)
    return folder


def copy_packed(run: RunStore, final: Path, most_bytes: int | None = None) -> None:
    """Copy a run to `final`, packed there; whole or not at all. UsageError where it is larger than `most_bytes`."""
    partial = final.with_name(f".{final.name}.partial")
    try:
        with writing(final, "LAB_REFERENCE"):
            shutil.rmtree(partial, ignore_errors=True)
            final.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(run.folder, partial, ignore=shutil.ignore_patterns(*BESIDE, f"{BOOT}*"))
            copy = RunStore.open(str(partial))
            if not copy.packed:
                packing.pack(copy)
            size = packing.Size.of(partial)
            if most_bytes is not None and size.bytes > most_bytes:
                fault = f"takes {size.bytes:,} bytes when it is packed, a further boot has {most_bytes:,}"
                raise UsageError(run.record.id, fault, "measure fewer arms, points or blocks: just ledger --boots")
            partial.rename(final)
            sync(final.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def boots_text(run: RunStore) -> str:
    """Return on which boot a committed run was measured, and of how many its reference is; empty for a run that is not committed.

    `one boot (AMD EPYC, 2026-11-24), of two that …/slow-link has: …`
    """
    top = reference_folder()
    folder = run.folder.absolute()
    if top not in folder.parents:
        return ""
    reference = folder if folder.parent == top else folder.parent
    facts, count = run.record.facts, len(boot_folders(reference))
    processor = ", ".join(filter(None, [facts.get("cpu", ""), facts.get("cpu_model", "")]))
    said = f"one boot ({processor}; {run.record.created_at[:10]})"
    more = f", of {format_boots(count)} that {reference.name} has" if count > 1 else ""
    return f"{said}{more}: every interval here is of that boot alone"


# -- what is refused -----------------------------------------------------------------------------------


def refuse_bad_name(name: str) -> Path:
    """Return the folder of the reference of that name. UsageError for what is no plain name."""
    if Path(name).name != name or name.startswith("."):
        raise UsageError("--into", f"'{name}' is no name of a folder in data/reference", "as --into slow-link")
    return reference_folder() / name


def refuse_unfinished(run: RunStore) -> None:
    """UsageError where something of a run's plan is not measured yet."""
    packing.refuse_unfinished(run, run.samples())


def refuse_known_boot(runs: Sequence[RunRecord], added: RunRecord, name: str) -> None:
    """UsageError where a run was measured on several boots, on one that is not known, or on one that the reference has already."""
    boots = boots_of(added)
    if len(boots) > 1:
        raise UsageError(
            added.id, f"was measured on {len(boots)} boots: {', '.join(boots)}", "measure it whole on one boot"
        )
    if boots[0] == UNKNOWN:
        raise UsageError(
            added.id, "its boot is not known (no boot_id in its facts)", "measure it where /proc shows the boot"
        )
    same = next((each.id for each in runs if boots[0] in boots_of(each)), None)
    if same is not None:
        fault = f"was measured on boot {boots[0]}, which {name} has already ({same})"
        raise UsageError(added.id, fault, "measure it again once the machine has booted anew")


def refuse_other_design(first: RunStore, added: RunStore, name: str, reduce: ReduceManifests) -> None:
    """UsageError with every difference unless each arm and point of a run, and how they are measured, is one of the reference's first run.

    The run need not have all of them: its arms (each with its baseline and manifests), its points (load, length, generator), its target, and
    whether each arm was measured as a pair. `reduce` is as in `add_run`.
    """
    records = first.record, added.record
    faults = [*_target_faults(*records), *_arm_faults(first, added, reduce), *_point_faults(*records)]
    faults += _scheme_faults(*records)
    if faults:
        remedy = f"measure it as {first.record.id} was: just ledger --boots has the commands"
        raise UsageError(added.record.id, f"is of another design than {name}: {'; '.join(faults)}", remedy)


def _target_faults(first: RunRecord, added: RunRecord) -> Iterator[str]:
    if first.target != added.target:
        yield f"target {added.target} instead of {first.target}"
    if first.sweep != added.sweep:
        yield f"sweep {added.sweep} instead of {first.sweep}"


def _arm_faults(first: RunStore, added: RunStore, reduce: ReduceManifests) -> Iterator[str]:
    arms = {arm.name: arm for arm in first.record.arms}
    if all(arm.role == "reference" for arm in added.record.arms):
        yield "no arm beside the one without a proxy"
    for arm in added.record.arms:
        if arm.role == "reference":
            continue
        if (same := arms.get(arm.name)) is None:
            yield f"no arm {arm.name} there"
        elif (same.variant, same.baseline) != (arm.variant, arm.baseline):
            yield f"arm {arm.name} is {_arm(arm)} instead of {_arm(same)}"
        elif _manifests_differ(first, added, arm.variant, reduce):
            yield f"other manifests of {arm.name}"


def _manifests_differ(first: RunStore, added: RunStore, variant: str, reduce: ReduceManifests) -> bool:
    if first.record.variants[variant].manifests_sha256 == added.record.variants[variant].manifests_sha256:
        return False
    one, other = (reduce(run.record.target, run.record.facts, run.manifests(variant)) for run in (first, added))
    return one != other


def _arm(arm: Arm) -> str:
    return f"{arm.variant} against {arm.baseline}" if arm.baseline else arm.variant


def _point_faults(first: RunRecord, added: RunRecord) -> Iterator[str]:
    points = {point.name: point for point in first.points}
    for point in added.points:
        if (same := points.get(point.name)) is None:
            yield f"no point {point.name} there"
            continue
        one, other = _load(same), _load(point)
        if keys := [key for key in one if one[key] != other[key]]:
            yield f"point {point.name} has {', '.join(f'{key} {other[key]} instead of {one[key]}' for key in keys)}"
        if (was := first.generators.get(point.name)) != (used := added.generators.get(point.name)):
            yield f"generator at {point.name} is {_generator(used)} instead of {_generator(was)}"


def _load(point: Point) -> dict[str, object]:
    return {key: value for key, value in point.model_dump(mode="json").items() if key not in PRECISION}


def _generator(known: Mapping[str, str | None] | None) -> str:
    return " ".join(str(value) for value in (known or {}).values() if value) or "none"


def _scheme_faults(first: RunRecord, added: RunRecord) -> Iterator[str]:
    was, used = _paired(first), _paired(added)
    both = {(arm, point) for _, arm, point in first.slots} & {(arm, point) for _, arm, point in added.slots}
    for arm, point in sorted(both):
        if ((arm, point) in was) != ((arm, point) in used):
            how = ("alone", "as a pair")
            yield f"{arm} at {point} is measured {how[(arm, point) in used]} instead of {how[(arm, point) in was]}"


def _paired(record: RunRecord) -> set[tuple[str, str]]:
    """(arm, point) of every pair."""
    return {record.slots[pair.order - 1][1:] for pair in record.pairs}


def refuse_other_programs(first: RunRecord, added: RunRecord, name: str) -> None:
    """UsageError where both runs recorded a program, image or setting of the target and it differs.

    What a boot itself can change (kernel, processor, memory: the facts of `lab.model.facts.machine`) is a part of what several boots are
    measured for, and is reported, not refused.
    """
    own = machine().keys() | PLACE
    unlike = [fact for fact in differing(first.facts, added.facts) if fact in first.facts and fact in added.facts]
    if faults := [f"{fact}: {first.facts[fact]} / {added.facts[fact]}" for fact in unlike if fact not in own]:
        fault = f"other programs or settings than {name}: {'; '.join(faults)}"
        raise UsageError(added.id, fault, "measure it with those of the first run, or measure all boots anew")
