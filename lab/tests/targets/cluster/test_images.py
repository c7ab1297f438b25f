"""Images: one pinned list, LAB_IMAGES over it, and what is on a kind node under which name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import yaml

from lab.base.errors import UsageError
from lab.model.variants.knobs import MANIFESTS
from lab.model.variants.labels import ROLE_LABEL
from lab.model.variants.variants import covering_names, load_chain, load_variant
from lab.targets.cluster import docker, images, kind
from lab.targets.cluster.images import Images

DIGEST = "sha256:" + "0f" * 32


@pytest.fixture
def lab_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that LAB_IMAGES names; tests write it."""
    path = tmp_path / "images.yaml"
    monkeypatch.setenv("LAB_IMAGES", str(path))
    return path


def test_without_a_setting_everything_is_as_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAB_IMAGES", raising=False)
    loaded = images.load_images()
    assert set(loaded.chosen) == {"loadgen"}
    assert loaded.named("nginx") == loaded.pinned["nginx"]
    assert loaded.named("loadgen") == f"docker.io/lab/loadgen:{images.loadgen_tag(loaded.pinned['debian'])}"
    assert Images({"nginx": "a/nginx:1"}, {"nginx": "b:2"}).resolve("c:3") == "c:3", "what is not the lab's"
    written = yaml.safe_load_all((MANIFESTS / "images/images.yaml").read_text())
    some = {item["metadata"]["name"] for item in written if "lab/only-for" in item["metadata"].get("annotations", {})}
    tags = {short for short, reference in loaded.pinned.items() if "@sha256:" not in reference}
    assert "loadgen" in tags and tags - {"loadgen"} <= some


@pytest.mark.slow
def test_every_image_of_every_variant_comes_to_the_cluster(lab_images: Path) -> None:
    """And nothing else does, but another release than the pinned one where that is the knob; one that its annotation says is for few is
    rendered by no other variant. On the local target images are only names.
    """
    lab_images.write_text("{}")
    pinned, wanted = images.load_images().pinned, images.list_variant_images()
    users: dict[str, set[str]] = {}
    fixtures = ("grpc", "websocket")  # no variant has their backends by itself
    with_fixture = [("ingress-nginx", load_variant("ingress-nginx", fixtures=(name,))) for name in fixtures]
    for name, variant in [*((name, load_variant(name)) for name in covering_names()), *with_fixture]:
        for manifest in variant.manifests:
            spec = manifest.get("spec", {}).get("template", {}).get("spec", {})
            for container in (*spec.get("initContainers", []), *spec.get("containers", [])):
                image = container["image"]
                known = {images.split_reference(one)[0] for one in pinned.values()}
                unknown = images.split_reference(image)[0] not in known and variant.only_on != ("local",)
                if image in pinned.values() or unknown:
                    users.setdefault(image, set()).add(name)
    assert {pinned[short] for short in wanted} == set(users)
    few = {short: {load_chain(name)[0].name for name in users[pinned[short]]} for short, only in wanted.items() if only}
    assert few["haproxy-router"] == {"okd", "okd-150m"} and few["traefik"] >= {"traefik"}


def test_a_file_that_is_wrong_is_named_with_its_fault(lab_images: Path) -> None:
    for content, said in (
        (None, "there is no such file"),
        ("ngnix: a:1", "unknown image 'ngnix'\n  did you mean 'nginx'?"),
        ("nginx: [a]", "nginx: ['a'] is no image reference"),
        ("nginx: Not An Image", "is no image reference"),
        ("- nginx", "expected `short name: reference` lines"),
        ("nginx: [", "not YAML"),
    ):
        if content is not None:
            lab_images.write_text(content)
        with pytest.raises(UsageError) as caught:
            images.load_images()
        assert str(caught.value).startswith(f"LAB_IMAGES={lab_images}: ")
        assert said in str(caught.value)


def test_another_base_or_other_contents_make_another_tag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IN_NIX_SHELL", raising=False)
    monkeypatch.setattr(images, "ROOT", tmp_path)
    k6 = tmp_path / ".cache" / "bin" / "k6"
    k6.parent.mkdir(parents=True)
    k6.write_bytes(b"one")
    tags: list[str] = []
    for content, base in ((b"one", "debian:a"), (b"two", "debian:a"), (b"two", "debian:b")):
        k6.write_bytes(content)
        images.loadgen_tag.cache_clear()
        tags.append(images.loadgen_tag(base))
    images.loadgen_tag.cache_clear()
    assert len(set(tags)) == 3


class Nodes:
    """Stands in for docker, kind and crictl: what the engine and each node hold, and what was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, here: dict[str, str], there: list[dict[str, Any]]) -> None:
        self.calls: list[tuple[str, ...]] = []
        self.there = there
        monkeypatch.setattr(docker, "find_image_id", here.get)
        monkeypatch.setattr(docker, "run_program", self._run)

    def _run(self, argv: list[str], *_: object) -> CompletedProcess[str]:
        if "images" in argv:
            return CompletedProcess(argv, 0, json.dumps({"images": self.there}), "")
        self.calls.append(tuple(argv))
        gone = argv[-1].endswith(":gone")
        return CompletedProcess(argv, int(gone), "", "pulling image: not found\n" if gone else "")


def test_a_tag_held_here_is_loaded_and_a_digest_is_pulled_where_it_is_lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has a digest is pulled even when the engine has it: loaded under a tag it would have no digest there."""
    listed = [{"id": "sha256:1", "repoTags": ["docker.io/lab/nginx:1"], "repoDigests": []}]
    nodes = Nodes(monkeypatch, {"lab/nginx:1": "sha256:1"}, listed)
    assert docker.ensure_image("c", ["n1", "n2"], "nginx", "lab/nginx:1") == "there"
    assert nodes.calls == []
    Nodes(monkeypatch, {"lab/nginx:1": "sha256:2"}, listed)
    assert docker.ensure_image("c", ["n1", "n2"], "nginx", "lab/nginx:1") == "loaded"
    reference = f"docker.io/library/nginx:1@{DIGEST}"
    nodes = Nodes(monkeypatch, {reference: "sha256:1"}, [])
    assert docker.ensure_image("c", ["n1"], "nginx", reference) == "pulled"
    assert nodes.calls == [("docker", "exec", "n1", "crictl", "pull", reference)]
    Nodes(monkeypatch, {}, [{"id": "i", "repoTags": [], "repoDigests": [f"docker.io/library/nginx@{DIGEST}"]}])
    assert docker.ensure_image("c", ["n1"], "nginx", reference) == "there"
    said = r"image nginx: lab/nginx:gone: pulling image: not found\n  LAB_IMAGES=<file> with a line `nginx: …`"
    with pytest.raises(UsageError, match=said):
        docker.ensure_image("c", ["n1"], "nginx", "lab/nginx:gone")


def test_references_are_compared_as_containerd_lists_them() -> None:
    for reference, listed in (
        ("debian", "docker.io/library/debian:latest"),
        ("lab/nginx:1", "docker.io/lab/nginx:1"),
        ("localhost/nginx:1", "localhost/nginx:1"),
        ("mirror.test:5000/nginx", "mirror.test:5000/nginx:latest"),
        (f"mirror.test:5000/a/nginx:1@{DIGEST}", f"mirror.test:5000/a/nginx@{DIGEST}"),
        (f"nginx:1@{DIGEST}", f"docker.io/library/nginx@{DIGEST}"),
    ):
        assert docker.expand_reference(reference) == listed


@pytest.fixture
def chosen() -> Images:
    return Images({"kind-node": "kindest/node:v1"}, {})


def test_the_cluster_is_as_its_file_says_and_knows_it(chosen: Images, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_KIND_NAME", "mine")
    made = kind.build_config(chosen, 0)
    assert made["name"] == "mine"
    assert made["networking"]["kubeProxyMode"] == "iptables"
    kubelet = yaml.safe_load(made["kubeadmConfigPatches"][0])
    assert kubelet["allowedUnsafeSysctls"] == ["net.core.somaxconn", "net.ipv4.*"] and kubelet["failCgroupV1"] is False
    (node,) = made["nodes"]
    assert node["image"] == "kindest/node:v1" and set(node["labels"]) == {kind.MADE_FROM}

    def labels(workers: int = 0, images: Mapping[str, str] | None = None) -> dict[str, str]:
        return kind.build_config(Images(chosen.pinned, images or {}), workers)["nodes"][0]["labels"]

    monkeypatch.setenv("LAB_KIND_NAME", "another")
    assert labels() == node["labels"]
    assert node["labels"] not in (labels(1), labels(images={"kind-node": "other:1"}))


def test_from_two_workers_on_every_role_has_a_node_of_its_own(chosen: Images) -> None:
    for workers, control, added in (
        (0, (None, False), []),
        (1, (None, True), ["generator"]),
        (2, ("backend", True), ["generator", "proxy"]),
        (3, (None, False), ["generator", "proxy", "backend"]),
        (4, (None, False), ["generator", "proxy", "backend", None]),
    ):
        plane, *others = kind.build_config(chosen, workers)["nodes"]
        assert (plane["labels"].get(ROLE_LABEL), "kubeadmConfigPatches" in plane) == control
        assert [node["labels"].get(ROLE_LABEL) for node in others] == added
        patched = [yaml.safe_load(node["kubeadmConfigPatches"][0]) for node in others if "kubeadmConfigPatches" in node]
        taints = [taint for patch in patched for taint in patch["nodeRegistration"]["taints"]]
        closed = {"key": ROLE_LABEL, "value": "generator", "effect": "NoSchedule"}
        assert taints == [closed] * bool(workers) and len(patched) == bool(workers)
        assert all(others[0] is node for node in others if "kubeadmConfigPatches" in node)


def test_too_little_disk_is_said_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = docker.Engine("27", Path("/var/lib/docker"))
    monkeypatch.setattr(docker, "free_bytes", lambda _engine: 5 * 2**30)
    with pytest.raises(UsageError, match="5.0 GB free where Docker keeps its data, a cluster takes up to 6"):
        docker.check_disk(engine)
    monkeypatch.setattr(docker, "free_bytes", lambda _engine: None)
    docker.check_disk(engine)
