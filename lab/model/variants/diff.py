"""Differences between two renders: as changed paths, as a diff to read, as a patch to apply.

Refuses to guess what a change means. Elements of lists are told apart by their names where they have any, as
Kubernetes does.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import yaml

Object = Mapping[str, Any]
Change = tuple[Any, Any]

ABSENT = "(absent)"
"""Stands for a value that one side does not have."""


def label(obj: Object) -> str:
    """`Deployment/proxy`: kind and name; the lab's objects are in one namespace."""
    return f"{obj.get('kind')}/{obj.get('metadata', {}).get('name')}"


def changes(before: Iterable[Object], after: Iterable[Object]) -> dict[tuple[str, str], Change]:
    """(object, path) → (old, new) for every leaf that differs; `ABSENT` where a side has none.

    >>> changes([], [{"kind": "A", "metadata": {"name": "b"}}])[("A/b", "kind")]
    ('(absent)', 'A')
    """
    old = {(label(obj), path): value for obj in before for path, value in _leaves(obj, "")}
    new = {(label(obj), path): value for obj in after for path, value in _leaves(obj, "")}
    both = {
        key: (old.get(key, ABSENT), new.get(key, ABSENT)) for key in [*old, *(key for key in new if key not in old)]
    }
    return {key: change for key, change in both.items() if change[0] != change[1]}


def unified(before: Iterable[Object], after: Iterable[Object], names: tuple[str, str]) -> str:
    """A unified diff, object by object; empty when nothing differs."""
    old, new = ({label(obj): obj for obj in side} for side in (before, after))
    parts: list[str] = []
    for key in [*old, *(key for key in new if key not in old)]:
        left, right = (dump(side[key]).splitlines(keepends=True) if key in side else [] for side in (old, new))
        parts += difflib.unified_diff(left, right, f"{names[0]} {key}", f"{names[1]} {key}")
    return "".join(parts)


def patches(before: Iterable[Object], after: Iterable[Object]) -> list[dict[str, Any]]:
    """Strategic merge patches (whole objects for new ones) that turn `before` into `after`. A key that is gone is null in them.

    That whole objects and elements of lists are gone cannot be said so.
    """
    old = {label(obj): obj for obj in before}
    found: list[dict[str, Any]] = []
    for obj in after:
        was = old.get(label(obj))
        if was is None:
            found.append(dict(obj))
        elif was != obj:
            head = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": {"name": obj["metadata"]["name"]}}
            change = _merge_patch(was, obj)
            head["metadata"] |= change.pop("metadata", {})
            found.append(head | change)
    return found


def dump(value: Any) -> str:
    """YAML as people write it: keys in the order given, text of several lines as a block."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)


class _Dumper(yaml.SafeDumper):
    """Several lines as a literal block, list items indented, no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def _named(value: object) -> dict[str, Any] | None:
    """A list whose elements all have a `name` of their own → name → element."""
    if not isinstance(value, list) or not value:
        return None
    if not all(isinstance(item, dict) and "name" in item for item in value):
        return None
    found = {str(item["name"]): item for item in value}
    return found if len(found) == len(value) else None


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    named = _named(value)
    if named is not None:
        for name, item in named.items():
            yield from _leaves(item, f"{path}[{name}]")
    elif isinstance(value, dict) and value:
        for key, item in cast("dict[str, Any]", value).items():
            yield from _leaves(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value and not any(isinstance(item, dict | list) for item in value):
        # Words, such as args: which there are, and how often, so that two additions to one list are two changes.
        for item in value:
            yield f"{path}[{item!r}]", value.count(item)
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{index}]")
    elif value != [] and value != {}:  # an empty list and none at all mean the same to Kubernetes
        yield path, value


def _merge_patch(old: Any, new: Any) -> Any:
    named_old, named_new = _named(old), _named(new)
    if named_new is not None and (named_old is not None or not old) and "image" in next(iter(named_new.values())):
        # Containers merge by name; ports, env and mounts inside them are rewritten whole, which is as right.
        return [
            item if name not in (named_old or {}) else {"name": name} | _merge_patch((named_old or {})[name], item)
            for name, item in named_new.items()
            if (named_old or {}).get(name) != item
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
