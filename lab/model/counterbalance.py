"""Orders of load points in which each point follows each other one equally often, and each is first equally often.

What a load leaves behind (sockets that wait, a cache, memory) may change what the next point shows. In a Williams design (Williams
1949, Australian Journal of Scientific Research A 2:149) this falls on every point alike, and what depends on the point before can be
told from what does not. Refuses to know arms and pairs.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence


def williams_squares(size: int) -> list[list[tuple[int, ...]]]:
    """Return the Latin squares of a Williams design for `size` points: one where their number is even, two where it is odd.

    Over all rows each point stands in each place equally often and directly follows each other point equally often. The first row
    is 0, 1, n-1, 2, n-2, ...; each other row adds one to it, modulo n. The second square has the rows of the first one backwards.
    """
    steps = [(at + 1) // 2 if at % 2 else -(at // 2) for at in range(size)]
    square = [tuple((row + step) % size for step in steps) for row in range(size)]
    return [square, [row[::-1] for row in square]] if size % 2 and size > 1 else [square]


def draw_orders(
    lots: random.Random, names: Sequence[str], count: int, firsts: Mapping[str, int] | None = None
) -> list[tuple[str, ...]]:
    """Draw `count` orders of the names by lot: whole Williams designs as far as they go, then rows of a further square.

    The rows of one square begin with different names, so that each name is first equally often, within one.

    Args:
        lots: The source of chance: which name has which number, and in which order the rows are used.
        names: What is ordered; at least one where `count` is above 0.
        count: How many orders.
        firsts: Name → how often it was first elsewhere: where rows are left over, those begin with the names that were least.

    """
    seen, orders = Counter(firsts), list[tuple[str, ...]]()
    while len(orders) < count:
        labels = lots.sample(names, len(names))
        squares = williams_squares(len(names))
        for square in lots.sample(squares, len(squares)):
            rows = [tuple(labels[at] for at in row) for row in lots.sample(square, len(square))]
            rows.sort(key=lambda row: seen[row[0]])  # stable: among equals the draw decides
            orders += rows[: count - len(orders)]
    return lots.sample(orders, len(orders))
