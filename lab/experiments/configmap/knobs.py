"""The kustomize components and overlays for the settings in a user's ConfigMap, written into a copy of the manifests.

Each setting is read back from the running proxy by the directives of nginx that it changes.
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
    """Write a kustomize component for each setting of a user's file, and return the settings as knobs that can be measured.

    If a key cannot be measured alone, it is left out of the settings with several keys, too.

    Args:
        parts: The settings of the file.
        manifests: The folder of manifests to write into.
        unmeasurable: Returns why a variant is not measurable in a sweep, or None.
        whole_only: Whether to return the whole file alone. For a file with only one key, that is the setting of this key.
        only: The only keys to return, each as a setting of its own. Empty: all keys, and the settings with several keys.

    Returns:
        (the knobs, the whole file first; notes for the user).

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
    """Write a kustomize component with all settings of a user's file, and return the name of the variant with this component.

    A variant with plain HTTP is preferred to a variant with TLS. If the file has only one key, it is the variant of this key.
    """
    candidates = [setting for setting in parts.together() if setting.whole]
    item = min(candidates, key=lambda setting: setting.root in TLS, default=parts.singles[0])
    return _name_variant(_write_setting(item, manifests))


def write_files(old: Split, new: Split, manifests: Path) -> tuple[str, str, str]:
    """Write a kustomize component for each of two whole files, so that the old file can be compared with the new one.

    Both variants add their component to the same root (a variant without a baseline). A file that changes nothing has no
    component: its variant is the root.

    Args:
        old: The settings of the old file.
        new: The settings of the new file.
        manifests: The folder of manifests to write into.

    Returns:
        (variant of the old file, variant of the new file, name of the sweep that shows both).

    """
    settings = pair_files(old, new)
    before, after = (_name_variant(_write_setting(item, manifests)) if item.values else item.root for item in settings)
    return before, after, "tls" if settings[0].root in TLS else "quick"


def _name_variant(owned: OwnedKnob) -> str:
    return owned.owners[0].name if owned.owners else f"{owned.root}+{owned.knob.name}"


def _write_setting(item: KeySetting, manifests: Path) -> OwnedKnob:
    """Return a setting of a user's file as a knob that can be measured, and write the kustomize component for it.

    If a shipped component sets the same keys, that one is used. A setting that has an effect only together with further keys
    also gets an overlay (variant). The baseline of this overlay has only the further keys.
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
    """Return the name of a kustomize component for a setting: a shipped one that sets exactly these keys, or else a new one.

    A new component is written into the manifests. It states whether the setting may cost something that two systems on one
    machine share, or only CPU time of the proxy's process. This is taken from shipped components for one of the keys.
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
    objects = {f"named-{number}.yaml": text for number, text in enumerate(item.other_objects)}
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
    """Return content as YAML. The dumper written in C is used, since a snippet may have a million characters."""
    return yaml.dump(content, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True)
