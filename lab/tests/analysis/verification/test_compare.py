"""What two systems make of the same requests becomes differences, each once, with what it means and whether it was known."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.analysis.migration.mapping import Migration
from lab.analysis.migration.table import list_successors, load_subjects
from lab.analysis.verification import compare
from lab.analysis.verification.compare import (
    CONSEQUENCES,
    Difference,
    add_verified,
    find_differences,
    find_verified,
    list_aspects,
    read_table,
)
from lab.analysis.verification.requests import make_request
from lab.experiments.migration.plan import plan_migration
from lab.model.exchanges import Answer, Exchange, RawRequest, Received
from lab.systems.ingress_nginx.configmap import KEYS

HOST = "shop.example"
PLACES = {"10.64.0.2": "{client}", "10.64.0.4": "{proxy}"}
SENT = make_request("plain", "a plain request", HOST, "/a")


@pytest.fixture(autouse=True)
def own_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A table of verified differences of each test's own, without a row."""
    file = tmp_path / "verified.tsv"
    file.write_text("system\tdifference\tconsequence\tabout\n")
    monkeypatch.setattr(compare, "VERIFIED", file)
    read_table.cache_clear()
    yield
    read_table.cache_clear()


def answered(request: RawRequest = SENT, reached: bool = True, service: str = "web:80", **more: Any) -> Exchange:
    """An exchange: 200 of the backend; `more` has fields of the answer, and `got_FIELD` of what the backend received."""
    got = {name.removeprefix("got_"): more.pop(name) for name in list(more) if name.startswith("got_")}
    headers = (("X-Lab-Echo", "1"), *more.pop("headers", ())) if reached else more.pop("headers", ())
    fields: dict[str, Any] = {
        "status": 200,
        "version": "HTTP/1.1",
        "body": b"page",
        "framing": "length",
        "kept": True,
        **more,
    }
    base: dict[str, Any] = {
        "method": "GET",
        "target": request.target,
        "version": "HTTP/1.1",
        "headers": (("Host", HOST),),
        "body": "none",
    }
    received = Received(service=service, client="10.64.0.4", trailers=(), **{**base, **got})
    return Exchange(request, Answer(headers=headers, **fields), (received,) if reached else ())


def differences(*pairs: tuple[Exchange, Exchange], migration: Migration | None = None) -> list[Difference]:
    left = [(before, list_aspects(before, PLACES)) for before, _ in pairs]
    right = [(after, list_aspects(after, PLACES)) for _, after in pairs]
    return find_differences(left, right, migration)


def migrated(system: str, data: str = 'data: {keep-alive: "75"}') -> Migration:
    (migration,) = plan_migration("mine", f"kind: ConfigMap\n{data}\n".encode(), to=[system]).migrations
    return migration


def only(found: list[Difference]) -> tuple[str, str]:
    (difference,) = found
    return difference.key, difference.consequence


def test_equal_exchanges_have_no_difference() -> None:
    assert differences((answered(), answered())) == []


def test_values_that_differ_with_every_request_are_no_difference() -> None:
    ids = ("0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210")
    first, second = (answered(got_headers=(("X-Request-ID", value),), headers=(("Date", value),)) for value in ids)
    assert differences((first, second)) == []


def test_another_status_is_one_difference_whatever_else_differs() -> None:
    refused = answered(reached=False, status=404, headers=(("Content-Type", "text/html"), ("Server", "nginx")))
    assert only(differences((answered(), refused))) == ("answer @plain: 200 of the backend → 404", "breaks")


@pytest.mark.parametrize(
    ("before", "after", "consequence"),
    [
        (answered(reached=False, status=413), answered(), "protection"),
        (answered(reached=False, status=401), answered(), "protection"),
        (
            answered(reached=False, status=308, headers=(("Location", "https://shop.example/a"),)),
            answered(),
            "protection",
        ),
        (answered(reached=False, status=404), answered(), "protection"),
        (answered(reached=False, status=302), answered(), "breaks"),
        (answered(reached=False, status=302), answered(reached=False, status=404), "breaks"),
        (answered(), answered(reached=False, status=400), "breaks"),
        (answered(), answered(service="api:80"), "breaks"),
        (answered(reached=False, status=404), answered(reached=False, status=400), "clients"),
        (answered(reached=False, status=308), answered(reached=False, status=301), "clients"),
        (answered(reached=False, status=0, error="TLS: no protocols"), answered(), "protection"),
        (answered(), answered(got_body="3 bytes 0"), "breaks"),
        (answered(), answered(got_method="POST"), "breaks"),
        (answered(), answered(got_target="/b"), "breaks"),
        (
            answered(make_request("", "", HOST, "/%61")),
            answered(make_request("", "", HOST, "/%61"), got_target="/a"),
            "backends",
        ),
        (answered(), answered(got_target="/x/../a"), "protection"),
        (answered(), answered(got_version="HTTP/1.0"), "backends"),
        (answered(), answered(got_headers=(("Host", HOST), ("X-Forwarded-Server", "proxy"))), "backends"),
        (answered(), answered(got_headers=(("host", HOST),)), "backends"),
        (answered(headers=(("Server", "nginx"),)), answered(headers=(("Server", "envoy"),)), "clients"),
        (answered(headers=(("Strict-Transport-Security", "max-age=1"),)), answered(), "protection"),
        (answered(headers=(("X-Frame-Options", "DENY"),)), answered(), "protection"),
        (answered(kept=True), answered(kept=False), "clients"),
        (answered(trailers=(("X-Sum", "1"),)), answered(), "clients"),
        (answered(tls={"version": "TLSv1.3"}), answered(tls={"version": "TLSv1.2"}), "clients"),
        (answered(body=b"page"), answered(body=b"pag"), "breaks"),
        (answered(version="HTTP/1.1"), answered(version="HTTP/1.0"), "clients"),
    ],
)
def test_a_difference_means_what_it_does_to_whom(before: Exchange, after: Exchange, consequence: str) -> None:
    assert [item.consequence for item in differences((before, after))] == [consequence]


@pytest.mark.parametrize(
    ("name", "sent", "got", "consequence"),
    [
        ("X-Forwarded-For", "203.0.113.7", "203.0.113.7, 10.64.0.2", "protection"),
        ("X_User", "admin", "admin", "protection"),
        ("X-Real-IP", "203.0.113.7", "203.0.113.7", "protection"),
    ],
)
def test_a_header_from_outside_that_ingress_nginx_replaces_and_a_successor_passes_on_weakens_protection(
    name: str, sent: str, got: str, consequence: str
) -> None:
    request = make_request("forwarded-for", "", HOST, "/a", headers={name: sent})
    replaced = () if "_" in name else ((name, "10.64.0.2"),)
    found = differences(
        (
            answered(request, got_headers=(("Host", HOST), *replaced)),
            answered(request, got_headers=(("Host", HOST), (name, got))),
        )
    )
    assert [item.consequence for item in found] == [consequence]


def test_everything_about_a_body_follows_from_its_compression() -> None:
    coded = answered(
        headers=(("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding"), ("ETag", "W/1")),
        framing="chunked",
        body=b"x",
    )
    assert only(differences((coded, answered()))) == ("client header content-encoding: missing", "clients")


def test_an_error_page_is_compared_by_its_type_alone() -> None:
    pages = [
        answered(reached=False, status=404, body=body, headers=(("Content-Type", "text/html"),))
        for body in (b"a", b"bc")
    ]
    assert differences((pages[0], pages[1])) == []


def test_one_difference_of_many_requests_is_shown_by_the_smallest_that_curl_can_send() -> None:
    small = RawRequest("line-lf", "bare line feeds", HOST, b"GET / HTTP/1.1\nHost: a\n\n")
    long = make_request("long", "a long one", HOST, "/" + "a" * 50)
    requests = [long, SENT, small]
    (found,) = differences(
        *(
            (answered(item, headers=(("Server", "nginx"),)), answered(item, headers=(("Server", "envoy"),)))
            for item in requests
        )
    )
    assert (found.count, found.left.request, found.cases) == (3, SENT, ("long", "plain", "line-lf"))
    assert found.key == "client header server: nginx → envoy"


def test_a_difference_that_the_table_names_is_known_with_its_setting_and_any_other_is_new() -> None:
    request = make_request("body-beyond-limit", "a large body", HOST, "/a", "POST", body=b"x")
    pairs = [
        (answered(request, reached=False, status=413), answered(request)),
        (answered(headers=(("Server", "nginx"),)), answered(headers=(("Server", "envoy"),))),
        (answered(), answered(headers=(("X-Envoy-Upstream-Service-Time", "1"),))),
        (answered(make_request("method-lab", "", HOST, "/a", "LAB")), answered(reached=False, status=400)),
    ]
    found = {item.aspect + item.left.request.case: item for item in differences(*pairs, migration=migrated("envoy"))}
    limited = found["answerbody-beyond-limit"]
    assert (limited.known, limited.setting) == (
        "proxy-body-size",
        "http filter envoy.filters.http.buffer max_request_bytes",
    )
    assert found["client header serverplain"].known == "server-tokens"
    assert not found["client header x-envoy-upstream-service-timeplain"].known
    new = found["answermethod-lab"]
    assert (new.known, new.consequence, new.fails) == ("", "breaks", True)
    assert [item.fails for item in found.values()].count(True) == 1
    assert not any(item.known for item in differences(*pairs))


def test_a_new_difference_becomes_a_row_of_the_table_once_and_is_known_from_then_on() -> None:
    pair = (answered(), answered(reached=False, status=400))
    first = differences(pair, migration=migrated("envoy"))
    assert [item.fails for item in first] == [True]
    assert add_verified("envoy", first) == 1
    again = differences(pair, migration=migrated("envoy"))
    assert [(item.known, item.fails) for item in again] == [("found before by a verification", False)]
    assert add_verified("envoy", again) == 0
    assert differences(pair, migration=migrated("haproxy"))[0].fails


def test_a_difference_of_the_users_own_requests_is_no_row() -> None:
    request = make_request("yours", "", HOST, "/a")
    found = differences((answered(request), answered(request, reached=False, status=400)), migration=migrated("envoy"))
    assert add_verified("envoy", found) == 0


def learn(*rows: str) -> None:
    """Add rows `system | difference | consequence | about` to the test's own table."""
    with compare.VERIFIED.open("a", encoding="utf-8") as file:
        file.writelines("\t".join(row.split(" | ")) + "\n" for row in rows)
    read_table.cache_clear()


def verified(system: str, cors: str = "") -> dict[str, bool]:
    """What was seen of a successor → whether it concerns an Ingress whose annotation enable-cors has a value; empty: no Ingress."""
    text = (
        f"kind: Ingress\nmetadata: {{name: shop, annotations: {{nginx.ingress.kubernetes.io/enable-cors: '{cors}'}}}}\n"
    )
    (migration,) = plan_migration("", None, [("i.yaml", text.encode())] if cors else [], [system]).migrations
    return {row["difference"].partition(":")[0]: concerns for row, concerns in find_verified(migration)}


def test_what_verifications_saw_is_of_a_successor_and_not_what_a_trap_states() -> None:
    learn(
        "haproxy | answer @method-trace: 405 → 200 of the backend | protection | the method TRACE",
        "haproxy | client header server: added | clients | a Host in capitals",
        "haproxy | client trailers: added | clients | trailers of the backend",
        "envoy | answer @method-lab: 200 of the backend → 400 | breaks | the method LAB",
        "envoy | answer @upgrade: 101 of the backend → 403 | breaks | an upgrade to WebSocket",
        "envoy | client header server: added | clients | a Host in capitals",
    )
    assert list(verified("haproxy").items()) == [("client trailers", True), ("answer @method-trace", True)]
    assert verified("envoy") == {"answer @method-lab": True}
    assert verified("caddy") == {}


def test_what_verifications_saw_with_ingresses_concerns_a_file_that_uses_the_annotation() -> None:
    cors = ("answer @cors-preflight", "client header access-control-max-age")
    for system in ("envoy", "traefik-ingress-nginx"):
        learn(
            f"{system} | answer @method-lower: 400 → 200 of the backend | protection | the method get",
            f"{system} | answer @route: 200 of the backend → 404 | breaks | a path of type Exact as it is written",
            f"{system} | {cors[0]}: 204 → 200 | clients | a preflight of CORS",
            f"{system} | {cors[1]}: missing | clients | a host with a certificate, without TLS",
        )
    general = {"answer @method-lower": True, "answer @route": False}
    for system in ("envoy", "traefik-ingress-nginx"):
        assert verified(system) == general | dict.fromkeys(cors, False)
    found = verified("traefik-ingress-nginx", "true")
    assert found == general | dict.fromkeys(cors, True)
    assert verified("traefik-ingress-nginx", "false") == general | dict.fromkeys(cors, False)
    assert verified("envoy", "true") == general, "the trap about enable-cors states the others"


def test_the_tables_name_consequences_successors_and_cases_that_exist() -> None:
    for row in read_table(compare.ASPECTS):
        re.compile(row["aspect"])
        re.compile(row["words"])
        assert row["consequence"] in ("", *CONSEQUENCES)
        assert set(row["keys"].split()) <= {*KEYS, *load_subjects()}
    rows = [line.split("\t") for line in Path(compare.__file__).with_name("verified.tsv").read_text().splitlines()[1:]]
    assert {row[0] for row in rows} <= set(list_successors())
    assert {row[2] for row in rows} <= set(CONSEQUENCES)
    assert len({(row[0], row[1]) for row in rows}) == len(rows)
    assert all(len(row) == 4 for row in rows)
