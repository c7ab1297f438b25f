"""The run of a verification: ingress-nginx first, then each successor, and a system that does not come up stops nobody else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from lab.analysis.verification.compare import list_aspects
from lab.analysis.verification.requests import make_request
from lab.base.errors import MeasuringError
from lab.experiments.migration.plan import plan_migration
from lab.experiments.verification import verify as verifying
from lab.experiments.verification.verify import Verification, VerifiedSystem, verify
from lab.model.exchanges import Answer, Exchange, Received
from lab.targets.local.target import LocalTarget

REQUEST = make_request("plain", "a plain request", "shop.example", "/")
STATUSES: Mapping[str, int] = {"ingress-nginx": 200, "envoy": 400, "haproxy": 200}


def answers(status: int) -> verifying.Recorded:
    received = Received("web:80", "GET", "/", "HTTP/1.1", (("Host", "shop.example"),), "none", (), "10.64.0.4")
    answer = Answer(
        status, "HTTP/1.1", (("X-Lab-Echo", "1"),) if status == 200 else (), b"page", framing="length", kept=True
    )
    exchange = Exchange(REQUEST, answer, (received,) if status == 200 else ())
    return [(exchange, list_aspects(exchange, {}))]


def prepared(*names: str) -> Verification:
    migrations = {
        item.system: item
        for item in plan_migration("mine", b'kind: ConfigMap\ndata: {keep-alive: "75"}\n', to=names).migrations
    }
    target = LocalTarget()
    systems = [VerifiedSystem(name, target, cast("Any", None), [], migrations[name]) for name in names]
    return Verification(VerifiedSystem("ingress-nginx", target, cast("Any", None), []), systems, [REQUEST], {}, [])


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> Callable[[Mapping[str, int]], list[str]]:
    """Sets what each system answers, -1 for one that does not come up; returns the list of what was brought up."""
    brought = list[str]()

    def set_statuses(statuses: Mapping[str, int]) -> list[str]:
        def answer(system: VerifiedSystem, _verification: Verification, _say: object) -> verifying.Recorded:
            brought.append(system.name)
            if statuses[system.name] < 0:
                raise MeasuringError(system.name, "is not served", "")
            return answers(statuses[system.name])

        monkeypatch.setattr(verifying, "record_answers", answer)
        return brought

    return set_statuses


def test_each_successor_is_compared_with_ingress_nginx(record: Callable[[Mapping[str, int]], list[str]]) -> None:
    brought = record(STATUSES)
    first, second = verify(prepared("envoy", "haproxy"), 0, print)
    assert brought == ["ingress-nginx", "envoy", "haproxy"]
    assert [item.key for item in first.differences] == ["answer @plain: 200 of the backend → 400"]
    assert (second.system, second.requests, second.differences) == ("haproxy", 1, ())


def test_a_noise_check_compares_each_system_with_itself(record: Callable[[Mapping[str, int]], list[str]]) -> None:
    brought = record(STATUSES)
    pairs = list(verify(prepared("haproxy"), 2, print))
    assert brought == ["ingress-nginx"] * 3 + ["haproxy"] * 3
    assert [pair.system for pair in pairs] == [
        "ingress-nginx against itself 1",
        "ingress-nginx against itself 2",
        "haproxy against itself 1",
        "haproxy against itself 2",
        "haproxy",
    ]
    assert not any(pair.differences for pair in pairs)


def test_a_successor_that_does_not_come_up_is_named_and_the_next_is_verified(
    record: Callable[[Mapping[str, int]], list[str]],
) -> None:
    record({**STATUSES, "envoy": -1})
    first, second = verify(prepared("envoy", "haproxy"), 0, print)
    assert (first.requests, first.notes) == (0, ("did not come up: envoy: is not served",))
    assert second.requests == 1


def test_without_ingress_nginx_there_is_nothing_to_compare_with(
    record: Callable[[Mapping[str, int]], list[str]],
) -> None:
    record({**STATUSES, "ingress-nginx": -1})
    with pytest.raises(MeasuringError, match="is not served"):
        list(verify(prepared("envoy"), 0, print))


def test_routes_are_waited_for_until_the_answers_stay_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifying, "SETTLED_S", 0.2)
    monkeypatch.setattr(verifying, "EMPTY_S", 0.6)
    statuses = iter([404, 404, 200])
    seen = list[int]()

    def send(request: Any) -> Exchange:
        seen.append(next(statuses, 200))
        return Exchange(request, Answer(seen[-1]))

    verifying.wait_for_routes([REQUEST], send)
    assert seen[:3] == [404, 404, 200]
    assert len(seen) >= 5
