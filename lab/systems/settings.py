"""The readers of a proxy's settings, which are the data of a ConfigMap.

Each key is a path in the proxy's own configuration, and each value is YAML:

    cluster.circuit_breakers.thresholds.0.max_connections: "65536"

        → {"circuit_breakers": {"thresholds": [{"max_connections": 65536}]}}, merged into every cluster that the lab writes

    server.MaxKeepAliveRequests: "0"    → {"server": {"MaxKeepAliveRequests": "0"}}: `read_sections`, for directives

The first word names a part of the configuration that the lab writes (`cluster`), and a number is a position in a list. A part
that does not exist is refused, and so is a path that does not fit the configuration. Only the proxy's own checker decides
whether the proxy knows the path. A controller whose ConfigMap has keys of another form has a table of its keys (`load_keys`).
"""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lab.base.errors import UsageError, did_you_mean, refuse_if, refuse_unknown
from lab.base.files import read_tsv
from lab.systems.manifests.objects import Objects


@dataclass(frozen=True, slots=True)
class PathSetting:
    """A setting from a proxy's ConfigMap: a value, and the path in the proxy's configuration where the value belongs.

    Attributes:
        place: the place of the ConfigMap's key in the manifests, for error messages.
        path: the steps of the path below one part of the configuration (such as `cluster`); a number is an index into a list.
        value: the value, parsed as YAML.

    """

    place: str
    path: tuple[str, ...]
    value: Any


Settings = Mapping[str, Sequence[PathSetting]]
"""Part of the configuration → its settings, in the ConfigMap's order."""


def read_settings(place: str, data: Mapping[str, str], parts: Collection[str]) -> Settings:
    """Parse the data of a proxy's ConfigMap into settings, grouped by the part of the proxy's configuration.

    The key `cluster.lb_policy`, for example, is the path `lb_policy` in the part `cluster`.

    Args:
        place: the ConfigMap, for error messages.
        data: the data of the ConfigMap: `PART.PATH` → value as YAML.
        parts: the names of all parts of the configuration.

    Raises:
        UsageError: for a key whose part does not exist, or a value that is not valid YAML.

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
    """Read a proxy's settings from the ConfigMap with the given name; if it does not exist, every part has an empty list.

    Args:
        objects: all objects of the manifests.
        name: the name of the ConfigMap.
        parts: the names of all parts of the proxy's configuration.

    Returns:
        Part of the configuration → its settings, in the order of the ConfigMap.

    Raises:
        UsageError: as `read_settings`.

    """
    return read_settings(f"ConfigMap/{name}", objects.configmaps.get(name, {}), parts)


def merge_settings(tree: Any, settings: Sequence[PathSetting]) -> Any:
    """Return a copy of a configuration in which each setting's value is at the setting's path.

    If the value and the old content at the path are mappings, they are merged, and the value's keys replace equal keys.

    Args:
        tree: the configuration: nested dicts and lists.
        settings: the settings, which are applied in this order.

    Raises:
        UsageError: for a path that does not fit the configuration, such as a name where the configuration has a list.

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
    """Read the directives of a proxy's configuration from a ConfigMap, and merge them into defaults.

    The ConfigMap's keys have the form `SECTION.DIRECTIVE`. An underscore in the name of a directive becomes a blank. Whether a
    directive exists is checked later, by the proxy itself.

    Args:
        place: the ConfigMap, for error messages.
        data: the data of the ConfigMap: `SECTION.DIRECTIVE` → arguments.
        defaults: section → directive → arguments, for directives that the ConfigMap lacks. Its keys are the valid sections.

    Returns:
        Section → directive → arguments.

    Raises:
        UsageError: for a section that does not exist, a key of another form, or a value of several lines.

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
    """A key of a controller's ConfigMap, and the directive of the proxy's configuration that the key results in.

    The module `system` of the controller's package writes the directive.

    Attributes:
        section: the section of the configuration that gets the directive; empty = that module decides.
        kind: the kind of the key's value, such as `flag`; that module defines the kinds.
        default: the value if the ConfigMap does not have the key.
        directive: the directive without the value, which that module adds.

    """

    section: str
    kind: str
    default: str
    directive: str


def load_keys(table: Path) -> Mapping[str, ControllerKey]:
    """Read a table of a controller's ConfigMap keys, and return name of a key → key, in the table's order.

    Args:
        table: a file of tab-separated columns: key, section, kind, default and directive.

    """
    return {row.pop("key"): ControllerKey(**row) for row in read_tsv(table)}


def fill_defaults(place: str, data: Mapping[str, str], keys: Mapping[str, ControllerKey]) -> dict[str, str]:
    """Return the value of every key of a controller: the ConfigMap's value, or else the key's default.

    Args:
        place: the ConfigMap, for error messages.
        data: the data of the ConfigMap.
        keys: all keys of the controller, by name.

    Raises:
        UsageError: for a key in the ConfigMap that is not among `keys`.

    """
    for name in data:
        refuse_unknown(name, keys, f"{place}: {name}", "is no key that the local target knows of this controller")
    return {name: key.default for name, key in keys.items()} | dict(data)
