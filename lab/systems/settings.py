"""The readers of a proxy's settings, which are the data of a ConfigMap.

Each key is a path in the proxy's own configuration, and each value is YAML:

    cluster.circuit_breakers.thresholds.0.max_connections: "65536"

        → {"circuit_breakers": {"thresholds": [{"max_connections": 65536}]}}, merged into every cluster that the lab writes

    server.MaxKeepAliveRequests: "0"    → {"server": {"MaxKeepAliveRequests": "0"}}: `read_sections`, for those whose own configuration has directives

The first word is a part of the configuration that the writer creates (`cluster`), and a number is a position in a list. A part
that does not exist is refused, and so is a path that does not fit the configuration there. Whether the proxy knows the path
is left to the proxy's own checker. A controller whose ConfigMap has keys of another form has a table of them (`load_keys`).
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
class PathSetting:
    """A key of a proxy's ConfigMap, as a path in one part of the proxy's configuration and a value.

    Attributes:
        place: the key's place in the manifests, for error messages.
        path: the steps of the path inside that part.
        value: the value, parsed as YAML.

    """

    place: str
    path: tuple[str, ...]
    value: Any


Settings = Mapping[str, Sequence[PathSetting]]
"""Part of the configuration → its settings, in the ConfigMap's order."""


def read_settings(place: str, data: Mapping[str, str], parts: Collection[str]) -> Settings:
    """Read the settings from a ConfigMap's data.

    Args:
        place: the ConfigMap, for error messages.
        data: the data of the ConfigMap: `PART.PATH` → value as YAML.
        parts: the names of the parts that exist.

    Raises:
        UsageError: for a key of a part that does not exist, or a value that is no YAML.

    """
    settings: dict[str, list[PathSetting]] = {part: [] for part in parts}
    for key, text in data.items():
        key_place = f"{place}: data.{key}"
        part, *path = key.split(".")
        refuse_if(
            part not in settings,
            key_place,
            f"there is no part {part!r}",
            f"{did_you_mean(part, parts)} (PART.PATH in it)",
        )
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise UsageError(
                key_place, f"not YAML: {' '.join(str(error).split())}", "a number, a text, or a block"
            ) from None
        settings[part].append(PathSetting(key_place, tuple(path), value))
    return settings


def read_configmap_settings(objects: Objects, name: str, parts: Collection[str]) -> Settings:
    """Read the settings of the ConfigMap of that name; a ConfigMap that does not exist has none.

    Args:
        objects: the objects of the manifests.
        name: the name of the ConfigMap.
        parts: the names of the parts of the configuration that exist.

    Raises:
        UsageError: as `read_settings`.

    """
    return read_settings(f"ConfigMap/{name}", objects.configmaps.get(name, {}), parts)


def merge_settings(tree: Any, settings: Sequence[PathSetting]) -> Any:
    """Return a copy of a configuration tree with the settings applied.

    Raises:
        UsageError: for a path that does not fit the tree.

    """
    result = copy.deepcopy(tree)
    for setting in settings:
        result = _set_path(result, setting.path, setting)
    return result


def _set_path(node: Any, path: Sequence[str], setting: PathSetting) -> Any:
    if not path:
        mappings = isinstance(node, dict) and isinstance(setting.value, dict)
        return {**node, **setting.value} if mappings else setting.value
    step, *remaining = path
    if step.isdigit():
        current, index = [] if node is None else node, int(step)
        if not isinstance(current, list) or index > len(current):
            content = f"a list of {len(current)}" if isinstance(current, list) else "no list"
            raise UsageError(setting.place, f"{step} is a place in a list, and there is {content}", "correct the path")
        inner = current[index] if index < len(current) else None
        return [*current[:index], _set_path(inner, remaining, setting), *current[index + 1 :]]
    current = {} if node is None else node
    if not isinstance(current, dict):
        raise UsageError(setting.place, f"{step} is a name, and there is {current!r}", "correct the path")
    return {**current, step: _set_path(current.get(step), remaining, setting)}


def read_sections(
    place: str, data: Mapping[str, str], defaults: Mapping[str, Mapping[str, str]]
) -> dict[str, dict[str, str]]:
    """Read SECTION.DIRECTIVE keys of a ConfigMap over defaults, and return section → directive → arguments.

    An underscore in a directive stands for a blank. A directive that does not exist is left to the proxy to refuse.

    Args:
        place: the ConfigMap, for error messages.
        data: the data of the ConfigMap: `SECTION.DIRECTIVE` → arguments.
        defaults: section → directive → arguments without the ConfigMap; only these sections exist.

    Raises:
        UsageError: for a section that does not exist, or a key or value that is no single directive.

    """
    result = {section: dict(directives) for section, directives in defaults.items()}
    for key, value in data.items():
        section, _, directive = key.partition(".")
        fault, remedy = f"expected SECTION.DIRECTIVE, a section of {', '.join(result)}", did_you_mean(section, result)
        refuse_if(section not in result or not directive, f"{place}: {key}", fault, remedy)
        several = "\n" in value or not re.fullmatch(r"[\w.-]+", directive)
        refuse_if(several, f"{place}: {key}", f"expected one line, got {value!r}", "one key for each directive")
        result[section][directive.replace("_", " ")] = value
    return result


@dataclass(frozen=True, slots=True)
class ControllerKey:
    """A key of a controller's ConfigMap, with the directive that it becomes in the proxy's configuration.

    The writer is the lab's module that writes that configuration.

    Attributes:
        section: the part of the configuration that has the directive; empty = the writer decides.
        kind: the form of the key's value, such as `flag`, as the writer distinguishes forms.
        default: the value where the ConfigMap does not have the key.
        directive: the directive, which the writer completes with the value.

    """

    section: str
    kind: str
    default: str
    directive: str


def load_keys(table: Path) -> Mapping[str, ControllerKey]:
    """Read a table of keys in its order, with columns key, section, kind, default and directive separated by tabs."""
    with table.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", restval="", quoting=csv.QUOTE_NONE)
        return {row.pop("key"): ControllerKey(**row) for row in rows}


def fill_defaults(place: str, data: Mapping[str, str], keys: Mapping[str, ControllerKey]) -> dict[str, str]:
    """Return every key of a table → its value: the ConfigMap's, else the default.

    Args:
        place: the ConfigMap, for error messages.
        data: the data of the ConfigMap.
        keys: the table of the keys that exist.

    Raises:
        UsageError: for a key that the table does not have.

    """
    for name in data:
        refuse_unknown(name, keys, f"{place}: {name}", "is no key that the local target knows of this controller")
    return {name: key.default for name, key in keys.items()} | dict(data)
