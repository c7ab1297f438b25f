"""Every arm of real files comes up and reads back: test_arms_inside.py in the local target's namespaces, without privileges."""

from __future__ import annotations

import os

import pytest

from lab.tests.support.inside import run_inside


@pytest.mark.inside
def test_inside() -> None:
    identity = "nobody" if os.geteuid() == 0 else "this user"
    run_inside(__file__.replace("test_arms", "test_arms_inside"), identity)
