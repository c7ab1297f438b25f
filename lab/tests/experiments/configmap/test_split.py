"""Keys and values → knobs, the whole file, and notes."""

from __future__ import annotations

import pytest

from lab.base.errors import UsageError
from lab.experiments.configmap.reading import FileSettings
from lab.experiments.configmap.split import OVER_TLS, WHOLE, Split, split


def of(**data: str) -> Split:
    return split("mine.yaml", FileSettings({key.replace("_", "-"): value for key, value in data.items()}))


def refused(**data: str) -> str:
    with pytest.raises(UsageError) as raised:
        of(**data)
    return str(raised.value)


def told(found: Split) -> str:
    return "\n".join(found.notes)


def test_checks_are_the_directives_that_a_key_changes_and_no_check_depends_on_the_machine() -> None:
    """0 open files means three quarters of the limit, so that the number of connections is nobody's to say beforehand."""
    (setting,) = of(keep_alive_requests="5000").singles
    (check,) = setting.checks
    assert (check.kind, check.name, check.context, check.value) == ("nginx", "keepalive_requests", "http", "5000")
    assert "depends on the machine" in refused(max_worker_connections="0")


def test_one_file_tells_all_at_once_and_measures_the_rest() -> None:
    found = of(
        keep_alive_requests="5000", use_gzip="False", hsts="false", enable_modsecurity="true", load_balance="round_robin",
        worker_connections="9", proxy_read_timeout="30s", proxy_buffering="true", ssl_session_cache="shared:SSL:10m",
    )  # fmt: skip
    assert [item.name for item in found.singles] == ["keep-alive-requests-5000"]
    for line in (
        "use-gzip: nothing to measure: 'false' is the default",
        "hsts: nothing to measure: it changes nothing for what the lab sends",
        "1 of 9 keys is the real controller's (enable-modsecurity): left out here; measured with the whole file by:"
        " scripts/shell just bench --config mine.yaml --target apiserver",
        "worker-connections: ingress-nginx 1.15.1 has no such key, and ignores it: you mean max-worker-connections",
        "proxy-read-timeout: '30s' is not a whole number: the controller logs that and keeps '60'",
        'proxy-buffering: nginx refuses it, and so the controller the whole file: invalid value "true"',
        f"{WHOLE}: the whole file without proxy-buffering, enable-modsecurity",
        f"{WHOLE}: the whole file is keep-alive-requests-5000",
    ):
        assert line in told(found)


def test_nothing_left_is_wrong_usage_with_every_reason() -> None:
    said = refused(keep_alive_request="5000", use_gzip="false", keep_alive="")
    assert all(each in said for each in ("nearest: keep-alive-requests, ", "is the default", "the controller reads 0"))
    assert '"proxy_busy_buffers_size" must be less than' in refused(proxy_busy_buffers_size="32k")


THEIRS = {
    "use-forwarded-headers": "true",
    "server-snippet": 'more_set_headers "X-A: b";',
    "ssl-dh-param": "a/dh",
    "keep-alive": "33",
}


def test_keys_of_the_real_controllers_are_counted_and_left_out() -> None:
    found = split("my file.yaml", FileSettings(THEIRS))
    assert list(found.kept) == ["keep-alive"]
    assert "3 of 4 keys are the real controller's (use-forwarded-headers, server-snippet, ssl-dh-param)" in told(found)
    assert "just bench --config 'my file.yaml' --target apiserver" in told(found)


def test_where_the_controller_runs_they_are_measured_and_read_back_from_its_configmap() -> None:
    given = FileSettings(THEIRS, named_objects={("Secret", "dh"): {"dhparam.pem": "x"}})
    found = split("mine.yaml", given, elsewhere=True)
    assert list(found.kept) == list(THEIRS) and "the real controller's" not in told(found)
    by_name = {next(iter(item.values)): item for item in found.singles}
    (check,) = by_name["use-forwarded-headers"].checks
    assert (check.kind, check.name, check.value) == ("configmap", "use-forwarded-headers", "true")
    dh = by_name["ssl-dh-param"]
    assert (
        dh.values == {"ssl-dh-param": "ingress-lab/your-dh"}
        and dh.root == OVER_TLS
        and "dhparam.pem" in dh.other_objects[0]
    )
    whole = found.together()[0]
    assert {check.kind for check in whole.checks} == {"nginx", "configmap"} and whole.values.keys() == THEIRS.keys()


def test_the_whole_file_is_an_arm_and_so_are_keys_that_decide_one_directive() -> None:
    found = of(proxy_buffer_size="16k", proxy_buffers_number="8", client_body_buffer_size="128k")
    whole, pair = found.together()
    assert whole.name == WHOLE and set(whole.values) == set(found.kept) and len(whole.checks) == 3
    assert pair.name == "proxy-buffer-size-and-1-more"
    assert {check.name: check.value for check in pair.checks} == {"proxy_buffer_size": "16k", "proxy_buffers": "8 16k"}
    assert [set(item.values) for item in found.together(without=["proxy-buffer-size"])] == [
        {"proxy-buffers-number", "client-body-buffer-size"}
    ]


def test_a_key_that_nginx_refuses_alone_is_measured_with_what_it_needs() -> None:
    found = of(proxy_buffer_size="64k", proxy_buffers_number="32", proxy_busy_buffers_size="256k", keep_alive="10")
    busy = next(item for item in found.singles if "proxy-busy-buffers-size" in item.values)
    assert busy.needs == {"proxy-buffer-size": "64k", "proxy-buffers-number": "32"}
    assert [item.name for item in found.together()] == [WHOLE, "proxy-buffer-size-and-2-more"]


def test_tls_keys_are_measured_over_tls_and_so_is_the_whole_file_then() -> None:
    found = of(ssl_protocols="TLSv1.2", keep_alive="10")
    assert {next(iter(item.values)): item.root for item in found.singles} == {
        "ssl-protocols": OVER_TLS,
        "keep-alive": "ingress-nginx",
    }
    assert sorted(item.name for item in found.together()) == [WHOLE, f"{WHOLE}-over-tls"]
    assert "invalid value" in refused(ssl_protocols="TLSv1.9")


def test_f5s_map_is_refused_with_the_counterparts() -> None:
    said = refused(worker_processes="4", worker_connections="65536", http_snippets="tcp_nodelay on;")
    assert "F5's NGINX Ingress Controller" in said and "worker-connections → max-worker-connections" in said
    assert "`just migrate --config FILE` shows what every successor makes of it" in said


HOST = "http/server[bench.lab.test]"


@pytest.mark.parametrize(
    ("key", "snippet", "found"),
    [
        ("location-snippet", "access_log off;", [("access_log", f"{HOST}/location[/]", "off", 1)]),
        ("server-snippet", "gzip off;\naccess_log off;", [("gzip", HOST, "off", 1), ("access_log", HOST, "off", 1)]),
        ("http-snippet", "map $http_upgrade $connection_upgrade { default upgrade; }", [("map", "http", "$http_upgrade $connection_upgrade", 2)]),
    ],
)  # fmt: skip
def test_a_snippet_that_repeats_what_stands_elsewhere_changes_something(
    key: str, snippet: str, found: list[tuple[str, str, str, int]]
) -> None:
    (setting,) = split("mine.yaml", FileSettings({key: snippet})).singles
    assert [(check.name, check.context, check.value, check.times) for check in setting.checks] == found


ZONE = "limit_req_zone $binary_remote_addr zone=one:10m rate=10r/s;"


@pytest.mark.parametrize(
    ("lost", "needing", "told"),
    [
        (("http-snippet", f"include /etc/x.conf;\n{ZONE}"), ("location-snippet", "limit_req zone=one burst=5;"), "zero size"),
        (("http-snippet", f"foo bar;\n{ZONE}"), ("location-snippet", "limit_req zone=one burst=5;"), "zero size"),
        (("use-geoip2", "true"), ("log-format-upstream", "$remote_addr $geoip2_city"), 'unknown "geoip2_city" variable'),
    ],
)  # fmt: skip
def test_what_may_depend_on_a_key_that_is_left_out_is_no_fault_of_its_own(
    lost: tuple[str, str], needing: tuple[str, str], told: str
) -> None:
    for pairs in ([lost, needing], [needing, lost]):
        with pytest.raises(UsageError) as raised:
            split("mine.yaml", FileSettings(dict(pairs)))
        words = f"{needing[0]}: not measurable here: it may need what {lost[0]} would define: {told}"
        assert words in str(raised.value)
