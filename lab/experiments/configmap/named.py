"""Objects that a ConfigMap's keys name: ConfigMaps and Secrets of the file, and those that ingress-nginx's chart makes. Pure.

{kind: Secret, metadata: {name: dh}, data: {dhparam.pem: …}}    ("Secret", "dh") → {"dhparam.pem": "-----BEGIN …"}

Refuses nothing: whether a key's object is there is `split`'s to say.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TypeAlias

from lab.experiments.configmap.yaml_text import Scalar, Value, text_at

Named: TypeAlias = "Mapping[tuple[str, str], Mapping[str, str]]"
"""(kind, name) → what is in it."""
_HEADERS = {"add-headers": "addHeaders", "proxy-set-headers": "proxySetHeaders"}
"""Key → the chart's mapping that it makes a ConfigMap of, which the key then names."""


def named(value: Value) -> Iterator[tuple[tuple[str, str], Mapping[str, str]]]:
    """Every ConfigMap and Secret below, as texts."""
    if isinstance(value, Mapping):
        kind = text_at(value, "kind")
        items = value.get("items")
        if kind not in ("ConfigMap", "Secret"):
            for item in items if isinstance(items, list) else []:
                yield from named(item)
            return
        plain, coded = (_texts(value.get(name)) for name in ("stringData", "data"))
        yield (
            (kind, text_at(value.get("metadata"), "name")),
            {**(_decoded(coded) if kind == "Secret" else coded), **plain},
        )


def of_chart(values: Mapping[str, Value]) -> tuple[Mapping[str, str], Named]:
    """Of ingress-nginx's chart: keys that it sets from other values, and the objects that it makes for them.

    Source: charts/ingress-nginx of controller-v1.15.1, templates/controller-configmap.yaml and controller-secret.yaml.
    """
    controller = values.get("controller")
    chart = controller if isinstance(controller, Mapping) else {}
    headers = {key: texts for key, name in _HEADERS.items() if (texts := _texts(chart.get(name)))}
    more = {key: f"ingress-nginx/custom-{key}" for key in headers}
    beside = {("ConfigMap", f"custom-{key}"): texts for key, texts in headers.items()}
    if text_at(chart, "allowSnippetAnnotations") == "true":
        more["allow-snippet-annotations"] = "true"
    if coded := text_at(values, "dhParam"):
        more["ssl-dh-param"] = "ingress-nginx/ingress-nginx-controller"
        beside["Secret", "ingress-nginx-controller"] = _decoded({"dhparam.pem": coded})
    return more, beside


def _texts(value: Value | None) -> dict[str, str]:
    pairs = value.items() if isinstance(value, Mapping) else ()
    return {key: item.text for key, item in pairs if isinstance(item, Scalar)}


def _decoded(coded: Mapping[str, str]) -> dict[str, str]:
    """Of a Secret's base64; what is none is left out, as the API server refuses it."""
    found: dict[str, str] = {}
    for key, text in coded.items():
        with suppress(ValueError):
            found[key] = base64.b64decode("".join(text.split()), validate=True).decode()
    return found
