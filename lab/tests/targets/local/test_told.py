"""What a backend is told of a request that came by two proxies. Known answers; that nginx does so is test_arms_inside.py's to show."""

from __future__ import annotations

import pytest

from lab.targets.local.configmap import settings
from lab.targets.local.told import sent, told

HOPS = "203.0.113.7, 198.51.100.4"
TRUST = {"use-forwarded-headers": "true"}
PROXIED = {"use-proxy-protocol": "true"}


def header(name: str, data: dict[str, str], behind: bool = False) -> str | None:
    return told(settings("ConfigMap", data), {}, behind).get(name)


@pytest.mark.parametrize(
    ("data", "behind", "value"),
    [
        ({}, False, "client"),
        ({}, True, "balancer"),
        (PROXIED, True, "client"),
        (TRUST, False, "203.0.113.7"),
        ({"enable-real-ip": "true"}, False, "203.0.113.7"),
        ({**TRUST, "proxy-real-ip-cidr": "10.0.0.0/8"}, False, "198.51.100.4"),
        ({**TRUST, "proxy-real-ip-cidr": "10.0.0.0/8,198.51.100.0/24"}, False, "203.0.113.7"),
        ({**TRUST, "proxy-real-ip-cidr": "192.0.2.0/24"}, False, "client"),
        ({**TRUST, "proxy-real-ip-cidr": "10.64.0.0/24"}, False, None),
        ({**TRUST, "compute-full-forwarded-for": "true"}, False, f"{HOPS}, client"),
        ({**TRUST, **PROXIED}, True, "203.0.113.7"),
        ({**TRUST, **PROXIED, "compute-full-forwarded-for": "true"}, True, f"{HOPS}, client"),
        ({**TRUST, "whitelist-source-range": "10.0.0.0/8"}, False, None),
    ],
)
def test_whose_request_it_is(data: dict[str, str], behind: bool, value: str | None) -> None:
    """None: it depends on the lab's address, or such a request may be refused."""
    assert header("X-Forwarded-For", data, behind) == value


def test_the_address_and_the_host_come_under_the_names_that_are_asked_for() -> None:
    values = settings("ConfigMap", {"forwarded-for-header": "X-Client", "forwarded-host-header": "X-Host"})
    assert sent(values).splitlines() == ["X-Client: 203.0.113.7", "X-Host: shop.example.test"]
    assert sent(settings("ConfigMap", {})) == ""


def test_what_a_variable_makes_of_a_header_is_not_foretold() -> None:
    found = told(settings("ConfigMap", {}), {"X-A": "t=${msec}", "X-B": "b", "X C": "no name"}, False)
    assert found["X-B"] == "b" and not {"X-A", "X C"} & found.keys()
