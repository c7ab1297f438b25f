"""The table of names that are no keys of ingress-nginx's ConfigMap."""

from __future__ import annotations

import pytest

from lab.systems.ingress_nginx.configmap import KEYS
from lab.systems.ingress_nginx.counterparts import F5, counterparts, f5_text, hint, is_f5


def test_every_line_leads_to_a_key_that_there_is() -> None:
    """Nothing but F5's own names is a key itself, and no name stands twice in one dialect."""
    assert {key for row in counterparts() for key in row.keys} <= KEYS.keys()
    assert not [row.name for row in counterparts() if row.dialect != F5 and row.name in KEYS]
    named = [(row.dialect, row.name) for row in counterparts()]
    assert len(named) == len(set(named))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("keepalive-timeout", "nginx's keepalive_timeout is keep-alive here"),
        ("keepalive_timeout", "nginx's keepalive_timeout is keep-alive here"),
        ("client-max-body-size", "is proxy-body-size here"),
        ("real-ip-header", "is forwarded-for-header here"),
        ("keep-alive-timeout", "keep-alive is meant"),
        ("keepAlive", "keep-alive is meant"),
        ("useGzip", "use-gzip is meant"),
        ("controller.config.keep-alive", "keep-alive is meant"),
        ("Use-Gzip", "use-gzip is meant"),
        ("nginx.ingress.kubernetes.io/proxy-body-size", "proxy-body-size is meant"),
        ("nginx.ingress.kubernetes.io/configuration-snippet", "its key is location-snippet"),
        ("nginx.ingress.kubernetes.io/limit-rps", "an annotation, which has no key"),
        ("limit-rps", "an annotation, which has no key"),
        ("limit-connections", "an annotation, which has no key"),
        ("session-cookie-name", "an annotation, which has no key"),
        ("nginx.ingress.kubernetes.io/not-in-the-table", "an annotation, which has no key"),
        ("nginx.ingress.kubernetes.io/proxy-ssl-secret", "an annotation, which has no key"),
        ("nginx.ingress.kubernetes.io/allowlist-source-range", "an annotation; its key is whitelist-source-range"),
        ("http-snippets", "here http-snippet"),
        ("jaeger-sampler-type", "now otlp-collector-host"),
        ("body-size", "now proxy-body-size"),
        ("keep-alive-request", "the nearest: keep-alive-requests, "),
    ],
)
def test_a_name_leads_to_the_key_that_does_it_or_to_the_nearest_three(name: str, told: str) -> None:
    assert told in hint(name)


def test_f5s_configmap_is_known_by_its_keys() -> None:
    """One key that only ingress-nginx has, and it is none of theirs; keys that both have say nothing."""
    theirs = ["worker-processes", "worker-connections", "log-format"]
    assert is_f5(theirs)
    assert not is_f5([*theirs, "keep-alive"]) and not is_f5(["worker-processes", "ssl-protocols"])
    assert f5_text("log-format-escaping") == "log-format-escaping → log-format-escape-json and log-format-escape-none"


def test_a_key_that_holds_nginxs_own_configuration_leads_to_the_keys_of_its_directives() -> None:
    """And one that holds anything else to those of its name."""
    told = hint("nginx.conf", "worker_processes auto;\nevents {}\nhttp { keepalive_timeout 300s; }\n")
    assert told.endswith("keys that set it: worker_processes → worker-processes; keepalive_timeout → keep-alive")
    for text in ("", "a: b;", "controller:\n  config: {keep-alive: '1'}", "no directive", "# only; a comment;"):
        assert "the nearest" in hint("nginx.conf", text), text
