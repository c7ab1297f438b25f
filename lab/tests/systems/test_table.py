"""The table of systems: whose an image is, and which kinds of checks there are."""

from __future__ import annotations

import pytest

from lab.base.errors import UsageError
from lab.model.names import BRING_UP_S
from lab.model.variants.knobs import Check, knob_names, load_knob
from lab.systems import table
from lab.targets import TARGETS


def test_every_check_of_every_knob_is_of_a_kind_that_there_is() -> None:
    for name in knob_names():
        table.refuse_checks(name, load_knob(name).readback)


@pytest.mark.parametrize(
    ("check", "said"),
    [
        (Check(kind="sysctrl", name="a", value="1"), "there is no kind 'sysctrl'\n.*did you mean 'sysctl'"),
        (Check(kind="traefik", name="a", value="1", context="b"), "a check of kind 'traefik' has no context"),
    ],
)
def test_another_kind_or_key_is_refused(check: Check, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        table.refuse_checks("here", [check])


def test_an_image_is_its_systems_by_the_longest_name() -> None:
    names = {image: getattr(table.find(image), "name", "") for image in (
        "ghcr.io/nginx/nginx-gateway-fabric/nginx", "docker.io/library/nginx", "docker.io/nginx/nginx-ingress", "docker.io/library/debian",
    )}  # fmt: skip
    assert list(names.values()) == ["nginx-ngf", "nginx", "nginx-f5", ""]


def test_forecasts_know_every_target() -> None:
    assert {*BRING_UP_S} == {*TARGETS}
