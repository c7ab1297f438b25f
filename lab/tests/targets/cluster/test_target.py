"""What a cluster as a target refuses before it asks one, and how it ends: asked without any cluster."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lab import targets
from lab.__main__ import main
from lab.base.errors import LabError, LostError, MeasuringError, NotMeasurableError, UsageError
from lab.disturbances.outage import Outage
from lab.model.endpoint import Endpoint
from lab.model.load import Load
from lab.model.variants.variants import Check, load_variant
from lab.targets.cluster import system as cluster_system
from lab.targets.cluster import target as module
from lab.targets.cluster.api import Api, DeniedError
from lab.targets.cluster.system import ClusterSystem
from lab.targets.cluster.target import ClusterTarget, largest_cpus
from lab.targets.clusters import KIND, REMOTE
from lab.tests.support.cluster_fakes import FakeApi
from lab.tests.support.factories import make_point
from lab.tests.support.fakes import FakeTarget
from lab.tests.support.fakes import variant as fake_variant

KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "production",
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9"}}],
    "users": [{"name": "u", "user": {"token": "t"}}],
    "contexts": [{"name": name, "context": {"cluster": "c", "user": "u"}} for name in ("production", "bench")],
}


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(KUBECONFIG))
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


@pytest.mark.parametrize(
    ("check", "open_files", "what"),
    [
        (Check(kind="nginx", name="worker_processes", value="8"), 20000, "cores"),
        (Check(kind="haproxy", name="Nbthread", value="3"), 20000, "cores"),
        (Check(kind="nginx", name="worker_rlimit_nofile", value="65536"), 20000, "open files"),
        (Check(kind="limit", name="Max open files", process="nginx", value="30000"), 20000, "open files"),
        (Check(kind="nginx", name="worker_processes", value="2"), 20000, ""),
        (Check(kind="nginx", name="worker_processes", value="auto"), 20000, ""),
        (Check(kind="nginx", name="worker_rlimit_nofile", value="20000"), 20000, ""),
        (Check(kind="sysctl", name="net.core.somaxconn", value="32768"), 20000, ""),
        (Check(kind="nginx", name="worker_rlimit_nofile", value="1000000"), None, ""),
    ],
)
def test_what_the_nodes_do_not_have_is_not_measurable(check: Check, open_files: int | None, what: str) -> None:
    """Told by the variant's own read-backs, whatever sets them."""
    with pytest.raises(NotMeasurableError) if what else nullcontext() as raised:
        module.vet(fake_variant("v", readback=[check]), cpus=2, open_files=open_files)
    assert raised is None or raised.value.what == what


@pytest.mark.slow
def test_remote_without_a_context_names_those_there_are(kubeconfig: Path) -> None:
    """The current one is among them, and not taken."""
    with pytest.raises(UsageError, match="the current one is never taken(?s:.*)production, bench"):
        REMOTE.at(None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--target remote --context benhc", "did you mean 'bench'"),
        ("--target local --context bench", "--context"),
        ("--target kind --context bench", "--context"),
        ("--target kind", "just up kind"),
    ],
)
def test_a_place_that_is_not_there_is_refused_before_anything_is_asked(
    options: str, said: str, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And a context belongs to remote alone."""
    monkeypatch.setenv("LAB_KIND_NAME", "never-made")
    assert main(["bench", "keepalive", *options.split()]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def node(cpus: str, role: str | None = None, allocatable: str = "1") -> dict[str, Any]:
    labels = {"lab/role": role} if role else {}
    return {"metadata": {"labels": labels}, "status": {"capacity": {"cpu": cpus}, "allocatable": {"cpu": allocatable}}}


@pytest.mark.parametrize(
    ("nodes", "cpus"),
    [
        ([node("4", allocatable="3920m")], 4),
        ([node("2"), node("16", "generator")], 2),
        ([node("2"), node("8", "proxy"), node("16", "generator")], 8),
        ([node("16", "generator")], 16),
    ],
)
def test_the_largest_node_is_one_that_proxies_may_run_on(nodes: list[dict[str, Any]], cpus: int) -> None:
    assert largest_cpus(nodes) == cpus


@dataclass
class Held:
    """The lease, the inventory, the generator's pod and the variant's system at once; `log`: what was asked of them."""

    lost: bool = False
    place: str = "context test"
    log: list[str] = field(default_factory=list[str])

    def check(self) -> None:
        if self.lost:
            raise LostError("lease ingress-lab", "lost: bob holds it now", "see that no other lab uses this cluster")

    def release(self) -> None:
        self.log.append("released")

    def apply(self, objects: object) -> None:
        self.log.append("applied")

    def await_pods(self, but: str) -> None:
        self.log.append("the last pods are gone")

    def end_workloads(self) -> None:
        self.log.append("workloads ended")

    def remove(self) -> None:
        self.log.append("all removed")

    @contextmanager
    def resolving(self, addresses: object) -> Iterator[None]:
        yield

    def addresses(self) -> dict[str, str]:
        return {}

    def nodes(self) -> dict[str, set[str]]:
        return {}

    def wait(self, deadline: float, still_until: float) -> None: ...

    def close(self) -> None: ...

    def version(self) -> str:
        return "v1.34.4"

    def resource(self, api_version: str, kind: str) -> tuple[str, bool] | None:
        return kind.lower() + "s", kind != "Namespace"

    def named(self, name: str) -> str:
        return name

    def resolve(self, reference: str) -> str:
        return reference

    open_files: int | None = None


def taken(held: Held, monkeypatch: pytest.MonkeyPatch) -> ClusterTarget:
    """A target that has taken its place on a cluster where everything is `held`."""

    def unconnected() -> Api:
        raise AssertionError

    def waited(*_: object) -> None: ...

    def made(*_: object) -> Held:
        return held

    target = ClusterTarget("test", unconnected, "a test's")
    parts: Any = held
    place = module._Place(parts, parts, parts, {"left": parts}, parts, [node("4")], parts)  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(target, "_taken", place)
    monkeypatch.setattr(module.rollout, "wait", waited)
    monkeypatch.setattr(module, "ClusterSystem", made)
    return target


@pytest.mark.parametrize("lost", [True, False])
@pytest.mark.parametrize("error", [None, MeasuringError("proxy", "does not answer"), UsageError("proxy", "is refused")])
def test_a_lab_that_lost_its_lease_leaves_the_other_labs_workloads_alone(
    lost: bool, error: LabError | None, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@pytest.mark.parametrize(
    ("nodes", "log"),
    [
        (1, ["applied", "the other side", "the last pods are gone"]),
        (2, ["applied", "the last pods are gone", "the other side"]),
    ],
)
def test_the_other_side_comes_up_meanwhile_and_where_this_one_is(
    nodes: int, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several nodes it has to know which, so there it waits until this one is up."""
    held = Held()
    target = taken(held, monkeypatch)
    target._place.nodes[:] = [node("4")] * nodes  # pyright: ignore[reportPrivateUsage]
    with target.up(load_variant("direct"), meanwhile=lambda: held.log.append("the other side")):
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
    """Nothing is asked beforehand: the API server's refusal says which, and nothing of the variant."""
    held = Held()

    def denied(*_: object) -> None:
        raise DeniedError("context test: Deployment ingress-lab/proxy", "user u cannot patch deployments.apps")

    monkeypatch.setattr(held, doing, denied)
    with (
        pytest.raises(LostError, match=r"user u cannot patch deployments.apps\n  ask for this right"),
        taken(held, monkeypatch).up(load_variant("direct")),
    ):
        assert doing == "end_workloads", "it is up"


@dataclass
class Frozen:
    """A shell into a container that `answers` so; its pod, as the API server has it."""

    answers: LabError | str = "7 1 nginx\n"
    place: str = "pod ingress-lab/proxy-1"
    pid: int = 9
    asked: list[str] = field(default_factory=list[str])

    def script(self, text: str) -> subprocess.CompletedProcess[str]:
        self.asked.append(text)
        if isinstance(self.answers, LabError):
            raise self.answers
        return subprocess.CompletedProcess([text], 0, self.answers, "")


@pytest.mark.parametrize("still", [True, False])
def test_a_container_that_is_gone_needs_no_continuing(still: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is there and cannot be continued is an error, and can be tried again."""
    made, shell = system(Held(), Inside(), monkeypatch), Frozen()
    monkeypatch.setattr(made, "_shell", lambda pod: shell)
    made.freeze("proxy", True)
    shell.answers = LostError("pod ingress-lab/proxy-1", "no longer runs", "")
    statuses = [{"name": "router", "state": {"running": {}}}]
    found = {"metadata": {}, "spec": {"containers": [{"name": "router"}]}, "status": {"containerStatuses": statuses}}
    monkeypatch.setattr(made._api, "get", lambda *_: found if still else None)  # pyright: ignore[reportPrivateUsage]
    if not still:
        made.freeze("proxy", False)
        return
    with pytest.raises(LostError):
        made.freeze("proxy", False)
    shell.answers = "7 1 nginx\n"
    made.freeze("proxy", False)
    assert shell.asked[-1] == "for pid in 7; do kill -CONT $pid && echo $pid; done"
    shell.answers = DeniedError("pod proxy-1", "you may not exec")  # it says nothing about the variant
    with pytest.raises(LostError, match=r"you may not exec\n  ask for this right"):
        made.freeze("proxy", True)


@dataclass
class Inside:
    """The generator's pod, and the shell into a proxy whose HAProxy answers so."""

    status: int = 0
    place: str = "pod ingress-lab/proxy-1"
    started: int = 0

    def held(self, *_: object) -> None:
        self.started += 1

    def script(self, text: str) -> subprocess.CompletedProcess[str]:
        said = "# pxname,svname,ssl_sess,ssl_reused_sess\nfe,FRONTEND,7,5\n" if self.status == 0 else ""
        return subprocess.CompletedProcess([text], self.status, said, "Connection refused" if self.status else "")


def system(held: Held, inside: Inside, monkeypatch: pytest.MonkeyPatch) -> ClusterSystem:
    conditions = [{"type": "Ready", "status": "True"}]
    pod = {
        "metadata": {"name": "proxy-1", "namespace": "ingress-lab"},
        "spec": {"containers": [{"name": "router"}]},
        "status": {"conditions": conditions},
    }
    shown: Any = FakeApi()
    monkeypatch.setattr(shown, "list", lambda *_: [pod])
    parts: Any = inside
    manifests = load_variant("okd-edge").manifests
    made = ClusterSystem(shown, parts, parts, manifests, "ingress-lab", "run-1", parts, held.check)
    monkeypatch.setattr(made, "_shell", lambda pod: inside)
    return made


class Distroless(Inside):
    """Of an image without a shell."""

    @property
    def pid(self) -> int:
        raise MeasuringError("pod ingress-lab/envoy-gateway-1", "container envoy-gateway does not answer", "no sh")


def test_of_a_controller_whose_image_has_no_shell_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is a sample lost for it; one that is gone is."""
    made = system(Held(), Distroless(), monkeypatch)
    assert made._controllers == []  # pyright: ignore[reportPrivateUsage]

    def gone(_self: object) -> int:
        raise LostError("pod ingress-lab/envoy-gateway-1", "is gone", "")

    monkeypatch.setattr(Distroless, "pid", property(gone))
    with pytest.raises(LostError):
        system(Held(), Distroless(), monkeypatch)._controllers  # noqa: B018  # pyright: ignore[reportPrivateUsage]


@dataclass
class Reloading(Inside):
    """The shell into a proxy whose workers are others after each reload that was asked for."""

    asked: list[str] = field(default_factory=list[str])

    def script(self, text: str) -> subprocess.CompletedProcess[str]:
        if text.startswith("kill"):
            self.asked.append(text)
        worker = 30 + len(self.asked)
        said = f"1 0 dumb-init\n7 1 nginx-ingress-c\n20 7 nginx\n{worker} 20 nginx\n"
        return subprocess.CompletedProcess([text], 0, said, "")

    pid: int = 99


def test_nginxs_master_is_told_to_make_new_workers_and_they_are_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The master, not a worker, nor the controller, whose name begins alike."""
    inside = Reloading()
    made = system(Held(), inside, monkeypatch)
    monkeypatch.setattr(made, "_fault", lambda _: "")
    monkeypatch.setattr(made, "entry", lambda: None)
    first, second = made.renew(), made.renew()
    assert (first.ended, first.began, second.ended, second.began) == ((30,), (31,), (31,), (32,))
    assert inside.asked == ["kill -HUP 20"] * 2


@dataclass
class Dialling(Inside):
    """The client's shell where the first connections are not taken."""

    refused: int = 0
    tried: list[str] = field(default_factory=list[str])

    @property
    def shell(self) -> Dialling:
        return self

    def script(self, text: str) -> subprocess.CompletedProcess[str]:
        self.tried.append(text)
        return subprocess.CompletedProcess([text], 124 if len(self.tried) <= self.refused else 0, "", "")


def coming_up(
    inside: Dialling,
    fetched: list[int],
    monkeypatch: pytest.MonkeyPatch,
    pods: Sequence[tuple[str, int]] = (("10.244.0.7", 80),),
    late: Sequence[str] = (),
) -> ClusterSystem:
    """`late`: pods that answer right when they are asked for the third time."""
    asked: list[tuple[str, int]] = []

    def answers(_: object, place: tuple[str, int] | None = None) -> str:
        fetched.append(len(inside.tried))
        if place is None:
            return ""
        asked.append(place)
        return "h: status 503, 190 bytes" if place[0] in late and asked.count(place) < 3 else ""

    monkeypatch.setattr(cluster_system, "each_pod", lambda *_: list(pods))
    made, at = system(Held(), inside, monkeypatch), Endpoint("http://10.96.0.7:80", "h", ("h",))
    monkeypatch.setattr(made, "_fault", answers)
    monkeypatch.setattr(made, "entry", lambda: at)
    monkeypatch.setattr(made, "_entry", lambda *_: at)
    monkeypatch.setattr(made, "processes", lambda _: [])
    monkeypatch.setattr(made, "log_tail", lambda: "")
    return made


def test_nothing_is_fetched_before_a_connection_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that the SOCKS server was to make and nobody waits for any more would stay."""
    inside, fetched = Dialling(refused=2), list[int]()
    coming_up(inside, fetched, monkeypatch).wait(time.monotonic() + 60, 0)
    assert set(fetched) == {3}
    assert inside.tried[0] == "timeout 0.25 bash -c '</dev/tcp/10.96.0.7/80'"
    inside, fetched = Dialling(refused=1000), list[int]()
    with pytest.raises(MeasuringError, match="10.96.0.7:80 takes no connection within 0.25 s"):
        coming_up(inside, fetched, monkeypatch).wait(time.monotonic(), 0)
    assert fetched == []


def test_of_several_pods_each_serves_before_the_system_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Service led to the one that knows its backends; the other is ready, too, and answers 503."""
    pods = [("10.244.0.7", 80), ("10.244.0.8", 80)]
    monkeypatch.setattr(cluster_system, "SETTLED_S", 0.0)
    for late, asked in (((), 4), (("10.244.0.8",), 12)):
        fetched = list[int]()
        coming_up(Dialling(), fetched, monkeypatch, pods, late).wait(time.monotonic() + 60, 0)
        assert len(fetched) == asked, "two ways in and two pods, once or three times"
    with pytest.raises(MeasuringError, match="/1kB.bin: h: status 503, 190 bytes"):
        coming_up(Dialling(), list[int](), monkeypatch, pods, ("10.244.0.8",)).wait(time.monotonic(), 0)


def test_what_a_variant_cannot_show_here_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Generations of a proxy that makes no new workers, a disturbance where the way in is a pod's own."""
    target = taken(Held(), monkeypatch)
    target.name = "kind"
    points = [make_point("ceiling", rate_rps=None, generations=6)]
    with pytest.raises(NotMeasurableError, match="no reload of this proxy makes new workers"):
        target.check_variant(load_variant("okd-edge"), points)
    assert target.check_variant(load_variant("baseline"), points)
    steady, disturbed = make_point(), make_point("outage", disturbance=Outage())
    assert target.check_variant(load_variant("pod-address"), [steady])
    with pytest.raises(
        NotMeasurableError, match=r"(?s)pod-address: its Service is headless.*a Service with a cluster IP"
    ):
        target.check_variant(load_variant("pod-address"), [steady, disturbed])
    assert target.check_variant(load_variant("baseline"), [disturbed])


def test_no_load_is_made_and_no_sample_ends_well_without_the_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, inside = Held(), Inside()
    made = system(held, inside, monkeypatch)
    assert made.counters() == {"proxy/tls_handshakes": 12, "proxy/tls_resumed": 5}
    held.lost = True
    with pytest.raises(LostError), (tmp_path / "out").open("wb") as out:
        made.popen(["wrk"], tmp_path, out, out)
    assert inside.started == 0
    with pytest.raises(LostError):
        made.generate(Load("http://10.0.0.1/1kB.bin", "h", 10, 5.0, generators=2), {})
    with pytest.raises(LostError):
        made.counters()
    with pytest.raises(
        MeasuringError, match="pod ingress-lab/proxy-1: .*does not tell its handshakes: Connection refused"
    ):
        system(Held(), Inside(1), monkeypatch).counters()
    KIND.close()  # what was never opened is closed without a word


class Leaving(FakeTarget):
    def close(self) -> None:
        raise MeasuringError("context bench", "the API server does not answer", "`just down` takes all of it")


def test_what_cannot_be_given_back_is_told_after_the_verb(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And is no traceback; the verb's own words come first."""

    def at(name: str, context: str | None) -> Leaving:
        found = Leaving()
        monkeypatch.setattr(targets, "close", found.close)
        return found

    def refuse(argv: Sequence[str]) -> int:
        raise UsageError("target fake", "is not there", "make one")

    monkeypatch.setattr(targets, "chosen", at)
    monkeypatch.setattr(Leaving, "enter", lambda self, argv: refuse(argv))
    assert main(["bench", "keepalive"]) == 1
    said = capsys.readouterr().err
    assert said.index("is not there") < said.index("just down")
