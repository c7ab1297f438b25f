"""A directive that stands in the configuration and does nothing to a request is not in effect."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from lab.model.endpoint import Endpoint, Response
from lab.model.variants.variants import Check
from lab.systems.nginx.readback import find_effect_fault as fault_of
from lab.systems.reading import UnreadableError

LOG = "/var/log/lab/access.log"
SECOND = "the second request for /8kB.txt has the cache status"
LONGER = "one request made {} longer, though its log is"


class System:
    """Answers requests with these headers, one after the other; each makes the files in `logs` 100 bytes longer."""

    def __init__(self, *headers: Mapping[str, str], logs: Sequence[str] = (), kind: str = "regular file") -> None:
        self.headers, self.logs, self.kind, self.status = [*headers], logs, kind, 200
        self.requests = 0

    def entry(self) -> Endpoint:
        return Endpoint("http://proxy", "h")

    def fetch(
        self, endpoint: Endpoint, path: str, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> Response:
        self.requests += 1
        return Response(self.status, b"", self.headers.pop(0) if self.headers else {})

    def exec(self, role: str, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        size = 100 * self.requests if argv[-1] in self.logs else 0
        return subprocess.CompletedProcess(list(argv), 0, f"{self.kind}:{size}\n", "")


def fault(directive: str, arguments: str, system: Any) -> str:
    return fault_of(system, Check(kind="nginx", name=directive, value="x"), arguments)


@pytest.mark.parametrize(
    ("directive", "arguments", "system", "said"),
    [
        ("gzip", "on", System({"content-encoding": "gzip"}), ""),
        ("gzip", "off", System({}), ""),
        ("gzip", "on", System({}), "/8kB.txt came with encoding identity, expected gzip"),
        ("gzip", "off", System({"content-encoding": "gzip"}), "/8kB.txt came with encoding gzip, expected identity"),
        ("proxy_cache", "lab", System({"x-cache-status": "MISS"}, {"x-cache-status": "HIT"}), ""),
        ("proxy_cache", "off", System(), ""),
        ("proxy_cache", "lab", System({}, {"x-cache-status": "MISS"}), f"{SECOND} MISS, expected HIT"),
        ("proxy_cache", "lab", System(), f"{SECOND} none, expected HIT"),
        ("access_log", f"{LOG} main", System(logs=[LOG]), ""),
        ("access_log 1", "/var/log/nginx/access.log main", System(logs=["/proc/1/fd/1"]), ""),
        ("access_log", f"{LOG} main buffer=8k", System(), ""),
        ("access_log", "off", System(), ""),
        ("access_log", "syslog:server=10.64.0.1", System(), ""),
        ("access_log", f"{LOG} main", System(kind="fifo"), ""),  # nothing can be seen
        ("access_log 1", f"{LOG} main", System(), f"a request left {LOG} as long as it was"),
        ("access_log buffer", f"{LOG} main buffer=8k", System(logs=[LOG]), f"{LONGER.format(LOG)} buffered"),
        ("access_log", "off", System(logs=["/proc/1/fd/1"]), f"{LONGER.format('/proc/1/fd/1')} off"),
        ("worker_connections", "1", System(), ""),
    ],
)
def test_what_speaks_against_a_directive_is_said(directive: str, arguments: str, system: System, said: str) -> None:
    assert fault(directive, arguments, system) == said


def test_an_output_that_the_kernel_hides_is_not_looked_at_and_an_answer_that_is_none_is_no_evidence() -> None:
    """As of the official controller, whose programs have file capabilities; any other file must be readable."""

    class Hidden(System):
        def exec(self, role: str, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
            return subprocess.CompletedProcess(list(argv), 1, "", f"stat: cannot statx '{argv[-1]}': Permission denied")

    assert fault("access_log", "off", Hidden()) == ""
    with pytest.raises(UnreadableError, match="Permission denied"):
        fault("access_log", f"{LOG} main", Hidden())
    system = System()
    system.status = 503
    with pytest.raises(UnreadableError, match="status 503"):
        fault("gzip", "on", system)
