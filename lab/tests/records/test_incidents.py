"""Events and usage → reloads, processes, probes, pods, connections and transfers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
import pytest

from lab.base.errors import MeasuringError
from lab.model.usage import USAGE_SCHEMA
from lab.records import incidents as happenings
from lab.tests.records.test_outcomes import BEGAN_S, NO_USAGE, told


def of(*events: tuple[float, str, str, str], usage: pl.DataFrame = NO_USAGE) -> dict[str, float | None]:
    return happenings.compute_incidents(told(*events), usage, BEGAN_S, BEGAN_S + 5)


def seen(looks: Mapping[float, Sequence[str]], role: str = "proxy") -> pl.DataFrame:
    """Time → titles of the processes there, each with 10 MB; the longer its title, the more a process works."""
    rows: list[tuple[Any, ...]] = [
        (at_s, role, 100 + n, tid, title, 2, 0.0, 0.0, float(len(title)), 0, 0, 0, 10_000_000, None)
        for at_s, titles in looks.items()
        for n, title in enumerate(titles)
        for tid in (None, 7)
    ]
    return pl.DataFrame(rows, schema=USAGE_SCHEMA, orient="row")


def test_the_most_processes_at_once_are_of_the_proxys_own_program() -> None:
    """A shell that started it is none; its memory counts. Threads are no processes. Pods of one look are added, the closing look is not."""
    one = ["sh", "haproxy"]
    found = of(usage=seen({0.0: one, 1.0: [*one, "haproxy", "haproxy"], 2.0: one}))
    assert (found["processes"], found["rss_bytes"]) == (3, 40_000_000)
    pods = seen({at_s: ["haproxy"] for at_s in (0.0, 0.05, 1.0, 1.04, 1.1, 1.2)})
    assert of(usage=pods)["processes"] == 2
    assert "processes" not in of(usage=seen({0.0: ["nginx"]}, role="backend")), "there is no proxy"


def test_the_api_servers_memory_is_told_apart_from_its_stores() -> None:
    found = of(usage=seen({0.0: ["kube-apiserver", "etcd"], 1.0: ["kube-apiserver", "etcd"]}, role="control"))
    assert found["api_rss_bytes"] == 10_000_000
    assert "api_rss_bytes" not in of(usage=seen({0.0: ["nginx"]}))


def test_a_controller_that_works_more_than_nginx_is_not_counted() -> None:
    pod = ["dumb-init", "nginx-ingress-c", "nginx", "nginx", "nginx"]
    assert of(usage=seen({0.0: pod, 1.0: [*pod, "nginx"], 2.0: pod}))["processes"] == 4
    router = ["openshift-route", "haproxy"]
    assert of(usage=seen({0.0: router, 1.0: [*router, "haproxy"], 2.0: router}))["processes"] == 2
    assert of(usage=seen({0.0: ["envoy"]}))["processes"] is None, "of a program that is not known nothing can be told"


def test_reloads_and_restarts_count_from_the_loads_beginning() -> None:
    """A change that every proxy loads is one reload: two replicas, two changes, and a third that one had loaded when the load ended."""
    found = of((-2, "Reloaded", "p", ""), (1, "Reload", "p", ""), (2, "Reloaded", "p", ""), (3, "Started", "p", "restart 1"),
               (4, "Started", "q", ""))  # fmt: skip
    assert (found["reloads"], found["restarts"]) == (1, 1)
    found = of(*((at_s, "Reloaded", pod, "") for at_s, pod in ((1, "p"), (1.1, "q"), (2, "p"), (2.1, "q"), (3, "q"))))
    assert found["reloads"] == 3
    assert of()["reloads"] == 0


def test_probes_are_timed_from_the_disturbance_on_and_counted_throughout() -> None:
    found = of(
        (1, "Probe", "p", "liveness 0.9 no answer within 1 s"),
        (6, "Probe", "p", "liveness 0.002 ok"),
        (7, "Probe", "p", "liveness 1.0004 no answer within 1 s"),
        (8, "Probe", "p", "readiness 0.004 ok"),
        (8.1, "Unhealthy", "p", "liveness"),
    )
    assert (found["probe_failures"], found["probe_p50_s"], found["probe_max_s"]) == (2, 0.004, 1.0004)
    assert of((7, "Unhealthy", "p", ""))["probe_failures"] == 1, "where attempts are not told"


def test_a_killed_pod_a_rolling_update_and_a_crashed_container_until_they_are_replaced() -> None:
    """On a host port the replacement waits until the old pod has gone; as many must be ready as were deleted."""
    found = of(
        (5.0, "Deleted", "old", ""), (5.1, "Created", "new", ""), (5.1, "NotReady", "old", ""), (35.0, "Gone", "old", ""),
        (35.4, "Started", "new", ""), (36.0, "Ready", "new", ""),
    )  # fmt: skip
    times = {name: found[name] for name in ("terminating_s", "pending_s", "replaced_s")}
    assert times == pytest.approx({"terminating_s": 30.0, "pending_s": 30.3, "replaced_s": 31.0})
    assert found["refused_evictions"] == 0
    found = of(
        (5, "Created", "c", ""), (5.2, "Started", "c", ""), (6, "Ready", "c", ""), (6, "Deleted", "a", ""), (8, "Gone", "a", ""),
        (6.5, "Created", "d", ""), (6.6, "Started", "d", ""), (7, "Ready", "d", ""), (7, "Deleted", "b", ""), (8.5, "Gone", "b", ""),
    )  # fmt: skip
    assert (found["replaced_s"], found["terminating_s"]) == pytest.approx((1.0, 2.0))
    exited, unready = (5.0, "Exited", "p", "SIGKILL"), (5.1, "NotReady", "p", "")
    started, ready = (5.2, "Started", "p", "restart 1"), (6.5, "Ready", "p", "")
    found = of((1.0, "Ready", "p", ""), exited, unready, started, ready)
    assert (found["restarts"], found["replaced_s"]) == (1, pytest.approx(1.5))
    assert "terminating_s" not in found


def test_what_had_not_ended_with_the_load_cannot_be_told() -> None:
    """Where no pod was to be made, as when scaled down, none is replaced; evictions that were refused count though nothing was deleted."""
    found = of((5.0, "Deleted", "old", ""), (5.1, "Created", "new", ""))
    assert {found[name] for name in ("terminating_s", "pending_s", "replaced_s")} == {None}
    assert "replaced_s" not in of((5.0, "Deleted", "old", ""), (6.0, "Gone", "old", ""))
    assert of((5, "EvictionRefused", "p", ""), (10, "EvictionRefused", "p", ""))["refused_evictions"] == 2


def test_cut_connections_and_the_first_of_them() -> None:
    found = of(*((1, "Held", str(n), "websocket") for n in range(4)), (4, "Cut", "3", ""), (9, "Cut", "1", ""))
    assert (found["held"], found["cut"], found["cut_s"]) == (4, 2, 4.0)
    assert of((1, "Held", "0", "websocket"))["cut_s"] is None
    assert of((1, "Refused", "0", "websocket"))["not_opened"] == 1


def test_transfers_by_what_came_through() -> None:
    through = (
        (6, "Transfer", "0", "upload 10000000 bytes 2.0 s first 0.01 s status 200"),
        (7, "Transfer", "1", "upload 10000000 bytes 1.0 s first 0.03 s status 200"),
    )
    found = of(
        *through,
        (8, "Transfer", "2", "upload 10000000 bytes 0.1 s first 0.01 s status 413"),
        (9, "Transfer", "3", "upload 10000000 bytes 5.0 s first - status 0 timeout"),
    )
    assert (found["transfers"], found["too_large"], found["transfers_lost"]) == (2, 1, 1)
    assert happenings.list_transfers(
        told((9, "Transfer", "3", "upload 8 bytes 5.0 s first - status 0 timeout"))
    ).rows() == [(BEGAN_S + 9, "3", "upload", 8, 5.0, None, 0)]
    found = of(*through)
    assert (found["transfer_rate"], found["first_byte_s"]) == (7.5e6, 0.02)


@pytest.mark.parametrize(
    "words", ["", "upload 8 bytes", "upload 8 bytes 1 s first 2 status 200", "sidewards 8 bytes 1 s first - status 200"]
)
def test_transfers_in_other_words_are_refused(words: str) -> None:
    """Not left out: each would be one less that was lost."""
    with pytest.raises(MeasuringError, match="event Transfer 7: says"):
        of((6, "Transfer", "7", words))
