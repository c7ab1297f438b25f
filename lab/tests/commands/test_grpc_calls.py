"""gRPC calls, measured: without a proxy, and through proxies that pass them with their setting and not without it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from lab.model.samples import Reason, Sample
from lab.records.store import RunStore, run_names

ROOT = Path(__file__).parents[3]
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
BY_THE_MACHINE = {Reason.OTHER_PROCESSES, Reason.STEAL, Reason.GENERATOR_SATURATED, Reason.DROPPED, Reason.NOT_STEADY}
"""The reasons against a sample that a busy machine gives, and not the proxy."""


def measure(folder: Path, *words: str) -> Mapping[str, list[Sample]]:
    """Arm → its samples, of a bench of one block with a few calls."""
    (folder / "short.toml").write_text(SHORT)
    env = {**os.environ, "LAB_RUNS": str(folder / "runs"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "lab", "bench", *words, "--sweep", str(folder / "short.toml"), "--blocks", "1"],
        env=env, cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    (name,) = run_names(folder / "runs")
    by_arm: dict[str, list[Sample]] = {}
    for sample in RunStore.open(str(folder / "runs" / name)).samples():
        by_arm.setdefault(sample.arm, []).append(sample)
    assert by_arm, done.stdout + done.stderr
    return by_arm


def assert_answered(samples: list[Sample]) -> None:
    for sample in samples:
        assert sample.valid or sample.reason in BY_THE_MACHINE, sample.detail
        assert not sample.errors and (sample.requests or 0) > 10, sample.detail


@pytest.mark.measures
@pytest.mark.ends_within(180)
def test_calls_are_answered_without_a_proxy(tmp_path: Path) -> None:
    assert_answered(measure(tmp_path, "direct")["direct"])


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
    by_arm = measure(tmp_path, variant)
    assert_answered(by_arm[variant])
    assert {sample.valid for sample in by_arm[baseline]} == {False}
    assert all(sample.errors or "no call was answered" in sample.detail for sample in by_arm[baseline])
