"""What the lab has applied on a cluster: pruned, removed, and nobody else's touched. The API server is in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from lab.base.errors import LostError, UsageError
from lab.model.variants.variants import load_variant
from lab.targets.cluster import inventory as module
from lab.targets.cluster import objects
from lab.targets.cluster.api import BROUGHT_UP, CLIENT_NAMESPACE, RUN_LABEL, Api, DeniedError, RefusedError
from lab.targets.cluster.inventory import INVENTORY, Inventory, ensure_kinds, remove_all
from lab.targets.cluster.objects import WORKLOADS, Reference
from lab.tests.support.cluster_fakes import FakeApi, Key
from lab.tests.targets.cluster.test_objects import IMAGES, on_clusters, prepared

LABEL = {RUN_LABEL: "run-0"}


def made() -> tuple[FakeApi, Inventory]:
    fake = FakeApi()
    return fake, Inventory(cast("Api", fake), "run-1")


def kinds(fake: FakeApi) -> list[str]:
    return sorted(f"{kind} {name}" for kind, _, name in fake.objects)


def thing(kind: str, name: str, namespace: str = "", **metadata: Any) -> dict[str, Any]:
    place = {"namespace": namespace} if namespace else {}
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, **place, **metadata}}


def test_nothing_of_the_last_variant_survives_the_next_one_and_it_goes_before_the_new_comes() -> None:
    """A new proxy never sees the last variant's routes."""
    fake, inventory = made()
    inventory.apply(prepared("baseline"))
    assert "IngressClass ingress-lab" in kinds(fake) and "ClusterRole ingress-lab-nginx" in kinds(fake)
    fake.asked.clear()
    inventory.apply(prepared("direct"))
    assert kinds(fake) == [
        "ConfigMap backend",
        f"ConfigMap {INVENTORY}",
        "Deployment backend",
        "Namespace ingress-lab",
        f"Namespace {CLIENT_NAMESPACE}",
        "Service backend",
    ]
    deleted = [number for number, line in enumerate(fake.asked) if line.startswith("delete")]
    assert max(deleted) < fake.asked.index("apply Deployment ingress-lab/backend")
    assert fake.asked[:2] == ["delete Deployment ingress-lab/backend", "delete Deployment ingress-lab/proxy"]


@pytest.mark.parametrize("stops_at", ["ServiceAccount", "Service", "Deployment"])
def test_a_run_that_was_killed_while_applying_leaves_a_list_of_everything_it_made(stops_at: str) -> None:
    fake, inventory = made()

    def die(verb: str, key: Key) -> None:
        if key[0] == stops_at and verb == "apply":
            raise LostError("test", "killed")

    fake.before = die
    with pytest.raises(LostError, match="killed"):
        inventory.apply(prepared("baseline"))
    fake.before = lambda verb, key: None
    Inventory(cast("Api", fake), "run-2").take_over()
    assert kinds(fake) == [f"Namespace {CLIENT_NAMESPACE}"]


@pytest.mark.parametrize("act", [Inventory.remove, lambda inventory: inventory.apply(prepared("direct"))])
def test_a_list_of_another_run_is_left_alone_but_when_the_place_is_taken_over(act: Callable[[Inventory], None]) -> None:
    """A lab that slept through its lease's end finds what the next one has made there."""
    fake, inventory = made()
    inventory.apply(prepared("baseline"))
    later = Inventory(cast("Api", fake), "run-2")
    later.take_over()
    later.apply(prepared("baseline"))
    fake.asked.clear()
    with pytest.raises(LostError, match="is of the run run-2: another lab has begun there"):
        act(inventory)
    assert fake.asked == []


def test_what_one_side_brings_up_prunes_nothing_of_the_other() -> None:
    fake, left = made()
    right = Inventory(cast("Api", fake), "run-1", "right")
    left.apply(prepared("baseline"))
    mine = set(fake.objects)
    other = objects.rename_for_side(load_variant("baseline").manifests, "right")
    right.apply(objects.prepare(other, IMAGES, "run-1", "stamp-2"))
    assert mine <= set(fake.objects)
    right.remove()
    assert {key for key in fake.objects if "right" in str(key)} == set() and mine <= set(fake.objects)


@pytest.mark.parametrize(("kind", "name"), [("Namespace", "ingress-lab"), ("ClusterRole", "ingress-lab-nginx")])
def test_what_is_somebody_elses_is_refused_and_nothing_is_written(kind: str, name: str) -> None:
    fake, inventory = made()
    fake.put(thing(kind, name, managedFields=[{"manager": "helm"}], creationTimestamp="2026-01-02T03:04:05Z"))
    with pytest.raises(UsageError, match=rf"{kind} {name}: is not the lab's: there since 2026-01-02.*made by helm"):
        inventory.apply(prepared("baseline"))
    assert fake.asked == []


def test_what_somebody_else_has_made_meanwhile_under_a_listed_name_is_not_deleted() -> None:
    fake, inventory = made()
    inventory.apply(prepared("baseline"))
    fake.put(thing("Namespace", "ingress-lab"))
    inventory.remove()
    assert "Namespace ingress-lab" in kinds(fake) and "Service proxy" in kinds(fake)


def test_only_what_the_lab_would_find_again_is_taken() -> None:
    fake, inventory = made()
    inventory.take_over()
    with pytest.raises(UsageError, match="Node worker: has no namespace"):
        inventory.apply([thing("Node", "worker")])
    assert fake.asked == []
    inventory.apply(prepared("direct"))
    inventory.add([Reference("v1", "Service", "ingress-lab", "changing")])
    with pytest.raises(UsageError, match="in no namespace that the variant has"):
        inventory.add([Reference("v1", "Service", "shop", "web")])
    listed = fake.objects["ConfigMap", CLIENT_NAMESPACE, INVENTORY]["data"]["objects"]
    assert "v1 Service ingress-lab changing\n" in listed and "shop" not in listed


def test_workloads_and_pods_end_and_the_generator_stays() -> None:
    fake, inventory = made()
    inventory.apply(prepared("baseline"))
    fake.put(thing("Pod", "proxy-1", "ingress-lab", labels=LABEL | {"lab/role": "proxy"}))
    fake.put(thing("Pod", "tuning-1", "ingress-lab", labels=LABEL | {"lab/scope": "node"}))
    fake.put(thing("Pod", "other", "ingress-lab", labels={}))
    fake.put(thing("Pod", "generator", CLIENT_NAMESPACE, labels=LABEL | {"lab/role": "generator"}))
    inventory.end_workloads()
    inventory.await_pods()
    assert [name for kind, _, name in fake.objects if kind == "Pod"] == ["other", "generator"]
    assert "delete(1) Pod ingress-lab/proxy-1" in fake.asked and "delete Pod ingress-lab/tuning-1" in fake.asked
    assert not any(kind == "Deployment" for kind, _, _ in fake.objects)
    fake.asked.clear()
    inventory.end_workloads()
    inventory.await_pods()
    assert fake.asked == []


def test_the_last_variants_pods_end_while_the_next_comes_up(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, inventory = made()
    monkeypatch.setattr(module, "POLL_S", 0.0)
    ending = LABEL | {"lab/role": "proxy"}
    inventory.apply(prepared("baseline"))
    asked: list[str] = []

    def listed(api_version: str, kind: str, namespace: str | None = None, labels: str = "") -> list[dict[str, Any]]:
        """A proxy of before that is there for three looks, and one of now."""
        if kind != "Pod":
            return []
        asked.append(labels)
        new = thing("Pod", "proxy-2", "ingress-lab", labels=ending, annotations={BROUGHT_UP: "stamp-2"})
        old = thing("Pod", "proxy-1", "ingress-lab", labels=ending, annotations={BROUGHT_UP: "stamp-1"})
        looks = len(asked)
        return ([] if looks == 1 else [new]) + ([old] if looks <= 3 else [])

    monkeypatch.setattr(fake, "list", listed)
    fake.asked.clear()
    inventory.end_workloads()
    assert len(asked) == 1 and "delete(1) Pod ingress-lab/proxy-1" in fake.asked
    inventory.await_pods("stamp-2")
    assert len(asked) == 4 and not any("proxy-2" in line for line in fake.asked)
    inventory.await_pods("stamp-3")
    assert len(asked) == 4, "they are gone"


def test_a_field_that_cannot_be_changed_costs_a_new_object_only_where_the_lab_made_the_old_one() -> None:
    fake, inventory = made()
    refusals = ["spec.clusterIP: field is immutable"]

    def refuse(verb: str, key: Key) -> None:
        if verb == "apply" and key[0] == "Service" and refusals:
            raise RefusedError("test", refusals.pop())

    fake.before = refuse
    with pytest.raises(RefusedError, match="immutable"):
        inventory.apply(prepared("direct"))
    inventory.apply(prepared("direct"))
    refusals.append("spec.clusterIP: field is immutable")
    inventory.apply(prepared("direct"))
    assert "delete Service ingress-lab/backend" in fake.asked and "Service backend" in kinds(fake)


def test_a_service_that_was_headless_is_made_anew_where_the_next_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """An API server fills in what was there before, and says nothing."""
    fake, inventory = made()
    put = fake.put

    def filled_in(obj: Any) -> Any:
        was = fake.get("v1", obj["kind"], obj["metadata"]["name"], obj["metadata"].get("namespace"))
        if obj["kind"] == "Service":
            before = {} if was is None else {key: was["spec"].get(key) for key in ("clusterIP",) if key in was["spec"]}
            obj = {**obj, "spec": {**before, **obj["spec"]}}
        return put(obj)

    def way() -> str | None:
        found = fake.get("v1", "Service", "proxy", "ingress-lab")
        return found["spec"].get("clusterIP") if found else "none"

    monkeypatch.setattr(fake, "put", filled_in)
    inventory.apply(prepared("pod-address"))
    assert way() == "None"
    fake.asked.clear()
    inventory.apply(prepared("pod-address"))
    assert "delete Service ingress-lab/proxy" not in fake.asked
    inventory.apply(prepared("baseline"))
    assert way() is None and fake.asked.count("delete Service ingress-lab/proxy") == 1
    assert "delete Service ingress-lab/backend" not in fake.asked


def test_everything_with_the_label_is_removed_whichever_run_it_is_from() -> None:
    fake, inventory = made()
    inventory.apply(prepared("baseline"))
    fake.put(thing("ClusterRole", "of-an-older-run", labels=LABEL))
    fake.put(thing("ClusterRole", "foreign"))
    fake.put(thing("Namespace", "foreign"))
    fake.put(thing("Deployment", "foreign", "foreign", labels=LABEL))
    fake.refused = {"CronJob": DeniedError("context test", "user u cannot list CronJob")}
    said = remove_all(cast("Api", fake))
    assert kinds(fake) == ["ClusterRole foreign", "Deployment foreign", "Namespace foreign"]
    assert said.index("ClusterRole of-an-older-run") < said.index("Namespace ingress-lab")
    assert "not looked for: CronJob in namespace ingress-lab: user u cannot list CronJob" in said
    assert "delete Deployment ingress-lab/proxy" in fake.asked


def test_what_a_controller_makes_is_listed_before_and_ends_with_it_but_after_it() -> None:
    """Else the controller would make it again."""
    fake, inventory = made()
    inventory.apply(on_clusters("envoy-gateway"))
    listed = fake.objects["ConfigMap", CLIENT_NAMESPACE, INVENTORY]["data"]["objects"]
    assert "apps/v1 Deployment ingress-lab proxy\n" in listed
    fake.put(thing("Deployment", "proxy", "ingress-lab", labels=LABEL))
    scoped = LABEL | dict([module.CONTROLLER_SCOPE])
    fake.put(thing("Pod", "envoy-gateway-1", "ingress-lab", labels=scoped))
    fake.put(thing("Pod", "proxy-1", "ingress-lab", labels=LABEL))
    fake.asked.clear()
    inventory.end_workloads()
    inventory.await_pods()
    ended = [line.split("ingress-lab/")[1] for line in fake.asked if line.startswith("delete")]
    assert ended[:2] == ["envoy-gateway", "envoy-gateway-1"] and {"proxy", "proxy-1", "backend"} <= set(ended[2:])
    assert not any(key[0] in WORKLOADS for key in fake.objects)


def test_a_class_is_let_go_in_the_place_of_its_controller_that_has_ended() -> None:
    fake, inventory = made()
    inventory.apply(on_clusters("envoy-gateway"))
    gone = fake.delete

    def end(verb: str, key: Key) -> None:
        if verb == "replace":
            gone("gateway.networking.k8s.io/v1", key[0], key[2])

    def held(api_version: str, kind: str, name: str, *rest: Any, **more: Any) -> bool:
        found = fake.objects.get((kind, "", name), {"metadata": {}})
        if found["metadata"].get("finalizers"):
            fake.before = end
            return False
        return gone(api_version, kind, name, *rest, **more)

    fake.objects["GatewayClass", "", "ingress-lab"]["metadata"]["finalizers"] = ["gateway-exists"]
    fake.delete = held  # pyright: ignore[reportAttributeAccessIssue]
    inventory.remove()
    assert "replace GatewayClass ingress-lab" in fake.asked
    assert kinds(fake) == [f"Namespace {CLIENT_NAMESPACE}"]


def test_kinds_that_the_lab_added_stay_while_others_use_one_of_their_group() -> None:
    fake, inventory = made()
    inventory.apply(on_clusters("envoy-gateway"))
    assert "Gateway" in ensure_kinds(cast("Api", fake), "run-1")
    assert ensure_kinds(cast("Api", fake), "run-2") == []
    fake.put(thing("Gateway", "theirs", "shop"))
    said = remove_all(cast("Api", fake))
    place = "kept: CustomResourceDefinition {}.gateway.networking.k8s.io: {}"
    assert place.format("gateways", "1 objects of others would go with it") in said
    assert place.format("gatewayclasses", "others use kinds of its group") in said
    left = [name for kind, _, name in fake.objects if kind.startswith("Custom")]
    assert left and all(name.endswith(".gateway.networking.k8s.io") for name in left)
    ensure_kinds(cast("Api", fake), "run-1")
    denied: Any = DeniedError("context test", "may not list envoyproxies")
    fake.refused["EnvoyProxy"] = denied
    said = remove_all(cast("Api", fake))
    assert any("envoyproxies.gateway.envoyproxy.io: whether objects of others" in line for line in said)
    assert ("CustomResourceDefinition", "", "envoyproxies.gateway.envoyproxy.io") in fake.objects
