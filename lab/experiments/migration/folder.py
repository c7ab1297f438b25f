"""The manifests of a migration: each successor as shipped, and with settings that make it act as ingress-nginx did.

    base/SYSTEM                               the system as shipped, with the other objects that it needs
    base/SYSTEM-yours                         the same, with every setting of the plan that manifests can contain
    overlays/SYSTEM, overlays/SYSTEM-yours    each with the lab's backend, to be measured or for `kubectl apply -k`

The settings are those of the user's file, and defaults of ingress-nginx. A setting is an argument of the container, a
key of the system's ConfigMap, or a field of an object. An object that the base does not have begins as a copy of
`migrate/KIND.yaml` in the folder of the base. A setting is read back from the running system if the migration table
describes how. Manual steps are not in the manifests: the plan lists them.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial, reduce
from operator import getitem
from pathlib import Path
from typing import Any

import yaml

from lab.analysis.migration.mapping import Line, Migration, MigrationPlan
from lab.analysis.migration.table import set_path, split_path
from lab.base.errors import NotMeasurableError, UsageError, refuse_if
from lab.base.files import as_option_error, writing
from lab.experiments.ablation.folder import find_refusal
from lab.experiments.ablation.plan import overlays_of
from lab.experiments.configmap import knobs
from lab.experiments.configmap.reading import FileSettings
from lab.experiments.configmap.split import BASELINE, split
from lab.model.variants import kustomize
from lab.model.variants.knobs import MANIFESTS, Check
from lab.model.variants.variants import load_variant
from lab.targets.base import Target
from lab.targets.survey import check_variant

YOURS = "yours"
_KIND, _FILE = "Kustomization", "kustomization.yaml"
_PROXY = "proxy"
_ENTRY_POINT = re.compile(r"--entrypoints\.(\w+)\.", re.IGNORECASE)
MIN_VALUE_LETTERS = 4
"""The minimum number of letters by which a value is recognized in the message of a proxy."""


def writable_lines(migration: Migration) -> list[Line]:
    """Return the settings of a migration that can be written into manifests, as lines of the migration table.

    Settings of the user's files come last, so that they override the others.
    """
    return [line for line in (*migration.extras, *migration.defaults, *migration.settings) if line.standing == "set"]


def has_manifests(system: str, manifests: Path = MANIFESTS) -> bool:
    """Return whether a folder of manifests contains the overlay (the variant's kustomization) of a system."""
    return (manifests / "overlays" / system / _FILE).exists()


def map_stand_ins(manifests: Path) -> dict[str, str]:
    """Return the stand-ins in a folder of manifests: name of a system → the first overlay (variant) that stands in for it."""
    overlays = reversed(overlays_of(manifests))
    return {overlay.stands_in_for: overlay.name for overlay in overlays if overlay.stands_in_for}


def write_overlay_with(manifests: Path, migration: Migration, lines: Sequence[Line]) -> str:
    """Write an overlay (variant) of a system with some of the user's settings, and return its name: `SYSTEM-yours`.

    Args:
        manifests: A folder of manifests that has the system.
        migration: The migration to the system.
        lines: The settings.

    """
    system = migration.system
    base, name = manifests / "base" / system, f"{system}-{YOURS}"
    content = kustomize.read_yaml(base / _FILE, str(base))
    rendered = kustomize.parse_objects(kustomize.render([base]))
    kustomization: dict[str, Any] = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": _KIND,
        "namespace": content.get("namespace"),
        "resources": [f"../{system}"],
    }
    folder = manifests / "base" / name
    shutil.rmtree(folder, ignore_errors=True)
    with writing(folder):
        folder.mkdir(parents=True)
        if texts := {line.setting: line.to for line in lines if line.how == "key"}:
            generators = content.get("configMapGenerator") or [{}]
            for key, text in texts.items():
                (folder / f"{key}.txt").write_text(text, newline="")
            merged = {"behavior": "merge", "options": {"disableNameSuffixHash": True}}
            files = [f"{key}={key}.txt" for key in texts]
            kustomization["configMapGenerator"] = [{"name": generators[0].get("name"), "files": files, **merged}]
        patches = [*_patch_arguments(rendered, [line for line in lines if line.how == "arg"])]
        fields: dict[str, list[tuple[str, Any]]] = {}
        for line in (line for line in lines if line.how == "field"):
            kind, _, path = line.setting.partition(" ")
            fields.setdefault(kind, []).append((path, yaml.safe_load(line.to)))
        for kind, of_kind in fields.items():
            patch, files_made = _write_fields(folder, base, kind, of_kind, rendered)
            patches += patch
            kustomization["resources"] += files_made
        (folder / _FILE).write_text(_dump_yaml(kustomization | ({"patches": patches} if patches else {})))
    overlay = kustomize.read_yaml(manifests / "overlays" / system / _FILE, system)
    annotations = overlay["metadata"]["annotations"]
    annotations["lab/title"] = f"{system} with your settings"
    shipped_checks = yaml.safe_load(annotations.get("lab/readback", "[]"))
    all_checks = [*shipped_checks, *(yaml.safe_load(line.readback) for line in lines if line.readback)]
    if checks := {check.subject: check for check in map(Check.model_validate, all_checks)}:
        annotations["lab/readback"] = _dump_yaml([check.model_dump(exclude_none=True) for check in checks.values()])
    overlay["resources"] = [
        f"../../base/{name}" if Path(resource).name == system else resource for resource in overlay["resources"]
    ]
    (manifests / "overlays" / name).mkdir(exist_ok=True)
    (manifests / "overlays" / name / _FILE).write_text(_dump_yaml(overlay))
    return name


def export_manifests(folder: Path, migrations: Iterable[Migration], manifests: Path = MANIFESTS) -> list[str]:
    """Write the manifests of each successor of ingress-nginx, as shipped and with the user's settings, into a new or empty folder.

    The folder appears complete or not at all.

    Args:
        folder: The folder.
        migrations: The migrations to the successors.
        manifests: The folder of manifests to copy from.

    Returns:
        A note for each successor for which there are no manifests.

    Raises:
        UsageError: The folder is not empty, or cannot be written.

    """
    with as_option_error("--out", folder):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(str(folder), "is there already, and not empty", "name another by --out")
        partial = folder.absolute().with_name(f".{folder.absolute().name}.{os.getpid()}.partial")
        try:
            partial.mkdir(parents=True)
            notes: list[str] = []
            for migration in migrations:
                if not has_manifests(migration.system, manifests):
                    notes.append(f"{migration.system}: the lab has no manifests of it yet: its mapping only")
                    continue
                _copy_tree(manifests / "overlays" / migration.system, manifests, partial)
                name = write_overlay_with(partial, migration, writable_lines(migration))
                kustomize.render([partial / "overlays" / name])
            partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return notes


def _copy_tree(start: Path, manifests: Path, folder: Path) -> None:
    """Copy the folder of a kustomization, and all folders that it refers to directly or indirectly.

    Files with tables (`*.tsv`) are left out.

    Args:
        start: The folder of the kustomization.
        manifests: The folder of manifests that contains it.
        folder: The folder to copy into, with the same layout.

    """
    left, visited = [start.resolve()], set[Path]()
    while left:
        source = left.pop()
        if source in visited:
            continue
        visited.add(source)
        target = folder / source.relative_to(manifests.resolve())
        shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.tsv"))
        content = kustomize.read_yaml(source / _FILE, str(source))
        items = [item for value in content.values() if isinstance(value, list) for item in value]
        left += [path for item in items if isinstance(item, str) and (path := (source / item).resolve()).is_dir()]


def _patch_arguments(rendered: kustomize.Objects, lines: Sequence[Line]) -> Iterator[dict[str, Any]]:
    """Yield the kustomize patch that sets command-line arguments of the proxy's container; yield nothing without settings.

    The name of a setting that ends in `=` gives one argument (`--name=value`), any other name two (`--name value`). An
    argument for an entry point (a listening port of Traefik) that the deployment does not have is left out, because it
    would create this entry point.

    Args:
        rendered: The rendered objects of the system.
        lines: The settings that are arguments.

    """
    if not lines:
        return
    deployment = next(obj for obj in rendered if obj["kind"] == "Deployment" and obj["metadata"]["name"] == _PROXY)
    arguments = list(deployment["spec"]["template"]["spec"]["containers"][0].get("args", []))
    served = {match[1].lower() for text in arguments if (match := _ENTRY_POINT.match(text))}
    for line in lines:
        name = line.setting
        if (match := _ENTRY_POINT.match(name)) and match[1].lower() not in served:
            continue
        same = next((index for index, text in enumerate(arguments) if text.lower().startswith(name.lower())), None)
        new = [f"{name}{line.to}"] if name.endswith("=") else [name, line.to]
        start = len(arguments) if same is None else same
        arguments[start : start + len(new)] = new
    operation = {"op": "add", "path": "/spec/template/spec/containers/0/args", "value": arguments}
    yield {"target": {"kind": "Deployment", "name": _PROXY}, "patch": _dump_yaml([operation])}


def _write_fields(
    folder: Path, base: Path, kind: str, fields: Sequence[tuple[str, Any]], rendered: kustomize.Objects
) -> tuple[list[dict[str, Any]], list[str]]:
    """Set fields of an object: by patches if the base has an object of this kind, and otherwise in a new file.

    Args:
        folder: The folder for the new file.
        base: The folder of the base.
        kind: The kind of the object.
        fields: (path of the field, value) for each field.
        rendered: The rendered objects of the base.

    Returns:
        (patches, names of new files). One of the two lists is empty.

    """
    existing = next((obj for obj in rendered if obj["kind"] == kind), None)
    if existing is None:
        begun = kustomize.read_yaml(base / "migrate" / f"{kind}.yaml", f"{base.name}: {kind}")
        for path, value in fields:
            set_path(begun, split_path(path), value)
        (folder / f"{kind}.yaml").write_text(_dump_yaml(begun))
        return [], [f"{kind}.yaml"]
    places: dict[tuple[str, ...], None] = {}
    for path, value in fields:
        steps = split_path(path)
        set_path(existing, steps, value)
        places[tuple(steps[: 2 if steps[0] == "metadata" else 1])] = None
    operations = [
        {"op": "add", "path": f"/{'/'.join(place)}", "value": reduce(getitem, place, existing)} for place in places
    ]
    return [{"target": {"kind": kind, "name": existing["metadata"]["name"]}, "patch": _dump_yaml(operations)}], []


def _dump_yaml(content: Any) -> str:
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)


def _normalize(text: str) -> str:
    """Reduce a name to its lower-case letters and digits, so that differently written names are equal.

    `proxy_busy_buffers_size`, `proxy-busy-buffers-size` and `proxyBusyBuffersSize` give one text.
    """
    return "".join(filter(str.isalnum, text)).lower()


Refusal = Callable[[str], "str | None"]
"""The type of functions that return the message by which an overlay is refused; None if it is measurable."""


def write_accepted(manifests: Path, migration: Migration, refusal: Refusal) -> tuple[str | None, list[str]]:
    """Write an overlay (variant) of a system with as many of the user's settings as it accepts, and return its name.

    If the overlay is refused, the setting that the message names is left out, and so on until it is accepted.

    Args:
        manifests: A folder of manifests that has the system.
        migration: The migration to the system.
        refusal: Returns why an overlay is not measurable; None if it is.

    Returns:
        (name of the overlay, notes about settings that were left out). The name is None if the overlay is refused and the message names no
        setting.

    """
    lines, notes = writable_lines(migration), list[str]()
    while True:
        name = write_overlay_with(manifests, migration, lines)
        message = refusal(name)
        if message is None:
            return name, notes
        suspects = [
            line
            for line in lines
            if _normalize(line.setting.rpartition(".")[2]) in _normalize(message)
            or (len(line.to) >= MIN_VALUE_LETTERS and line.to in message)
        ]
        if not suspects:
            return None, [*notes, f"{name}: {message}"]
        refused = max(suspects, key=lambda line: len(line.setting))
        notes.append(f"{migration.system}: without {refused.setting}, which cannot be measured here: {message}")
        lines = [line for line in lines if line.setting != refused.setting]


# -- the variants that are measured of a plan ----------------------------------------------------------------


def add_variants(plan: MigrationPlan, manifests: Path, target: Target) -> tuple[str, list[str], list[str]]:
    """Add the overlays (variants) for a migration to a copy of the manifests, and return the variants to measure.

    Args:
        plan: The plan of the migration.
        manifests: The copy of the manifests.
        target: The target.

    Returns:
        (baseline, successors, notes). The baseline is the variant of ingress-nginx with the user's file. It is plain ingress-nginx if the
        file changes nothing that can be measured. The successors are the variants of other systems.

    Raises:
        UsageError: No successor is measurable here.

    """
    try:
        parts = split(plan.place, FileSettings(plan.given, plan.notes))
        baseline, notes = knobs.write_whole_file(parts, manifests), list(parts.notes)
    except UsageError as error:
        place = plan.place or "no ConfigMap"
        baseline, notes = BASELINE, [f"{place}: {error.fault}: ingress-nginx is measured as it is shipped"]
    refusal = partial(find_refusal, manifests, target)
    stand_ins = map_stand_ins(manifests)
    names: list[str] = []
    for item in plan.migrations:
        if not has_manifests(item.system, manifests):
            notes.append(f"{item.system}: the lab has no manifests of it yet: not measured")
            continue
        if refused := refusal(item.system):
            notes.append(f"{item.system}: not measured here: {refused}")
            continue
        try:
            check_variant(load_variant(item.system, manifests), target, [])
        except NotMeasurableError as error:
            if stand_in := stand_ins.get(item.system):
                names.append(stand_in)
                reason = f"{error.fault} ({error.remedy})"
                notes.append(f"{item.system}: {reason}; {stand_in} stands in for it, which takes none of its settings")
                continue
        yours, refused = write_accepted(manifests, item, refusal)
        names += [item.system, *([yours] if yours else [])]
        notes += refused
    refuse_if(not names, "migrate", "no successor can be measured here", "\n  ".join(notes))
    return baseline, names, notes
