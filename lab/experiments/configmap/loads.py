"""The choice of the load for measuring a setting of a user's file, by the example of shipped components with the same keys."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from lab.experiments.configmap.split import TLS, KeySetting
from lab.model.variants import kustomize
from lab.model.variants.knobs import MANIFESTS, CostPlace, knob_names, load_knob
from lab.systems.ingress_nginx.configmap import KEYS

CONFIGMAP = "ingress-nginx-controller"
"""The name of the ConfigMap that holds the settings."""
_load_once = cache(load_knob)


def choose_load(item: KeySetting, manifests: Path = MANIFESTS) -> tuple[str, str, CostPlace, str]:
    """Choose the load for measuring a setting, by the example of the shipped components that set the same keys.

    Args:
        item: The setting.
        manifests: The folder of manifests with the shipped components.

    Returns:
        (sweep, metric, place of the cost, component). The sweep is the name of a list of load points, and the metric is the one that
        decides. The place is `shared` if a shipped component for one of the keys has a cost in what two systems on one machine share, else
        `process`. The component is the name of a shipped one that sets exactly these keys; it is empty without one, and for a whole file.

    """
    key, value = next(iter(item.values.items()))
    shipped = {name: _read_literals(manifests, name) for name in knob_names(manifests)}
    similar = [_load_once(name, manifests) for name in shipped if not item.values.keys().isdisjoint(shipped[name])]
    cost: CostPlace = "shared" if any(knob.cost == "shared" for knob in similar) else "process"
    same = next((knob for knob in similar if not item.whole and shipped[knob.name] == dict(item.values)), None)
    if same is not None:
        return same.sweep, same.primary_metric, same.cost, same.name
    stated = "" if item.whole else KEYS[key].sweep or ("tls" if KEYS[key].tls else "")
    alike = [knob for knob in similar if not item.whole and not stated and key in shipped[knob.name]]
    nearest = min(alike, key=lambda knob: shipped[knob.name][key] != value, default=None)
    if nearest is not None:
        return nearest.sweep, nearest.primary_metric, cost, ""
    return stated or ("tls" if item.root in TLS else "quick"), "cpu_per_request", cost, ""


@cache
def _read_literals(manifests: Path, component: str) -> Mapping[str, str]:
    """Return the keys of ingress-nginx's ConfigMap that a kustomize component sets, as key → value.

    The result is empty if the component changes anything else. It is cached, since a component never changes.
    """
    folder = manifests / "components" / component
    path = folder / "kustomization.yaml"
    if CONFIGMAP not in path.read_text("utf-8"):  # most components: reading YAML takes longer
        return {}
    content = kustomize.read_yaml(path, str(folder))
    generators = content.get("configMapGenerator", [])
    changes_more = any(content.get(key) for key in ("patches", "resources", "replacements"))
    if changes_more or len(generators) != 1 or generators[0].get("name") != CONFIGMAP:
        return {}
    if "files" in generators[0]:
        pairs = (str(entry).split("=", 1) for entry in generators[0]["files"])
        return {key: (folder / file).read_text() for key, file in pairs}
    return dict(str(entry).split("=", 1) for entry in generators[0].get("literals", []))
