"""Settings → components and overlays in an ablation's own manifests, read back by the directives that they change."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import yaml

from lab.base.files import writing
from lab.experiments.ablation.folder import write_overlay
from lab.experiments.ablation.plan import Owned, Refusal
from lab.experiments.configmap.split import TLS, WHOLE, Setting, Split
from lab.model.metrics import about
from lab.model.variants import kustomize
from lab.model.variants.knobs import Cost, knob_names, load_knob
from lab.model.variants.variants import load_overlay
from lab.systems.ingress_nginx import keys
from lab.systems.ingress_nginx.configmap import KEYS

CONFIGMAP = "ingress-nginx-controller"
PROXY_PROTOCOL, BALANCER = "use-proxy-protocol", ("balancer", ["servers.cfg"])
"""A key, and what a load balancer has to be told with it: its ConfigMap, and the files that the component of that name has."""


def written(found: Split, manifests: Path, unmeasurable: Refusal) -> tuple[list[Owned], list[str]]:
    """The knobs, the whole file first, and notes. What cannot be measured here by itself is left out of what is set together."""
    singles = [_written(item, manifests) for item in found.singles]
    without = [
        key
        for item, owned in zip(found.singles, singles, strict=True)
        for key in item.values
        if unmeasurable(_alone(owned), owned.knob.sweep)
    ]
    together = [_written(item, manifests) for item in found.together(without)]
    notes = [f"{WHOLE}: without {', '.join(without)}, which this machine cannot show"] if without and together else []
    return [*together, *singles], [*found.notes, *notes]


def whole(found: Split, manifests: Path) -> str:
    """The variant that holds the whole file, or the one key that it is; on plain HTTP, where the file can be had on that."""
    wholes = [each for each in found.together() if each.whole]
    item = min(wholes, key=lambda each: each.root in TLS, default=found.singles[0])
    return _alone(_written(item, manifests))


def _alone(owned: Owned) -> str:
    return owned.owners[0].name if owned.owners else f"{owned.root}+{owned.knob.name}"


def _written(item: Setting, manifests: Path) -> Owned:
    """Its component, shipped or new. One that needs others gets an overlay in which it is the only knob beside them."""
    name = _component(item, manifests)
    owners = ()
    if item.needs:
        need = _component(Setting(item.needs, keys.checks({}, item.needs, item.root), {}, item.root), manifests)
        parent, own = f"{item.root}-with-{need}", f"{name}-beside-{need}"
        write_overlay(manifests, parent, f"{item.root} and {need}", item.root, [need])
        write_overlay(manifests, own, f"{parent} and {name}", parent, [name])
        owners = (load_overlay(own, manifests),)
    return Owned(load_knob(name, manifests), item.root, owners, cumulative=False)


def _component(item: Setting, manifests: Path) -> str:
    """A component that sets just this, or a new one.

    Its cost is shared where a shipped component's is that sets one of its keys; else a directive's cost is in the process.
    """
    shipped = {name: _literals(manifests / "components" / name) for name in knob_names(manifests)}
    same = next((name for name, literals in shipped.items() if literals == dict(item.values)), None)
    if same and not item.whole:
        return same
    name = item.name
    while name in shipped:
        name = f"my-{name}"
    alike = [other for other, literals in shipped.items() if literals and not item.values.keys().isdisjoint(literals)]
    cost: Cost = "shared" if any(load_knob(other, manifests).cost == "shared" for other in alike) else "process"
    hypothesis, sweep, metric = _expected(item, shipped, manifests)
    shown = {
        key: " ".join((value if len(value) <= 40 else f"{value[:40]}…").split()) for key, value in item.values.items()
    }
    title = ", ".join(f"{key} {value}" for key, value in shown.items())
    if item.whole:
        title = f"the whole file: {len(shown)} keys"
    elif len(shown) == 1:
        title += f" (shipped {KEYS[next(iter(shown))].default or 'empty'})"
    named = {f"named-{number}.yaml": text for number, text in enumerate(item.beside)}
    texts = {**named, **{f"{key}.txt": value for key, value in item.values.items()}}
    # From files, so that no quote and no line of a snippet is lost.
    merged = {CONFIGMAP: [f"{key}={key}.txt" for key in item.values]}
    if PROXY_PROTOCOL in item.values and keys.look(PROXY_PROTOCOL, item.values[PROXY_PROTOCOL]).value == "true":
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
                "lab/readback": _yaml([check.model_dump(exclude_none=True) for check in item.checks]),
            }
        },
        "configMapGenerator": [
            {"name": name, "behavior": "merge", "files": list(files)} for name, files in merged.items()
        ],
        "resources": list(named),
    }
    folder = manifests / "components" / name
    with writing(folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for file, text in texts.items():
            (folder / file).write_text(text, newline="")
        (folder / "kustomization.yaml").write_text(_yaml(content))
    return name


def _expected(item: Setting, shipped: Mapping[str, dict[str, str] | None], manifests: Path) -> tuple[str, str, str]:
    """(hypothesis, sweep, metric): sweep and metric as a shipped component has them that sets the first key."""
    key, value = next(iter(item.values.items()))
    found = {name: literals[key] for name, literals in shipped.items() if literals and key in literals}
    stated = "" if item.whole else KEYS[key].sweep or ("tls" if KEYS[key].tls else "")
    name = None if item.whole or stated else min(found, key=lambda name: found[name] != value, default=None)
    like = load_knob(name, manifests) if name else None
    sweep, metric = (
        (like.sweep, like.primary_metric)
        if like
        else (stated or ("tls" if item.root in TLS else "quick"), "cpu_per_request")
    )
    what = "defaults" if len(item.values) > 1 else key
    return f"In sweep {sweep}, {about(metric).title} changes against the shipped {what}.", sweep, metric


def _literals(folder: Path) -> dict[str, str] | None:
    """The ConfigMap keys that a component sets; None if it changes anything else."""
    content = kustomize.read_yaml(folder / "kustomization.yaml", str(folder))
    generators = content.get("configMapGenerator", [])
    other = any(content.get(key) for key in ("patches", "resources", "replacements"))
    if other or len(generators) != 1 or generators[0].get("name") != CONFIGMAP:
        return None
    if "files" in generators[0]:
        pairs = (str(entry).split("=", 1) for entry in generators[0]["files"])
        return {key: (folder / file).read_text() for key, file in pairs}
    return dict(str(entry).split("=", 1) for entry in generators[0].get("literals", []))


def _yaml(content: object) -> str:
    """By libyaml: a snippet may have a million characters."""
    return yaml.dump(content, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True)
