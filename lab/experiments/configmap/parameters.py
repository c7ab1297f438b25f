"""Values that are set one by one → the mapping that they come to. Pure.

{name: ingress-nginx.controller.config.keep-alive, value: 300}   {"ingress-nginx": {"controller": {"config": {"keep-alive": …}}}}
{op: add, path: /data/keep-alive, value: "300"}                  {"keep-alive": …}

Refuses nothing: what sets something else is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from lab.experiments.configmap.yaml_text import Value, text_at

_OF_CHART = re.compile(r"(?:^|\.)controller(?:\.|$)|(?:^|\.)dhParam$")
"""In a name that sets a value of ingress-nginx's chart, or of one around it."""
_DOT = re.compile(r"(?<!\\)\.")


def nested(value: Value) -> Mapping[str, Value]:
    """Of a release's parameters, a list of names and values or a mapping (`controller.config.x: 1`): as values; empty for anything else."""
    if isinstance(value, Mapping):
        pairs = [(name, item) for name, item in value.items() if _OF_CHART.search(name) and _DOT.search(name)]
    elif isinstance(value, list):
        pairs = [
            (text_at(item, "name"), item["value"]) for item in value if isinstance(item, Mapping) and "value" in item
        ]
    else:
        pairs = []
    if not any(_OF_CHART.search(name) for name, _ in pairs):
        return {}
    whole: Mapping[str, Value] = {}
    for name, item in pairs:
        *above, last = (part.replace("\\", "") for part in _DOT.split(name))
        values: Mapping[str, Value] = {last: item}
        for part in reversed(above):
            values = {part: values}
        whole = _over(whole, values)
    return whole


def patched(items: Value) -> tuple[dict[str, Value], list[str]]:
    """Of a JSON patch of a ConfigMap: the keys that it sets, and those that it removes."""
    found: dict[str, Value] = {}
    removed: list[str] = []
    for item in items if isinstance(items, list) else ():
        path, value = text_at(item, "path"), item.get("value") if isinstance(item, Mapping) else None
        key = path[6:].replace("~1", "/").replace("~0", "~") if path.startswith("/data/") else ""
        match text_at(item, "op"), value:
            case "add" | "replace", Mapping() if path == "/data":
                found |= value
            case "add" | "replace", _ if key and value is not None:
                found[key] = value
            case "remove", _ if key:
                removed.append(key)
            case _:
                pass
    return found, removed


def _over(below: Mapping[str, Value], above: Mapping[str, Value]) -> Mapping[str, Value]:
    """Both, as Helm takes values together: of two mappings every key, else the later one."""
    found = dict(below)
    for key, value in above.items():
        before = found.get(key)
        found[key] = _over(before, value) if isinstance(before, Mapping) and isinstance(value, Mapping) else value
    return found
