"""What a sabotage proves: only a refusal, or a read-back that fails. Starts nothing."""

from __future__ import annotations

from typing import Any

import pytest

from lab.base.errors import LabError, MeasuringError, NotMeasurableError, StartError, UsageError
from lab.experiments.sabotage import Saboteur, _bare, misspellings, told_apart  # pyright: ignore[reportPrivateUsage]
from lab.model.variants import diff
from lab.model.variants.variants import load_variant, without


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


@pytest.mark.parametrize(
    ("variant", "wrong"),
    [
        ("envoy-concurrency-2", ["Deployment/proxy --concurreny"]),
        ("traefik-idle-conns", ["Deployment/proxy --serverstransport.maxidleconnsperhot=2000"]),
        ("traefik-gogc-400", ["Deployment/proxy GOC"]),
        ("caddy-idle-conns", ["ConfigMap/caddy transport.keep_alive.max_idle_conns_per_hot"]),
        ("envoy-access-log", ["ConfigMap/envoy http_connection_manager.access_lg"]),
        ("nginx-ngf-keepalive", ["UpstreamSettingsPolicy/backend connectios"]),
        (
            "envoy-gateway-circuit-breakers",
            [
                "BackendTrafficPolicy/proxy maxConnectios",
                "BackendTrafficPolicy/proxy maxParallelRequess",
                "BackendTrafficPolicy/proxy maxPendingRequess",
            ],
        ),
    ],
)
def test_every_name_that_a_knob_sets_is_misspelt_once_wherever_it_stands(variant: str, wrong: list[str]) -> None:
    found = load_variant(variant)
    below = {diff.label(obj): obj for obj in without(found, *found.own_knobs).manifests}
    made = [(found.manifests[number], other) for number, _, other in told_apart(found.manifests, below)]
    assert sorted(f"{diff.label(obj)} {word}" for obj, other in made for word in _words(other) - _words(obj)) == wrong


def _words(value: Any) -> set[str]:
    """Every key and every text."""
    if isinstance(value, dict):
        return set(value) | {word for item in value.values() for word in _words(item)}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return {word for item in value for word in _words(item)}  # pyright: ignore[reportUnknownVariableType]
    return {value} if isinstance(value, str) else set()


def test_an_option_is_misspelt_into_one_that_no_program_has() -> None:
    """Of letters that are an option each, one left out may be another that does: `sh -ec` and `sh -c`."""
    pod = {"containers": [{"name": "proxy", "command": ["sh", "-ec", "x"], "args": ["--https-port=1"]}]}
    obj = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "proxy"}, "spec": pod}
    (first, second) = (wrong["spec"]["containers"][0] for _, wrong in misspellings(obj, {}))
    assert (first["command"], second["args"]) == (["sh", "-Zec", "x"], ["--https-pot=1"])
