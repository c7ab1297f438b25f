"""What each key of a ConfigMap must be found as in the proxy that runs."""

from __future__ import annotations

from lab.systems.ingress_nginx import keys


def test_the_controllers_own_locations_may_have_other_values() -> None:
    """It is told of backends through one that takes bodies of 21M whatever the file says."""
    kept, limit = sorted(
        keys.checks({}, {"keep-alive": "33", "proxy-body-size": "10m"}), key=lambda check: check.among is True
    )
    assert (limit.name, limit.value, limit.among) == ("client_max_body_size", "10m", True)
    assert (kept.name, kept.among) == ("keepalive_timeout", None)
