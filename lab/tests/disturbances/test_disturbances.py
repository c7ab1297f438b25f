"""Kinds of disturbances on a fake system: what they do, in which order and when, and which variants they refuse."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lab.base.errors import MeasuringError, NotMeasurableError, UsageError
from lab.disturbances import DISTURBANCES, _background, new_route
from lab.disturbances._changing import HOST, build_endpoints, build_route, build_service
from lab.disturbances.churn import Churn
from lab.disturbances.new_route import NewRoute
from lab.model.disturbance import Disturbance, DisturbanceContext, LoadEndedError, parse_disruption
from lab.model.endpoint import Endpoint, HowToEnd, Response, Role
from lab.model.events import FIRST_PORT, EventLog
from lab.model.variants.variants import load_variant
from lab.records.tables import events_frame
from lab.tests.support.fakes import PAGE, FakeSystem

Manifests = Sequence[Mapping[str, Any]]


@dataclass(slots=True)
class FakeContext(DisturbanceContext):
    """Time passes by waiting only. `ends_s`: when the load does."""

    at_s: float = 0.0
    ends_s: float = 1e9

    @property
    def now_s(self) -> float:
        return self.at_s

    def wait(self, seconds: float) -> None:
        self.at_s += max(0.0, seconds)
        if self.at_s > self.ends_s:
            self.at_s = self.ends_s
            raise LoadEndedError


@dataclass
class Acting(FakeSystem):
    """Remembers when what was done to it; `refusals`: so many evictions are refused at first."""

    context: FakeContext | None = None
    refusals: int = 0
    slow_s: float = 0.0
    backends: list[str] = field(default_factory=lambda: ["backend-0"])
    log: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])

    started_s: float = 1e9
    """When what crashed has been started again; at `ready_s` at the latest."""
    ready_s: float = 1e9
    """When it is ready."""
    others: int = 0
    """Ready proxy pods beside it, to which nothing happens."""

    def restarts(self) -> Mapping[str, int]:
        assert self.context is not None
        return {"proxy-0/proxy": int(self.context.at_s >= min(self.started_s, self.ready_s))}

    def pods(self, role: Role) -> Sequence[Mapping[str, Any]]:
        assert self.context is not None
        return [{}] * (self.others + int(self.context.at_s >= self.ready_s))

    def note(self, what: str) -> None:
        assert self.context is not None
        self.log.append((round(self.context.at_s, 3), what))

    def end_pod(self, role: Role, how: HowToEnd) -> bool:
        self.note(f"{how} {role}")
        self.refusals -= 1
        return self.refusals < 0

    def scale(self, role: Role, replicas: int) -> None:
        self.note(f"scale {role} {replicas}")
        self.backends = [f"backend-{number}" for number in range(replicas)]

    def roll(self, role: Role) -> None:
        self.note(f"roll {role}")

    def freeze(self, role: Role, frozen: bool) -> None:
        self.note(f"{'freeze' if frozen else 'thaw'} {role}")

    def squeeze(self, role: Role, cpu: str | None) -> None:
        self.note(f"squeeze {role} {cpu}")

    def apply(self, objects: Sequence[Mapping[str, Any]]) -> None:
        assert self.context is not None
        for obj in objects:
            self.note(f"apply {obj['kind']}")
        self.context.at_s += self.slow_s

    def fetch(self, endpoint: Endpoint, path: str, timeout_s: float, headers: Any = None) -> Response:
        answering = self.backends.pop(0)  # they take turns
        self.backends.append(answering)
        known = endpoint.host == HOST or self.context is None
        return Response(200, PAGE, {"x-lab-backend": answering} | ({"x-lab-answer": "b 9000 -"} if known else {}))


@dataclass(slots=True)
class Saying(FakeContext):
    def say(self, kind: str, object: str = "", detail: str = "", role: str = "") -> None:  # noqa: A002 - as DisturbanceContext has it
        assert isinstance(self.system, Acting)
        self.system.note(kind)


@pytest.fixture(scope="module")
def baseline() -> Manifests:
    return load_variant("ingress-nginx").manifests


@pytest.fixture(scope="module")
def okd() -> Manifests:
    return load_variant("okd").manifests


def context_of(manifests: Manifests, tmp_path: Path, ends_s: float = 1e9, **system: Any) -> tuple[FakeContext, Acting]:
    acting = Acting(**system)
    context = FakeContext(acting, EventLog(), manifests, tmp_path, lambda name: name, ends_s=ends_s)
    acting.context = context
    return context, acting


def performed(disturbance: Disturbance, context: FakeContext) -> list[tuple[str, str]]:
    context.wait_until(disturbance.at_s)
    disturbance.disturb(context)
    return [(row["kind"], row["detail"]) for row in events_frame(context.log.events).iter_rows(named=True)]


def of(**keys: Any) -> Disturbance:
    found = parse_disruption(keys, DISTURBANCES)
    assert isinstance(found, Disturbance)
    return found


NEEDED: Mapping[str, Mapping[str, Any]] = {"churn": {"what": "routes", "per_s": 1, "for_s": 10}}


def test_the_table_has_every_kind_under_its_own_name() -> None:
    assert [each.model_fields["kind"].default for each in DISTURBANCES.values()] == list(DISTURBANCES)


@pytest.mark.parametrize("keys", [
    {"kind": "outage"}, {"kind": "starve", "cpu": "20m", "for_s": 10}, {"kind": "startup", "cpu": "20m", "within_s": 10},
    {"kind": "backends", "what": "freeze", "for_s": 3}, {"kind": "backends", "what": "roll"}, {"kind": "kill"},
    {"kind": "churn", **NEEDED["churn"]},
])  # fmt: skip
def test_begin_is_said_before_it_acts_and_end_once_that_is_undone_and_before_it_has_ceased_to_matter(
    keys: Mapping[str, Any], baseline: Manifests, tmp_path: Path
) -> None:
    """`during` has all that it did in it, and of the recovery no more than the time that a kind acts. Without a proxy it cannot be done."""
    disturbance = of(**keys)
    disturbance.vet(baseline)
    if keys["kind"] != "backends":
        with pytest.raises(NotMeasurableError):
            disturbance.vet(load_variant("direct").manifests)
    system = Acting(ready_s=8.0)
    ends_s = disturbance.at_s + disturbance.lasts_s
    context = system.context = Saying(system, EventLog(), baseline, tmp_path, lambda name: name, ends_s=ends_s)
    performed(disturbance, context)
    ended_s, last = system.log[-1]
    assert (system.log[0], last) == ((disturbance.at_s, "Begin"), "End")
    assert ended_s <= disturbance.at_s + disturbance.acts_s
    assert disturbance.acts_s < disturbance.lasts_s


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"kind": {"name": "kill"}}, "disturbance.kind: unknown kind"),
        ({"kind": "kill", "how": "drop"}, "disturbance.how"),
        ({"kind": "kill", "rol": "proxy"}, "did you mean 'role'"),
        ({"kind": "kill", "how": "crash", "pods": "all"}, "disturbance.pods: a crashed pod stays the first"),
        ({"kind": "starve", "cpu": "0m", "for_s": 5}, "disturbance.cpu"),
        ({"kind": "churn", "what": "endpoints", "per_s": 20, "for_s": 60}, "1200 changes of endpoints, there are 999"),
        ({"kind": "backends", "what": "freeze"}, "disturbance.for_s: it belongs to freeze and slow"),
        ({"kind": "backends", "what": "roll", "for_s": 5}, "disturbance.for_s: it belongs to freeze and slow"),
        ({"kind": "backends", "what": "freeze", "for_s": 5, "cpu": "1"}, "disturbance.cpu: it belongs to slow"),
        ({"kind": "transfer", "way": "upload", "size_mb": 100, "parallel": 5}, "4 uploads of 100 MB at most"),
    ],
)
def test_keys_that_mean_nothing_are_refused(keys: Mapping[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says.replace(".", r"\.")):
        parse_disruption(keys, DISTURBANCES)


@pytest.mark.parametrize(
    ("keys", "system", "done", "at_s"),
    [
        ({"kind": "kill", "recovers_s": 20}, {}, [(5, "delete proxy")], 25),
        # a refused eviction is tried again every 5 s, as kubectl drain does; a drain gives up, and that is an outcome
        ({"kind": "kill", "how": "evict", "recovers_s": 28}, {"refusals": 2}, [(at, "evict proxy") for at in (5, 10, 15)], 33),
        ({"kind": "kill", "how": "evict", "pods": "all", "recovers_s": 12}, {"refusals": 99}, [(at, "evict proxy") for at in (5, 10, 15)], 17),
        ({"kind": "starve", "cpu": "20m", "for_s": 30}, {}, [(5, "squeeze proxy 20m"), (35, "squeeze proxy None")], 35),
        # a router starts with little CPU from its first instruction, and has it back when it is ready, or its time is over
        ({"kind": "startup", "cpu": "100m", "within_s": 60}, {"ready_s": 24.0}, [(5, "squeeze proxy 100m"), (5, "crash proxy"), (24, "squeeze proxy None")], 65),
        ({"kind": "startup", "cpu": "100m", "within_s": 20}, {}, [(5, "squeeze proxy 100m"), (5, "crash proxy"), (25, "squeeze proxy None")], 25),
        ({"kind": "startup", "within_s": 60}, {}, [(5, "crash proxy")], 65),
        ({"kind": "backends", "what": "add"}, {}, [(5, "scale backend 2")], 15),
        ({"kind": "backends", "what": "fail"}, {}, [(5, "crash backend")], 15),
        ({"kind": "backends", "what": "freeze", "for_s": 4}, {}, [(5, "freeze backend"), (9, "thaw backend")], 19),
        ({"kind": "backends", "what": "slow", "for_s": 4, "cpu": "10m"}, {}, [(5, "squeeze backend 10m"), (9, "squeeze backend None")], 19),
        ({"kind": "backends", "what": "roll"}, {}, [(5, "roll backend")], 15),
        ({"kind": "churn", "what": "endpoints", "per_s": 2, "for_s": 2}, {}, [(at, "apply EndpointSlice") for at in (5, 5.5, 6, 6.5)], 7),
    ],
)  # fmt: skip
def test_it_is_done_in_its_time(
    keys: Mapping[str, Any], system: Mapping[str, Any], done: list[tuple[float, str]], at_s: float, okd: Manifests, tmp_path: Path
) -> None:  # fmt: skip
    context, acting = context_of(okd, tmp_path, **system)
    said = performed(of(**keys), context)
    assert acting.log == done
    assert (said[0][0], said[-1][0], context.at_s) == ("Begin", "End", at_s)


@pytest.mark.parametrize("variant", ["ingress-nginx+proxy-replicas-2", "okd+okd-sharded-2"])
def test_of_a_proxy_of_several_pods_a_drain_evicts_each_and_one_that_starts_again_is_waited_for(
    variant: str, tmp_path: Path
) -> None:
    """The other has been ready all the time, and started again is not ready yet. One alone that stands still is no outage."""
    manifests = load_variant(variant).manifests
    context, system = context_of(manifests, tmp_path)
    performed(of(kind="kill", how="evict", pods="all"), context)
    assert system.log == [(5.0, "evict proxy")] * 2
    with pytest.raises(NotMeasurableError, match="one proxy pod stands still, and the variant has 2"):
        of(kind="outage").vet(manifests)
    context, system = context_of(manifests, tmp_path, started_s=10.0, ready_s=24.0, others=1)
    performed(of(kind="startup", cpu="100m", within_s=60), context)
    assert system.log[-1] == (24.0, "squeeze proxy None")


def test_what_a_load_that_ends_early_interrupts_is_undone(baseline: Manifests, tmp_path: Path) -> None:
    for keys, undone in (
        ({"kind": "starve", "cpu": "20m", "for_s": 30}, "squeeze proxy None"),
        ({"kind": "startup", "cpu": "100m", "within_s": 30}, "squeeze proxy None"),
        ({"kind": "backends", "what": "freeze", "for_s": 30}, "thaw backend"),
        ({"kind": "backends", "what": "slow", "cpu": "10m", "for_s": 30}, "squeeze backend None"),
    ):
        context, system = context_of(baseline, tmp_path, ends_s=9)
        with pytest.raises(LoadEndedError):
            performed(of(**keys), context)
        assert system.log[-1] == (9.0, undone)


@pytest.mark.parametrize("variant", ["ingress-nginx", "direct"])
def test_what_changes_is_there_before_the_load_and_answers(variant: str, okd: Manifests, tmp_path: Path) -> None:
    """So is a pod that is removed. In control runs it is, too: they differ by its removal only. Where there is no proxy nothing reloads."""
    context, system = context_of(load_variant(variant).manifests, tmp_path)
    disturbance = of(kind="backends", what="remove")
    disturbance.vet(context.manifests)
    disturbance.prepare(context)
    assert [what for _, what in system.log] == ["scale backend 2"]
    performed(disturbance, context)
    assert system.log[1:] == [(5.0, "scale backend 1")]
    context, system = context_of(okd, tmp_path)
    disturbance = of(kind="churn", what="routes", per_s=1, for_s=2)
    assert (disturbance.host, disturbance.fixtures) == (HOST, ("answers",))
    disturbance.prepare(context)
    assert [what for _, what in system.log] == ["apply Service", "apply EndpointSlice", "apply Route"]


def test_changes_are_numbered_and_as_old_as_their_request(baseline: Manifests, tmp_path: Path) -> None:
    """A system that answers late has a change all the same: what was asked in the meantime may show it."""
    context, system = context_of(baseline, tmp_path)
    applied: list[float] = []

    def apply(_objects: Manifests) -> None:
        applied.append(time.time())
        time.sleep(0.05)

    system.apply = apply  # type: ignore[method-assign]
    performed(of(kind="churn", what="routes", per_s=1, for_s=2, settles_s=3), context)
    first, second = [row for row in events_frame(context.log.events).iter_rows(named=True) if row["kind"] == "Change"]
    assert (first["object"], second["object"]) == ("1", "2")
    assert first["at_s"] <= applied[0]
    accepted = re.fullmatch(r"routes accepted after (\d\.\d{4}) s", first["detail"])
    assert accepted and 0.05 <= float(accepted[1]) < 1
    context, _ = context_of(baseline, tmp_path, slow_s=0.4)
    with pytest.raises(MeasuringError, match=r"change \d+ was accepted .* after it was due"):
        performed(of(kind="churn", what="routes", per_s=10, for_s=10), context)
    assert Churn(what="routes", per_s=0.1, for_s=60).count == 6


def test_a_variant_whose_changes_would_not_arrive_is_refused(okd: Manifests) -> None:
    quick = of(kind="churn", what="routes", per_s=1, for_s=10, settles_s=19)
    quick.vet(okd)
    quick.vet(load_variant("reload-15s").manifests)
    with pytest.raises(UsageError, match=r"a change may wait 120 s .*\n.*reload-long"):
        quick.vet(load_variant("reload-120s").manifests)
    for variant in ("okd-passthrough", "okd-reencrypt"):
        with pytest.raises(NotMeasurableError, match="TLS to the backend"):
            quick.vet(load_variant(variant).manifests)


def test_a_change_is_a_header_of_a_routes_requests_an_ingresss_annotation_or_another_port_of_the_same_pod(
    okd: Manifests, baseline: Manifests
) -> None:
    """An annotation alone does nothing: the controller writes the header only where it rewrites."""
    first = next(obj for obj in okd if obj["kind"] == "Route")
    made = build_route(okd, 7)
    assert made["metadata"]["labels"] == first["metadata"]["labels"], "by them the router finds it"
    assert (made["spec"]["host"], made["spec"]["to"]["name"]) == (HOST, "changing")
    (action,) = made["spec"]["httpHeaders"]["actions"]["request"]
    assert action == {"name": "X-Forwarded-Prefix", "action": {"type": "Set", "set": {"value": "/7"}}}
    assert "httpHeaders" not in build_route(okd, 0)["spec"]
    assert "httpHeaders" not in first["spec"], "the variant's own stays as it is"
    made, prefix = build_route(baseline, 7), "nginx.ingress.kubernetes.io"
    assert made["metadata"]["annotations"] == {f"{prefix}/rewrite-target": "$uri", f"{prefix}/x-forwarded-prefix": "/7"}
    assert (made["spec"]["ingressClassName"], made["spec"]["rules"][0]["host"]) == ("ingress-lab", HOST)
    made = build_endpoints(okd, "192.0.2.7", 7)
    assert (made["endpoints"][0]["addresses"], made["ports"][0]["port"]) == (["192.0.2.7"], FIRST_PORT + 7)
    assert made["metadata"]["labels"]["kubernetes.io/service-name"] == build_service(okd)["metadata"]["name"]
    assert "selector" not in build_service(okd)["spec"]


def test_connections_are_held_from_before_the_load_until_after_it(
    baseline: Manifests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In control runs, too, which do no more than prepare: what cuts them is then what was done."""

    @contextmanager
    def held(context: FakeContext, websockets: int, downloads: int) -> Iterator[None]:
        system.note(f"held {websockets} {downloads}")
        yield
        system.note("let go")

    monkeypatch.setattr(_background, "hold_connections", held)
    context, system = context_of(baseline, tmp_path)
    disturbance = of(kind="kill", recovers_s=10, websockets=3, downloads=2)
    assert disturbance.fixtures == ("answers",)
    disturbance.prepare(context)
    performed(disturbance, context)
    context.background.close()
    assert system.log == [(0.0, "held 3 2"), (5.0, "delete proxy"), (15.0, "let go")]


@pytest.mark.parametrize("name", ["kill", "churn"])
def test_websockets_need_a_backend_of_one_pod(name: str, okd: Manifests) -> None:
    several, keys = load_variant("okd-replicas-2").manifests, NEEDED.get(name, {})
    with pytest.raises(UsageError, match=r"disturbance\.websockets: .* one of 2 backend pods"):
        of(kind=name, websockets=5, **keys).vet(several)
    of(kind=name, downloads=5, **keys).vet(several)
    of(kind=name, websockets=5, **keys).vet(okd)


@pytest.mark.parametrize(("name", "own"), [("baseline", 1), ("okd", 100), ("nginx-ngf", 1)])
def test_a_start_is_with_as_many_routes_as_are_asked_for(
    name: str, own: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All like the variant's own, each with a host and a name of its own; the last must be served before the load begins."""
    manifests = load_variant(name).manifests
    startup = of(kind="startup", within_s=10, routes=own + 7)
    startup.vet(manifests)
    context, system = context_of(manifests, tmp_path)
    made, asked = list[Mapping[str, Any]](), list[str]()
    statuses = iter([404, 503, 200])

    def fetch(endpoint: Endpoint, *_: object) -> Response:
        asked.append(endpoint.host)
        return Response(next(statuses), PAGE, {})

    monkeypatch.setattr(system, "apply", made.extend)
    monkeypatch.setattr(system, "fetch", fetch)
    startup.prepare(context)
    specs = [obj["spec"] for obj in made]
    hosts = {str(spec.get("host") or spec.get("hostnames") or spec["rules"][0]["host"]) for spec in specs}
    assert (len(made), len(hosts), len({obj["metadata"]["name"] for obj in made})) == (7, 7, 7)
    assert {obj["metadata"]["namespace"] for obj in made} == {"ingress-lab"}
    assert asked == ["more-0007.apps.lab.test"] * 3
    assert of(kind="startup", within_s=10).prepared != startup.prepared
    if own > 1:
        with pytest.raises(UsageError, match="asks for 99 routes, the variant has 100 of its own"):
            of(kind="startup", within_s=10, routes=own - 1).vet(manifests)


# -- new-route: one route more for a host that nobody knew, in the variant's own form


@dataclass
class Knowing(FakeSystem):
    """`status`: of a host without a route."""

    status: int = 404

    def fetch(self, endpoint: Endpoint, path: str, timeout_s: float, headers: Any = None) -> Response:
        assert endpoint.host == new_route.HOST
        if self.status == 0:
            raise OSError("connection refused")
        return Response(self.status, b"", {})


@pytest.mark.parametrize(("variant", "kind"), [("baseline", "Ingress"), ("okd", "Route"), ("okd-edge", "Route")])
def test_a_new_route_is_one_more_like_the_first(variant: str, kind: str) -> None:
    manifests = load_variant(variant).manifests
    first = next(obj for obj in manifests if obj["kind"] == kind)
    new = new_route.new_route(manifests)
    assert (new["kind"], new["metadata"]["name"]) == (kind, "new") and new_route.HOST in str(new["spec"])
    for key in ("namespace", "labels"):
        assert new["metadata"].get(key) == first["metadata"].get(key)
    assert new["spec"].get("tls") == first["spec"].get("tls")
    assert first["metadata"]["name"] != "new" and new_route.HOST not in str(first)  # a copy


def test_where_there_can_be_no_new_route_or_it_waits_longer_than_the_load_lasts_is_refused() -> None:
    for variant, what in (("nginx", "no routes"), ("okd-passthrough", "passthrough")):
        with pytest.raises(NotMeasurableError) as raised:
            NewRoute().vet(load_variant(variant).manifests)
        assert raised.value.what == what
    slow = load_variant("reload-60s").manifests
    with pytest.raises(UsageError, match=r"disturbance\.within_s: .* 60 s for its reload.*\n.*within_s is 75 or more"):
        NewRoute().vet(slow)
    NewRoute(within_s=75.0).vet(slow)
    NewRoute().vet(load_variant("okd").manifests)


def test_a_new_route_is_applied_and_said_unless_its_host_is_answered_already(
    baseline: Manifests, tmp_path: Path
) -> None:
    system = Knowing()
    context = FakeContext(system, EventLog(), baseline, tmp_path, lambda name: name)
    NewRoute().prepare(context)
    assert system.done == []  # nor in a control run
    NewRoute().disturb(context)
    assert system.done == ["apply Ingress"]
    said = [(row["kind"], row["object"]) for row in events_frame(context.log.events).iter_rows(named=True)]
    assert said == [("Begin", ""), ("Change", "1")]
    assert (NewRoute().host, NewRoute().awaited) == (new_route.HOST, new_route.NOT_THERE)
    for system.status, fault in ((200, "there is no route for it yet"), (0, "connection refused")):
        with pytest.raises(MeasuringError, match=fault):
            NewRoute().prepare(context)
