"""Every arm of real files comes up and reads back: test_arms_inside.py in the local target's namespaces, without privileges."""

from __future__ import annotations

import os

import pytest

from lab.systems.ingress_nginx import modules
from lab.tests.support.inside import run_inside


@pytest.mark.inside
def test_inside() -> None:
    if told := modules.bring("brotli on;"):
        pytest.skip(told)
    identity = "nobody" if os.geteuid() == 0 else "this user"
    run_inside(__file__.replace("test_arms", "test_arms_inside"), identity, (identity,))
