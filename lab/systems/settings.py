"""Settings of a proxy as a ConfigMap: each key is a path in the proxy's own configuration, each value YAML.

    cluster.circuit_breakers.thresholds.0.max_connections: "65536"

        → {"circuit_breakers": {"thresholds": [{"max_connections": 65536}]}}, merged into every cluster that the lab writes

    server.MaxKeepAliveRequests: "0"    → {"server": {"MaxKeepAliveRequests": "0"}}: `sections`, for those whose own configuration has directives

The first word is a part that the writer makes (`cluster`), a number is a place in a list. Whether the proxy knows the path is for its own
checker to say; refuses a part that there is not, and a path that does not fit what lies there. A controller whose ConfigMap has keys of its own
has a table of them: `load_keys`.
"""

from __future__ import annotations

import copy
import csv
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lab.base.errors import UsageError, did_you_mean, refuse_if, refuse_unknown
from lab.systems.manifests.objects import Objects


@dataclass(frozen=True, slots=True)
class Setting:
    """`place`: of its key; `path`: in its part."""

    place: str
    path: tuple[str, ...]
    value: Any


Settings = Mapping[str, Sequence[Setting]]
"""Part → what is set in it, in the ConfigMap's order."""


def read(place: str, data: Mapping[str, str], parts: Collection[str]) -> Settings:
    """`place`: of the ConfigMap. UsageError for a key of no part, or a value that is no YAML."""
    found: dict[str, list[Setting]] = {part: [] for part in parts}
    for key, text in data.items():
        at = f"{place}: data.{key}"
        part, *path = key.split(".")
        refuse_if(part not in found, at, f"there is no part {part!r}", f"{did_you_mean(part, parts)} (PART.PATH in it)")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise UsageError(at, f"not YAML: {' '.join(str(error).split())}", "a number, a text, or a block") from None
        found[part].append(Setting(at, tuple(path), value))
    return found


def of_configmap(objects: Objects, name: str, parts: Collection[str]) -> Settings:
    """As `read`, of the ConfigMap of that name; of none where there is no such."""
    return read(f"ConfigMap/{name}", objects.configmaps.get(name, {}), parts)


def merged(tree: Any, settings: Sequence[Setting]) -> Any:
    """A copy of what the writer made, with these set. UsageError for a path that does not fit."""
    whole = copy.deepcopy(tree)
    for setting in settings:
        whole = _set(whole, setting.path, setting)
    return whole


def _set(node: Any, path: Sequence[str], setting: Setting) -> Any:
    if not path:
        both = isinstance(node, dict) and isinstance(setting.value, dict)
        return {**node, **setting.value} if both else setting.value
    step, *rest = path
    if step.isdigit():
        found, at = [] if node is None else node, int(step)
        if not isinstance(found, list) or at > len(found):
            held = f"a list of {len(found)}" if isinstance(found, list) else "no list"
            raise UsageError(setting.place, f"{step} is a place in a list, and there is {held}", "correct the path")
        inner = found[at] if at < len(found) else None
        return [*found[:at], _set(inner, rest, setting), *found[at + 1 :]]
    found = {} if node is None else node
    if not isinstance(found, dict):
        raise UsageError(setting.place, f"{step} is a name, and there is {found!r}", "correct the path")
    return {**found, step: _set(found.get(step), rest, setting)}


def sections(
    place: str, data: Mapping[str, str], defaults: Mapping[str, Mapping[str, str]]
) -> dict[str, dict[str, str]]:
    """Section → directive → arguments. UsageError for a section that is none; a directive that is none the proxy itself refuses."""
    found = {section: dict(own) for section, own in defaults.items()}
    for key, value in data.items():
        section, _, directive = key.partition(".")
        fault, remedy = f"expected SECTION.DIRECTIVE, a section of {', '.join(found)}", did_you_mean(section, found)
        refuse_if(section not in found or not directive, f"{place}: {key}", fault, remedy)
        more = "\n" in value or not re.fullmatch(r"[\w.-]+", directive)
        refuse_if(more, f"{place}: {key}", f"expected one line, got {value!r}", "one key for each directive")
        found[section][directive.replace("_", " ")] = value
    return found


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a controller's ConfigMap. `section`: in which part of the configuration its directive stands; empty = its writer knows."""

    section: str
    kind: str
    default: str
    directive: str


def load_keys(table: Path) -> Mapping[str, Key]:
    """Read a table of keys, in its order: key, section, kind, default and directive, separated by tabs."""
    with table.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", restval="", quoting=csv.QUOTE_NONE)
        return {row.pop("key"): Key(**row) for row in rows}


def filled(place: str, data: Mapping[str, str], keys: Mapping[str, Key]) -> dict[str, str]:
    """Key → what the ConfigMap says, else its default. UsageError for a key that the table lacks."""
    for name in data:
        refuse_unknown(name, keys, f"{place}: {name}", "is no key that the local target knows of this controller")
    return {name: key.default for name, key in keys.items()} | dict(data)
