"""`just up remote`: what it asks of the cluster before anything is made there."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from rich.console import Console

from lab.base.errors import UsageError
from lab.targets.cluster import rights
from lab.targets.provision import remote


class Narrow:
    """An API server at which one right is missing."""

    place = "context mine"

    def __init__(self, missing: rights.Right) -> None:
        self._missing = missing

    def version(self) -> str:
        return "v1.34.4"

    def denied(self, wanted: Iterable[rights.Right]) -> list[str]:
        return [f"{right[0]} {right[2]}" for right in wanted if right == self._missing]


@pytest.mark.parametrize("missing", rights.EVERY_RUN)
def test_a_right_that_every_run_needs_is_named_at_first(missing: rights.Right, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_connect", lambda _: Narrow(missing))
    said = f"context mine: you may not {missing[0]} {missing[2]}\n.*README.md names them"
    with pytest.raises(UsageError, match=said):
        remote.up("mine", Console(stderr=True))


def test_every_right_is_asked_for_once() -> None:
    every = [*rights.EVERY_RUN, *rights.KINDS, *(right for some in rights.BY_FEATURE.values() for right in some)]
    assert len(every) == len(set(every))
