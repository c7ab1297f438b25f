"""The grouping of values by a key, in the order in which they come."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


def group_values(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Return key → its values, from pairs (key, value); keys and values keep their order.

    >>> group_values([("b", 1), ("a", 2), ("b", 3)])
    {'b': [1, 3], 'a': [2]}

    """
    groups: dict[Key, list[Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups
