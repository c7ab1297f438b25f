"""Lookup of dotted paths in decoded JSON, such as `circuit_breakers.thresholds.0.max_connections`."""

from __future__ import annotations

from typing import Any


def get_path(tree: Any, path: str) -> Any:
    """Return the value at a dotted path of decoded JSON, or None where the path does not exist.

    >>> get_path({"a": [{"b": 1}]}, "a.0.b")
    1

    Args:
        tree: Lists, dicts and scalars.
        path: Keys joined by dots; a number is an index into a list.

    """
    for step in filter(None, path.split(".")):
        if isinstance(tree, list):
            tree = tree[int(step)] if step.isdigit() and int(step) < len(tree) else None
        elif isinstance(tree, dict):
            tree = tree.get(step)
        else:
            return None
    return tree
