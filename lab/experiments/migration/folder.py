"""A plan → manifests: each successor as it is shipped, and with what ingress-nginx did by your file and by itself.

    base/SYSTEM            as shipped; what it needs lies beside it
    base/SYSTEM-yours      the same, with every setting of the plan that can be written
    overlays/SYSTEM, overlays/SYSTEM-yours    each with the lab's backend, to be measured, and for kubectl apply -k; the settings are read
                                              back as far as the table says how

A setting lies in an argument of the container, in the system's ConfigMap, or in a field of an object: one that its base has, else one
that `migrate/KIND.yaml` beside the table begins. What is to be done by hand is in no manifest: the plan names it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial, reduce
from operator import getitem
from pathlib import Path
from typing import Any

import yaml

from lab.analysis.migration.mapping import Line, Migration
from lab.base.errors import NotMeasurableError, UsageError
from lab.base.files import writing, written_to
from lab.experiments.ablation.folder import refusal_in
from lab.experiments.configmap import knobs
from lab.experiments.configmap.reading import Given
from lab.experiments.configmap.split import BASELINE, split
from lab.experiments.migration.plan import Plan
from lab.model.variants import kustomize
from lab.model.variants.knobs import MANIFESTS, Check
from lab.model.variants.variants import load_overlay, load_variant, variant_names
from lab.targets.base import Target
from lab.targets.survey import checked

YOURS = "yours"
_KIND, _FILE = "Kustomization", "kustomization.yaml"
_PROXY = "proxy"
WORD = 4
"""Letters by which a value can be told among what a proxy says."""


def written(found: Migration) -> list[Line]:
    """The settings that manifests hold, the file's own last, so that they win."""
    lines = [*found.extras, *found.defaults, *found.settings]
    return [line for line in lines if line.standing == "set" and (line.weight != "nothing" or line in found.settings)]


def has_manifests(system: str, manifests: Path = MANIFESTS) -> bool:
    return (manifests / "overlays" / system / _FILE).exists()


def add(manifests: Path, found: Migration, lines: Sequence[Line]) -> str:
    """An overlay of the system with these settings into a folder of manifests that has the system; its name."""
    system = found.system
    base, name = manifests / "base" / system, f"{system}-{YOURS}"
    content = kustomize.read_yaml(base / _FILE, str(base))
    rendered = kustomize.objects(kustomize.render([base]))
    own: dict[str, Any] = {
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
            own["configMapGenerator"] = [{"name": generators[0].get("name"), "files": files, **merged}]
        patches = [*_arguments(rendered, [line for line in lines if line.how == "arg"])]
        fields: dict[str, list[tuple[str, Any]]] = {}
        for line in (line for line in lines if line.how == "field"):
            kind, _, path = line.setting.partition(" ")
            fields.setdefault(kind, []).append((path, yaml.safe_load(line.to)))
        for kind, of_kind in fields.items():
            patch, made = _object(folder, base, kind, of_kind, rendered)
            patches += patch
            own["resources"] += made
        (folder / _FILE).write_text(_dumped(own | ({"patches": patches} if patches else {})))
    title = f"{system} with your settings"
    overlay = kustomize.read_yaml(manifests / "overlays" / system / _FILE, system)
    annotations = overlay["metadata"]["annotations"]
    annotations["lab/title"] = title
    own_checks = yaml.safe_load(annotations.get("lab/readback", "[]"))
    told = [*own_checks, *(yaml.safe_load(line.readback) for line in lines if line.readback)]
    if checks := {each.subject: each for each in map(Check.model_validate, told)}:
        annotations["lab/readback"] = _dumped([each.model_dump(exclude_none=True) for each in checks.values()])
    overlay["resources"] = [
        f"../../base/{name}" if Path(each).name == system else each for each in overlay["resources"]
    ]
    (manifests / "overlays" / name).mkdir(exist_ok=True)
    (manifests / "overlays" / name / _FILE).write_text(_dumped(overlay))
    return name


def take_away(folder: Path, migrations: Iterable[Migration], manifests: Path = MANIFESTS) -> list[str]:
    """Both forms of each into a new or empty folder, with all that they need; what has none.

    It appears whole or not at all. UsageError for a folder that is not empty, or cannot be written.
    """
    with written_to("--out", folder):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(str(folder), "is there already, and not empty", "name another by --out")
        partial = folder.absolute().with_name(f".{folder.absolute().name}.{os.getpid()}.partial")
        try:
            partial.mkdir(parents=True)
            notes: list[str] = []
            for found in migrations:
                if not has_manifests(found.system, manifests):
                    notes.append(f"{found.system}: the lab has no manifests of it yet: its mapping only")
                    continue
                _copy(manifests / "overlays" / found.system, manifests, partial)
                name = add(partial, found, written(found))
                kustomize.render([partial / "overlays" / name])
            partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return notes


def _copy(start: Path, manifests: Path, folder: Path) -> None:
    """A kustomization and every folder that it lists, and those list, without the tables."""
    left, seen = [start.resolve()], set[Path]()
    while left:
        source = left.pop()
        if source in seen:
            continue
        seen.add(source)
        target = folder / source.relative_to(manifests.resolve())
        shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.tsv"))
        content = kustomize.read_yaml(source / _FILE, str(source))
        listed = [each for value in content.values() if isinstance(value, list) for each in value]
        left += [path for each in listed if isinstance(each, str) and (path := (source / each).resolve()).is_dir()]


def _arguments(rendered: kustomize.Objects, lines: Sequence[Line]) -> Iterator[dict[str, Any]]:
    """The container's arguments with these: `--name=` in one, `--name` in two."""
    if not lines:
        return
    deployment = next(each for each in rendered if each["kind"] == "Deployment" and each["metadata"]["name"] == _PROXY)
    arguments = list(deployment["spec"]["template"]["spec"]["containers"][0].get("args", []))
    for line in lines:
        name = line.setting
        same = next((n for n, each in enumerate(arguments) if each.lower().startswith(name.lower())), None)
        wanted = [f"{name}{line.to}"] if name.endswith("=") else [name, line.to]
        at = len(arguments) if same is None else same
        arguments[at : at + len(wanted)] = wanted
    operation = {"op": "add", "path": "/spec/template/spec/containers/0/args", "value": arguments}
    yield {"target": {"kind": "Deployment", "name": _PROXY}, "patch": _dumped([operation])}


def _object(
    folder: Path, base: Path, kind: str, fields: Sequence[tuple[str, Any]], rendered: kustomize.Objects
) -> tuple[list[dict[str, Any]], list[str]]:
    """(patches of an object that the base has, the file of one that it has not)."""
    there = next((each for each in rendered if each["kind"] == kind), None)
    if there is None:
        begun = kustomize.read_yaml(base / "migrate" / f"{kind}.yaml", f"{base.name}: {kind}")
        for path, value in fields:
            _set(begun, _steps(path), value)
        (folder / f"{kind}.yaml").write_text(_dumped(begun))
        return [], [f"{kind}.yaml"]
    places: dict[tuple[str, ...], None] = {}
    for path, value in fields:
        steps = _steps(path)
        _set(there, steps, value)
        places[tuple(steps[: 2 if steps[0] == "metadata" else 1])] = None
    operations = [
        {"op": "add", "path": f"/{'/'.join(place)}", "value": reduce(getitem, place, there)} for place in places
    ]
    return [{"target": {"kind": kind, "name": there["metadata"]["name"]}, "patch": _dumped(operations)}], []


def _steps(path: str) -> list[str]:
    """Of `metadata.annotations.example.org/a` three: an annotation's name has dots of its own."""
    return path.split(".", 2 if path.startswith("metadata.") else -1)


def _set(node: Any, path: Sequence[str], value: Any) -> None:
    """At this path, a number of which is a place in a list that is there."""
    first, *rest = path
    step = int(first) if first.isdigit() else first
    if not rest:
        node[step] = value
        return
    if isinstance(node, dict) and not isinstance(node.get(step), (dict, list)):
        node[step] = {}
    _set(node[step], rest, value)


def _dumped(content: Any) -> str:
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)


def _letters(text: str) -> str:
    """`proxy_busy_buffers_size`, `proxy-busy-buffers-size` and `proxyBusyBuffersSize` alike."""
    return "".join(filter(str.isalnum, text)).lower()


Refusal = Callable[[str], "str | None"]
"""An overlay's name → why it cannot be measured, in the words of who refuses it; None if it can."""


def as_far_as_taken(manifests: Path, found: Migration, refusal: Refusal) -> tuple[str | None, list[str]]:
    """(the overlay with every setting that is taken, notes): what is refused is left out, one after the other. None: it is refused whatever is left out."""
    lines, notes = written(found), list[str]()
    while True:
        name = add(manifests, found, lines)
        told = refusal(name)
        if told is None:
            return name, notes
        named = [
            line
            for line in lines
            if _letters(line.setting.rpartition(".")[2]) in _letters(told) or (len(line.to) >= WORD and line.to in told)
        ]
        if not named:
            return None, [*notes, f"{name}: {told}"]
        refused = max(named, key=lambda line: len(line.setting))
        notes.append(f"{found.system}: without {refused.setting}, which cannot be measured here: {told}")
        lines = [line for line in lines if line.setting != refused.setting]


# -- what is measured of a plan ------------------------------------------------------------------------------


def variants(found: Plan, manifests: Path, target: Target) -> tuple[str, list[str], list[str]]:
    """(ingress-nginx with the file, the successors, notes), in a copy of the manifests, to which their overlays are added.

    ingress-nginx is the baseline itself where the file changes nothing that can be measured. UsageError when none of the successors
    can be measured.
    """
    try:
        parts = split(found.place, Given(found.given, found.notes))
        ours, notes = knobs.whole(parts, manifests), list(parts.notes)
    except UsageError as error:
        ours, notes = BASELINE, [f"{found.place}: {error.fault}: ingress-nginx is measured as it is shipped"]
    refusal = partial(refusal_in, manifests, target)
    overlays = [load_overlay(name, manifests) for name in variant_names(manifests)]
    stand_ins = {overlay.stands_in_for: overlay.name for overlay in reversed(overlays) if overlay.stands_in_for}
    names: list[str] = []
    for each in found.migrations:
        if not has_manifests(each.system, manifests):
            notes.append(f"{each.system}: the lab has no manifests of it yet: not measured")
            continue
        if told := refusal(each.system):
            notes.append(f"{each.system}: not measured here: {told}")
            continue
        try:
            checked(load_variant(each.system, manifests), target, [])
        except NotMeasurableError as error:
            if other := stand_ins.get(each.system):
                names.append(other)
                why = f"{error.fault} ({error.remedy})"
                notes.append(f"{each.system}: {why}; {other} stands in for it, which takes none of its settings")
                continue
        yours, told = as_far_as_taken(manifests, each, refusal)
        names += [each.system, *([yours] if yours else [])]
        notes += told
    if not names:
        raise UsageError("migrate", "no successor can be measured here", "\n  ".join(notes))
    return ours, names, notes
