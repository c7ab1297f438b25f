"""Read-back against a system that answers from a table: right, wrong, garbled and silent."""

from __future__ import annotations

from typing import Any

import pytest

from lab.model.variants.variants import Check
from lab.systems.nginx.readback import list_directives, split_dump
from lab.systems.reading import ABSENT
from lab.targets.readback import read_back
from lab.tests.targets.readback.answers import Answers, observed

PROCESSES = "1\tnginx: master process nginx -c /tmp/nginx.conf\n7\tnginx: worker process\n8\tnginx: worker process\n9\tsh -c x\n"
LIMITS = "Limit                     Soft Limit           Hard Limit           Units\nMax open files            1024                 4096                 files\n"
STAT = "cpu 1 2\nbtime 1000000000\n7 (nginx) S " + "0 " * 18 + "500 0\n8 (nginx: a) b) S " + "0 " * 18 + "600 0\n"
CONFIG = """nginx: the configuration file /tmp/nginx.conf syntax is ok
# configuration file /tmp/nginx.conf:
worker_processes 2;
worker_rlimit_nofile 1024;
http { include conf.d/*.conf; keepalive_requests 10; upstream a { keepalive_requests 20; } }
# configuration file /tmp/conf.d/one.conf:
gzip on;
server { listen 80; location / { gzip on; keepalive_requests 10; return 200 "# configuration file"; } }
"""
SS = "LISTEN 0 4096 0.0.0.0:80 0.0.0.0:*\nLISTEN 0 4096 [::]:80 [::]:*\nLISTEN 0 511 127.0.0.1:8080 0.0.0.0:*\n"


GOOD = {
    "sh": PROCESSES,
    "ss": SS,
    "nginx": CONFIG,
    "stat": "1000000004\n",
    "/proc/7/limits": LIMITS,
    "/proc/8/limits": LIMITS,
    "cat /proc/stat": STAT,
    "/proc/sys/net/ipv4/ip_local_port_range": "32768\t60999\n",
}


def test_what_is_set_reads_back() -> None:
    for check in (
        {"kind": "nginx", "name": "keepalive_requests", "context": "http", "value": "10"},
        {"kind": "nginx", "name": "keepalive_requests", "context": "http/upstream", "value": "20"},
        {"kind": "nginx", "name": "keepalive_requests", "context": "http/server/location", "value": "10"},
        {"kind": "nginx", "name": "gzip", "value": "on"},
        {"kind": "nginx", "name": "gzip", "context": "http/server/location[/]", "value": "on", "times": 1},
        {"kind": "nginx", "name": "gzip", "context": "http/server", "value": "on", "times": 0},
        {"kind": "nginx", "name": "keepalive_requests", "context": "http/upstream[a]", "value": "20"},
        {"kind": "nginx", "name": "brotli", "value": ABSENT},
        {"kind": "nginx", "name": "worker_processes", "value": "2"},
        {"kind": "nginx", "name": "worker_rlimit_nofile", "value": "1024"},
        {"kind": "sysctl", "name": "net.ipv4.ip_local_port_range", "value": "32768 60999"},
        {"kind": "backlog", "port": 80, "value": "4096"},
        {"kind": "limit", "name": "Max open files", "process": "nginx: worker", "value": "1024"},
        {"kind": "processes", "process": "nginx: worker", "value": "2"},
        {"kind": "processes", "process": "haproxy", "value": "0"},
    ):
        ok, _, detail = observed(Answers(GOOD), **check)
        assert ok and detail == ""


@pytest.mark.parametrize(
    ("changed", "check", "detail"),
    [
        ({}, {"kind": "nginx", "name": "gzip", "value": "off"}, "expected 'off', found 'on'"),
        ({}, {"kind": "nginx", "name": "keepalive_requests", "value": "10"}, "the check needs a context"),
        ({}, {"kind": "nginx", "name": "gzip", "context": "http/server/location[/]", "value": "on", "times": 2}, "expected 'on' 2 times, found it 1 times"),
        ({}, {"kind": "nginx", "name": "gzip", "context": "http/server/location[/x]", "value": "on", "times": 1}, "found it 0 times"),
        ({}, {"kind": "nginx", "name": "gzip", "context": "http/server/location", "value": "off", "times": 1}, "found it 0 times"),
        ({}, {"kind": "nginx", "name": "gzip", "context": "http/upstream", "value": "on"}, "found 'absent'"),
        ({"nginx": "nginx: [emerg] bad"}, {"kind": "nginx", "name": "gzip", "value": "on"}, "printed no configuration"),
        ({"nginx": "# configuration file /x:\nhttp {"}, {"kind": "nginx", "name": "gzip", "value": "on"}, "cannot be parsed"),
        ({"nginx": None}, {"kind": "nginx", "name": "gzip", "value": "on"}, "exited 1: nginx: No such file"),
        ({"sh": "1\tsleep 1\n"}, {"kind": "nginx", "name": "gzip", "value": "on"}, "found 0 and 0 workers"),
        ({"sh": PROCESSES * 2}, {"kind": "nginx", "name": "gzip", "value": "on"}, "found 2"),
        ({"stat": "1000000010"}, {"kind": "nginx", "name": "gzip", "value": "on"}, "after the workers had started"),
        ({"stat": "today"}, {"kind": "nginx", "name": "gzip", "value": "on"}, "invalid literal"),
        ({"cat /proc/stat": "btime"}, {"kind": "nginx", "name": "gzip", "value": "on"}, ""),
        ({"sh": PROCESSES.replace("8\tnginx: worker process\n", "")}, {"kind": "nginx", "name": "worker_processes", "value": "2"}, "asked for 2 workers, 1 run"),
        ({"/proc/8/limits": LIMITS.replace("1024", "99  ")}, {"kind": "nginx", "name": "worker_rlimit_nofile", "value": "1024"}, "the workers have 1024, 99: the hard limit is lower"),
        ({"/proc/sys/net/x": None}, {"kind": "sysctl", "name": "net.x", "value": "1"}, "cat /proc/sys/net/x: exited 1"),
        ({"ss": SS.replace("0 4096 [", "0 128 [")}, {"kind": "backlog", "port": 80, "value": "4096"}, "found '4096, 128'"),
        ({}, {"kind": "backlog", "port": 443, "value": "4096"}, "nothing listens on port 443"),
        ({"ss": "garbage\n\n"}, {"kind": "backlog", "port": 80, "value": "1"}, "nothing listens"),
        ({"/proc/7/limits": "?"}, {"kind": "limit", "name": "Max open files", "process": "nginx: worker", "value": "1"}, "has no row"),
        ({}, {"kind": "limit", "name": "Max open files", "process": "haproxy", "value": "1"}, "no process is called 'haproxy'"),
        ({}, {"kind": "processes", "process": "nginx: worker", "value": "3"}, "expected '3', found '2'"),
    ],
)  # fmt: skip
def test_what_is_not_set_is_not_ok(changed: dict[str, str | None], check: dict[str, Any], detail: str) -> None:
    ok, _, said = observed(Answers({**GOOD, **changed}), **check)
    assert not ok and detail in said


def test_what_is_asked_for_is_the_masters_own_file_and_a_refused_reload_is_seen() -> None:
    log = '2026/11/21 [emerg] 1#1: unknown directive "x"\n'
    ok, _, detail = observed(Answers(GOOD, log=log), kind="nginx", name="gzip", value="on")
    assert not ok and detail.startswith("nginx logged: ")
    system: Any = Answers({**GOOD, "sh": PROCESSES.replace("-c /tmp", "-p /srv -c /tmp")})
    read_back(system, [Check(kind="nginx", name="gzip", value="on")])
    assert ["nginx", "-p", "/srv", "-c", "/tmp/nginx.conf", "-T"] in system.asked


def test_every_check_gets_its_reading_in_order_and_as_json() -> None:
    checks = [Check(kind="backlog", port=81, value="1"), Check(kind="processes", process="sh", value="1")]
    system: Any = Answers(GOOD)
    readings = read_back(system, checks)
    assert [reading.check for reading in readings] == checks and [reading.ok for reading in readings] == [False, True]
    asked = {"kind": "processes", "role": "proxy", "process": "sh", "value": "1"}
    assert readings[1].as_json() == {**asked, "observed": "1", "ok": True, "detail": ""}
    assert str(readings[0]) == "proxy backlog port 81: asked for 1, found unreadable (nothing listens on port 81)"


def test_includes_are_followed_where_they_stand() -> None:
    found = [(each.context, each.name) for each in list_directives(split_dump(CONFIG))]
    assert found.index(("http", "gzip")) < found.index(("http", "keepalive_requests"))
    assert ("http/server", "listen") in found
