"""A user's own ingress-nginx ConfigMap → one knob per key that differs from what 1.15.1 ships.

    kind: ConfigMap          or the Helm chart's         or the keys alone:
    data:                      controller:                 keep-alive: "300"
      keep-alive: "300"          config:                   use-gzip: true
      use-gzip: "true"             keep-alive: "300"

Refuses keys that the controller does not know (which would ignore them) and values that are none. Read-backs are not
guessed: nginx.conf is rendered with and without the key, and the directives that differ are what must be found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from lab.base.errors import UsageError
from lab.base.files import writing
from lab.experiments.ablation.folder import write_overlay
from lab.model.metrics import about
from lab.model.variants import kustomize
from lab.model.variants.knobs import Check, Knob, knob_names, load_knob
from lab.targets.local import keys

BASELINE = "baseline"
CONFIGMAP = "ingress-nginx-controller"
FORM = "a ConfigMap, Helm values with controller.config, or keys and values"


@dataclass(frozen=True, slots=True)
class Setting:
    """One key that differs from the default. `checks` are what it changes; `needs` the setting without which it changes nothing."""

    key: str
    value: str
    default: str
    checks: tuple[Check, ...]
    needs: str | None = None

    @property
    def name(self) -> str:
        """`keep-alive-300`: key and value, where the value is a word."""
        word = self.value.lower().replace("_", "-")
        plain = word and len(word) <= 20 and word.replace("-", "").isascii() and word.replace("-", "").isalnum()
        return f"{self.key}-{word}".strip("-") if plain else self.key


def read(path: Path) -> dict[str, str]:
    """The keys and values of a file in any of the three forms, values as a ConfigMap has them. UsageError otherwise."""
    place = str(path)
    content = kustomize.read_yaml(path, place)
    if not isinstance(content, dict):
        raise UsageError(place, "holds no settings", f"expected {FORM}")
    if content.get("kind") == "ConfigMap":
        content = content.get("data") or {}
    elif "kind" in content:
        raise UsageError(place, f"kind: expected ConfigMap, got {content['kind']!r}", f"expected {FORM}")
    elif "controller" in content:
        controller = content["controller"]
        content = (controller.get("config") if isinstance(controller, dict) else None) or {}
    if not isinstance(content, dict) or not content:
        raise UsageError(place, "holds no settings", f"expected {FORM}")
    return {str(key): _text(place, str(key), value) for key, value in content.items()}


def _text(place: str, key: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise UsageError(f"{place}: {key}", f"expected text, got {value!r}", "put it in quotes")


def split(place: str, data: Mapping[str, str]) -> tuple[list[Setting], list[str]]:
    """(what can be measured, a note for each key that cannot or need not). UsageError for an unknown key or a wrong value.

    A setting follows the one that it needs.
    """
    changed: dict[str, str] = {}
    notes: list[str] = []
    for key, value in data.items():
        found = keys.look_up(place, key, value)
        if found.idle:
            notes.append(f"{key}: {found.idle}")
        elif found.value == found.default:
            notes.append(f"{key}: nothing to measure: {found.value!r} is the default")
        else:
            changed[key] = found.value
    alone: list[Setting] = []
    dependent: list[Setting] = []
    for key, value in changed.items():
        default = keys.shipped(key)
        if keys.differs({}, {key: value}):
            alone.append(Setting(key, value, default, keys.checks({}, {key: value})))
            continue
        others = [other for other in changed if other != key]
        needs = next((o for o in others if keys.differs({o: changed[o]}, {o: changed[o], key: value})), None)
        if needs is None:
            notes.append(f"{key}: nothing to measure: by itself it changes no directive")
            continue
        with_it = {needs: changed[needs]}
        dependent.append(Setting(key, value, default, keys.checks(with_it, with_it | {key: value}), needs))
    found = _uncontested([*alone, *dependent], keys.rendered(changed))
    notes += [f"{item.key}: not measurable: what it sets depends on the machine" for item in found if not item.checks]
    return [item for item in found if item.checks], notes


def _uncontested(settings: Sequence[Setting], together: Mapping[tuple[str, str], str]) -> list[Setting]:
    """Without the checks that another setting decides when all are set (`use-gzip` brings a level, `gzip-level` sets it).

    A setting keeps at least one; what is still contested then is measured one at a time only.
    """

    def decided_elsewhere(item: Setting, check: Check) -> bool:
        final = together.get((check.context or "", check.name or ""))
        others = (other for each in settings if each is not item for other in each.checks)
        return check.value != final and any(o.subject == check.subject and o.value == final for o in others)

    kept = {item.key: tuple(c for c in item.checks if not decided_elsewhere(item, c)) for item in settings}
    return [replace(item, checks=kept[item.key] or item.checks) for item in settings]


def write_knobs(settings: Sequence[Setting], manifests: Path) -> list[str]:
    """The knobs' names, in order: components that set just this, or new ones written into `manifests`.

    One that needs another, shipped or new, gets an overlay in which it is the only knob beside that one, which then is what it
    is compared with.
    """
    shipped = {name: _literals(manifests / "components" / name) for name in knob_names(manifests)}
    names: dict[str, str] = {}
    for item in settings:
        same = [
            name
            for name, literals in shipped.items()
            if literals == {item.key: item.value} and not _contested(load_knob(name, manifests), item, settings)
        ]
        unused = item.name if item.name not in shipped else f"my-{item.name}"
        names[item.key] = same[0] if same else unused
        if not same:
            _write_component(item, names[item.key], _expected(item, shipped, manifests), manifests)
        if item.needs in names:
            need, own = names[item.needs], names[item.key]
            parent = f"{BASELINE}-with-{need}"
            write_overlay(manifests, parent, f"{BASELINE} and {need}", BASELINE, [need])
            write_overlay(manifests, f"{own}-alone", f"{parent} and {own}", parent, [own])
    return list(names.values())


def _contested(knob: Knob, item: Setting, settings: Sequence[Setting]) -> bool:
    """Whether a shipped component is read back by something that another of the settings decides."""
    said = {check.subject: check.value for check in knob.readback}
    others = (check for other in settings if other is not item for check in other.checks)
    return any(said.get(check.subject, check.value) != check.value for check in others)


def _expected(item: Setting, shipped: Mapping[str, dict[str, str] | None], manifests: Path) -> tuple[str, str, str]:
    """(hypothesis, sweep, metric): as a shipped component has them that sets this key; its hypothesis is about its own value."""
    found = {name: literals[item.key] for name, literals in shipped.items() if literals and item.key in literals}
    name = min(found, key=lambda name: found[name] != item.value, default=None)
    like = load_knob(name, manifests) if name else None
    sweep, metric = (like.sweep, like.primary_metric) if like else ("quick", "cpu_per_request")
    if like and found[like.name] == item.value:
        return like.hypothesis, sweep, metric
    return f"In sweep {sweep}, {about(metric).title} changes against the shipped {item.key}.", sweep, metric


def _literals(folder: Path) -> dict[str, str] | None:
    """The ConfigMap keys that a component sets; None if it changes anything else."""
    content = kustomize.read_yaml(folder / "kustomization.yaml", str(folder))
    generators = content.get("configMapGenerator", [])
    other = any(content.get(key) for key in ("patches", "resources", "replacements"))
    if other or len(generators) != 1 or generators[0].get("name") != CONFIGMAP or "files" in generators[0]:
        return None
    return dict(str(entry).split("=", 1) for entry in generators[0].get("literals", []))


def _write_component(item: Setting, name: str, expected: tuple[str, str, str], manifests: Path) -> None:
    hypothesis, sweep, metric = expected
    readback = [check.model_dump(exclude_none=True) for check in item.checks]
    shown = item.value if len(item.value) <= 40 else f"{item.value[:40]}…"
    annotations = {
        "lab/title": f"{item.key} {' '.join(shown.split())} (shipped {item.default or 'empty'})",
        "lab/hypothesis": hypothesis,
        "lab/sweep": sweep,
        "lab/primary-metric": metric,
        "lab/readback": yaml.safe_dump(readback, sort_keys=False),
    }
    content = {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        "metadata": {"annotations": annotations},
        # From a file, so that no quote and no line of a snippet is lost.
        "configMapGenerator": [{"name": CONFIGMAP, "behavior": "merge", "files": [f"{item.key}=value.txt"]}],
    }
    folder = manifests / "components" / name
    with writing(folder):
        folder.mkdir()
        (folder / "value.txt").write_text(item.value)
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
