"""WebSockets, measured: without a proxy, through proxies that pass them or do not, and through proxies that cut silent ones at their timeout."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from lab.tests.support.short_bench import measure_valid

SHORT = """
title = "a few WebSockets"
question = "?"
blocks = 1

[[points]]
name = "websockets"
generator = "k6-websocket"
connections = 10
every_s = 0.2
duration_s = 1
attempts = 2
"""
Outcome = Mapping[str, float | None]


def outcomes(folder: Path, *words: str) -> Mapping[str, Outcome]:
    """Arm → the outcome of its last sample that counts, of a bench of one block."""
    return {sample.arm: sample.outcome for sample in measure_valid(folder, *words)}


@pytest.mark.measures
@pytest.mark.ends_within(120)
def test_messages_come_back_without_a_proxy(tmp_path: Path) -> None:
    (tmp_path / "short.toml").write_text(SHORT)
    found = outcomes(tmp_path, "direct", "--sweep", str(tmp_path / "short.toml"))["direct"]
    assert (found["websockets"], found["cut"], found["not_opened"], found["lost_messages"]) == (10, 0, 0, 0)
    assert 0 < (found["round_trip_p50_s"] or 0) < 0.005


@pytest.mark.long
@pytest.mark.ends_within(900)
@pytest.mark.parametrize(
    ("variant", "baseline"), [("envoy+envoy-websocket", "envoy"), ("nginx-f5+nginx-f5-websocket", "nginx-f5")]
)
def test_a_proxy_that_passes_no_websocket_does_with_its_setting(variant: str, baseline: str, tmp_path: Path) -> None:
    found = outcomes(tmp_path, variant, "--sweep", "websocket-quick")
    assert found[baseline]["not_opened"] == found[baseline]["websockets"] == 50
    assert found[variant]["not_opened"] == found[variant]["cut"] == found[variant]["lost_messages"] == 0


@pytest.mark.long
@pytest.mark.ends_within(900)
@pytest.mark.parametrize(
    ("variant", "baseline", "after_s"),
    [
        ("ingress-nginx+proxy-read-timeout-2", "ingress-nginx", 2),
        ("haproxy+haproxy-timeout-tunnel-2s", "haproxy", 2),
        ("envoy-websocket+envoy-stream-idle-timeout-2s", "envoy+envoy-websocket", 3),
        ("caddy+caddy-stream-timeout-2s", "caddy", 2),
    ],
)
def test_a_silent_websocket_is_cut_after_the_timeout(variant: str, baseline: str, after_s: int, tmp_path: Path) -> None:
    """Envoy closes a connection a second after it has given a stream up (its delayed_close_timeout)."""
    found = outcomes(tmp_path, variant, "--sweep", "websocket-idle-quick")
    cut = found[variant]
    assert cut["cut"] == cut["websockets"] == 20
    assert cut["cut_idle_s"] == pytest.approx(after_s, abs=1)
    assert found[baseline]["cut"] == 0


@pytest.mark.long
@pytest.mark.ends_within(1800)
@pytest.mark.parametrize(
    ("variant", "baseline", "after_s"),
    [
        ("ingress-nginx+proxy-read-timeout-3600", "ingress-nginx", 60),
        ("haproxy+haproxy-timeout-tunnel-1h", "haproxy", 50),
    ],
)
def test_a_silent_websocket_lasts_as_long_as_its_proxys_timeout(
    variant: str, baseline: str, after_s: int, tmp_path: Path
) -> None:
    found = outcomes(tmp_path, variant, "--sweep", "websocket-idle")
    assert found[baseline]["cut"] == found[baseline]["websockets"] == 20
    assert found[baseline]["cut_idle_s"] == pytest.approx(after_s, abs=1)
    assert found[variant]["cut"] == 0
