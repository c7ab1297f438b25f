"""Read-backs of what a pod's network really does: the ports it uses, the CPUs its packets go to, the node's settings."""

from __future__ import annotations

import pytest

from lab.model.endpoint import Endpoint
from lab.targets.readback.network import parse_outgoing_ports
from lab.tests.targets.readback.answers import MISSING, Answers, observed

SS = """\
LISTEN    0 4096 0.0.0.0:80         0.0.0.0:*
LISTEN    0 511  [::]:10254         [::]:*
ESTAB     0 0    10.64.0.4:80       10.64.0.2:40001
ESTAB     0 0    10.64.0.4:40012    10.64.0.3:8080
TIME-WAIT 0 0    10.64.0.4:40199    10.64.0.3:8080
ESTAB     0 0    127.0.0.1:1025     127.0.0.1:9000
"""


def test_every_outgoing_connection_must_be_inside_the_range() -> None:
    for text, value, ok, found, detail in (
        (SS, "40000 40199", True, "40000 40199", ""),
        (SS, "40012 40198", False, "40012 to 40199", "outside 40012 to 40198: 40199"),
        (SS, "50000 60000", False, "40012 to 40199", "outside 50000 to 60000: 40012, 40199"),
        (SS.replace("4.4", "4.x"), "40000", False, "unreadable", "expected two ports as in '1024 65000', got '40000'"),
        ("", "1024 65000", False, "unreadable", "no outgoing connection seen in 5 tries"),
    ):
        assert observed(Answers({"ss": text}), kind="ports", value=value) == (ok, found, detail)
    assert parse_outgoing_ports(SS) == {40012, 40199}
    assert parse_outgoing_ports("") == parse_outgoing_ports("garbage\n") == set()


def test_every_queue_must_have_the_cpus() -> None:
    for text, value, ok, found in (
        ("own 1\nonline 0-1\nqueue 1\nqueue 00000001\n", "own", True, "own"),
        ("own 1\nonline 0-1\nqueue 1\nqueue 0\n", "own", False, "0, none"),
        ("own 3\nonline 0-1\nqueue 1\n", "own", False, "0"),
        ("own ff\nonline 0-1\nqueue 3\n", "own", True, "own"),  # offline ones are allowed, and not kept
        ("own 1\nonline 0-4\nqueue 11\n", "0,4", True, "0,4"),
        ("own 1\nonline 0-1\n", "own", False, "unreadable"),
        ("online 0-1\nqueue 1\n", "own", False, "unreadable"),
    ):
        assert observed(Answers({"sh": text}), kind="rps", value=value)[:2] == (ok, found)


@pytest.mark.parametrize(
    ("entry", "ok", "found", "detail"),
    [
        (Endpoint("http://192.0.2.7:80", "h"), True, "pod", ""),
        (Endpoint("http://10.96.0.9:80", "h"), False, "10.96.0.9", "expected 'pod', found '10.96.0.9'"),
        (Endpoint("http://192.0.2.70:80", "h"), False, "192.0.2.70", "expected 'pod', found '192.0.2.70'"),
        (Endpoint("https://h:443", "h", tls="edge"), False, "unreadable", "load is sent to h by its name, which TLS needs"),
    ],
)  # fmt: skip
def test_whose_address_load_is_sent_to_is_told_by_the_address(
    monkeypatch: pytest.MonkeyPatch, entry: Endpoint, ok: bool, found: str, detail: str
) -> None:
    answers = Answers({})
    monkeypatch.setattr(answers, "entry", lambda: entry)
    assert observed(answers, kind="entry", value="pod") == (ok, found, detail)


def test_a_nodes_setting_is_compared_word_by_word() -> None:
    for text, ok, found, detail in (
        ("1\t2\t3\n", True, "1 2 3", ""),
        ("1 2 4\n", False, "1 2 4", "expected '1 2 3', found '1 2 4'"),
        (None, False, "unreadable", f"net.ipv4.tcp_mem: sh: {MISSING}"),
        ("\n", False, "unreadable", "net.ipv4.tcp_mem: the node says nothing"),
    ):
        asked = {"kind": "node", "name": "net.ipv4.tcp_mem", "value": "1  2 3"}
        assert observed(Answers({"sh": text}), **asked) == (ok, found, detail)
