"""For every test: a busy machine makes no property wrong, so none is judged by how long it took; and each has a time limit."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings, strategies

from lab.systems import programs
from lab.tests.support.deadlines import pytest_runtest_call, pytest_runtest_setup, pytest_runtest_teardown

__all__ = ["pytest_runtest_call", "pytest_runtest_setup", "pytest_runtest_teardown"]

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_collection() -> None:
    """Hypothesis' table of Unicode takes a second, once on a machine: no test's, though one is the first to want it."""
    strategies.characters(codec="utf-8").validate()


@pytest.fixture(autouse=True)
def _nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """A program that takes minutes to build is built before the lane that needs it (scripts/test), never by a test."""
    built = programs.provide_go_program

    def there(place: str, name: str, module: str, version: str) -> programs.Program:
        if programs.find_go_program(name) is None:
            pytest.skip(
                f"{name} is not built here: `just test --long controllers` has it built, as scripts/bring {name} does"
            )
        return built(place, name, module, version)

    monkeypatch.setattr(programs, "provide_go_program", there)
