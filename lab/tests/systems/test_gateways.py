"""Routes → the configurations of HAProxy, Caddy and the gateways that are nginx below: what is written, and what their images may be asked."""

from __future__ import annotations

import copy
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.analysis.migration.table import load_table
from lab.base.errors import NotMeasurableError, UsageError
from lab.experiments.migration.folder import writable_lines
from lab.experiments.migration.plan import plan_migration
from lab.model.variants.variants import load_variant
from lab.systems import programs, workers
from lab.systems.caddy.system import CONFIG as CADDY
from lab.systems.checker import find_refusal
from lab.systems.haproxy.system import CONFIG as HAPROXY
from lab.systems.httpd.system import CONFIG as HTTPD
from lab.systems.lighttpd.system import CONFIG as LIGHTTPD
from lab.systems.manifests import objects
from lab.systems.nginx.system import CONFIG as NGINX
from lab.systems.programs import Program
from lab.systems.system import Realisation
from lab.targets.local.kubelet import bringup
from lab.tests.support.contexts import context_of
from lab.tests.support.factories import limited, plain_systems

Manifests = list[dict[str, Any]]
SYSTEMS = {
    "haproxy": HAPROXY,
    "haproxy-ingress": HAPROXY,
    "nginx-f5": NGINX,
    "nginx-ngf": NGINX,
    "nginx-ngf-2-3": NGINX,
    "nginx-ngf-2-4": NGINX,
    "caddy": CADDY,
    "httpd": HTTPD,
    "lighttpd": LIGHTTPD,
}
RULES = """
- matches: [{path: {type: Exact, value: /a.b}}]
  backendRefs: [{name: backend, port: 8080}]
- matches: [{path: {type: PathPrefix, value: /shop}}]
  backendRefs: [{name: other, port: 8080}]
- backendRefs: [{name: backend, port: 8080}]
"""
SET = """
- matches: [{path: {type: PathPrefix, value: /set}}]
  backendRefs: [{name: backend, port: 8080}]
  filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: A, value: VALUE}]}}]
"""


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Nothing is fetched where only a configuration is written."""

    def unpacked(place: str, name: str, packages: Sequence[str], file: str) -> Path:
        found = tmp_path / file
        found.parent.mkdir(parents=True, exist_ok=True)
        found.write_text("#!/bin/sh\necho Server version: Apache/2.4.71\n")
        found.chmod(0o755)
        return tmp_path

    if "real" not in request.fixturenames:
        monkeypatch.setattr(
            programs, "provide_wheel_program", lambda _, name, version: Program(name, version, programs.WHEELS / name)
        )
        monkeypatch.setattr(programs, "unpack_packages", unpacked)


def find(items: Manifests, kind: str, name: str = "") -> dict[str, Any]:
    return next(item for item in items if item["kind"] == kind and name in ("", item["metadata"]["name"]))


def manifests(variant: str, rules: str = "") -> Manifests:
    found = list(copy.deepcopy(load_variant(variant).manifests))
    if rules:
        other = copy.deepcopy(find(found, "Service", "backend"))
        other["metadata"]["name"] = "other"
        found.append(other)
        find(found, "HTTPRoute")["spec"]["rules"] = yaml.safe_load(rules)
    return found


def data_of(items: Manifests, variant: str) -> dict[str, str]:
    own = {"nginx-f5": "nginx-config", "haproxy-ingress": "haproxy-kubernetes-ingress"}
    return find(items, "ConfigMap", own.get(variant, variant)).setdefault("data", {})


def realised(items: Manifests, limits: Mapping[str, str] | None = None, cpus: int = 2) -> Realisation:
    return bringup.realise(context_of(objects.read_objects(items), cpus, limits=limits or {}))


def text(variant: str, rules: str = "", **data: str) -> str:
    items = manifests(variant, rules)
    if data:
        data_of(items, variant).update({key.replace("__", "."): value for key, value in data.items()})
    return realised(items).files[SYSTEMS[variant]]


def test_a_route_is_written_for_haproxy() -> None:
    found = text("haproxy", RULES + SET.replace("VALUE", "b%"))
    host = "{ hdr(host),field(1,:),lower bench.lab.test }"
    assert re.findall(r"^  use_backend bench-(\d) (.*)$", found, re.MULTILINE) == [
        ("0", f"if {host} {{ path '/a.b' }}"),
        ("1", f"if {host} {{ path '/shop' }}"),
        ("1", f"if {host} {{ path_beg '/shop/' }}"),
        ("2", f"if {host} {{ path '/set' }}"),
        ("2", f"if {host} {{ path_beg '/set/' }}"),
        ("3", f"if {host}"),
    ]
    assert "  http-request set-header A 'b%%'\n  server SRV_1 192.0.2.1:8080\n" in found


def test_a_route_is_written_for_caddy() -> None:
    routes = json.loads(text("caddy", RULES + SET))["apps"]["http"]["servers"]["port-80"]["routes"]
    matches = [route.get("match", [{"path": "nothing"}])[0] for route in routes]
    assert matches[0] == {"host": ["bench.lab.test"], "path": ["/a.b"]}
    assert [match.get("path") for match in matches[1:]] == [["/shop", "/shop/*"], ["/set", "/set/*"], None, "nothing"]
    changed, proxy = routes[2]["handle"]
    assert changed == {"handler": "headers", "request": {"set": {"A": ["VALUE"]}}, "response": {}}
    assert proxy == {"handler": "reverse_proxy", "upstreams": [{"dial": "192.0.2.1:8080"}]}


def test_a_route_is_written_for_nginx() -> None:
    found = text("nginx-ngf", RULES + SET)
    locations = ['= "/a.b"', '= "/shop"', '"/shop/"', '= "/set"', '"/set/"', '"/"', "= /readyz"]
    assert re.findall(r"location (.*) \{", found) == locations
    assert found.count('proxy_set_header A "VALUE";') == 2 and found.count("proxy_pass http://other-8080;") == 2


def test_a_route_is_written_for_httpd() -> None:
    found = text("httpd", RULES, member__ttl="60")
    assert re.findall("^ProxyPass.*", found, re.MULTILINE) == [
        r'ProxyPassMatch "^/a\.b$" "balancer://rule-0"',
        'ProxyPass "/shop" "balancer://rule-1/shop"',
        'ProxyPass "/" "balancer://rule-2/"',
    ]
    assert found.count("BalancerMember http://192.0.2.1:8080 ttl=60\n") == 3
    assert found.count("RedirectMatch 404 ^") == 1  # every other host
    assert "LoadModule ssl_module" not in found, "no setting is of it"
    assert "LoadModule ssl_module" in text("httpd", host__SSLProtocol="-all +TLSv1.3")


def test_a_route_is_written_for_lighttpd() -> None:
    """What nobody is behind is answered 503; another configuration has another mark, which its own page shows."""
    found = text("lighttpd", RULES, accesslog__filename='"/dev/stdout"')
    led = r"proxy\.server = \( \"\" => \( \( \"host\" => \"([\d.]+)\", \"port\" => (\d+) \) \) \)"
    assert re.findall(rf"^(?:else )?(.*){{\n{led}\n}}$", found, re.MULTILINE) == [
        (r'$HTTP["url"] =~ "^/a\.b$" ', "192.0.2.1", "8080"),
        ('$HTTP["url"] =~ "^/shop(/|$)" ', "192.0.2.1", "8080"),
        ("", "192.0.2.1", "8080"),
    ]
    assert '$HTTP["host"] == "bench.lab.test" {' in found and '"mod_accesslog"' in found
    mark = re.compile(r'^index-file.names = \("(\w{16})"\)$', re.MULTILINE)
    shipped = text("lighttpd")
    assert mark.findall(shipped) != mark.findall(found) and "mod_accesslog" not in shipped
    nobody = [item for item in manifests("lighttpd") if item["kind"] != "EndpointSlice"]
    find(nobody, "Service", "backend")["spec"].pop("selector")
    assert '"host" => "127.0.0.1", "port" => 1 )' in realised(nobody).files[LIGHTTPD]


@pytest.mark.parametrize(
    ("variant", "value", "said"),
    [
        ("caddy", "'{http.request.host}'", "mean something else there"),
        ("nginx-ngf", "$host", "mean something else there"),
        ("httpd", "b", "a change of request headers cannot be written for httpd here"),
        ("lighttpd", "b", "a change of request headers cannot be written for lighttpd here"),
    ],
)
def test_what_a_writer_would_drop_or_change_is_refused(variant: str, value: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as error:
        text(variant, SET.replace("VALUE", value))
    assert error.value.place == "HTTPRoute/bench: spec.rules[0]"


@pytest.mark.parametrize(
    ("variant", "kept", "connection"),
    [
        ("nginx-ngf", None, "$connection_upgrade"),
        ("nginx-ngf-2-3", None, "$connection_upgrade"),
        ("nginx-ngf-2-4", "16", "$connection_keepalive"),
        ("nginx-ngf-keepalive", "320", "$connection_keepalive"),
    ],
)
def test_what_a_release_of_ngf_keeps(variant: str, kept: str | None, connection: str) -> None:
    found = realised(manifests(variant)).files[NGINX]
    assert re.findall(r"^ +keepalive (\d+);", found, re.MULTILINE) == ([kept] if kept else [])
    assert f'proxy_set_header Connection "{connection}";' in found


@pytest.mark.parametrize(
    ("variant", "said"),
    [("nginx-ngf", "several certificates on port 443"), ("lighttpd", "a certificate cannot be written for lighttpd")],
)
def test_certificates_that_cannot_be_served_are_refused(variant: str, said: str) -> None:
    items = manifests(variant)
    for name in ("c1", "c2"):
        secret = {"kind": "Secret", "metadata": {"name": name}, "data": {"tls.crt": "", "tls.key": ""}}
        items.append({"apiVersion": "v1", **secret})
    tls = {"certificateRefs": [{"name": "c1"}, {"name": "c2"}]}
    find(items, "Gateway")["spec"]["listeners"].append({"name": "tls", "port": 443, "protocol": "HTTPS", "tls": tls})
    with pytest.raises(UsageError, match=said):
        realised(items)


GRPC = "nginx.org/grpc-services"


def grpc_text(variant: str) -> str:
    return realised(manifests(variant)).files[NGINX]


def test_a_route_by_grpc_is_written_for_nginx() -> None:
    """Without the headers that HTTP/2 has no place for, and with the timeouts that the other directive has."""
    for found in (grpc_text("nginx-f5+ingress-tls+nginx-f5-grpc"), grpc_text("nginx-ngf+nginx-ngf-grpc")):
        assert "grpc_pass grpc://backend-8080;" in found and "proxy_pass" not in found
        assert re.findall(r"(\w+)_set_header Host ", found)[0] == "grpc"
        assert "set_header Connection" not in found and "proxy_set_header" not in found
    assert "grpc_read_timeout 60s;" in grpc_text("nginx-f5+ingress-tls+nginx-f5-grpc")
    assert "proxy_read_timeout" not in grpc_text("nginx-f5+ingress-tls+nginx-f5-grpc")


def test_f5s_controller_ignores_grpc_where_http2_is_off() -> None:
    items = manifests("nginx-f5")
    find(items, "Ingress")["metadata"]["annotations"] = {GRPC: "other, backend"}
    with pytest.raises(UsageError, match=re.escape(f"the controller ignores {GRPC}")):
        realised(items)
    find(items, "Ingress")["metadata"]["annotations"] = {GRPC: "other"}
    assert "grpc_pass" not in realised(items).files[NGINX]


@pytest.mark.parametrize("variant", ["haproxy", "caddy", "httpd", "lighttpd"])
def test_a_proxy_that_has_no_words_for_a_grpc_route_refuses_it(variant: str) -> None:
    items = manifests(variant)
    find(items, "HTTPRoute")["kind"] = "GRPCRoute"
    with pytest.raises(UsageError, match="gRPC to the backend cannot be written"):
        realised(items)


def test_an_annotation_of_another_controller_is_refused() -> None:
    items = manifests("nginx-f5")
    find(items, "Ingress")["metadata"]["annotations"] = {"nginx.ingress.kubernetes.io/backend-protocol": "GRPC"}
    with pytest.raises(UsageError, match="does not read nginx.ingress.kubernetes.io"):
        realised(items)


def test_f5s_and_haproxytechs_controllers_as_shipped_and_with_their_keys() -> None:
    shipped = text("nginx-f5")
    own = ("worker_connections 1024;", "proxy_buffering on;", "random two least_conn;", "zone backend-8080 256k;")
    assert all(line in shipped for line in own)
    assert "keepalive " not in shipped and "proxy_set_header Connection" not in shipped
    changed = text("nginx-f5", **{"keepalive": "320", "proxy-buffering": "False", "access-log-off": "true"})
    asked = ("keepalive 320;", 'proxy_set_header Connection "";', "proxy_buffering off;", "access_log off;")
    assert all(line in changed for line in asked)
    assert "keepalive" not in text("nginx-f5", keepalive="0").replace("keepalive_", "")
    shipped = text("haproxy-ingress")
    assert shipped.count(" disabled\n") == 41 and "default-server check\n" in shipped
    assert "hard-stop-after 30m" in shipped and "timeout http-keep-alive 1m" in shipped
    data = {"check": "false", "scale-server-slots": "1", "pod-maxconn": "30", "dontlognull": "false"}
    changed = text("haproxy-ingress", **data)
    assert "default-server maxconn 30\n" in changed and " disabled" not in changed
    assert "no option dontlognull" in changed


@pytest.mark.parametrize(
    ("variant", "key", "value", "said"),
    [
        ("nginx-f5", "worker-conections", "9", "worker-conections: is no key"),
        ("nginx-f5", "proxy-buffering", "maybe", "expected True or False"),
        ("nginx-f5", "worker-processes", "9", "asks for 9 workers"),
        ("haproxy-ingress", "nbthreads", "1", "nbthreads: is no key"),
        ("haproxy-ingress", "check", "yes", "expected true or false"),
        ("haproxy-ingress", "scale-server-slots", "many", "expected a number"),
        ("haproxy-ingress", "nbthread", "9", "asks for 9 threads"),
        ("haproxy", "global__nbthread", "9", "asks for 9 threads"),
        ("haproxy", "defalts__maxconn", "9", "expected SECTION.DIRECTIVE"),
        ("haproxy", "defaults__maxconn", "9\n  nbthread 9", "expected one line"),
        ("caddy", "sever__logs", "{}", "there is no part 'sever'"),
        ("httpd", "server__CustomLg", "", "there is no default"),
        ("httpd", "sever__LogLevel", "info", "expected SECTION.DIRECTIVE"),
        ("lighttpd", "sever__port", "80", "expected SECTION.DIRECTIVE"),
        ("lighttpd", "server__max-worker", "2", "asks for several workers"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(variant: str, key: str, value: str, said: str) -> None:
    with pytest.raises((UsageError, NotMeasurableError), match=re.escape(said)):
        text(variant, **{key: value})


def test_a_policy_for_something_else_and_an_unknown_release_are_refused() -> None:
    items = manifests("nginx-ngf-keepalive")
    spec = find(items, "UpstreamSettingsPolicy")["spec"]
    (target,) = spec["targetRefs"]
    for change, said in (
        ({"targetRefs": [{**target, "name": "beckend"}]}, "there is no Service 'beckend'"),
        ({"targetRefs": []}, "is for nothing alone, not for backend"),
        ({"targetRefs": [target], "keepAlif": {}}, "keepAlif"),
    ):
        spec |= change
        with pytest.raises(UsageError, match=said):
            realised(items)
    items = manifests("nginx-ngf")
    find(items, "Deployment", "proxy")["spec"]["template"]["spec"]["containers"][0]["image"] = (
        "ghcr.io/nginx/nginx-gateway-fabric/nginx:2.4.1"
    )
    with pytest.raises(UsageError, match=r"release '2.4.1' .* is not known here") as error:
        realised(items)
    assert "2.4.0" in error.value.remedy


def test_a_snippet_for_ngf_is_written_where_it_belongs_and_one_for_another_context_is_refused() -> None:
    items = manifests("nginx-ngf+nginx-ngf-h2-streams-8")
    assert "\n    http2_max_concurrent_streams 8;\n" in realised(items).files[NGINX]
    find(items, "SnippetsPolicy")["spec"]["snippets"][0]["context"] = "http.server"
    with pytest.raises(UsageError, match=r"snippets\[http.server\].context: expected http, got 'http.server'"):
        realised(items)


@pytest.fixture
def real() -> None:
    """With the programs themselves."""
    if shutil.which("unshare") is None or shutil.which("haproxy") is None:
        pytest.skip("no haproxy or unshare on this machine")


@pytest.mark.slow
@pytest.mark.parametrize("variant", SYSTEMS)
@pytest.mark.parametrize("rules", ["", RULES])
def test_the_proxy_takes_what_is_written(variant: str, rules: str, real: None) -> None:
    started = realised(manifests(variant, rules if variant not in ("nginx-f5", "haproxy-ingress") else ""))
    assert find_refusal(started.checker, started.files, {}, "127.0.0.1 localhost", started.programs) == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "data", "said"),
    [
        ("haproxy", {"defaults.timeout_clients": "30s"}, "(got 'clients')"),
        ("httpd", {"server.KeepAlivTimeout": "5"}, "Invalid command 'KeepAlivTimeout'"),
        ("lighttpd", {"server.max-keep-alive-request": "5"}, "unknown config-key: server.max-keep-alive-request"),
        ("caddy", {"transport.keep_alife.max_idle_conns_per_host": "9"}, 'unknown field "keep_alife"'),
    ],
)
def test_the_proxy_itself_refuses_an_unknown_setting(variant: str, data: dict[str, str], said: str, real: None) -> None:
    items = manifests(variant)
    data_of(items, variant).update(data)
    started = realised(items)
    assert said in find_refusal(started.checker, started.files, {}, "127.0.0.1 localhost", started.programs)


EVERY_HTTPD = {
    "disable-access-log": "true",
    "access-log-params": "buffer=64k flush=5s",
    "error-log-level": "info",
    "upstream-keepalive-connections": "0",
    "proxy-http-version": "1.0",
    "proxy-read-timeout": "120",
    "proxy-buffer-size": "16k",
    "client-body-timeout": "30",
    "large-client-header-buffers": "4 16k",
    "ssl-ecdh-curve": "X25519:P-256",
    "worker-shutdown-timeout": "500ms",
}
"""With those that differ by themselves, every key that httpd's table writes a setting for."""


def migrated() -> Realisation:
    content = yaml.safe_dump({"kind": "ConfigMap", "data": EVERY_HTTPD}).encode()
    lines = writable_lines(plan_migration("mine", content, to=["httpd"]).migrations[0])
    table = load_table("httpd")
    rows = [row for rows in (*table.rows.values(), table.extras) for row in rows]
    assert {line.setting for line in lines} == {row.setting for row in rows if row.how == "key"}
    items = manifests("httpd")
    data_of(items, "httpd").update({line.setting: line.to for line in lines})
    return realised(items)


def test_every_setting_that_a_migration_writes_is_in_httpds_configuration() -> None:
    found = migrated().files[HTTPD]
    assert "CustomLog" not in found
    assert "RequestReadTimeout header=60 body=0" in found
    assert "RequestHeader set X-Forwarded-Proto expr=%{REQUEST_SCHEME}" in found
    (member,) = re.findall("^BalancerMember http://192.0.2.1:8080 (.*)$", found, re.MULTILINE)
    assert dict(each.split("=") for each in member.split()) == {
        "disablereuse": "On",
        "ttl": "60",
        "connectiontimeout": "5",
        "responsefieldsize": "16384",
        "retry": "0",
        "upgrade": "websocket",
    }


@pytest.mark.slow
def test_httpd_takes_every_setting_that_a_migration_writes(real: None) -> None:
    started = migrated()
    assert find_refusal(started.checker, started.files, {}, "127.0.0.1 localhost", started.programs) == ""


@pytest.mark.parametrize("name", plain_systems("local"))
def test_workers_are_the_proxys_to_count_unless_its_controller_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On machines of 1, 2 and 64 CPUs, with a limit and without: nothing that is written is another, or it is their number."""
    monkeypatch.setattr(
        programs, "provide_go_program", lambda place, name, *_: Program(name, "1", programs.WHEELS / name)
    )
    variant = load_variant(name)
    counts: dict[str, set[int | None]] = {}
    for cpus, limit in product((1, 2, 64), (None, "300m", "1500m", "4")):
        count, limits = workers.count_configured(limited(variant, limit), cpus), {} if limit is None else {"cpu": limit}
        try:
            made = realised(list(variant.manifests), limits, cpus)
        except NotMeasurableError:  # what the controller would start, this machine cannot show
            assert count is not None and count > cpus
            continue
        env = (f"{key}={value}" for key, value in made.env.items())
        counts.setdefault("\n".join([*made.command, *env, *made.files.values()]), set()).add(count)
    if len(counts) == 1:
        assert not re.search(r"worker_processes\s+\d|nbthread|--concurrency|GOMAXPROCS", next(iter(counts)))
    else:
        found = {text: re.findall(r"worker_processes (\d+);", text) for text in counts}
        assert [{int(number) for number in found[text]} for text in counts] == list(counts.values())


def test_haproxytechs_controller_takes_no_more_threads_than_its_limit() -> None:
    items = manifests("haproxy-ingress")
    for limit, asked, rendered in (
        (None, "2", ["2"]),
        ("300m", "2", ["1"]),
        ("2500m", "2", ["2"]),
        ("1500m", "9", ["1"]),
        (None, "0", []),
        ("1", "", []),
    ):
        data_of(items, "haproxy-ingress")["nbthread"] = asked
        found = realised(items, {} if limit is None else {"cpu": limit}).files[HAPROXY]
        assert re.findall(r"nbthread (\d+)", found) == rendered, (limit, asked)
