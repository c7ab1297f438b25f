"""Check kinds `traefik`, on what Traefik 3.7 answered (testdata, verbatim but for most metrics), and `argument`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lab.model.variants.variants import Check
from lab.systems.traefik import admin as traefik
from lab.targets.readback import read_back

ANSWERS = json.loads((Path(__file__).parent / "testdata" / "traefik-3.7-answers.json").read_text())
CMDLINE = "/srv/proxy/traefik\0--a.b=1\0--concurrency\x002\0--a.b=2\0--a.bc=3\0"


class Traefik:
    def ask(self, role: str, port: int, path: str) -> str:
        assert (role, port) == ("proxy", 8080)
        return ANSWERS[path]

    def exec(self, role: str, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        assert list(argv) == ["cat", "/proc/1/cmdline"]
        return subprocess.CompletedProcess(list(argv), 0, CMDLINE, "")


def observed(kind: str, name: str, value: str) -> tuple[bool, str, str]:
    system: Any = Traefik()
    check: Any = {"kind": kind, "name": name, "value": value}
    (reading,) = read_back(system, [Check(**check)])
    return reading.ok, reading.observed, reading.detail


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("traefik", "version", "3.7.15"),
        ("traefik", "metrics.go_gc_gogc_percent", "100"),
        ("traefik", "metrics.nonsense", "absent"),
        ("traefik", "overview.features.accessLog", "false"),
        ("traefik", "entrypoint.http2.maxConcurrentStreams", "250"),
        ("traefik", "entrypoint.transport.respondingTimeouts.readTimeout", "1m0s"),
        ("traefik", "service.loadBalancer.serversTransport", "lab@file"),
        ("traefik", "router.service", "backend-8080"),
        ("argument", "--a.b", "2"),
        ("argument", "--concurrency", "2"),
        ("argument", "--a", "absent"),
    ],
)
def test_what_it_runs_is_read_of_what_serves_the_load(kind: str, name: str, value: str) -> None:
    assert observed(kind, name, value) == (True, value, "")
    assert not observed(kind, name, f"{value}0")[0]


def test_a_part_that_it_has_not_is_unreadable() -> None:
    ok, found, said = observed("traefik", "middleware.x", "1")
    assert (ok, found) == (False, "unreadable") and "it has no 'middleware' of its provider" in said


def test_the_file_that_it_serves_and_its_workers() -> None:
    assert len(traefik.taken(ANSWERS["/api/rawdata"])) == 1
    assert (traefik.workers(ANSWERS["/metrics"]), traefik.workers("")) == (2, None)
