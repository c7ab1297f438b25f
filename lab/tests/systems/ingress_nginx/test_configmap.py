"""The names of the ConfigMap's keys, and what the controller makes of a value, held against what its own decoder answered.

testdata/controller-decoded.jsonl: [key, text, what `ReadConfig` of controller-v1.15.1, built and run, held for it]; lists joined by commas.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.systems.ingress_nginx.configmap import KEYS, decoded, items, look_up
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
        ("keep-alive-timeout", "keep-alive is meant"),
        ("keepAlive", "keep-alive is meant"),
        ("useGzip", "use-gzip is meant"),
        ("controller.config.keep-alive", "keep-alive is meant"),
        ("nginx.ingress.kubernetes.io/proxy-body-size", "proxy-body-size is meant"),
        ("nginx.ingress.kubernetes.io/configuration-snippet", "its key is location-snippet"),
        ("nginx.ingress.kubernetes.io/limit-rps", "an annotation, which has no key"),
        ("limit-rps", "an annotation, which has no key"),
        ("nginx.ingress.kubernetes.io/not-in-the-table", "an annotation, which has no key"),
        ("nginx.ingress.kubernetes.io/allowlist-source-range", "an annotation; its key is whitelist-source-range"),
        ("http-snippets", "here http-snippet"),
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


ANSWERED = [
    json.loads(line) for line in (Path(__file__).parent / "testdata/controller-decoded.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize(("name", "text", "held"), ANSWERED)
def test_a_value_is_decoded_as_by_the_controller(name: str, text: str, held: str) -> None:
    key, found = look_up(name, text)
    assert (",".join(items(found.value)) if key.kind == "list" else found.value) == held


def test_what_keeps_the_default_is_told_as_that() -> None:
    """So is what becomes another number, or leaves a directive out, as a size does that the controller does not write."""
    assert decoded("int", "75s", "60").told == "'75s' is not a whole number: the controller logs that and keeps '60'"
    assert decoded("bool", "yes", "true").kept
    assert decoded("int", "0o74", "60").told == "'0o74' is read as 60"
    assert decoded("int", "-1", "60").told and decoded("int", "", "60").told and not decoded("int", "60", "60").told
    assert decoded("codes", "404,abc", "").told.endswith("codes from 300 to 599")
    for text, value in (("10g", "10g"), (" 5m ", " 5m "), ("10 GB", ""), ("", "")):
        found = decoded("offset", text, "1m")
        assert found.value == value and bool(found.told) == (value != text)


def test_digits_without_end_are_no_number() -> None:
    """More of them than Python reads at once, and than any number has that the controller can hold."""
    for kind, kept in (("int", "75"), ("redirect", "75"), ("codes", "")):
        found = decoded(kind, "9" * 5000, "75")
        assert found.value == kept and len(found.told) < 200
    assert decoded("int", "0" * 5000 + "7", "75").value == "7"
    assert decoded("redirect", "0" * 5000 + "301", "308").value == "301"
    assert decoded("codes", "0" * 5000 + "404,-404", "").value == "404"


def test_every_key_has_a_default_of_its_own_kind() -> None:
    """An empty one stands for none."""
    assert all(not decoded(key.kind, key.default, "?").kept for key in KEYS.values())
    assert len(KEYS) == 197
