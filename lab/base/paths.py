"""Paths in what a program tells as JSON: `circuit_breakers.thresholds.0.max_connections`."""

from __future__ import annotations

from typing import Any


def at(tree: Any, path: str) -> Any:
    """What lies there, a number being a place in a list; None where nothing does.

    >>> at({"a": [{"b": 1}]}, "a.0.b")
    1
    """
    for step in filter(None, path.split(".")):
        if isinstance(tree, list):
            tree = tree[int(step)] if step.isdigit() and int(step) < len(tree) else None
        elif isinstance(tree, dict):
            tree = tree.get(step)
        else:
            return None
    return tree
