"""Check kind `echo`: what the backend was told, addresses by whose they are."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lab.base.errors import UsageError
from lab.model.endpoint import Response
from lab.model.variants.variants import Check
from lab.targets.base import System
from lab.targets.readback import read_back


def read(
    body: str, value: str, status: int = 200, balancer: str | None = None, more: str | None = None
) -> tuple[bool, str]:
    asked: list[Any] = []

    def fetch(_entry: object, path: str, _timeout: float, headers: Mapping[str, str]) -> Response:
        asked.append((path, headers))
        return Response(status, body.encode(), {})

    def address(_role: str) -> str:
        if balancer is None:
            raise UsageError("role", "no such pod", "name another")
        return balancer

    system = SimpleNamespace(
        fetch=fetch, entry=lambda: None, pods=lambda _role: [{}] if balancer else [], pod_address=address
    )
    (reading,) = read_back(
        cast("System", system), [Check(kind="echo", name="X-Forwarded-For", value=value, context=more)]
    )
    assert asked[0][0] == "/echo/x-forwarded-for"
    assert asked[0][1]["X-Forwarded-For"] == "203.0.113.7, 198.51.100.4"
    if more:
        assert asked[0][1]["X-Client"] == "192.0.2.9"
    return reading.ok, reading.observed


@pytest.mark.parametrize(
    ("body", "value", "ok", "observed"),
    [
        ("203.0.113.7, 10.64.0.2", "203.0.113.7, client", True, "203.0.113.7, client"),
        ("10.64.0.2", "203.0.113.7", False, "client"),
        ("", "absent", True, "absent"),
        ("", "203.0.113.7", False, "absent"),
    ],
)
def test_addresses_are_told_by_whose_they_are(body: str, value: str, ok: bool, observed: str) -> None:
    assert read(body, value) == (ok, observed)


def test_the_load_balancers_is_told_apart_from_a_clients() -> None:
    assert read("10.64.0.4", "client", balancer="10.64.0.4") == (False, "balancer")
    assert read("10.64.0.2", "client", balancer="10.64.0.4") == (True, "client")


def test_further_headers_go_with_the_request_and_an_error_is_no_answer() -> None:
    assert read("192.0.2.9", "192.0.2.9", more="X-Client: 192.0.2.9") == (True, "192.0.2.9")
    assert read("", "absent", status=503) == (False, "unreadable")
