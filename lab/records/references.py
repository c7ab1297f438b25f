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
from lab.model.run import RunRecord
from lab.records import packing
from lab.records.store import RunStore
from lab.records.tables import RUN, has
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


def boot_folders(folder: Path) -> list[Path]:
    """Return the folders of a reference's runs: its own, the first, then those of further boots by their number."""
    further = [path for path in folder.glob(f"{BOOT}*") if has(path, RUN) and _number(path)]
    return [folder, *sorted(further, key=_number)]


def _number(path: Path) -> int:
    digits = path.name.removeprefix(BOOT)
    return int(digits) if digits.isdecimal() else 0


def boots_of(record: RunRecord) -> list[str]:
    """Return the ids of the boots on which a run was measured, in order: more than one where it was resumed on another."""
    resumed = (each["boot_id"] for each in record.resumed if "boot_id" in each)
    return list(dict.fromkeys([record.facts.get("boot_id", UNKNOWN), *resumed]))


def add_run(run: RunStore, name: str, reduce: ReduceManifests | None = None) -> tuple[Path, list[str]]:
    """Pack a copy of a finished run into data/reference/NAME: as the reference's first run, or as one more boot of it.

    The run itself stays where and as it is. Returns the new folder, and the facts of the machine that differ from those of the first run.
    `reduce` leaves out of both runs' manifests what may differ between boots of one design; None: nothing may. UsageError for another
    design, a boot that is there already, a run that is not finished, or a packed run above `MOST_BYTES`.
    """
    folder = refuse_bad_name(name)
    packing.refuse_unfinished(run, run.samples())
    if not has(folder, RUN):
        copy_packed(run, folder)
        return folder, []
    boots = boot_folders(folder)
    runs = [RunStore.open(str(path)) for path in boots]
    refuse_other(runs, run, name, reduce)
    new = folder / f"{BOOT}{max(len(runs), _number(boots[-1])) + 1}"
    copy_packed(run, new, MOST_BYTES)
    first, added = runs[0].record.facts, run.record.facts
    return new, [f"{fact}: {first.get(fact)} / {added.get(fact)}" for fact in differing(first, added)]


def replace_run(run: RunStore, name: str, keep: Callable[[RunStore, str], None]) -> Path:
    """Put a packed copy of a finished run in the place of a reference, all of whose boots go. UsageError.

    `keep` is called with each run that goes and its folder's name before anything is removed: it writes the effects down.
    """
    folder = refuse_bad_name(name)
    if not has(folder, RUN):
        raise UsageError("--replace", f"there is no reference '{name}'", "leave --replace out: --into alone makes it")
    packing.refuse_unfinished(run, run.samples())
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


def refuse_bad_name(name: str) -> Path:
    """Return the folder of the reference of that name. UsageError for what is no plain name."""
    if Path(name).name != name or name.startswith("."):
        raise UsageError("--into", f"'{name}' is no name of a folder in data/reference", "as --into slow-link")
    return reference_folder() / name


def refuse_other(runs: Sequence[RunStore], added: RunStore, name: str, reduce: ReduceManifests | None = None) -> None:
    """UsageError unless a run is one more boot of a reference: whole on a boot that it has not, of its first run's design and programs.

    Each of its arms (with baseline and manifests) and points (load, length, generator), its target, and whether each arm was measured as a
    pair, is one of the first run's; it need not have all of them. What a boot itself can change (kernel, processor, memory: the facts of
    `lab.model.facts.machine`) is a part of what several boots are measured for, and is reported, not refused.
    """
    first, record = runs[0].record, added.record
    boot, *others = boots_of(record)
    same = next((each.record.id for each in runs if boot in boots_of(each.record)), None)
    both = (("target", first.target, record.target), ("sweep", first.sweep, record.sweep))
    design = [f"{what} {now} instead of {was}" for what, was, now in both if was != now]
    design += [*_arm_faults(runs[0], added, reduce), *_point_faults(first, record)]
    programs = [
        f"{fact}: {first.facts[fact]} / {record.facts[fact]}"
        for fact in differing(first.facts, record.facts)
        if fact in first.facts and fact in record.facts and fact not in machine().keys() | PLACE
    ]
    rules = (
        (
            bool(others),
            f"was measured on {len(others) + 1} boots: {', '.join((boot, *others))}",
            "measure it whole on one boot",
        ),
        (
            boot == UNKNOWN,
            "its boot is not known (no boot_id in its facts)",
            "measure it where /proc shows the boot",
        ),
        (
            same is not None,
            f"was measured on boot {boot}, which {name} has already ({same})",
            "measure it again once the machine has booted anew",
        ),
        (
            bool(design),
            f"is of another design than {name}: {'; '.join(design)}",
            f"measure it as {first.id} was: just ledger --boots has the commands",
        ),
        (
            bool(programs),
            f"other programs or settings than {name}: {'; '.join(programs)}",
            "measure it with those of the first run, or measure all boots anew",
        ),
    )
    for broken, fault, remedy in rules:
        if broken:
            raise UsageError(record.id, fault, remedy)


def _arm_faults(first: RunStore, added: RunStore, reduce: ReduceManifests | None) -> Iterator[str]:
    arms = {arm.name: arm for arm in first.record.arms}
    mine = [arm for arm in added.record.arms if arm.role != "reference"]
    if not mine:
        yield "no arm beside the one without a proxy"
    for arm in mine:
        if (same := arms.get(arm.name)) is None:
            yield f"no arm {arm.name} there"
            continue
        now, was = (f"{each.variant}{f' against {each.baseline}' if each.baseline else ''}" for each in (arm, same))
        digests = {run.record.variants[each.variant].manifests_sha256 for run, each in ((first, same), (added, arm))}
        if now != was:
            yield f"arm {arm.name} is {now} instead of {was}"
        elif len(digests) > 1:
            objects: list[Manifests] = []
            for run in (first, added):
                found = run.manifests(arm.variant)
                objects.append(reduce(run.record.target, run.record.facts, found) if reduce else found)
            if objects[0] != objects[1]:
                yield f"other manifests of {arm.name}"


def _point_faults(first: RunRecord, added: RunRecord) -> Iterator[str]:
    points = {point.name: point for point in first.points}
    for point in added.points:
        if (same := points.get(point.name)) is None:
            yield f"no point {point.name} there"
            continue
        was, now = (each.model_dump(mode="json") for each in (same, point))
        differ = (key for key in was if was[key] != now[key] and key not in PRECISION)
        if keys := [f"{key} {now[key]} instead of {was[key]}" for key in differ]:
            yield f"point {point.name} has {', '.join(keys)}"
        by = [record.generators.get(point.name) or {} for record in (added, first)]
        if by[0] != by[1]:
            used, before = (" ".join(str(value) for value in each.values() if value) or "none" for each in by)
            yield f"generator at {point.name} is {used} instead of {before}"
    # (arm, point) → how it is measured
    ways = [
        {slot[1:]: "alone" for slot in record.slots}
        | {record.slots[pair.order - 1][1:]: "as a pair" for pair in record.pairs}
        for record in (first, added)
    ]
    for arm, point in sorted(ways[0].keys() & ways[1].keys()):
        before, used = (each[arm, point] for each in ways)
        if used != before:
            yield f"{arm} at {point} is measured {used} instead of {before}"
