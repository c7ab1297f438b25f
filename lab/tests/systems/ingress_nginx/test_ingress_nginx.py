"""The ConfigMap's keys and what the controller makes of a value, the nginx.conf they become, and what of it is read back.

testdata/controller-decoded.jsonl: [key, text, what `ReadConfig` of controller-v1.15.1, built and run, held for it]; lists joined by commas.
`test_local_inside.py` shows that nginx takes what is written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from lab.base.errors import UsageError
from lab.systems.ingress_nginx import keys
from lab.systems.ingress_nginx import system as ingress_nginx
from lab.systems.ingress_nginx.configmap import KEYS, decode, decode_settings, look_up, split_list
from lab.systems.ingress_nginx.counterparts import F5, counterparts, explain_name, f5_text, is_f5
from lab.systems.ingress_nginx.system import render
from lab.systems.nginx.readback import list_directives
from lab.systems.system import Context
from lab.targets.apiserver.registry import parse_stamp
from lab.tests.support.contexts import context_of

DECODING = """\
W1125 14:54:37.843120      27 client_config.go:659] Neither --kubeconfig nor --master was specified.
W1125 14:54:38.035273      27 configmap.go:471] unexpected error merging defaults: 1 error(s) decoding:

* cannot parse 'keep-alive' as int: strconv.ParseInt: parsing "abc": invalid syntax
I1125 14:54:38.059000      27 store.go:440] "Found valid IngressClass"
W1125 14:54:38.063287      27 configmap.go:471] unexpected error merging defaults: 1 error(s) decoding:

* cannot parse 'keep-alive' as int: strconv.ParseInt: parsing "abc": invalid syntax
""".splitlines()
REFUSED = """\
E1125 14:58:59.123456      27 controller.go:205] Unexpected failure reloading the backend:

-------------------------------------------------------------------------------
Error: exit status 1
2026/11/25 14:58:59 [emerg] 43#43: unknown directive "bogus" in /tmp/nginx/nginx-cfg3073164251:247
nginx: [emerg] unknown directive "bogus" in /tmp/nginx/nginx-cfg3073164251:247
nginx: configuration file /tmp/nginx/nginx-cfg3073164251 test failed
""".splitlines()
PANIC = """\
I1125 14:59:20.000000      27 main.go:205] "Creating API client" host="https://10.64.0.1:6443"
panic: runtime error: index out of range [1] with length 1

goroutine 1 [running]:
""".splitlines()


def test_its_log_tells_reloads_and_what_it_refuses_once_in_its_own_words() -> None:
    (words,) = ingress_nginx.ignored(DECODING)
    assert words.startswith("unexpected error merging defaults") and "cannot parse 'keep-alive' as int" in words
    assert ingress_nginx.complaints(DECODING) == []
    assert ingress_nginx.complaints(REFUSED)[-1].startswith('[emerg] unknown directive "bogus"')
    assert ingress_nginx.ignored(REFUSED) == []
    assert ingress_nginx.complaints(PANIC) == ["panic: runtime error: index out of range [1] with length 1"]
    assert ingress_nginx.complaints([]) == ingress_nginx.ignored([""]) == []
    begins = (
        'I1125 14:26:41.366508      27 controller.go:193] "Configuration changes detected, backend reload required"'
    )
    ends = 'I1125 14:26:41.551980      27 controller.go:213] "Backend successfully reloaded"'
    lines = (begins, ends, '10.64.0.2 - - [25/Nov/2026] "GET /1kB.bin HTTP/1.1" 200')
    assert [ingress_nginx.CONTROLLER.event_of(line) for line in lines] == ["Reload", "Reloaded", None]
    began, ended = parse_stamp(begins), parse_stamp(ends)
    assert began is not None and ended is not None and abs(ended - began - 0.185472) < 1e-6
    assert parse_stamp("10.64.0.2 - -") is None


PLACE = "ConfigMap/ingress-nginx-controller"
OLD, NEW = (1, 22, 1), (1, 29, 7)


def config(
    data: Mapping[str, str], version: tuple[int, ...] = OLD, around: Context | None = None
) -> dict[str, list[str]]:
    """`context/directive` → its arguments, joined, for each time it stands there."""
    text = render(decode_settings(PLACE, data), around or context_of("baseline"), version)
    found: dict[str, list[str]] = {}
    for each in list_directives({"/x": text}):
        found.setdefault(f"{each.context}/{each.name}".lstrip("/"), []).append(" ".join(each.arguments))
    return found


def test_the_shipped_defaults_are_those_of_controller_1_15_1() -> None:
    """From NewDefault() in internal/ingress/controller/config/config.go."""
    found = config({})
    shipped = {
        "worker_processes": "1",
        "worker_rlimit_nofile": "18976",
        "events/worker_connections": "16384",
        "events/multi_accept": "on",
        "http/keepalive_timeout": "75s",
        "http/keepalive_requests": "1000",
        "http/upstream/keepalive": "320",
        "http/upstream/keepalive_requests": "10000",
        "http/upstream/keepalive_timeout": "60s",
        "http/upstream/keepalive_time": "1h",
        "http/upstream/server": "192.0.2.1:8080 max_fails=0",
        "http/access_log": "/var/log/nginx/access.log upstreaminfo if=$loggable",
        "http/server/location/proxy_buffering": "off",
    }
    assert {name: found[name] for name in shipped} == {name: [text] for name, text in shipped.items()}
    flags = "default_server reuseport backlog=4096"
    assert found["http/server/listen"][:2] == [f"80 {flags}", f"443 ssl http2 {flags}"] and "http/gzip" not in found


@pytest.mark.parametrize(
    ("data", "where", "expected"),
    [
        ({"keep-alive-requests": "10000"}, "http/keepalive_requests", ["10000"]),
        ({"upstream-keepalive-requests": "1000"}, "http/upstream/keepalive_requests", ["1000"]),
        ({"worker-processes": "8"}, "worker_processes", ["8"]),
        ({"max-worker-open-files": "65536"}, "worker_rlimit_nofile", ["65536"]),
        ({"max-worker-connections": "0", "max-worker-open-files": "4000"}, "events/worker_connections", ["3000"]),
        ({"worker-cpu-affinity": "auto"}, "worker_cpu_affinity", ["auto"]),
        ({"enable-multi-accept": "False"}, "events/multi_accept", ["off"]),
        ({"disable-access-log": "true"}, "http/access_log", ["off"]),
        ({"access-log-params": "buffer=8k flush=5s"}, "http/access_log", ["/var/log/nginx/access.log upstreaminfo buffer=8k flush=5s if=$loggable"]),
        ({"http-access-log-path": "/tmp/a.log"}, "http/access_log", ["/tmp/a.log upstreaminfo if=$loggable"]),
        ({"use-proxy-protocol": "true"}, "http/real_ip_header", ["proxy_protocol"]),
        ({"use-gzip": "true", "gzip-level": "5"}, "http/gzip_comp_level", ["5"]),
        ({"proxy-buffers-number": "8", "proxy-buffer-size": "16k"}, "http/server/location/proxy_buffers", ["8 16k"]),
        ({"retry-non-idempotent": "true"}, "http/server/location/proxy_next_upstream", ["error timeout non_idempotent"]),
        ({"proxy-redirect-from": "a", "proxy-redirect-to": "b"}, "http/server/location/proxy_redirect", ["a b"]),
        ({"log-format-upstream": 'it: "$status"'}, "http/log_format", ['upstreaminfo it: "$status"']),
        ({"keep-alive": "0x3C"}, "http/keepalive_timeout", ["60s"]),
        ({"proxy-body-size": "10g"}, "http/server/location/client_max_body_size", ["10g"]),
        ({"gzip-types": "a/b\nc/d\n", "use-gzip": "1"}, "http/gzip_types", ["a/b c/d"]),
        ({"http-snippet": "proxy_cache_path /tmp/c keys_zone=c:1m;"}, "http/proxy_cache_path", ["/tmp/c keys_zone=c:1m"]),
    ],
)  # fmt: skip
def test_a_key_becomes_its_directive(data: dict[str, str], where: str, expected: list[str]) -> None:
    assert config(data)[where] == expected


def test_nginxs_version_the_pods_limits_and_its_cpus_decide() -> None:
    """A backlog is its somaxconn and at least 511; open files leave 1024 to others and never fall below."""
    off = {"upstream-keepalive-connections": "0"}
    assert "http/upstream/keepalive" not in config(off, OLD) and config(off, NEW)["http/upstream/keepalive"] == ["0"]
    assert "http/upstream/keepalive_time" not in config(off, NEW)
    text = {
        on: render(decode_settings(PLACE, data), context_of("baseline"), OLD) for on, data in ((True, {}), (False, off))
    }
    assert "'' '';" in text[True] and "'' 'close';" in text[False]
    assert "http/server/http2" not in config({}, OLD)
    assert set(config({}, NEW)["http/server/http2"]) == {"on"}
    assert config({}, NEW)["http/server/listen"][1] == "443 ssl default_server reuseport backlog=4096"
    assert "http/server/http2" not in config({"use-http2": "false"}, NEW)
    for somaxconn, backlog in ((128, 511), (511, 511), (512, 512), (32768, 32768)):
        found = config({"reuse-port": "false"}, OLD, context_of("baseline", somaxconn=somaxconn))
        assert found["http/server/listen"][0] == f"80 default_server backlog={backlog}"
    assert config({}, OLD, context_of("baseline", open_files=1500))["worker_rlimit_nofile"] == ["1024"]
    assert config({}, OLD, context_of("baseline", cpus=4))["worker_processes"] == ["4"]


def routed(*changes: Mapping[str, str]) -> dict[str, list[str]]:
    """With the variant's route, once for each of these changes."""
    around = context_of("baseline")
    (route,) = around.objects.routes
    routes = tuple(replace(route, **change) for change in changes)
    return config({}, OLD, replace(around, objects=replace(around.objects, routes=routes)))


def test_routes_become_servers_and_whole_path_elements_with_tls_where_there_is_a_certificate() -> None:
    found = routed({"path": "/a"}, {"path": "/b", "path_type": "Exact"}, {"host": "*.wild.test"})
    paths = ["= /a", "/a/", "= /b"]
    assert [path for path in found["http/server/location"] if path in paths] == paths
    assert found["http/server/server_name"] == ["_", r"~^[^.]+\.wild\.test$", "bench.lab.test"]
    found = routed({"secret": "own"})
    assert found["http/server/ssl_certificate"] == ["/tmp/nginx/ssl/own.pem"]
    assert "443 ssl http2" in found["http/server/listen"]
    assert found["http/server/location/if/return"] == ["308 https://$redirect_host$redirect_uri"]
    assert "http/server/ssl_certificate" not in config({})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"keep-alive-request": "1"}, "ingress-nginx 1.15.1 has no such key, and would ignore it\n  did you mean 'keep-alive-requests'?"),
        ({"keepalive_requests": "1"}, "did you mean 'keep-alive-requests'?"),
        ({"keep-alive-requests": "many"}, "'many' is not a whole number: the controller logs that and keeps '1000'"),
        ({"keep-alive-requests": "75s"}, "keeps '1000'"),
        ({"use-gzip": "yes"}, "'yes' is not true or false: the controller logs that and keeps 'false'"),
        ({"enable-modsecurity": "true"}, "it needs a module of the controller's\n  use --target apiserver, or leave it at 'false'"),
        ({"load-balance": "ewma"}, "it is done by the controller's Lua"),
        ({"bind-address": "10.0.0.1"}, "it names addresses of nodes, which no pod here has\n  use --target apiserver"),
        ({"use-forwarded-headers": "true"}, "it needs the controller's own logic\n  use --target apiserver, or leave it at 'false'"),
    ],
)  # fmt: skip
def test_what_the_controller_would_ignore_is_refused(data: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        decode_settings(PLACE, data)
    assert str(raised.value).startswith(f"{PLACE}: data.{next(iter(data))}: ") and message in str(raised.value)


def test_all_that_is_refused_is_named_at_once_and_what_nginx_refuses_is_for_nginx_to_say() -> None:
    with pytest.raises(UsageError) as raised:
        decode_settings(PLACE, {"a": "1", "use-gzip": "yes", "load-balance": "ewma"})
    assert [name in str(raised.value) for name in ("data.a:", "data.use-gzip:", "data.load-balance:")] == [True] * 3
    assert config({"proxy-buffering": "true"})["http/server/location/proxy_buffering"] == ["true"]
    assert "http/server/location/client_max_body_size" not in config({"proxy-body-size": "10 GB"})
    assert decode_settings(
        PLACE, {"hsts": "true", "enable-brotli": "false", "disable-ipv6": "true"}
    ) == decode_settings(PLACE, {})


def test_the_controllers_own_locations_may_have_other_values() -> None:
    """It is told of backends through one that takes bodies of 21M whatever the file says."""
    found = keys.derive_checks({}, {"keep-alive": "33", "proxy-body-size": "10m"})
    kept, limit = sorted(found, key=lambda check: check.among is True)
    assert (limit.name, limit.value, limit.among) == ("client_max_body_size", "10m", True)
    assert (kept.name, kept.among) == ("keepalive_timeout", None)


def test_every_line_leads_to_a_key_that_there_is_with_a_default_of_its_own_kind() -> None:
    """Nothing but F5's own names is a key itself, and no name stands twice in one dialect."""
    assert {key for row in counterparts() for key in row.keys} <= KEYS.keys()
    assert not [row.name for row in counterparts() if row.dialect != F5 and row.name in KEYS]
    named = [(row.dialect, row.name) for row in counterparts()]
    assert len(named) == len(set(named))
    assert all(not decode(key.kind, key.default, "?").kept for key in KEYS.values())
    assert len(KEYS) == 197


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("keepalive-timeout", "you mean keep-alive"),
        ("keepalive_timeout", "you mean keep-alive"),
        ("keep-alive-timeout", "you mean keep-alive"),
        ("keepAlive", "you mean keep-alive"),
        ("useGzip", "you mean use-gzip"),
        ("controller.config.keep-alive", "you mean keep-alive"),
        ("nginx.ingress.kubernetes.io/proxy-body-size", "you mean proxy-body-size"),
        ("nginx.ingress.kubernetes.io/configuration-snippet", "its key is location-snippet"),
        ("nginx.ingress.kubernetes.io/limit-rps", "an annotation, which has no key"),
        ("limit-rps", "an annotation, which has no key"),
        ("nginx.ingress.kubernetes.io/not-in-the-table", "an annotation, which has no key"),
        ("nginx.ingress.kubernetes.io/allowlist-source-range", "an annotation; its key is whitelist-source-range"),
        ("http-snippets", "here http-snippet"),
        ("body-size", "now proxy-body-size"),
        ("keep-alive-request", "nearest: keep-alive-requests, "),
    ],
)
def test_a_name_leads_to_the_key_that_does_it_or_to_the_nearest_three(name: str, told: str) -> None:
    assert told in explain_name(name)


def test_f5s_configmap_and_nginxs_own_configuration_are_known_by_what_they_hold() -> None:
    """One key that only ingress-nginx has, and it is not F5's. A text that is no configuration of nginx says nothing."""
    theirs = ["worker-processes", "worker-connections", "log-format"]
    assert is_f5(theirs)
    assert not is_f5([*theirs, "keep-alive"]) and not is_f5(["worker-processes", "ssl-protocols"])
    assert f5_text("log-format-escaping") == "log-format-escaping → log-format-escape-json and log-format-escape-none"
    told = explain_name("nginx.conf", "worker_processes auto;\nevents {}\nhttp { keepalive_timeout 300s; }\n")
    assert told.endswith("keys that set it: worker_processes → worker-processes; keepalive_timeout → keep-alive")
    for text in ("", "a: b;", "controller:\n  config: {keep-alive: '1'}", "no directive", "# only; a comment;"):
        assert "nearest: " in explain_name("nginx.conf", text), text


ANSWERED = [
    json.loads(line) for line in (Path(__file__).parent / "testdata/controller-decoded.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize(("name", "text", "held"), ANSWERED)
def test_a_value_is_decoded_as_by_the_controller(name: str, text: str, held: str) -> None:
    key, found = look_up(name, text)
    assert (",".join(split_list(found.value)) if key.kind == "list" else found.value) == held


def test_what_keeps_the_default_is_told_as_that() -> None:
    """So is what becomes another number or leaves a directive out; more digits than Python reads at once are no number."""
    assert decode("int", "75s", "60").remark == "'75s' is not a whole number: the controller logs that and keeps '60'"
    assert decode("bool", "yes", "true").kept
    assert decode("int", "0o74", "60").remark == "'0o74' is read as 60"
    assert decode("int", "-1", "60").remark and decode("int", "", "60").remark and not decode("int", "60", "60").remark
    assert decode("codes", "404,abc", "").remark.endswith("codes from 300 to 599")
    for text, value in (("10g", "10g"), (" 5m ", " 5m "), ("10 GB", ""), ("", "")):
        found = decode("offset", text, "1m")
        assert found.value == value and bool(found.remark) == (value != text)
    for kind, kept in (("int", "75"), ("redirect", "75"), ("codes", "")):
        found = decode(kind, "9" * 5000, "75")
        assert found.value == kept and len(found.remark) < 200
    assert decode("int", "0" * 5000 + "7", "75").value == "7"
    assert decode("redirect", "0" * 5000 + "301", "308").value == "301"
    assert decode("codes", "0" * 5000 + "404,-404", "").value == "404"
