"""A pod that is deleted between the list and the question."""

from __future__ import annotations

from typing import Any, cast

import pytest

from lab.base.errors import LostError
from lab.targets.cluster.system import ClusterSystem


@pytest.mark.parametrize("changing", [True, False])
def test_it_is_asked_once_more_where_pods_come_and_go_and_lost_elsewhere(changing: bool) -> None:
    system = cast("Any", ClusterSystem).__new__(ClusterSystem)
    system._changing = object() if changing else None
    asked: list[int] = []

    def ask() -> int:
        asked.append(1)
        if len(asked) == 1:
            raise LostError("pod a", "no longer runs", "")
        return 7

    if changing:
        assert system._again(ask) == 7
    else:
        with pytest.raises(LostError):
            system._again(ask)
