"""OKD's router, without starting it: what is read from the manifests, refused, and written for HAProxy."""

from __future__ import annotations

import copy
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.base.errors import MeasuringError, NotMeasurableError, UsageError
from lab.model.variants.variants import load_variant
from lab.systems.haproxy import system as haproxy
from lab.systems.haproxy_router import system as haproxy_router
from lab.systems.haproxy_router.control import CONF
from lab.systems.haproxy_router.system import reload_interval_s
from lab.systems.manifests import certificates, objects
from lab.systems.manifests.objects import Objects
from lab.systems.nginx import system as nginx
from lab.systems.system import NODE_ADDRESS as SINK
from lab.systems.system import Realisation
from lab.targets.local.kubelet import bringup
from lab.targets.local.sandbox import cpus, network
from lab.tests.support.contexts import context_of

Manifests = list[dict[str, Any]]


def manifests(variant: str = "okd") -> Manifests:
    return list(copy.deepcopy(load_variant(variant).manifests))


def find(items: Manifests, kind: str, name: str) -> dict[str, Any]:
    (found,) = [item for item in items if item["kind"] == kind and item["metadata"]["name"] == name]
    return found


def read(items: Manifests) -> Objects:
    """At most three routes, as more would say the same."""
    routes = [item for item in items if item["kind"] == "Route"]
    return objects.read_objects([item for item in items if item not in routes[3:]])


def started(wanted: Objects, open_files: int = 20_000, env: Mapping[str, str | None] | None = None) -> Realisation:
    """On two CPUs; `env` changes the manifest's own, None removes."""
    own = {**wanted.role("proxy")[0].containers[0].env, **(env or {})}
    values = {name: value for name, value in own.items() if value is not None}
    return haproxy_router.realise(context_of(wanted, 2, open_files=open_files, env=values))


def realised(wanted: Objects, open_files: int = 20_000) -> Mapping[str, str]:
    """Path → text."""
    return started(wanted, open_files).files


def section(config: str, head: str) -> str:
    """A section of the configuration, by its first line."""
    return re.split(r"\n(?=\w)", config.split(f"{head}\n", 1)[1])[0]


def config(variant: str = "okd", env: Mapping[str, str | None] | None = None) -> str:
    return started(read(manifests(variant)), env=env).files[f"{CONF}/haproxy.config"]


@pytest.mark.parametrize(
    ("variant", "used", "backend"),
    [
        ("okd", "os_http_be", "be_http"),
        ("okd-edge", "os_edge_reencrypt_be", "be_edge_http"),
        ("okd-reencrypt", "os_edge_reencrypt_be", "be_secure"),
        ("okd-passthrough", "os_tcp_be", "be_tcp"),
    ],
)
def test_a_host_is_found_in_the_map_of_its_termination_only(variant: str, used: str, backend: str) -> None:
    files = realised(read(manifests(variant)))
    maps = {Path(path).stem: text for path, text in files.items() if path.endswith("_be.map")}
    line = rf"^bench-0002\.apps\.lab\.test\.?(:[0-9]+)?(/.*)?$ {backend}:ingress-lab:bench-0002"
    assert maps[used].splitlines()[0] == line
    assert maps[used].count("\n") == 3 and {name for name, text in maps.items() if text} == {used}
    passed = files[f"{CONF}/os_sni_passthrough.map"]
    assert passed.count(" 1\n") == (3 if variant == "okd-passthrough" else 0)
    assert f"backend {backend}:ingress-lab:bench-0000\n" in files[f"{CONF}/haproxy.config"]


def test_tls_is_verified_behind_passed_through_and_asked_of_clients() -> None:
    secure = section(config("okd-reencrypt"), "backend be_secure:ingress-lab:bench-0000")
    assert " ssl verifyhost backend.ingress-lab.svc verify required ca-file /srv/ca/ca.crt" in secure
    passed = section(config("okd-passthrough"), "backend be_tcp:ingress-lab:bench-0000")
    assert "mode http" not in passed and "cookie" not in passed and ":8443 weight 1" in passed
    assert " secure attr SameSite=None" in section(config("okd-edge"), "backend be_edge_http:ingress-lab:bench-0000")
    env: dict[str, str | None] = {"ROUTER_MUTUAL_TLS_AUTH": "optional", "ROUTER_MUTUAL_TLS_AUTH_CA": "/ca/ca.pem"}
    assert config(env=env).count(" verify optional ca-file /ca/ca.pem accept-proxy\n") == 2
    assert "verify optional" not in config(env={**env, "ROUTER_MUTUAL_TLS_AUTH": "none"})


def test_endpoints_of_the_routers_own_routes_are_checked_and_policies_decide_what_http_gets() -> None:
    items = manifests()
    assert " check inter " not in realised(read(items))[f"{CONF}/haproxy.config"]
    find(items, "Deployment", "backend")["spec"]["replicas"] = 2
    assert realised(read(items))[f"{CONF}/haproxy.config"].count(" check inter 5000ms\n") == 2 * 3
    find(items, "Route", "bench-0001")["metadata"]["labels"]["app.kubernetes.io/part-of"] = "else"
    assert realised(read(items))[f"{CONF}/os_http_be.map"].count("\n") == 2
    items = manifests("okd-edge")
    for name, policy in (("bench-0000", "Allow"), ("bench-0001", "Redirect")):
        find(items, "Route", name)["spec"]["tls"]["insecureEdgeTerminationPolicy"] = policy
    files = realised(read(items))
    assert re.findall(r"bench-\d+$", files[f"{CONF}/os_http_be.map"], re.MULTILINE) == ["bench-0000"]
    assert re.findall(r"bench-\d+", files[f"{CONF}/os_route_http_redirect.map"]) == ["bench-0001"]


def test_what_is_not_set_is_left_to_haproxy_and_logs_go_to_the_labs_own_sink() -> None:
    """As the router's template does: no nbthread without ROUTER_THREADS, no maxconn for `auto`."""
    shipped = section(config(), "global")
    assert not re.search("nbthread|maxconn|hard-stop-after|fd-hard-limit", shipped)
    given = section(
        config(env={"ROUTER_THREADS": "2", "ROUTER_MAX_CONNECTIONS": "5000", "ROUTER_HARD_STOP_AFTER": "1h"}), "global"
    )
    assert all(f"  {line}\n" in given for line in ("nbthread 2", "maxconn 5000", "hard-stop-after 1h"))
    assert "  maxconn 9000\n" in config(env={"ROUTER_MAX_CONNECTIONS": "9000"})
    with pytest.raises(NotMeasurableError, match="20000 connections take 40100 open files"):  # the router's default
        config(env={"ROUTER_MAX_CONNECTIONS": None})
    assert "  fd-hard-limit 1048576\n" in realised(read(manifests()), open_files=2**30)[f"{CONF}/haproxy.config"]
    logging = config(env={"ROUTER_SYSLOG_ADDRESS": "logs.example:1514", "ROUTER_LOG_LEVEL": "info"})
    for line in (f"log {SINK}:1514 local1 info\n  log-send-hostname", "option httplog\n  log global", "option tcplog"):
        assert f"  {line}\n" in logging and line not in config()
    wanted = read(manifests())
    assert haproxy_router.syslog_ports(wanted) == set()
    proxy = wanted.role("proxy")[0]
    container = replace(proxy.containers[0], env={"ROUTER_SYSLOG_ADDRESS": "a:514"})
    assert haproxy_router.syslog_ports(replace(wanted, pods=(replace(proxy, containers=(container,)),))) == {514}


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("ROUTER_DEFAULT_CLIENT_TIMEOUT", "45s", "timeout client 45s"),
        ("ROUTER_SLOWLORIS_HTTP_KEEPALIVE", "5m", "timeout http-keep-alive 5m"),
        ("ROUTER_INSPECT_DELAY", "1s", "tcp-request inspect-delay 1s"),
        ("ROUTER_BUF_SIZE", "65536", "tune.bufsize 65536"),
        ("ROUTER_MAX_REWRITE_SIZE", "4096", "tune.maxrewrite 4096"),
        ("ROUTER_ENABLE_COMPRESSION", "true", "compression type text/html text/plain text/css"),
        ("ROUTER_DONT_LOG_NULL", "true", "option dontlognull"),
        ("ROUTER_BACKEND_CHECK_INTERVAL", "9s", ""),
    ],
)
def test_a_variable_becomes_the_line_of_the_routers_template(name: str, value: str, line: str) -> None:
    with_it, without = config(env={name: value}), config()
    assert line in with_it and (not line or line not in without)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"ROUTER_TREADS": "4"}, "does not honour ROUTER_TREADS\n  did you mean 'ROUTER_THREADS'"),
        (
            {"ROUTER_THREADS": "3"},
            r"containers\[proxy\].env\[ROUTER_THREADS\]: asks for 3 threads, the proxy has 2 CPUs here: not measurable: cores",
        ),
        ({"ROUTER_THREADS": "many"}, "expected a positive integer, got 'many'"),
        ({"ROUTER_MAX_CONNECTIONS": "50000"}, "50000 connections take 100100 open files.*: not measurable: open files"),
        ({"ROUTER_HARD_STOP_AFTER": "soon"}, "expected a time such as 30m, got 'soon'"),
        ({"ROUTER_DEFAULT_CLIENT_TIMEOUT": "soon"}, "expected a time such as 30s, got 'soon'"),
        ({"ROUTER_IP_V4_V6_MODE": "v6"}, "does not honour ROUTER_IP_V4_V6_MODE\n  .*(or --target kind)"),
        (
            {"ROUTER_USE_PROXY_PROTOCOL": "true"},
            "nobody in front of the router speaks.*\n.*okd-load-balancer[+]okd-use-proxy-protocol",
        ),
        ({"ROUTER_MUTUAL_TLS_AUTH": "maybe"}, "expected none, optional or required, got 'maybe'"),
        ({"ROUTER_MUTUAL_TLS_AUTH": "required"}, "required, and no ROUTER_MUTUAL_TLS_AUTH_CA"),
        ({"ROUTER_SYSLOG_ADDRESS": "/var/lib/rsyslog/rsyslog.sock"}, "expected HOST:PORT .*--target kind"),
        ({"ROUTER_SYSLOG_ADDRESS": "x:514", "ROUTER_LOG_LEVEL": "loud"}, "expected a level of syslog"),
        ({"ROUTER_METRICS_TYPE": "none"}, "only 'haproxy' can be had here"),
        ({"ROUTER_CIPHERS": None}, "'ROUTER_CIPHERS' is missing"),
        ({"RELOAD_INTERVAL": "121s"}, "expected 1s to 120s, got 121s: OKD allows no other minimum interval"),
        ({"ROUTE_LABELS": "a in (b)"}, "expected KEY=VALUE"),
    ],
)
def test_an_environment_that_cannot_be_honoured_is_refused(env: dict[str, str | None], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        config(env=env)


def test_a_reload_interval_is_a_duration_in_okds_range_and_the_one_in_force_is_read_back() -> None:
    """The script takes it from its environment, as the router does; there is no other."""
    for text, seconds in (("5s", 5), ("120s", 120), ("2m", 120), ("1m15s", 75), ("1000ms", 1)):
        assert reload_interval_s("here", text) == seconds
    for wrong in ("0s", "121s", "2m1s", "500ms", "1.5s", "5", "s", "", "-5s", "1h"):
        with pytest.raises(UsageError, match="here: expected (a duration|1s to 120s)"):
            reload_interval_s("here", wrong)
    made = started(read(manifests()), env={"RELOAD_INTERVAL": "1m30s"})
    assert made.env["RELOAD_INTERVAL"] == "90s" and "90" not in made.command
    assert "$((${RELOAD_INTERVAL%s} * 1000000))" in haproxy_router.SCRIPT.read_text()


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda spec: spec.pop("wildcardPolicy"), "spec.wildcardPolicy: expected None: the router does not admit it"),
        (lambda spec: spec.update(tls={"termination": "egde"}), "expected edge or passthrough or reencrypt, got 'egde'"),
        (lambda spec: spec.update(tls={"termination": "edge", "key": "x"}), "spec.tls.key: the local target does not honour"),
        (lambda spec: spec.update(tls={"termination": "passthrough", "insecureEdgeTerminationPolicy": "Allow"}), "got 'Allow'"),
        (lambda spec: spec["to"].update(name="bakcend"), "there is no such Service\n  did you mean 'backend'"),
        (lambda spec: spec["port"].update(targetPort="htpt"), "there is no port 'htpt'"),
    ],
)  # fmt: skip
def test_a_route_that_is_not_admitted_or_not_honoured_is_refused(edit: Callable[[Any], object], message: str) -> None:
    items = manifests()
    edit(find(items, "Route", "bench-0000")["spec"])
    with pytest.raises(UsageError, match=message):
        read(items)


def test_a_secret_has_what_it_holds_and_a_hosts_file_that_cannot_be_covered_says_so(tmp_path: Path) -> None:
    items = manifests()
    secret = find(items, "Secret", "router-certificate")
    secret["data"] = {"note": "aGVsbG8=", "tls.crt": "", "tls.key": ""}
    made = objects.read_objects(items).secrets["router-certificate"]
    assert made.keys == {"note", "tls.crt", "tls.key", "ca.crt"} == set(made.files())
    assert made.files()["note"] == "hello" and certificates.subject(made.files()["tls.crt"]) == "*.apps.lab.test"
    for data, fault in (
        ({"note": "not base64"}, "data.note: is no base64"),
        ({"tls.crt": "", "tls.ky": ""}, "data: 'tls.key' is missing"),
    ):
        secret |= {"type": "kubernetes.io/tls", "data": data}
        with pytest.raises(UsageError, match=f"Secret/router-certificate: {fault}"):
            objects.read_objects(items)
    with pytest.raises(MeasuringError, match="cannot be read"):
        network.make_hosts_command({"a": "10.0.0.1"}, tmp_path, tmp_path / "none")


def test_requests_and_handshakes_are_summed_over_the_frontends_that_count_them() -> None:
    """Not what passed through unread, nor the probes; a frontend without TLS has empty cells, a backend's are connections to servers. nginx has a page of its own."""
    names = "# pxname,svname,req_tot,mode,h2_headers_rcvd,ssl_sess,ssl_reused_sess,\n"
    rows = (
        "healthz,FRONTEND,7,http,,,,\npublic,FRONTEND,5,http,0,,,\npublic_ssl,FRONTEND,,tcp,,,,\n"
        "fe_sni,FRONTEND,12401,http,12400,20,12401,\nfe_no_sni,FRONTEND,,tcp,,1,2,\nbe_secure,BACKEND,9,http,9,500,600,\n\n"
    )
    asked = {"requests": 12406, "requests_h2": 12400}
    assert haproxy.parse_counts(names + rows) == {**asked, "tls_handshakes": 12424, "tls_resumed": 12403}
    assert haproxy.parse_counts("# pxname,svname,req_tot,mode,\npublic,FRONTEND,5,http,\n") == {"requests": 5}
    assert haproxy.parse_counts("# pxname,svname,\npublic,FRONTEND,\n") == haproxy.parse_counts("") == {}
    page = "Active connections: 1 \nserver accepts handled requests\n 12 12 34 \nReading: 0 Writing: 1 Waiting: 0 \n"
    assert nginx.parse_counts(page) == {"requests": 34}
    assert (
        nginx.parse_counts("") == nginx.parse_counts("# pxname,svname,\n12,12,34\n") == nginx.parse_counts("404") == {}
    )


@pytest.mark.skipif(shutil.which("haproxy") is None, reason="haproxy is not on PATH")
def test_what_haproxy_refuses_is_told_at_the_plan_with_the_line_that_is_meant() -> None:
    pinned = cpus.split(range(4))
    for variant in ("okd", "okd-edge", "okd-passthrough", "okd-reencrypt"):
        bringup.try_out(read(manifests(variant)), pinned)
    wanted = read(manifests("okd"))
    proxy, *others = sorted(wanted.pods, key=lambda pod: pod is not wanted.role("proxy")[0])
    container = replace(proxy.containers[0], env={**proxy.containers[0].env, "SSL_MIN_VERSION": "TLSv9"})
    wrong = replace(wanted, pods=(replace(proxy, containers=(container,)), *others))
    with pytest.raises(UsageError, match="haproxy refuses this configuration: 'TLSv9' .* in `ssl-default-bind-options"):
        bringup.try_out(wrong, pinned)
