"""The apiserver target from outside: its own tests in its namespaces, as this user and as one without privileges."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lab.base.errors import UsageError
from lab.systems.programs import ROOTS
from lab.systems.table import CONTROLLERS
from lab.targets.apiserver import programs
from lab.tests.support.inside import IDENTITIES, run_inside


def missing() -> str:
    """What scripts/controllers would have to make first, which takes minutes; empty where all is there."""
    try:
        os.environ[ROOTS] = json.dumps(programs.list_chosen())
        for name in programs.SERVERS:
            programs.server(name)
        for controller in CONTROLLERS.values():
            if controller.made:
                controller.about()
    except UsageError as error:
        return str(error)
    return ""


@pytest.mark.inside
@pytest.mark.skipif(bool(missing()), reason=f"made by scripts/controllers: {missing()}")
@pytest.mark.parametrize("identity", IDENTITIES)
def test_inside(identity: str) -> None:
    run_inside(str(Path(__file__).with_name("test_apiserver_inside.py")), identity)
