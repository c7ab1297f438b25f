"""Large transfers, measured: a window limits them over a delayed link and only there, and a proxy's setting lifts the limit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from lab.model.metrics import throughput
from lab.tests.support.short_bench import measure_valid

WINDOW_BYTES, ROUND_TRIP_S = 2**16, 0.02


def list_throughputs(folder: Path, *words: str) -> Mapping[tuple[str, str], float]:
    """(arm, load point) → bytes per second of its last sample that counts, of a bench of one block.

    That one counts shows that the delay was within 1 ms of 20 ms: else nothing would have been loaded.
    """
    speeds = {(sample.arm, sample.point.name): throughput(sample) for sample in measure_valid(folder, *words)}
    return {key: speed for key, speed in speeds.items() if speed is not None}


@pytest.mark.measures
@pytest.mark.ends_within(300)
def test_a_clients_window_limits_a_download_over_a_delayed_link(tmp_path: Path) -> None:
    points = ("--points", "h2-20ms,h2-64kb-20ms")
    words = ("envoy+gateway-tls", "--against", "haproxy+gateway-tls", "--sweep", "http2-download", *points)
    speeds = list_throughputs(tmp_path, *words)
    limited, free = (speeds["envoy+gateway-tls", name] for name in ("h2-64kb-20ms", "h2-20ms"))
    assert 0.5 * WINDOW_BYTES / ROUND_TRIP_S < limited < 1.02 * WINDOW_BYTES / ROUND_TRIP_S
    assert free > 5 * limited


@pytest.mark.long
@pytest.mark.ends_within(900)
@pytest.mark.parametrize(
    ("faster", "slower", "sweep"),
    [
        ("haproxy+gateway-tls++haproxy-h2-window-1m", "haproxy+gateway-tls", "http2-upload-quick"),
        ("envoy+gateway-tls", "envoy+gateway-tls++envoy-h2-window-64k", "http2-upload-quick"),
        (
            "tls+proxy-request-buffering-off++http2-body-preread-size-1m",
            "tls+proxy-request-buffering-off",
            "http2-upload-1mb",
        ),
    ],
)
def test_a_proxys_window_limits_an_upload_by_http2_alone(faster: str, slower: str, sweep: str, tmp_path: Path) -> None:
    measured = faster if "++" in faster else slower
    speeds = list_throughputs(tmp_path, measured, "--sweep", sweep, "--points", "h1-20ms,h2-20ms")
    assert speeds[slower, "h2-20ms"] < 1.02 * WINDOW_BYTES / ROUND_TRIP_S
    assert speeds[faster, "h2-20ms"] > 5 * speeds[slower, "h2-20ms"]
    assert speeds[slower, "h1-20ms"] > 5 * speeds[slower, "h2-20ms"]
