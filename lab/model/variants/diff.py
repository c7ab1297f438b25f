"""Differences between two lists of Kubernetes objects: as changed values by their paths, as a diff to read, or as patches.

The module does not interpret a change. Elements of lists are matched by their names where they have any, as Kubernetes does.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import yaml

KubernetesObject = Mapping[str, Any]
ValueChange = tuple[Any, Any]

ABSENT = "(absent)"
"""The text for a value that one side does not have."""


def label(obj: KubernetesObject) -> str:
    """Return the kind and name of a Kubernetes object as `Deployment/proxy`.

    The namespace is left out, because all objects of the lab are in one.
    """
    return f"{obj.get('kind')}/{obj.get('metadata', {}).get('name')}"


def changes(
    before: Iterable[KubernetesObject], after: Iterable[KubernetesObject]
) -> dict[tuple[str, str], ValueChange]:
    """Return the single values that differ between two lists of Kubernetes objects.

    An empty list or mapping counts as absent. The order of plain values in a list, and of elements with names, is ignored.

    Returns:
        (object, path) → (old value, new value), such as ("Deployment/proxy", "spec.replicas") → (1, 2). `ABSENT` stands
        for a value that one side does not have. For an item in a list of plain values, such as `args`, both values are
        the numbers of times that the item occurs.

    >>> changes([], [{"kind": "A", "metadata": {"name": "b"}}])[("A/b", "kind")]
    ('(absent)', 'A')

    """
    old = {(label(obj), path): value for obj in before for path, value in _leaves(obj, "")}
    new = {(label(obj), path): value for obj in after for path, value in _leaves(obj, "")}
    pairs = {key: (old.get(key, ABSENT), new.get(key, ABSENT)) for key in old | new}
    return {key: change for key, change in pairs.items() if change[0] != change[1]}


def unified(before: Iterable[KubernetesObject], after: Iterable[KubernetesObject], names: tuple[str, str]) -> str:
    """Return a unified diff of two lists of Kubernetes objects as YAML; empty if nothing differs.

    Args:
        before: The old objects.
        after: The new objects.
        names: The names of the old and the new side in the diff's headings.

    """
    old, new = ({label(obj): obj for obj in side} for side in (before, after))
    parts: list[str] = []
    for key in old | new:
        left, right = (dump(side[key]).splitlines(keepends=True) if key in side else [] for side in (old, new))
        parts += difflib.unified_diff(left, right, f"{names[0]} {key}", f"{names[1]} {key}")
    return "".join(parts)


def patches(before: Iterable[KubernetesObject], after: Iterable[KubernetesObject]) -> Iterator[dict[str, Any]]:
    """Yield the strategic merge patches that turn the objects in `before` into those in `after`.

    A new object is yielded completely. A removed key is null in its patch. Removed objects and removed elements of
    lists cannot be expressed, and are left out.
    """
    old = {label(obj): obj for obj in before}
    for obj in after:
        old_object = old.get(label(obj))
        if old_object is None:
            yield dict(obj)
        elif old_object != obj:
            head = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": {"name": obj["metadata"]["name"]}}
            change = _merge_patch(old_object, obj)
            head["metadata"] |= change.pop("metadata", {})
            yield head | change


def dump(value: Any) -> str:
    """Return a value as YAML in a form that people write: keys in their order, text of several lines as a block."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)


class _Dumper(yaml.SafeDumper):
    """A YAML writer that prints text of several lines as a block, indents list items, and uses no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _represent_text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _represent_text)


def _by_name(value: object) -> dict[str, Any] | None:
    """Return the elements of a list of mappings, such as containers, by the value of their key `name`.

    Returns:
        None if the value is not a list, if the list is empty, or if an element's name is missing or repeated.

    """
    if not isinstance(value, list) or not value or not all(isinstance(item, dict) and "name" in item for item in value):
        return None
    items = {str(item["name"]): item for item in value}
    return items if len(items) == len(value) else None


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    items = _by_name(value)
    if items is not None:
        for name, item in items.items():
            yield from _leaves(item, f"{path}[{name}]")
    elif isinstance(value, dict) and value:
        for key, item in cast("dict[str, Any]", value).items():
            yield from _leaves(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value and not any(isinstance(item, dict | list) for item in value):
        # Plain texts, such as args: which ones there are, and how often, so that two additions to a list are two changes.
        for item in value:
            yield f"{path}[{item!r}]", value.count(item)
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{index}]")
    elif value != [] and value != {}:  # an empty list and an absent one mean the same to Kubernetes
        yield path, value


def _merge_patch(old: Any, new: Any) -> Any:
    old_items, new_items = _by_name(old), _by_name(new)
    if new_items is not None and (old_items is not None or not old) and "image" in next(iter(new_items.values())):
        # Containers merge by name; ports, env and mounts inside them are rewritten as a unit, which is equally right.
        return [
            item if name not in (old_items or {}) else {"name": name} | _merge_patch((old_items or {})[name], item)
            for name, item in new_items.items()
            if (old_items or {}).get(name) != item
        ]
    if isinstance(old, dict) and isinstance(new, dict):
        before, after = cast("dict[str, Any]", old), cast("dict[str, Any]", new)
        changed = {
            key: _merge_patch(before[key], value) if key in before else value
            for key, value in after.items()
            if key not in before or before[key] != value
        }
        return changed | dict.fromkeys(key for key in before if key not in after)
    return new
