"""What a cluster as a target refuses before it asks one, and how it ends: asked without any cluster."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab import targets
from lab.__main__ import main
from lab.base.errors import LabError, LostError, MeasuringError, NotMeasurableError, UsageError
from lab.disturbances.outage import Outage
from lab.model.endpoint import Endpoint
from lab.model.load import GeneratorLoad
from lab.model.variants.variants import Check, load_variant
from lab.targets.cluster import system as cluster_system
from lab.targets.cluster import target as module
from lab.targets.cluster.api import Api, DeniedError
from lab.targets.cluster.system import ClusterSystem
from lab.targets.cluster.target import ClusterTarget, largest_cpus
from lab.targets.clusters import KIND
from lab.targets.common.leftovers import SCRIPT, OrdinaryProcessCount
from lab.tests.support.cluster_fakes import FakeApi
from lab.tests.support.factories import make_point
from lab.tests.support.fakes import FakeTarget
from lab.tests.support.fakes import variant as fake_variant
from lab.tests.targets.common.test_leftovers import TOLD


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = [{"name": name, "context": {"cluster": "c", "user": "u"}} for name in ("production", "bench")]
    content = {
        "current-context": "production",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": known,
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(content))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))


def test_what_the_nodes_do_not_have_is_not_measurable() -> None:
    for check, open_files, what in (
        (Check(kind="nginx", name="worker_processes", value="8"), 20000, "cores"),
        (Check(kind="haproxy", name="Nbthread", value="3"), 20000, "cores"),
        (Check(kind="nginx", name="worker_rlimit_nofile", value="65536"), 20000, "open files"),
        (Check(kind="limit", name="Max open files", process="nginx", value="30000"), 20000, "open files"),
        (Check(kind="nginx", name="worker_processes", value="2"), 20000, ""),
        (Check(kind="nginx", name="worker_processes", value="auto"), 20000, ""),
        (Check(kind="nginx", name="worker_rlimit_nofile", value="20000"), 20000, ""),
        (Check(kind="sysctl", name="net.core.somaxconn", value="32768"), 20000, ""),
        (Check(kind="nginx", name="worker_rlimit_nofile", value="1000000"), None, ""),
    ):
        with pytest.raises(NotMeasurableError) if what else nullcontext() as raised:
            module.vet_checks(fake_variant("v", readback=[check]), cpus=2, open_files=open_files)
        assert raised is None or raised.value.what == what
    for nodes, cpus in (
        ([node("4", allocatable="3920m")], 4),
        ([node("2"), node("16", "generator")], 2),
        ([node("2"), node("8", "proxy"), node("16", "generator")], 8),
        ([node("16", "generator")], 16),
    ):
        assert largest_cpus(nodes) == cpus


def test_a_place_that_is_not_there_is_refused_before_anything_is_asked(
    kubeconfig: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for options, said in (
        ("--target remote --context benhc", "did you mean 'bench'"),
        ("--target remote", "the current one is never taken --context NAME; known: production, bench"),
        ("--target local --context bench", "--context"),
        ("--target kind --context bench", "--context"),
        ("--target kind", "just up kind"),
    ):
        monkeypatch.setenv("LAB_KIND_NAME", "never-made")
        assert main(["bench", "keepalive", *options.split()]) == 2
        assert said in " ".join(capsys.readouterr().err.split())


def node(cpus: str, role: str | None = None, allocatable: str = "1") -> dict[str, Any]:
    labels = {"lab/role": role} if role else {}
    return {"metadata": {"labels": labels}, "status": {"capacity": {"cpu": cpus}, "allocatable": {"cpu": allocatable}}}


@dataclass
class Held:
    """The lease, the inventory, the generator's pod and the variant's system at once; `log`: what was asked of them."""

    lost: bool = False
    place: str = "context test"
    log: list[str] = field(default_factory=list[str])

    open_files: int | None = None

    def __getattr__(self, name: str) -> Callable[..., None]:
        said = {"release": "released", "apply": "applied", "await_pods": "the last pods are gone"}
        said |= {"end_workloads": "workloads ended", "remove": "all removed"}
        return lambda *_: self.log.append(said[name]) if name in said else None

    def check(self) -> None:
        if self.lost:
            raise LostError("lease ingress-lab", "lost: bob holds it now", "see that no other lab uses this cluster")

    def resolving(self, addresses: object) -> AbstractContextManager[None]:
        return nullcontext()

    def nodes(self) -> dict[str, set[str]]:
        return {}

    def resource(self, api_version: str, kind: str) -> tuple[str, bool] | None:
        return kind.lower() + "s", kind != "Namespace"

    def named(self, name: str) -> str:
        return name

    resolve = named


def taken(held: Held, monkeypatch: pytest.MonkeyPatch) -> ClusterTarget:
    """A target that has taken its place on a cluster where everything is `held`."""

    def unconnected() -> Api:
        raise AssertionError

    target = ClusterTarget("test", unconnected, "a test's")
    parts: Any = held
    place = module._Session(parts, parts, parts, {"left": parts}, parts, [node("4")], parts)  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(target, "_taken", place)
    monkeypatch.setattr(module.rollout, "wait_until_ready", lambda *_: None)
    monkeypatch.setattr(module, "ClusterSystem", lambda *_: held)
    return target


@pytest.mark.parametrize("lost", [True, False])
@pytest.mark.parametrize("error", [None, MeasuringError("proxy", "does not answer"), UsageError("proxy", "is refused")])
def test_a_lost_lease_ends_no_workload(lost: bool, error: LabError | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """And whatever went wrong meanwhile says nothing about the variant: the run stops. While it is held they go in any case."""
    held = Held()

    def measure() -> None:
        with taken(held, monkeypatch).up(load_variant("direct")):
            held.lost = lost
            if error is not None:
                raise error

    if lost:
        with pytest.raises(LostError, match="bob holds it now"):
            measure()
    else:
        with pytest.raises(type(error)) if error else nullcontext():
            measure()
    assert held.log == ["applied", "the last pods are gone", *([] if lost else ["workloads ended"])]


def test_the_other_side_comes_up_meanwhile_and_where_this_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    gone, other = "the last pods are gone", "the other side"
    for nodes, log in ((1, ["applied", other, gone]), (2, ["applied", gone, other])):
        held = Held()
        target = taken(held, monkeypatch)
        target._session.nodes[:] = [node("4")] * nodes  # pyright: ignore[reportPrivateUsage]
        with target.up(load_variant("direct"), meanwhile=lambda held=held: held.log.append("the other side")):
            assert held.log == log


def test_closing_without_the_lease_removes_nothing_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(lost=True)
    with pytest.raises(MeasuringError, match=r"bob holds it now\n  another lab may be using what is there"):
        taken(held, monkeypatch).close()
    assert held.log == ["released"]
    held = Held()
    taken(held, monkeypatch).close()
    assert held.log == ["all removed", "released"]


@pytest.mark.parametrize("doing", ["apply", "end_workloads"])
def test_a_right_that_is_missing_stops_the_run(doing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held()

    def denied(*_: object) -> None:
        raise DeniedError("context test: Deployment ingress-lab/proxy", "user u cannot patch deployments.apps")

    monkeypatch.setattr(held, doing, denied)
    with (
        pytest.raises(LostError, match=r"user u cannot patch deployments.apps\n  ask for this right"),
        taken(held, monkeypatch).up(load_variant("direct")),
    ):
        assert doing == "end_workloads", "it is up"


class Inside(SimpleNamespace):
    """A container's shell, and the generator's pod: `answer` gives what is printed, (status, printed, complained), or an error."""

    def __init__(self, answer: Callable[[str], str | tuple[int, str, str] | Exception], pid: int = 9) -> None:
        super().__init__(place="pod ingress-lab/proxy-1", pid=pid, answer=answer, asked=[], started=[])

    def script(self, text: str) -> subprocess.CompletedProcess[str]:
        self.asked.append(text)
        said = self.answer(text)
        if isinstance(said, Exception):
            raise said
        status, out, err = said if isinstance(said, tuple) else (0, said, "")
        return subprocess.CompletedProcess([text], status, out, err)

    def held(self, *argv: object) -> None:
        self.started.append(argv)


def haproxy(_: str) -> str:
    return "# pxname,svname,ssl_sess,ssl_reused_sess\nfe,FRONTEND,7,5\n"


def system(held: Held, inside: Any, monkeypatch: pytest.MonkeyPatch) -> ClusterSystem:
    """Its one pod is a router, whose shell and the generator's are `inside`."""
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    metadata, spec = {"name": "proxy-1", "namespace": "ingress-lab"}, {"containers": [{"name": "router"}]}
    shown: Any = FakeApi()
    monkeypatch.setattr(shown, "list", lambda *_: [{"metadata": metadata, "spec": spec, "status": status}])
    manifests = load_variant("okd-edge").manifests
    made = ClusterSystem(shown, inside, inside, manifests, "ingress-lab", "run-1", inside, held.check)
    monkeypatch.setattr(made, "_shell", lambda pod: inside)
    return made


@pytest.mark.parametrize("still", [True, False])
def test_a_container_that_is_gone_needs_no_continuing(still: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    lost, denied = LostError("pod proxy-1", "no longer runs", ""), DeniedError("pod proxy-1", "you may not exec")
    answers = ["7 1 nginx\n", "7\n", lost, "7 1 nginx\n", "7\n", denied]
    inside = Inside(lambda _: answers.pop(0))
    made = system(Held(), inside, monkeypatch)
    made.freeze("proxy", True)
    statuses = [{"name": "router", "state": {"running": {}}}]
    found = {"metadata": {}, "spec": {"containers": [{"name": "router"}]}, "status": {"containerStatuses": statuses}}
    monkeypatch.setattr(made._api, "get", lambda *_: found if still else None)  # pyright: ignore[reportPrivateUsage]
    if not still:
        made.freeze("proxy", False)
        return
    with pytest.raises(LostError):
        made.freeze("proxy", False)
    made.freeze("proxy", False)
    assert inside.asked[-1] == "for pid in 7; do kill -CONT $pid && echo $pid; done"
    with pytest.raises(LostError, match=r"you may not exec\n  ask for this right"):  # nothing about the variant
        made.freeze("proxy", True)


def test_of_a_controller_whose_image_has_no_shell_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    made = system(Held(), Inside(haproxy), monkeypatch)

    def fails(fault: LabError) -> Any:
        def shell(pod: object) -> None:
            raise fault

        return shell

    monkeypatch.setattr(made, "_shell", fails(LostError("pod ingress-lab/envoy-gateway-1", "is gone")))
    with pytest.raises(LostError):
        made._controllers  # noqa: B018  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(made, "_shell", fails(MeasuringError("pod ingress-lab/envoy-gateway-1", "does not answer")))
    assert made._controllers == []  # pyright: ignore[reportPrivateUsage]


def test_nginxs_master_is_told_to_make_new_workers_and_they_are_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The master, not a worker, nor the controller, whose name begins alike."""

    def processes(_: str) -> str:
        """Whose workers are others after each reload."""
        worker = 30 + sum(text.startswith("kill") for text in inside.asked)
        return f"1 0 dumb-init\n7 1 nginx-ingress-c\n20 7 nginx\n{worker} 20 nginx\n"

    inside = Inside(processes, pid=99)
    made = system(Held(), inside, monkeypatch)
    monkeypatch.setattr(made, "_fault", lambda _: "")
    monkeypatch.setattr(made, "entry", lambda: None)
    first, second = made.renew(), made.renew()
    assert (first.ended, first.began, second.ended, second.began) == ((30,), (31,), (31,), (32,))
    assert [text for text in inside.asked if text.startswith("kill")] == ["kill -HUP 20"] * 2


def coming_up(
    refused: int,
    fetched: list[int],
    monkeypatch: pytest.MonkeyPatch,
    pods: Sequence[tuple[str, int]] = (),
    late: str = "",
) -> tuple[ClusterSystem, Inside]:
    """The first connections are `refused`; the pod `late` answers right when it is asked for the third time."""
    inside = Inside(lambda _: (124 if len(inside.asked) <= refused else 0, "", ""))
    asked: list[tuple[str, int]] = []

    def answers(_: object, place: tuple[str, int] | None = None) -> str:
        fetched.append(len(inside.asked))
        if place is None:
            return ""
        asked.append(place)
        return "h: status 503, 190 bytes" if place[0] == late and asked.count(place) < 3 else ""

    monkeypatch.setattr(cluster_system, "list_pod_addresses", lambda *_: list(pods))
    made, at = system(Held(), inside, monkeypatch), Endpoint("http://10.96.0.7:80", "h", ("h",))
    for name, value in {"entry": at, "_build_endpoint": at, "processes": [], "log_tail": ""}.items():
        monkeypatch.setattr(made, name, lambda *_, value=value: value)
    monkeypatch.setattr(made, "_fault", answers)
    return made, inside


def test_nothing_is_fetched_before_a_connection_is_taken_and_each_pod_serves_before_it_is_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that the SOCKS server was to make and nobody waits for any more would stay."""
    fetched = list[int]()
    made, inside = coming_up(2, fetched, monkeypatch)
    made.wait(time.monotonic() + 60, 0)
    assert set(fetched) == {3}
    assert inside.asked[0] == "timeout 0.25 bash -c '</dev/tcp/10.96.0.7/80'"
    fetched = list[int]()
    with pytest.raises(MeasuringError, match="10.96.0.7:80 takes no connection within 0.25 s"):
        coming_up(1000, fetched, monkeypatch)[0].wait(time.monotonic(), 0)
    assert fetched == []
    pods = [("10.244.0.7", 80), ("10.244.0.8", 80)]
    monkeypatch.setattr(cluster_system, "SETTLED_S", 0.0)
    for late, asked in (("", 4), ("10.244.0.8", 12)):
        fetched = list[int]()
        coming_up(0, fetched, monkeypatch, pods, late)[0].wait(time.monotonic() + 60, 0)
        assert len(fetched) == asked, "two ways in and two pods, once or three times"
    with pytest.raises(MeasuringError, match="/1kB.bin: h: status 503, 190 bytes"):
        coming_up(0, list[int](), monkeypatch, pods, "10.244.0.8")[0].wait(time.monotonic(), 0)


def test_what_a_variant_cannot_show_here_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    target = taken(Held(), monkeypatch)
    target.name = "kind"
    points = [make_point("ceiling", rate_rps=None, generations=6)]
    with pytest.raises(NotMeasurableError, match="no reload of this proxy makes new workers"):
        target.check_variant(load_variant("okd-edge"), points)
    assert target.check_variant(load_variant("baseline"), points)
    steady, disturbed = make_point(), make_point("outage", disturbance=Outage())
    assert target.check_variant(load_variant("pod-address"), [steady])
    said = r"(?s)pod-address: its Service is headless.*a Service with a cluster IP"
    with pytest.raises(NotMeasurableError, match=said):
        target.check_variant(load_variant("pod-address"), [steady, disturbed])
    assert target.check_variant(load_variant("baseline"), [disturbed])


def test_no_load_is_made_and_no_sample_good_without_the_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held, inside = Held(), Inside(haproxy)
    made = system(held, inside, monkeypatch)
    assert made.counters() == {"proxy/tls_handshakes": 12, "proxy/tls_resumed": 5}
    held.lost = True
    with pytest.raises(LostError), (tmp_path / "out").open("wb") as out:
        made.popen(["wrk"], tmp_path, out, out)
    assert inside.started == []
    with pytest.raises(LostError):
        made.generate(GeneratorLoad("http://10.0.0.1/1kB.bin", "h", 10, 5.0, generators=2), {})
    with pytest.raises(LostError):
        made.counters()
    mute = Inside(lambda _: (1, "", "Connection refused"))
    said = "pod ingress-lab/proxy-1: .*does not report its handshakes: Connection refused"
    with pytest.raises(MeasuringError, match=said):
        system(Held(), mute, monkeypatch).counters()
    KIND.close()  # what was never opened is closed without a word


class Leaving(FakeTarget):
    def enter(self, argv: Sequence[str]) -> int:
        raise UsageError("target fake", "is not there", "make one")

    def close(self) -> None:
        raise MeasuringError("context bench", "the API server does not answer", "`just down` takes all of it")


def test_what_cannot_be_given_back_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    leaving = Leaving()
    monkeypatch.setattr(targets, "choose_target", lambda name, context: leaving)
    monkeypatch.setattr(targets, "close_targets", leaving.close)
    assert main(["bench", "keepalive"]) == 1
    said = capsys.readouterr().err
    assert said.index("is not there") < said.index("just down")


def came_up(**said: str | LabError | Sequence[str | LabError]) -> ClusterSystem:
    """One that came up with these pods, `proxy…` and `backend…`, and does not change; their shells say one thing after the other."""
    made: Any = ClusterSystem.__new__(ClusterSystem)
    made._changing, made._ordinary = False, OrdinaryProcessCount()
    lasting = {name: [each] if isinstance(each, (str, Exception)) else list(each) for name, each in said.items()}
    shells = {name: Inside(lambda _, name=name: lasting[name].pop(0), pid=1) for name in said}
    pods = {name: {"metadata": {"namespace": "ns", "name": name}} for name in said}
    made._came_up = {
        role: [pod for name, pod in pods.items() if name.startswith(role)] for role in ("proxy", "backend")
    }
    made._shell = lambda pod: shells[pod["metadata"]["name"]]
    return made


def test_every_pod_is_a_place_and_processes_are_added_up() -> None:
    more = TOLD.replace("4 1 19292", "6 0 1000")
    found = came_up(proxya=TOLD, proxyb=more, backend=TOLD).leftovers()
    assert found.time_wait == {name: {"10.64.0.3:8080": 2} for name in ("proxy", "proxy-2", "backend")}
    assert found.port_range["proxy-2"] == 28_232 and found.accept_queue["proxy"] == 11
    assert found.open_connections["backend"] == 6 and not found.unseen
    assert found.memory_bytes == {"proxy": 20_292 * 1024, "backend": 19_292 * 1024}
    assert found.old_workers == 1, "one says that it is ending"
    calm, more = (TOLD.replace("4 1 19292", text) for text in ("4 0 1", "6 0 1"))
    one = came_up(proxy=(calm, more))
    assert [one.leftovers().old_workers for _ in range(2)] == [0, 2]
    own = subprocess.run(["sh", "-c", f"SHELL_PID=1\n{SCRIPT}"], capture_output=True, text=True, check=True).stdout
    found = came_up(proxy=own).leftovers()  # as this machine's own sh says it
    assert found.port_range["proxy"] > 1_000 and found.memory_bytes["proxy"] > 0 and not found.unseen


def test_a_pod_that_does_not_answer_is_unseen_and_its_workers_unknown() -> None:
    refused = MeasuringError("pod ns/a", "does not answer")
    found = came_up(proxy=refused, backend="half").leftovers()
    assert set(found.unseen) == {"proxy", "backend"} and "does not answer" in found.unseen["proxy"]
    assert found.old_workers is None and found.time_wait == {}
    gone = LostError("pod ns/a", "is gone")
    with pytest.raises(LostError):
        came_up(proxy=gone).leftovers()
    made: Any = came_up(proxy=(gone, TOLD))
    made._changing, made.pods = True, lambda role: made._came_up[role]
    assert made.leftovers().old_workers == 1
