"""The page of a verification: each difference with a command, both answers side by side, and whether it was known."""

from __future__ import annotations

from pathlib import Path

from lab.analysis.verification.compare import Difference, find_differences, list_aspects
from lab.analysis.verification.requests import make_request
from lab.experiments.migration.plan import plan_migration
from lab.experiments.verification.verify import VerifiedPair
from lab.model.exchanges import Answer, Exchange, RawRequest, Received
from lab.report.json.verification import make_verification_shape
from lab.report.markdown import render_markdown
from lab.report.tables.verification import differences_page, overview_page
from lab.tests.support.golden import assert_golden, print_page

GOLDEN = Path(__file__).parents[1] / "testdata" / "tables"
HOST = "shop.example"
PLACES = {"10.64.0.2": "{client}", "10.64.0.4": "{proxy}"}


def exchanged(
    request: RawRequest,
    status: int,
    reached: bool = True,
    *headers: tuple[str, str],
    got: tuple[tuple[str, str], ...] = (),
) -> Exchange:
    received = Received(
        "web:80", request.method, request.target, "HTTP/1.1", (("Host", HOST), *got), "none", (), "10.64.0.4"
    )
    echoed = (("X-Lab-Echo", "1"),) if reached else ()
    answer = Answer(status, "HTTP/1.1", (*echoed, *headers), b"page", framing="length", kept=True)
    return Exchange(request, answer, (received,) if reached else ())


def found() -> list[Difference]:
    (migration,) = plan_migration("mine", b'kind: ConfigMap\ndata: {keep-alive: "75"}\n', to=["envoy"]).migrations
    plain = make_request("plain", "a plain request", HOST, "/")
    lower = make_request("invented", "an invented method", HOST, "/\u00e9", "LAB")
    large = make_request(
        "body-beyond-limit", "a body one byte above that limit", HOST, "/upload", "POST", body=bytes(1025)
    )
    id_of = (("X-Request-ID", "0123456789abcdef0123456789abcdef"),)
    uuid = (("X-Request-ID", "01234567-89ab-cdef-0123-456789abcdef"),)
    left = [
        exchanged(plain, 200, True, ("Server", "nginx"), got=id_of),
        exchanged(lower, 200),
        exchanged(large, 413, reached=False),
    ]
    right = [
        exchanged(plain, 200, True, ("Server", "envoy"), got=uuid),
        exchanged(lower, 400, reached=False),
        exchanged(large, 200),
    ]
    first, second = ([(item, list_aspects(item, PLACES)) for item in side] for side in (left, right))
    return find_differences(first, second, migration)


def test_the_page_of_a_successor() -> None:
    differences = found()
    rows = [("envoy", "local", 3, differences, ["on local, by itself"])]
    page = [*differences_page("envoy", differences, ["on local, by itself"]), *overview_page(rows)]
    assert_golden(GOLDEN / "verification.txt", print_page(page, 110))
    assert_golden(GOLDEN / "verification.md", render_markdown(page))
    lines = print_page(page, 110).splitlines()
    assert [line for line in lines if len(line) > 110 and not line.lstrip().startswith("$")] == []


def test_a_successor_without_a_difference_has_a_page_too() -> None:
    page = print_page([*differences_page("envoy", [], []), *overview_page([("envoy", "local", 3, [], [])])], 110)
    assert "0 differences" in page


def test_json_has_both_exchanges_whole() -> None:
    pair = VerifiedPair("envoy", "local", 3, 1.0, tuple(found()), ("a note",))
    data = make_verification_shape(VerifiedPair).plain(requests=3, notes=["left out"], systems=(pair,))
    (system,) = data["systems"]
    by_key = {item["key"]: item for item in system["differences"]}
    limited = by_key["answer @body-limit: 413 → 200 of the backend"]
    assert (limited["consequence"], limited["known"]) == ("protection", "proxy-body-size")
    assert limited["ingress_nginx"]["answer"]["status"] == 413
    assert limited["successor"]["received"][0]["target"] == "/upload"
    assert limited["command"].startswith("head -c 1025 /dev/zero | curl -i ")
    assert by_key["answer @invented: 200 of the backend → 400"]["known"] == ""
