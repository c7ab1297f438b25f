"""What a sabotage proves: only a refusal, or a read-back that fails. Starts nothing."""

from __future__ import annotations

from typing import Any

import pytest

from lab.base.errors import LabError, MeasuringError, NotMeasurableError, StartError, UsageError
from lab.experiments.sabotage import Saboteur, _bare  # pyright: ignore[reportPrivateUsage]
from lab.model.variants.variants import load_variant


class Target:
    """Fails in the way it is told to, before or after something was started."""

    def __init__(self, error: LabError) -> None:
        self.error = error

    def check_variant(self, variant: Any, points: Any) -> None:
        if isinstance(self.error, UsageError):
            raise self.error

    def up(self, variant: Any) -> Any:
        raise self.error


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (UsageError("here", "there is no such key"), "caught"),
        (NotMeasurableError("cores", "here", "too many"), "not measurable"),
        (MeasuringError("here", "/1kB.bin is not served"), "FAILED"),
        (StartError("here", "it ends whenever it is started"), "caught"),
    ],
)
def test_a_system_that_does_not_come_up_proves_nothing(error: LabError, outcome: str) -> None:
    target: Any = Target(error)
    assert next(Saboteur(target).findings("backlog")).outcome == outcome


def test_a_root_with_knobs_is_asked_without_any_of_them_and_another_on_its_baseline() -> None:
    assert [_bare(load_variant(name)).manifests for name in ("httpd-equal", "httpd-log-off")] == [
        load_variant("httpd").manifests
    ] * 2
