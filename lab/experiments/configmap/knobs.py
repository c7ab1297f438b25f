"""Settings → components and overlays in an ablation's own manifests, read back by the directives that they change."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import yaml

from lab.base.files import writing
from lab.experiments.ablation.folder import write_overlay
from lab.experiments.ablation.plan import Owned
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

Unmeasurable = Callable[[str, str], "str | None"]
"""(variant, sweep) → why it cannot be measured here, None if it can."""


def written(found: Split, manifests: Path, unmeasurable: Unmeasurable) -> tuple[list[Owned], list[str]]:
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
    return Owned(load_knob(name, manifests), item.root, owners, elsewhere=False, cumulative=False)


def _component(item: Setting, manifests: Path) -> str:
    """A component that sets just this, or a new one."""
    shipped = {name: _literals(manifests / "components" / name) for name in knob_names(manifests)}
    same = next((name for name, literals in shipped.items() if literals == dict(item.values)), None)
    if same and not item.whole:
        return same
    name = item.name
    while name in shipped:
        name = f"my-{name}"
    _write_component(item, name, _expected(item, shipped, manifests), _cost(item, shipped, manifests), manifests)
    return name


def _cost(item: Setting, shipped: Mapping[str, dict[str, str] | None], manifests: Path) -> Cost:
    """Shared where a shipped component's is that sets one of its keys; else a directive's cost is in the process."""
    same = [name for name, literals in shipped.items() if literals and not item.values.keys().isdisjoint(literals)]
    return "shared" if any(load_knob(name, manifests).cost == "shared" for name in same) else "process"


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


def _write_component(item: Setting, name: str, expected: tuple[str, str, str], cost: Cost, manifests: Path) -> None:
    hypothesis, sweep, metric = expected
    annotations = {
        "lab/title": _title(item),
        "lab/hypothesis": hypothesis,
        "lab/sweep": sweep,
        "lab/primary-metric": metric,
        "lab/cost": cost,
        "lab/readback": _yaml([check.model_dump(exclude_none=True) for check in item.checks]),
    }
    named = {f"named-{number}.yaml": text for number, text in enumerate(item.beside)}
    texts = {**named, **{f"{key}.txt": value for key, value in item.values.items()}}
    # From files, so that no quote and no line of a snippet is lost.
    files = [f"{key}={key}.txt" for key in item.values]
    generators = [_merging(CONFIGMAP, files)]
    if PROXY_PROTOCOL in item.values and keys.look(PROXY_PROTOCOL, item.values[PROXY_PROTOCOL]).value == "true":
        generators.append(_merging(*BALANCER))
        texts[BALANCER[1][0]] = (manifests / "components" / PROXY_PROTOCOL / BALANCER[1][0]).read_text()
    content = {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        "metadata": {"annotations": annotations},
        "configMapGenerator": generators,
        "resources": list(named),
    }
    folder = manifests / "components" / name
    with writing(folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for file, text in texts.items():
            (folder / file).write_text(text, newline="")
        (folder / "kustomization.yaml").write_text(_yaml(content))


def _yaml(content: object) -> str:
    """By libyaml: a snippet may have a million characters."""
    return yaml.dump(content, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True)


def _merging(name: str, files: Sequence[str]) -> Mapping[str, object]:
    return {"name": name, "behavior": "merge", "files": list(files)}


def _title(item: Setting) -> str:
    if item.whole:
        return f"the whole file: {len(item.values)} keys"
    shown = {
        key: " ".join((value if len(value) <= 40 else f"{value[:40]}…").split()) for key, value in item.values.items()
    }
    if len(shown) > 1:
        return ", ".join(f"{key} {value}" for key, value in shown.items())
    key, value = next(iter(shown.items()))
    return f"{key} {value} (shipped {KEYS[key].default or 'empty'})"
