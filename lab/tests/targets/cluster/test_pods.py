"""What a pod's status says of it."""

from __future__ import annotations

from typing import Any

import pytest

from lab.targets.cluster import pods

READY: dict[str, Any] = {"conditions": [{"type": "Ready", "status": "True", "reason": "R"}]}


def test_conditions_are_by_their_types() -> None:
    """A status that is missing, or says null, has none."""
    assert pods.conditions({"metadata": {}, "status": READY}) == {"Ready": READY["conditions"][0]}
    assert pods.conditions({"metadata": {}}) == pods.conditions({"metadata": {}, "status": {"conditions": None}}) == {}


@pytest.mark.parametrize(
    ("obj", "ready"),
    [
        ({"metadata": {}, "status": READY}, True),
        ({"metadata": {"deletionTimestamp": "now"}, "status": READY}, False),
        ({"metadata": {}, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, False),
        ({"metadata": {}}, False),
    ],
)
def test_one_that_is_being_deleted_is_not_ready(obj: dict[str, Any], ready: bool) -> None:
    assert pods.ready(obj) is ready
