"""The committed references: each is a run in data/reference/NAME, with its repetitions below it.

    data/reference/slow-link  →  [data/reference/slow-link, data/reference/slow-link/boot-2]

NAME is the first run, and its folders `boot-2`, `boot-3`, … are the runs on other boots. These runs have the same design and programs. The
folders `elsewhere-1`, … are runs of other machines, targets or programs, as of somebody with eight CPUs and the official images. They
measure arms and loads of the first run, and are never pooled with it. A reader that opens only NAME reads the first run. Refuses a run of
another design, on a boot that the reference has already, that is not finished, or that is too large.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.base.errors import UsageError, refuse_if
from lab.base.files import reference_folder, sync_folder, writing
from lab.model.facts import list_differences, read_machine_facts
from lab.model.run import RunRecord
from lab.records import packing
from lab.records.store import RunStore
from lab.records.tables import RUN, has_file
from lab.stats.boots import format_boots

BOOT, ELSEWHERE = "boot-", "elsewhere-"
MOST_BYTES = 1_500_000
"""The largest packed size of a run on a further boot, in bytes, since git keeps it forever.

It is enough for one arm, its baseline and the baseline's second measurement (A/A) at one point.
"""
PLACE_FACTS = frozenset({"nodes", "cluster", "provider", "privilege", "open_files", "pinning"})
"""The facts of a target that describe where it runs, and not what runs there."""
PRECISION_KEYS = frozenset({"generations", "repeats", "attempts", "singly"})
"""The keys of a point that say how often it is measured and counted, and not what is measured."""
UNKNOWN = "not visible"
DERIVED_FILES = ("report.html", "hist.parquet")
"""The files that the lab itself leaves in a run's folder and can make again."""
Manifests = Sequence[Mapping[str, Any]]
ReduceManifests = Callable[[str, Mapping[str, str], Manifests], Manifests]
"""A function that omits from rendered objects what has no effect in a run.

Its arguments are the run's target, its facts and the rendered objects of a variant.
"""


def boot_folders(folder: Path) -> list[Path]:
    """Return the folders of the runs of a committed reference: the first run, and its repetitions on other boots of a machine.

    The first run is in the reference's folder itself. The others are in its subfolders `boot-2`, `boot-3`, …, in the
    order of their numbers.

    Args:
        folder: The folder of the reference.

    """
    return [folder, *_list_numbered(folder, BOOT)]


def elsewhere_folders(folder: Path) -> list[Path]:
    """Return the folders `elsewhere-1`, `elsewhere-2`, … of a reference: runs of other machines, targets or programs."""
    return _list_numbered(folder, ELSEWHERE)


def _list_numbered(folder: Path, prefix: str) -> list[Path]:
    runs = [path for path in folder.glob(f"{prefix}*") if has_file(path, RUN) and _parse_number(path)]
    return sorted(runs, key=_parse_number)


def _parse_number(path: Path) -> int:
    """Return the number in the name of a folder such as `boot-2`; 0 if the name has none."""
    digits = path.name.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else 0


def list_boots(record: RunRecord) -> list[str]:
    """Return the boot ids of the machine while a run was measured, in order; there are several if it was resumed after a reboot.

    A boot whose id was not recorded is "not visible".
    """
    resumed = (facts["boot_id"] for facts in record.resumed if "boot_id" in facts)
    return list(dict.fromkeys([record.facts.get("boot_id", UNKNOWN), *resumed]))


def add_run(run: RunStore, name: str, reduce: ReduceManifests) -> tuple[Path, list[str]]:
    """Add a packed copy of a finished run to data/reference: as a new reference, or as one more boot of an existing one.

    A reference is a committed run; further runs of its design on other boots of a machine are stored below it. A run of
    another machine, target or program is stored below it, too, but apart. The given run is not changed.

    Args:
        run: The finished run.
        name: The name of the reference.
        reduce: A function that removes from manifests what may differ between boots.

    Returns:
        The new folder, and a text for each fact of the machine that differs from the first run: `FACT: FIRST / NEW`.

    Raises:
        UsageError: The run has another design or a boot that the reference has already, is not finished, or is larger
            than `MOST_BYTES` when packed.

    """
    folder = find_reference_folder(name)
    packing.refuse_unfinished(run, run.samples())
    if not has_file(folder, RUN):
        copy_packed(run, folder)
        return folder, []
    boots = boot_folders(folder)
    runs = [RunStore.open(str(path)) for path in boots]
    first, added = runs[0].record.facts, run.record.facts
    if list_foreign_facts(runs[0].record, run.record):
        refuse_other_question(runs[0].record, run.record, name)
        new = folder / f"{ELSEWHERE}{max(map(_parse_number, elsewhere_folders(folder)), default=0) + 1}"
    else:
        refuse_other_design(runs, run, name, reduce)
        new = folder / f"{BOOT}{max(len(runs), _parse_number(boots[-1])) + 1}"
    copy_packed(run, new, MOST_BYTES)
    return new, [f"{fact}: {first.get(fact)} / {added.get(fact)}" for fact in list_differences(first, added)]


def replace_run(run: RunStore, name: str, keep: Callable[[RunStore, str], None]) -> Path:
    """Replace a committed reference and all its further boots by a packed copy of a finished run.

    Args:
        run: The finished run, which must not be one of the reference's runs.
        name: The name of the reference.
        keep: A function that records the effects of a run before it is removed. It is called with each old run and the
            name of its folder.

    Returns:
        The folder of the reference.

    Raises:
        UsageError: There is no such reference, or the run is not finished or is part of the reference.

    """
    folder = find_reference_folder(name)
    refuse_if(
        not has_file(folder, RUN),
        "--replace",
        f"there is no reference '{name}'",
        "leave --replace out: --into alone makes it",
    )
    packing.refuse_unfinished(run, run.samples())
    old = [RunStore.open(str(path)) for path in boot_folders(folder)]
    refuse_if(
        run.record.id in [former.record.id for former in old],
        run.record.id,
        f"is a run of {name} already",
        "name another run",
    )
    new = folder.with_name(f".{name}.new")
    copy_packed(run, new)
    try:
        for former in old:
            keep(former, str(former.folder.relative_to(folder.parent)))
    except BaseException:
        shutil.rmtree(new)
        raise
    with writing(folder, "LAB_REFERENCE"):
        gone = folder.with_name(f".{name}.old")
        shutil.rmtree(gone, ignore_errors=True)
        folder.rename(gone)
        new.rename(folder)
        sync_folder(folder.parent)
        shutil.rmtree(gone)
    return folder


def copy_packed(run: RunStore, final: Path, most_bytes: int | None = None) -> None:
    """Copy a run to the folder `final` and pack it there (few files); the folder appears complete or not at all.

    Args:
        run: The run.
        final: The new folder.
        most_bytes: The largest size of the packed run in bytes; None = any size.

    Raises:
        UsageError: The packed run is larger than `most_bytes`.

    """
    partial = final.with_name(f".{final.name}.partial")
    try:
        with writing(final, "LAB_REFERENCE"):
            shutil.rmtree(partial, ignore_errors=True)
            final.parent.mkdir(parents=True, exist_ok=True)
            ignored = shutil.ignore_patterns(*DERIVED_FILES, f"{BOOT}*", f"{ELSEWHERE}*")
            shutil.copytree(run.folder, partial, ignore=ignored)
            copy = RunStore.open(str(partial))
            if not copy.packed:
                packing.pack(copy)
            size = packing.FolderSize.of(partial)
            if most_bytes is not None and size.bytes > most_bytes:
                raise UsageError(
                    run.record.id,
                    f"takes {size.bytes:,} bytes when it is packed, a further boot has {most_bytes:,}",
                    "measure fewer arms, points or blocks: just ledger --boots",
                )
            partial.rename(final)
            sync_folder(final.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def describe_boot(run: RunStore) -> str:
    """Return a text about the boot of the machine on which a committed run was measured; empty for other runs.

    Example: `one boot (AMD EPYC; 2026-11-24), of two that slow-link has: every interval here is of that boot alone`.
    """
    top = reference_folder()
    folder = run.folder.absolute()
    if top not in folder.parents:
        return ""
    reference = folder if folder.parent == top else folder.parent
    if folder.name.startswith(ELSEWHERE):
        first = RunStore.open(str(reference)).record
        differences = "; ".join(list_foreign_facts(first, run.record))
        return f"{describe_machine(run.record)}: a run from elsewhere, pooled with no other one; {reference.name} / this run: {differences}"
    count = len(boot_folders(reference))
    boot = f"one boot ({describe_processor(run.record)}; {run.record.created_at[:10]})"
    all_boots = f", of {format_boots(count)} that {reference.name} has" if count > 1 else ""
    return f"{boot}{all_boots}: every interval here is of that boot alone"


def describe_machine(record: RunRecord) -> str:
    """Return a text about the machine of a run: `8 CPUs, AMD EPYC 9B14, AuthenticAMD family 25 model 17 (2026-12-01)`."""
    cpus = f"{record.facts['cpus']} CPUs" if "cpus" in record.facts else ""
    return f"{', '.join(filter(None, [cpus, describe_processor(record)]))} ({record.created_at[:10]})"


def describe_processor(record: RunRecord) -> str:
    """Return the name of a run's processor, and its model if it is known: `AMD EPYC, AuthenticAMD family 25 model 17`."""
    return ", ".join(filter(None, [record.facts.get("cpu", ""), record.facts.get("cpu_model", "")]))


def list_foreign_facts(first: RunRecord, added: RunRecord) -> list[str]:
    """Return a text `FACT: FIRST / ADDED` for each fact because of which two runs are not boots of one kind of machine.

    These are the target, the provider of a cluster, the number of CPUs, and the programs with their versions and settings. What a boot itself
    can change (kernel, processor, memory) does not count.
    """
    same = (read_machine_facts().keys() | PLACE_FACTS) - {"cpus", "provider"}
    texts = [] if first.target == added.target else [f"target: {first.target} / {added.target}"]
    for fact in list_differences(first.facts, added.facts):
        if fact in first.facts and fact in added.facts and fact not in same and not (texts and fact == "target"):
            texts.append(f"{fact}: {first.facts[fact]} / {added.facts[fact]}")
    return texts


def refuse_other_question(first: RunRecord, added: RunRecord, name: str) -> None:
    """Raise an error if a run of another machine, target or program does not measure arms and loads of a reference.

    Args:
        first: The reference's first run.
        added: The run to add.
        name: The name of the reference.

    Raises:
        UsageError: An arm or a load point of the added run is unknown to the reference, or is another one there.

    """
    arms = {arm.name: (arm.variant, arm.baseline) for arm in first.arms}
    faults = [
        f"no arm {arm.name} there" if arm.name not in arms else f"arm {arm.name} is another one there"
        for arm in added.arms
        if arm.role != "reference" and arms.get(arm.name) != (arm.variant, arm.baseline)
    ]
    if faults := [*faults, *_find_load_faults(first, added)]:
        differences = "; ".join(list_foreign_facts(first, added))
        fault = f"is of another machine, target or programs than {name} ({differences}), and of another question: {'; '.join(faults)}"
        raise UsageError(
            added.id, fault, f"measure arms and loads that {name} has; `just ledger --boots` has the commands"
        )


def find_reference_folder(name: str) -> Path:
    """Return the folder for a committed reference of this name, which may not exist yet.

    Raises:
        UsageError: The name is a path, or begins with a dot.

    """
    refuse_if(
        Path(name).name != name or name.startswith("."),
        "--into",
        f"'{name}' is no name of a folder in data/reference",
        "as --into slow-link",
    )
    return reference_folder() / name


def refuse_other_design(runs: Sequence[RunStore], added: RunStore, name: str, reduce: ReduceManifests) -> None:
    """Raise an error if a run cannot be added to a reference as one more boot, because it measures something else.

    Its sweep (list of loads), its arms (variants, with their baselines and manifests), its load points and its generators
    must be those of the reference's first run. Target and programs are equal already (`list_foreign_facts`). Each arm must
    be measured as in that run, solo or in a pair (two variants at once). The added run may lack some arms and points. Facts
    that a boot itself can change (kernel, processor, memory) may differ.

    Args:
        runs: The runs of the reference, the first one first.
        added: The run to add.
        name: The name of the reference.
        reduce: A function that removes from manifests what may differ between boots.

    Raises:
        UsageError: The run differs, or it was measured on several boots, on an unknown boot, or on a boot that the
            reference has already.

    """
    first, record = runs[0].record, added.record
    boot, *further_boots = list_boots(record)
    same_boot = next((run.record.id for run in runs if boot in list_boots(run.record)), None)
    design = [] if first.sweep == record.sweep else [f"sweep {record.sweep} instead of {first.sweep}"]
    design += [*_find_arm_faults(runs[0], added, reduce), *_find_point_faults(first, record)]
    rules = (
        (
            bool(further_boots),
            f"was measured on {len(further_boots) + 1} boots: {', '.join((boot, *further_boots))}",
            "measure it whole on one boot",
        ),
        (
            boot == UNKNOWN,
            "its boot is not known (no boot_id in its facts)",
            "measure it where /proc shows the boot",
        ),
        (
            same_boot is not None,
            f"was measured on boot {boot}, which {name} has already ({same_boot})",
            "measure it again once the machine has booted anew",
        ),
        (
            bool(design),
            f"is of another design than {name}: {'; '.join(design)}",
            f"measure it as {first.id} was: just ledger --boots has the commands",
        ),
    )
    for broken, fault, remedy in rules:
        refuse_if(broken, record.id, fault, remedy)


def _find_arm_faults(first: RunStore, added: RunStore, reduce: ReduceManifests) -> Iterator[str]:
    arms = {arm.name: arm for arm in first.record.arms}
    added_arms = [arm for arm in added.record.arms if arm.role != "reference"]
    if not added_arms:
        yield "no arm but the one without a proxy"
    for arm in added_arms:
        if (first_arm := arms.get(arm.name)) is None:
            yield f"no arm {arm.name} there"
            continue
        now, was = (
            f"{side.variant}{f' against {side.baseline}' if side.baseline else ''}" for side in (arm, first_arm)
        )
        digests = {
            run.record.variants[side.variant].manifests_sha256 for run, side in ((first, first_arm), (added, arm))
        }
        if now != was:
            yield f"arm {arm.name} is {now} instead of {was}"
        elif len(digests) > 1:
            objects, added_objects = (
                reduce(run.record.target, run.record.facts, run.manifests(arm.variant)) for run in (first, added)
            )
            if objects != added_objects:
                yield f"other manifests of {arm.name}"


def _find_load_faults(first: RunRecord, added: RunRecord) -> Iterator[str]:
    points = {point.name: point for point in first.points}
    for point in added.points:
        if (first_point := points.get(point.name)) is None:
            yield f"no point {point.name} there"
            continue
        was, now = (side.model_dump(mode="json") for side in (first_point, point))
        differ = (key for key in was if was[key] != now[key] and key not in PRECISION_KEYS)
        if keys := [f"{key} {now[key]} instead of {was[key]}" for key in differ]:
            yield f"point {point.name} has {', '.join(keys)}"


def _find_point_faults(first: RunRecord, added: RunRecord) -> Iterator[str]:
    yield from _find_load_faults(first, added)
    for point in added.points:
        generators = [record.generators.get(point.name) or {} for record in (added, first)]
        if generators[0] != generators[1]:
            used, before = (
                " ".join(str(value) for value in generator.values() if value) or "none" for generator in generators
            )
            yield f"generator at {point.name} is {used} instead of {before}"
    # (arm, point) → how it is measured
    ways = [
        {slot[1:]: "alone" for slot in record.slots}
        | {record.slots[pair.order - 1][1:]: "as a pair" for pair in record.pairs}
        for record in (first, added)
    ]
    for arm, point in sorted(ways[0].keys() & ways[1].keys()):
        before, used = (way[arm, point] for way in ways)
        if used != before:
            yield f"{arm} at {point} is measured {used} instead of {before}"
