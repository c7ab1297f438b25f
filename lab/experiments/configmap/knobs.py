"""The components and overlays for a user's settings, in an ablation's own manifests.

Each setting is read back by the directives that it changes.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

import yaml

from lab.base.files import writing
from lab.experiments.ablation.folder import write_overlay
from lab.experiments.ablation.plan import OwnedKnob, Refusal
from lab.experiments.configmap.loads import CONFIGMAP, choose_load
from lab.experiments.configmap.split import TLS, WHOLE, KeySetting, Split, pair_files
from lab.model.metrics import find_metric
from lab.model.variants.knobs import knob_names, load_knob
from lab.model.variants.variants import load_overlay
from lab.systems.ingress_nginx import keys
from lab.systems.ingress_nginx.configmap import KEYS

PROXY_PROTOCOL, BALANCER = "use-proxy-protocol", ("balancer", ["servers.cfg"])
"""A key, and what it changes in the load balancer: the ConfigMap's name, and the files of the key's component."""


def write_components(
    parts: Split,
    manifests: Path,
    unmeasurable: Refusal,
    whole_only: bool = False,
    only: Collection[str] = (),
) -> tuple[list[OwnedKnob], list[str]]:
    """Write a kustomize component for each setting of a user's file, and return the settings as knobs.

    A key that is not measurable alone is left out of the settings of several keys.

    Args:
        parts: The settings.
        manifests: The folder of manifests to write into.
        unmeasurable: Returns why a variant is not measurable in a sweep, or None.
        whole_only: Whether to return the whole file alone; if the file has only one key, that is the setting of this key.
        only: The only keys to return, each by itself; empty: all, and the settings of several keys.

    Returns:
        The knobs, the whole file first, and the notes.

    """
    chosen = [item for item in parts.singles if not only or not item.values.keys().isdisjoint(only)]
    singles = [_write_setting(item, manifests) for item in chosen]
    if only:
        return singles, parts.notes
    without = [
        key
        for item, owned in zip(chosen, singles, strict=True)
        for key in item.values
        if unmeasurable(_name_variant(owned), owned.knob.sweep)
    ]
    settings = [item for item in parts.together(without) if item.whole or not whole_only]
    together = [_write_setting(item, manifests) for item in settings]
    notes = [f"{WHOLE}: without {', '.join(without)}, which this machine cannot show"] if without and together else []
    return (together or singles) if whole_only else [*together, *singles], [*parts.notes, *notes]


def write_whole_file(parts: Split, manifests: Path) -> str:
    """Write the component of the whole file, and return the name of the variant with this component.

    The variant is the one on plain HTTP if there is one. If the file has only one key, it is the variant of this key.
    """
    candidates = [setting for setting in parts.together() if setting.whole]
    item = min(candidates, key=lambda setting: setting.root in TLS, default=parts.singles[0])
    return _name_variant(_write_setting(item, manifests))


def write_files(old: Split, new: Split, manifests: Path) -> tuple[str, str, str]:
    """Write a component for each of two whole files; return the variants (of the old file, of the new one) and the sweep that shows both.

    Both variants stand on the same root. A file that changes nothing has no component: its variant is the root.
    """
    settings = pair_files(old, new)
    before, after = (_name_variant(_write_setting(item, manifests)) if item.values else item.root for item in settings)
    return before, after, "tls" if settings[0].root in TLS else "quick"


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
    sweep, metric, cost, same = choose_load(item, manifests)
    if same:
        return same
    name, existing = item.name, knob_names(manifests)
    while name in existing:
        name = f"my-{name}"
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
                "lab/hypothesis": f"In sweep {sweep}, {find_metric(metric).title} changes against the shipped"
                f" {'defaults' if len(item.values) > 1 else next(iter(item.values))}.",
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


def _dump_yaml(content: object) -> str:
    """Return content as YAML, dumped by libyaml: a snippet may have a million characters."""
    return yaml.dump(content, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True)
