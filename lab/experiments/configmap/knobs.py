"""The components and overlays for a user's settings, in an ablation's own manifests.

Each setting is read back by the directives that it changes.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import yaml

from lab.base.files import writing
from lab.experiments.ablation.folder import write_overlay
from lab.experiments.ablation.plan import OwnedKnob, Refusal
from lab.experiments.configmap.split import TLS, WHOLE, KeySetting, Split
from lab.model.metrics import find_metric
from lab.model.variants import kustomize
from lab.model.variants.knobs import CostPlace, knob_names, load_knob
from lab.model.variants.variants import load_overlay
from lab.systems.ingress_nginx import keys
from lab.systems.ingress_nginx.configmap import KEYS

CONFIGMAP = "ingress-nginx-controller"
PROXY_PROTOCOL, BALANCER = "use-proxy-protocol", ("balancer", ["servers.cfg"])
"""A key, and what it changes in the load balancer: the ConfigMap's name, and the files of the key's component."""


def write_components(parts: Split, manifests: Path, unmeasurable: Refusal) -> tuple[list[OwnedKnob], list[str]]:
    """Write a kustomize component for each setting of a user's file, and return the settings as knobs.

    A key that is not measurable alone is left out of the settings of several keys.

    Args:
        parts: The settings.
        manifests: The folder of manifests to write into.
        unmeasurable: Returns why a variant is not measurable in a sweep, or None.

    Returns:
        The knobs, the whole file first, and the notes.

    """
    singles = [_write_setting(item, manifests) for item in parts.singles]
    without = [
        key
        for item, owned in zip(parts.singles, singles, strict=True)
        for key in item.values
        if unmeasurable(_name_variant(owned), owned.knob.sweep)
    ]
    together = [_write_setting(item, manifests) for item in parts.together(without)]
    notes = [f"{WHOLE}: without {', '.join(without)}, which this machine cannot show"] if without and together else []
    return [*together, *singles], [*parts.notes, *notes]


def write_whole_file(parts: Split, manifests: Path) -> str:
    """Write the component of the whole file, and return the name of the variant with this component.

    The variant is the one on plain HTTP if there is one. If the file has only one key, it is the variant of this key.
    """
    candidates = [setting for setting in parts.together() if setting.whole]
    item = min(candidates, key=lambda setting: setting.root in TLS, default=parts.singles[0])
    return _name_variant(_write_setting(item, manifests))


def _name_variant(owned: OwnedKnob) -> str:
    return owned.owners[0].name if owned.owners else f"{owned.root}+{owned.knob.name}"


def _write_setting(item: KeySetting, manifests: Path) -> OwnedKnob:
    """Write the component of a setting, unless a shipped one fits.

    A setting that needs further keys also gets an overlay that adds the setting to these keys alone.
    """
    name = _write_component(item, manifests)
    owners = ()
    if item.needs:
        need = _write_component(
            KeySetting(item.needs, keys.derive_checks({}, item.needs, item.root), {}, item.root), manifests
        )
        parent, overlay = f"{item.root}-with-{need}", f"{name}-beside-{need}"
        write_overlay(manifests, parent, f"{item.root} and {need}", item.root, [need])
        write_overlay(manifests, overlay, f"{parent} and {name}", parent, [name])
        owners = (load_overlay(overlay, manifests),)
    return OwnedKnob(load_knob(name, manifests), item.root, owners, cumulative=False)


def _write_component(item: KeySetting, manifests: Path) -> str:
    """Return the name of a shipped component that sets exactly these keys, or write a new component.

    A new component has a shared-resource cost if a shipped component that sets one of its keys has one. The cost of
    any other directive is within the process.
    """
    shipped = {name: _read_literals(manifests / "components" / name) for name in knob_names(manifests)}
    same = next((name for name, literals in shipped.items() if literals == dict(item.values)), None)
    if same and not item.whole:
        return same
    name = item.name
    while name in shipped:
        name = f"my-{name}"
    similar = [knob for knob, literals in shipped.items() if literals and not item.values.keys().isdisjoint(literals)]
    cost: CostPlace = "shared" if any(load_knob(knob, manifests).cost == "shared" for knob in similar) else "process"
    hypothesis, sweep, metric = _choose_hypothesis(item, shipped, manifests)
    short_values = {
        key: " ".join((value if len(value) <= 40 else f"{value[:40]}…").split()) for key, value in item.values.items()
    }
    title = ", ".join(f"{key} {value}" for key, value in short_values.items())
    if item.whole:
        title = f"the whole file: {len(short_values)} keys"
    elif len(short_values) == 1:
        title += f" (shipped {KEYS[next(iter(short_values))].default or 'empty'})"
    objects = {f"named-{number}.yaml": text for number, text in enumerate(item.beside)}
    texts = {**objects, **{f"{key}.txt": value for key, value in item.values.items()}}
    # As files, so that no quote and no line of a snippet is lost.
    merged = {CONFIGMAP: [f"{key}={key}.txt" for key in item.values]}
    if PROXY_PROTOCOL in item.values and keys.inspect_key(PROXY_PROTOCOL, item.values[PROXY_PROTOCOL]).value == "true":
        balancer, files = BALANCER
        merged[balancer] = files
        texts[files[0]] = (manifests / "components" / PROXY_PROTOCOL / files[0]).read_text()
    content = {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        "metadata": {
            "annotations": {
                "lab/title": title,
                "lab/hypothesis": hypothesis,
                "lab/sweep": sweep,
                "lab/primary-metric": metric,
                "lab/cost": cost,
                "lab/readback": _dump_yaml([check.model_dump(exclude_none=True) for check in item.checks]),
            }
        },
        "configMapGenerator": [
            {"name": name, "behavior": "merge", "files": list(files)} for name, files in merged.items()
        ],
        "resources": list(objects),
    }
    folder = manifests / "components" / name
    with writing(folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for file, text in texts.items():
            (folder / file).write_text(text, newline="")
        (folder / "kustomization.yaml").write_text(_dump_yaml(content))
    return name


def _choose_hypothesis(
    item: KeySetting, shipped: Mapping[str, dict[str, str] | None], manifests: Path
) -> tuple[str, str, str]:
    """Return a setting's hypothesis, sweep and metric, as in a shipped component that sets its first key."""
    key, value = next(iter(item.values.items()))
    values = {name: literals[key] for name, literals in shipped.items() if literals and key in literals}
    stated = "" if item.whole else KEYS[key].sweep or ("tls" if KEYS[key].tls else "")
    name = None if item.whole or stated else min(values, key=lambda name: values[name] != value, default=None)
    similar = load_knob(name, manifests) if name else None
    sweep, metric = (
        (similar.sweep, similar.primary_metric)
        if similar
        else (stated or ("tls" if item.root in TLS else "quick"), "cpu_per_request")
    )
    subject = "defaults" if len(item.values) > 1 else key
    return f"In sweep {sweep}, {find_metric(metric).title} changes against the shipped {subject}.", sweep, metric


def _read_literals(folder: Path) -> dict[str, str] | None:
    """Return the ConfigMap keys that a component sets; None if it changes anything else."""
    content = kustomize.read_yaml(folder / "kustomization.yaml", str(folder))
    generators = content.get("configMapGenerator", [])
    changes_more = any(content.get(key) for key in ("patches", "resources", "replacements"))
    if changes_more or len(generators) != 1 or generators[0].get("name") != CONFIGMAP:
        return None
    if "files" in generators[0]:
        pairs = (str(entry).split("=", 1) for entry in generators[0]["files"])
        return {key: (folder / file).read_text() for key, file in pairs}
    return dict(str(entry).split("=", 1) for entry in generators[0].get("literals", []))


def _dump_yaml(content: object) -> str:
    """Return content as YAML, dumped by libyaml: a snippet may have a million characters."""
    return yaml.dump(content, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True)
