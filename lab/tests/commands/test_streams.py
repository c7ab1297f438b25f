"""Streams of events, measured: known delays without a proxy, a proxy that holds events back, and proxies that cut silent streams at their timeout."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from lab.records.sweep_files import load_sweep
from lab.tests.support.short_bench import measure_valid

pytestmark = pytest.mark.ends_within(900)
EXACT_S = 0.001
Outcomes = Mapping[tuple[str, str], Mapping[str, float | None]]


def outcomes(folder: Path, *words: str) -> Outcomes:
    """(arm, point) → the outcome of the last sample that counts, of a bench of one block."""
    return {(sample.arm, sample.point.name): sample.outcome for sample in measure_valid(folder, *words)}


@pytest.mark.long
def test_known_delays_are_seen_without_a_proxy_and_the_sweeps_streams_are_held(tmp_path: Path) -> None:
    """200 streams, as many as the sweep `events` has, add less than 1 ms at p99."""
    found = outcomes(tmp_path, "direct", "--sweep", "streams-known")
    for known_ms in (5, 20, 100):
        late_s = found["direct", f"held-{known_ms}ms"]["delay_p50_s"]
        assert late_s == pytest.approx(known_ms / 1e3, abs=EXACT_S)
    (point,) = load_sweep("events")[1].load_points
    high_s = found["direct", f"at-once-c{point.connections}"]["delay_p99_s"]
    assert high_s is not None and high_s < EXACT_S


@pytest.mark.measures
def test_nginx_that_buffers_an_answer_of_http_1_0_holds_events_back_until_it_ends(tmp_path: Path) -> None:
    held, free = "proxy-buffering-on+proxy-http-version-1.0", "ingress-nginx+proxy-buffering-on"
    found = outcomes(tmp_path, held, "--sweep", "events-quick")
    assert (found[held, "streams"]["first_event_s"] or 0) > 1.5  # of streams of 2 s
    assert (found[held, "streams"]["coalesced_share"] or 0) > 0.9
    assert (found[free, "streams"]["first_event_s"] or 9) < 0.05
    assert found[free, "streams"]["coalesced_share"] == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("variant", "baseline", "after_s"),
    [
        ("ingress-nginx+proxy-read-timeout-2", "ingress-nginx", 2),
        ("haproxy+haproxy-timeout-server-2s", "haproxy", 2),
        ("envoy+envoy-stream-idle-timeout-2s", "envoy", 3),
        ("caddy+caddy-read-timeout-2s", "caddy", 2),
    ],
)
def test_a_silent_stream_is_cut_after_the_timeout(variant: str, baseline: str, after_s: int, tmp_path: Path) -> None:
    """Envoy closes a connection a second after it has given a stream up (its delayed_close_timeout)."""
    found = outcomes(tmp_path, variant, "--sweep", "events-idle")
    cut = found[variant, "streams"]
    assert cut["cut"] == cut["streams"] == 20
    assert cut["cut_idle_s"] == pytest.approx(after_s, abs=1)
    assert found[baseline, "streams"]["cut"] == 0


@pytest.mark.long
def test_envoys_own_route_timeout_of_15_s_ends_streams_and_without_it_none_is_cut(tmp_path: Path) -> None:
    found = outcomes(tmp_path, "envoy-route-timeout-off", "--sweep", "events-long")
    own = found["envoy", "streams"]
    assert own["cut"] == own["streams"] == 50
    assert own["cut_s"] == pytest.approx(15, abs=1)
    assert found["envoy+envoy-route-timeout-off", "streams"]["cut"] == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("variant", "baseline"),
    [
        ("tls+http2-max-concurrent-streams-8", "tls"),
        ("envoy+gateway-tls++envoy-h2-streams-8", "envoy+gateway-tls"),
        ("haproxy+gateway-tls++haproxy-h2-streams-8", "haproxy+gateway-tls"),
    ],
)
def test_streams_beyond_a_proxys_number_for_a_connection_wait_until_others_end(
    variant: str, baseline: str, tmp_path: Path
) -> None:
    """Of 20 on each connection, each of 4 s, 8 are opened at once, 8 more when these have ended, and then the last 4."""
    found = outcomes(tmp_path, variant, "--sweep", "events-h2")
    limited, free = found[variant, "streams"], found[baseline, "streams"]
    assert limited["first_event_s"] == pytest.approx(3.6, abs=0.5)
    assert limited["first_event_max_s"] == pytest.approx(7.2, abs=0.7)
    assert (free["first_event_max_s"] or 9) < 1
    assert [limited["cut"], limited["not_opened"]] == [0, 0]
