"""gRPC calls, measured: without a proxy, and through proxies that pass them with their setting and not without it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from lab.model.samples import Sample
from lab.tests.support.short_bench import BY_THE_MACHINE, measure

SHORT = """
title = "a few calls"
question = "?"
blocks = 1

[[points]]
name = "unary"
generator = "k6-grpc"
protocol = "h2"
connections = 5
rate_rps = 100
duration_s = 1
attempts = 1

[[points]]
name = "streams"
generator = "k6-grpc"
protocol = "h2"
connections = 2
rate_rps = 20
messages = 10
duration_s = 1
attempts = 1
"""


def measure_calls(folder: Path, variant: str) -> Mapping[str, list[Sample]]:
    """Arm → its samples, of a bench of one block with a few calls."""
    (folder / "short.toml").write_text(SHORT)
    by_arm: dict[str, list[Sample]] = {}
    for sample in measure(folder, variant, "--sweep", str(folder / "short.toml")):
        by_arm.setdefault(sample.arm, []).append(sample)
    return by_arm


def assert_answered(samples: list[Sample]) -> None:
    for sample in samples:
        assert sample.valid or sample.reason in BY_THE_MACHINE, sample.detail
        assert not sample.errors and (sample.requests or 0) > 10, sample.detail


@pytest.mark.measures
@pytest.mark.ends_within(180)
def test_calls_are_answered_without_a_proxy(tmp_path: Path) -> None:
    assert_answered(measure_calls(tmp_path, "direct")["direct"])


@pytest.mark.long
@pytest.mark.ends_within(900)
@pytest.mark.parametrize(
    ("variant", "baseline"),
    [
        ("envoy+envoy-grpc", "envoy"),
        ("haproxy+haproxy-grpc", "haproxy"),
        ("traefik+traefik-grpc", "traefik"),
        ("caddy+caddy-grpc", "caddy"),
        ("nginx-ngf+nginx-ngf-grpc", "nginx-ngf"),
        ("tls+ingress-nginx-grpc", "tls"),
        ("nginx-f5+ingress-tls+nginx-f5-grpc", "nginx-f5"),
    ],
)
def test_a_proxy_passes_calls_with_its_setting_alone(variant: str, baseline: str, tmp_path: Path) -> None:
    by_arm = measure_calls(tmp_path, variant)
    assert_answered(by_arm[variant])
    assert {sample.valid for sample in by_arm[baseline]} == {False}
    assert all(sample.errors or "no call was answered" in sample.detail for sample in by_arm[baseline])
