"""The requests of a verification: those that Ingresses give, the catalogue's, and a user's own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lab.analysis.migration.table import load_subjects
from lab.analysis.verification.requests import (
    CATALOGUE_HOST,
    TLS_HOST,
    RoutedPath,
    generate,
    load_catalogue,
    make_catalogue,
    parse_size,
    read_requests,
    unique,
)
from lab.base.errors import UsageError
from lab.systems.ingress_nginx.configmap import KEYS

LIMIT = 1 << 20


def routed(path: str, kind: str = "Prefix", tls: bool = False, **annotations: Any) -> RoutedPath:
    named = {name.replace("_", "-"): value for name, value in annotations.items()}
    return RoutedPath("shop.example", path, kind, tls, named)


def targets(*paths: RoutedPath) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for request in generate(paths):
        found.setdefault(request.case, []).append(request.target)
    return found


def test_a_path_is_tried_with_and_without_a_slash_continued_encoded_and_in_the_other_case() -> None:
    found = targets(routed("/api"))
    assert found["prefix-path"] == ["/api"]
    assert found["prefix-slash"] == ["/api/"]
    assert found["prefix-continued"] == ["/apix"]
    assert found["prefix-encoded"] == ["/%61pi"]
    assert found["prefix-case"] == ["/API"]
    assert found["prefix-below"] == ["/api/lab/a%20b?x=1&y=%2F&z"]
    assert targets(routed("/api/", "Exact"))["exact-slash"] == ["/api"]
    assert "prefix-slash" not in targets(routed("/"))


def test_paths_of_one_host_are_left_for_each_other_by_dot_segments_and_encoded_slashes() -> None:
    found = targets(routed("/public"), routed("/admin", "Exact"))
    assert found["sibling-dots"] == ["/public/../admin", "/admin/../public"]
    assert found["sibling-encoded-dots"] == ["/public/%2e%2e/admin", "/admin/%2e%2e/public"]
    assert found["sibling-encoded-slash"] == ["/public/..%2fadmin", "/admin/..%2fpublic"]


@pytest.mark.parametrize(
    ("pattern", "sample"),
    [
        ("/api(/|$)(.*)", "/api/lab"),
        ("/v[0-9]+/users", "/v1/users"),
        (r"/item/(\d+)", "/item/1"),
        ("/(?i)shop", ""),
        ("/a/(b|c)/.*", "/a/b/lab"),
        ("/[^/]+/x", "/lab/x"),
        (r"/files\.json", "/files.json"),
        ("/(", ""),
    ],
)
def test_a_regular_expression_is_tried_by_a_path_that_it_matches_or_not_at_all(pattern: str, sample: str) -> None:
    path = routed(pattern, "ImplementationSpecific", use_regex="true")
    assert path.sample == sample
    assert ("regex-path" in targets(path)) == bool(sample)


def test_a_host_with_a_certificate_is_tried_without_tls_and_without_its_name() -> None:
    requests = {item.case: item for item in generate([routed("/", tls=True)])}
    assert requests["prefix-path"].tls
    assert not requests["plain-http"].tls
    assert requests["plain-http"].keys[0] == "ssl-redirect"
    assert requests["no-sni"].tls
    assert not requests["no-sni"].sni


@pytest.mark.parametrize(
    ("annotations", "cases"),
    [
        ({"canary": "true", "canary_by_header": "X-Canary"}, {"canary-header"}),
        ({"canary": "true", "canary_by_cookie": "canary"}, {"canary-cookie"}),
        ({"auth_type": "basic"}, {"auth-right", "auth-wrong"}),
        ({"auth_url": "http://auth.example"}, {"auth-right", "auth-wrong"}),
        ({"enable_cors": "true", "cors_allow_origin": "https://*.shop.example"}, {"cors-preflight", "cors-origin"}),
        ({"whitelist_source_range": "10.0.0.0/8"}, {"source-range"}),
        ({"app_root": "/start"}, {"app-root"}),
        ({"server_alias": "a.example, b.example"}, {"server-alias"}),
        ({"from_to_www_redirect": "true"}, {"from-to-www-redirect"}),
        ({"proxy_body_size": "1k"}, {"body-limit", "body-beyond-limit"}),
        ({"affinity": "cookie"}, {"affinity"}),
    ],
)
def test_an_annotation_with_a_meaning_for_requests_gives_requests_of_its_own(
    annotations: dict[str, Any], cases: set[str]
) -> None:
    given: dict[str, Any] = {**annotations}
    assert set(targets(routed("/a", **given))) - set(targets(routed("/a"))) == cases


def test_a_body_is_tried_at_its_limit_and_one_byte_beyond() -> None:
    sizes = {
        item.case: len(item.body) for item in generate([routed("/", proxy_body_size="1k")]) if "limit" in item.case
    }
    assert sizes == {"body-limit": 1024, "body-beyond-limit": 1025}
    assert (parse_size("8m"), parse_size("0"), parse_size("big")) == (8 << 20, 0, None)


def test_the_catalogue_names_each_case_once_and_settings_that_exist() -> None:
    rows = load_catalogue()
    assert len({row["case"] for row in rows}) == len(rows) > 150
    assert {key for row in rows for key in row["keys"].split()} <= set(KEYS) | set(load_subjects())
    assert all(row["about"] and len(row["about"]) < 90 for row in rows)


def test_the_catalogue_has_every_kind_of_edge_case_of_the_issue() -> None:
    cases = {row["case"] for row in load_catalogue()}
    assert cases >= {
        "double-slash", "dot-segment", "dot-dot-segment", "dot-dot-encoded", "slash-encoded", "url-9000", "url-70000",
        "underscore", "header-repeated", "header-9000", "body-limit", "body-beyond-limit", "chunked", "chunked-empty",
        "post-empty", "method-head", "method-options", "method-trace", "method-lab", "absolute-uri", "host-port", "no-sni",
        "forwarded-for", "forwarded-all", "accept-gzip", "range", "expect", "upgrade", "http10", "request-id",
    }  # fmt: skip


def test_the_bytes_of_the_catalogue_are_sent_as_they_are_written() -> None:
    requests = {item.case: item for item in make_catalogue(LIMIT)}
    host = CATALOGUE_HOST.encode()
    assert requests["slash-encoded"].head == b"GET /lab%2fa HTTP/1.1\r\nHost: " + host + b"\r\n\r\n"
    assert requests["utf8"].head.startswith(b"GET /lab/\xc3\xa9 HTTP/1.1\r\n")
    assert requests["http09"].head == b"GET /lab\r\n"
    assert requests["url-9000"].head.startswith(b"GET /lab/" + b"a" * 9000 + b" HTTP/1.1\r\n")
    assert (len(requests["body-limit"].body), len(requests["body-beyond-limit"].body)) == (LIMIT, LIMIT + 1)
    assert requests["post"].body == b'{"a":1}'
    assert b"Content-Length: 7\r\n" in requests["post"].head
    assert (requests["plain-tls"].host, requests["no-sni"].sni) == (TLS_HOST, False)
    assert "body-limit" not in {item.case for item in make_catalogue(0)}


def test_requests_of_equal_bytes_are_sent_once() -> None:
    requests = [*generate([routed("/a")]), *generate([routed("/a")])]
    assert len(unique(requests)) == len(requests) // 2


def test_a_users_lines_are_read_with_headers_and_bodies() -> None:
    text = "# mine\nGET https://shop.example/cart?x=%2F#part\n  X-A: 1\n\nPOST http://shop.example:8080/a\n  > one\n  > two\n"
    first, second = read_requests("mine.txt", text)
    assert first.head == b"GET /cart?x=%2F HTTP/1.1\r\nHost: shop.example\r\nX-A: 1\r\n\r\n"
    assert (first.tls, first.case) == (True, "yours")
    assert (second.host, second.body) == ("shop.example", b"one\ntwo")
    assert b"Host: shop.example:8080\r\nContent-Length: 7\r\n" in second.head


def test_a_har_file_is_read() -> None:
    sent = {
        "method": "POST",
        "url": "https://shop.example/api",
        "headers": [{"name": ":path", "value": "/api"}, {"name": "Host", "value": "x"}, {"name": "X-A", "value": "1"}],
        "postData": {"text": "a=1"},
    }
    (request,) = read_requests("mine.har", json.dumps({"log": {"entries": [{"request": sent}]}}))
    assert request.head == b"POST /api HTTP/1.1\r\nHost: shop.example\r\nX-A: 1\r\nContent-Length: 3\r\n\r\n"
    assert request.body == b"a=1"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("  X-A: 1\n", "mine:1: '  X-A: 1'.* is no header"),
        ("GET http://a.example/\n  nothing\n", "mine:2: "),
        ("GET /cart\n", "mine:1: expected METHOD URL, got '/cart'"),
        ("{", "mine: is no HAR file"),
        ('{"log": {"entries": [{}]}}', "mine: is no HAR file: KeyError 'request'"),
    ],
)
def test_what_is_no_request_is_refused_with_its_place(text: str, fault: str) -> None:
    with pytest.raises(UsageError) as raised:
        read_requests("mine", text)
    assert raised.match(fault.replace("'  X-A: 1'.*", "'X-A: 1'"))
