"""What the soak calls growth."""

from __future__ import annotations

import pytest

from lab.tests.support.soak import Look, grown

MB = 1_000_000


def looks(memory: float = 0.0, descriptors: float = 0.0, slower: float = 0.0) -> list[Look]:
    """A hundred, each that much more than the one before; `slower`: seconds that each sample takes longer."""
    at_s, found = 0.0, list[Look]()
    for number in range(100):
        at_s += 5 + slower * number
        found.append(Look(at_s, int((100 + memory * number) * MB), int(40 + descriptors * number), 2 * number))
    return found


@pytest.mark.parametrize(
    ("seen", "kinds"),
    [
        (looks(), []),
        (looks(memory=0.5), ["memory_bytes"]),
        (looks(descriptors=0.3), ["descriptors"]),
        (looks(slower=0.05), ["sample_s"]),
        (looks()[:7], ["7 looks are too few to tell"]),
    ],
)
def test_what_grows_steadily_is_named_and_a_few_looks_tell_nothing(seen: list[Look], kinds: list[str]) -> None:
    assert [told.partition(": ")[0] for told in grown(seen)] == kinds
