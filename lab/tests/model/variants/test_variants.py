"""Variants and knobs: every folder holds together, and whatever would measure nothing is refused with place, fault and remedy."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from lab.base.errors import NotMeasurableError, UsageError
from lab.commands import catalog
from lab.model.run import VariantRecord
from lab.model.variants import diff as differences
from lab.model.variants import kustomize, variants
from lab.model.variants.knobs import MANIFESTS, Check, PatchTarget, knob_names, load_knob, parse_patch_targets
from lab.model.variants.kustomize import Renders
from lab.model.variants.naming import overlay_names
from lab.model.variants.variants import (
    config_snippet,
    covering_names,
    diff_against_baseline,
    load_chain,
    load_overlay,
    load_variant,
    map_components,
    reference_name,
)
from lab.records.sweep_files import load_sweep
from lab.targets.prerequisites import TARGETS

NOTES = {
    "lab/title": "a title",
    "lab/hypothesis": "p99 rises when the thing is set to one",
    "lab/sweep": "quick",
    "lab/primary-metric": "p99",
    "lab/readback": "- {kind: sysctl, name: net.ipv4.a, value: 1}",
}

Write = Callable[..., Path]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(MANIFESTS, tmp_path_factory.mktemp("checkout") / "manifests"))


@pytest.fixture
def scratch(copy: Path) -> Iterator[Path]:
    """A copy of manifests/ to which a test may add overlays and components."""
    before = {*copy.glob("*/*")}
    yield copy
    for folder in {*copy.glob("*/*")} - before:
        shutil.rmtree(folder)


@pytest.fixture
def knob(scratch: Path) -> Write:
    """Of a name, content and annotations: creates that one folder in components, and nothing else."""

    def write(name: str, content: Mapping[str, Any], notes: Mapping[str, Any] = NOTES) -> Path:
        folder = scratch / "components" / name
        folder.mkdir()
        head = {
            "apiVersion": "kustomize.config.k8s.io/v1alpha1",
            "kind": "Component",
            "metadata": {"annotations": dict(notes)},
        }
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(head | dict(content)))
        return folder

    return write


@pytest.fixture
def overlay(scratch: Path) -> Write:
    """Of a name, resources and components: creates that one folder in overlays, and nothing else."""

    def write(name: str, resources: Sequence[str], components: Sequence[str] = (), **more: object) -> Path:
        folder = scratch / "overlays" / name
        folder.mkdir()
        head: dict[str, Any] = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "metadata": {"annotations": {"lab/title": "a title"}},
            "resources": list(resources),
        }
        head |= {"components": list(components)} if components else {}
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(head | more))
        return folder

    return write


def configmap(key: str, value: str, name: str = "ingress-nginx-controller", **more: object) -> dict[str, Any]:
    return {"configMapGenerator": [{"name": name, "behavior": "merge", "literals": [f"{key}={value}"]} | more]}


def sysctl_added(name: str, value: str, kind: str = "Deployment", target: str = "proxy") -> dict[str, Any]:
    """The form in which several components can each add one."""
    operation = {
        "op": "add",
        "path": "/spec/template/spec/securityContext/sysctls/-",
        "value": {"name": name, "value": value},
    }
    return {"patches": [{"target": {"kind": kind, "name": target}, "patch": yaml.safe_dump([operation])}]}


def merged(pod: Mapping[str, Any]) -> dict[str, Any]:
    patch = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "proxy"}}
    return {"patches": [{"patch": yaml.safe_dump(patch | {"spec": {"template": {"spec": dict(pod)}}})}]}


def notes(**changed: str | None) -> dict[str, Any]:
    found = NOTES | {f"lab/{key.replace('_', '-')}": value for key, value in changed.items()}
    return {key: value for key, value in found.items() if value is not None}


def refused(scratch: Path, name: str) -> str:
    with pytest.raises(UsageError) as caught:
        load_variant(name, scratch)
    text = str(caught.value)
    assert str(scratch) not in text.partition("\n")[0], "places are relative to the checkout"
    assert caught.value.remedy, f"no remedy: {text}"
    return text


def proxy(objects: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return next(obj["spec"]["template"]["spec"] for obj in objects if differences.label(obj) == "Deployment/proxy")


MANY_ROUTES = re.compile("okd-routes-[12]000")
"""Those take seconds each, and differ from fewer routes in their number."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if MANY_ROUTES.search(name) else []) for name in covering_names()],
)
def test_every_overlay_loads_is_read_back_and_has_a_way_to_its_backend(name: str) -> None:
    variant = load_variant(name)
    assert variant.name == name and variant.manifests
    assert [knob.name for knob in variant.knobs] == [knob for each in load_chain(name) for knob in each.own_knobs]
    subjects = [check.subject for check in variant.readback]
    assert len(set(subjects)) == len(subjects)
    for own in variant.own_knobs:
        assert set(load_knob(own).readback) <= set(variant.readback)
    _has_a_way_into_each_proxy_and_a_backend(variant.manifests)


def _has_a_way_into_each_proxy_and_a_backend(objects: Sequence[Any]) -> None:
    pods = [obj["spec"]["template"]["metadata"]["labels"] for obj in objects if obj["kind"] == "Deployment"]
    deployed = [obj["metadata"]["labels"]["lab/role"] for obj in objects if obj["kind"] == "Deployment"]
    selected = [obj["spec"]["selector"] for obj in objects if obj["kind"] == "Service"]
    assert sorted(deployed) == sorted(pod["lab/role"] for pod in pods)
    assert "backend" in deployed and {*deployed} <= {"backend", "proxy", "balancer"} and len(deployed) <= 3
    for pod in pods:  # and no Service is in front of two
        assert len([selector for selector in selected if selector.items() <= pod.items()]) == 1
    assert len(selected) == len(pods)
    assert all("http" in [port["name"] for port in obj["spec"]["ports"]] for obj in objects if obj["kind"] == "Service")
    spaced = ("ConfigMap", "Deployment", "Ingress", "Route", "Secret", "Service")
    for obj in objects:  # kubectl's default is another namespace
        assert obj["kind"] not in spaced or "namespace" in obj["metadata"], obj["metadata"]["name"]


def test_an_overlay_may_say_that_it_is_the_reference_and_which_metric_its_claim_is_about() -> None:
    """A set of many knobs is about what its study is about, and not about its last knob."""
    assert reference_name() == "direct"
    assert load_variant("direct").reference and not load_variant("ingress-nginx").reference
    stated = load_variant("digitalocean")
    assert (stated.primary_metric, stated.knobs[-1].primary_metric) == ("p99", "rate")


@pytest.mark.long
def test_images_come_from_the_one_place() -> None:
    """But for the tag of one without a digest: there a version is a knob. On the local target images are only names."""
    pinned = [item["imageTag"] for item in yaml.safe_load_all((MANIFESTS / "images/images.yaml").read_text())]
    known = {f"{tag['newName']}:{tag['newTag']}{'@' + tag['digest'] if 'digest' in tag else ''}" for tag in pinned}
    tagged = {tag["newName"] for tag in pinned if "digest" not in tag}
    for variant in (variant for name in covering_names() if (variant := load_variant(name)).only_on != ("local",)):
        for obj in variant.manifests:
            pod = obj.get("spec", {}).get("template", {}).get("spec", {})
            used = {item["image"] for item in [*pod.get("initContainers", []), *pod.get("containers", [])]}
            assert {image for image in used if image.partition(":")[0] not in tagged} <= known


def test_a_new_knob_is_one_folder(scratch: Path, knob: Write) -> None:
    checks = notes(readback="- {kind: processes, process: nginx, value: 2}")
    knob("workers-2", configmap("worker-processes", "2"), checks)
    variant = load_variant("ingress-nginx+workers-2", scratch)
    assert variant.baseline == "ingress-nginx" and variant.own_knobs == ("workers-2",)
    assert variant.readback == (Check(kind="processes", process="nginx", value="2"),)
    assert "+  worker-processes: '2'" in diff_against_baseline(variant, scratch)
    assert load_variant("backlog+workers-2", scratch).readback[-1].value == "2"


def test_an_overlay_may_say_what_is_read_back_of_its_bases(scratch: Path, overlay: Write) -> None:
    def root(name: str, readback: str) -> None:
        notes = {"lab/title": "x", "lab/readback": readback}
        overlay(name, ["../../base/ingress-nginx", "../../base/backend"], metadata={"annotations": notes})

    root("root", "- {kind: processes, process: nginx, value: 2}\n- {kind: backlog, port: 80, value: 511}")
    assert [check.value for check in load_variant("root", scratch).readback] == ["2", "511"]
    replaced = load_variant("backlog-128+somaxconn-32768").readback
    assert [check.value for check in replaced] == ["32768", "32768"], "a knob replaces what its baseline reads back"
    checks = load_variant("root+somaxconn-128", scratch).readback
    assert [check.value for check in checks if check.kind != "sysctl"] == ["2", "128"]
    for name, fault in (("odd", "- {kind: sysctrl}"), ("none", "[]"), ("torn", "- {")):
        root(name, fault)
        assert f"manifests/overlays/{name}/kustomization.yaml: lab/readback" in refused(scratch, name)


def test_what_to_apply_uses_the_names_that_users_know(scratch: Path, knob: Write) -> None:
    (snippet,) = yaml.safe_load_all(config_snippet(load_variant("keepalive")))
    assert (snippet["kind"], snippet["metadata"]) == ("ConfigMap", {"name": "ingress-nginx-controller"})
    assert snippet["data"] == {"keep-alive-requests": "10000", "upstream-keepalive-requests": "1000"}
    knob("limit", merged({"containers": [{"name": "proxy", "resources": {"limits": {"cpu": "200m"}}}]}))
    patch = yaml.safe_load(config_snippet(load_variant("ingress-nginx+limit", scratch), scratch))
    assert patch["metadata"] == {"name": "ingress-nginx-controller"}
    container = {"name": "controller", "resources": {"limits": {"cpu": "200m"}}}
    assert patch["spec"] == {"template": {"spec": {"containers": [container]}}}
    assert config_snippet(load_variant("ingress-nginx")) == diff_against_baseline(load_variant("ingress-nginx")) == ""
    proxy(load_variant("ingress-nginx", scratch).manifests)["containers"].clear()
    assert proxy(load_variant("ingress-nginx", scratch).manifests)["containers"], "a caller's change is its own"


@pytest.mark.parametrize(
    "name", ["lua-bypassed", "ingress-nginx+backend-wait-1ms", "keepalive+extra-work-8", "nginx-bare"]
)
def test_of_what_is_only_to_measure_by_there_is_nothing_to_apply(name: str) -> None:
    """By its own knobs, however they were put on, or by what a root says of itself; a variant that builds on it says nothing of it."""
    variant = load_variant(name)
    assert variant.only_to_measure_by and not config_snippet(variant)
    assert VariantRecord.of(variant, MANIFESTS).only_to_measure_by == variant.only_to_measure_by
    assert not load_variant("waiting+keep-alive-requests-10000").only_to_measure_by


@pytest.mark.parametrize(("name", "fixture"), [
    ("envoy+envoy-route-timeout-off", "events"), ("haproxy+haproxy-http-no-delay", "websocket"), ("keepalive", "answers"), ("keepalive", "traffic"),
])  # fmt: skip
def test_what_a_user_applies_has_nothing_of_the_backend_that_a_load_needs(name: str, fixture: str) -> None:
    measured = load_variant(name, fixtures=(fixture,))
    assert measured.manifests != load_variant(name).manifests, "the fixture changes nothing"
    assert config_snippet(measured) == config_snippet(load_variant(name)) != ""


def test_what_to_apply_is_a_patch_that_kustomize_turns_into_the_variant(tmp_path: Path) -> None:
    for name in ("backlog", "backlog-128", "keepalive", "okd+okd-without-startup-probe"):
        variant = load_variant(name)
        assert variant.baseline
        base = load_variant(variant.baseline).manifests
        folder = tmp_path / name / "x"
        folder.mkdir(parents=True)
        patches = list(differences.patches(base, variant.manifests))
        assert patches
        for patch in patches:
            patch["metadata"]["namespace"] = "ingress-lab"  # left out, since users have another
        (folder / "base.yaml").write_text(yaml.safe_dump_all(base))
        dumped = [{"patch": differences.dump(patch)} for patch in patches]
        (folder / "kustomization.yaml").write_text(yaml.safe_dump({"resources": ["base.yaml"], "patches": dumped}))
        assert not differences.changes(kustomize.parse_objects(kustomize.render([folder])), variant.manifests)


# Silent no-ops, none of which kustomize minds


def listed(name: str) -> dict[str, Any]:
    return merged({"securityContext": {"sysctls": [{"name": f"net.ipv4.{name}", "value": "1"}]}})


OTHER = {"containers": [{"name": "controller", "resources": {"limits": {"cpu": "1"}}}]}
UP, DOWN = (merged({"terminationGracePeriodSeconds": seconds}) for seconds in (10, 300))
NEW = {"configMapGenerator": [{"name": "ingress-nginx-controler", "literals": ["a=b"]}]}
TWICE = {name: sysctl_added("net.ipv4.x", value) for name, value in (("a", "1"), ("b", "2"))}


@pytest.mark.parametrize(
    ("added", "said"),
    [
        ({"wrong": merged(OTHER)}, "container 'controller' has no image"),
        (
            {"lost": sysctl_added("net.ipv4.a", "1", target="proxi")},
            "there is no Deployment/proxi in 'ingress-nginx+lost'\n  did you mean 'Deployment/proxy'?",
        ),
        ({"idle": DOWN}, "changes nothing: 'ingress-nginx+idle' renders the same"),
        ({"first": listed("first"), "second": listed("second")}, "first/kustomization.yaml: changes nothing"),
        (TWICE, "sysctl net.ipv4.x is set twice"),
        ({"typo": configmap("worker-processes", "2", name="ingress-nginx-controler")}, "does not exist"),
        ({"new": NEW}, "expected `behavior: merge`"),
        ({"init": merged({"initContainers": [{"name": "more", "image": "nginx"}]})}, "image 'nginx' names no registry"),
        ({"up": UP, "down": DOWN}, "changes nothing"),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else "",
)
def test_knobs_that_would_not_do_what_they_say_are_refused(
    scratch: Path, knob: Write, added: dict[str, dict[str, Any]], said: str
) -> None:
    """A strategic merge replaces a list as a whole: of two knobs only the last would be left."""
    for name, content in added.items():
        knob(name, content, notes(readback=f"- {{kind: sysctl, name: {name}, value: 1}}"))
    assert said in refused(scratch, "+".join(["ingress-nginx", *added]))


def test_knobs_that_contradict_one_another_or_do_not_fit_the_base_are_refused(scratch: Path) -> None:
    text = refused(scratch, "ingress-nginx+somaxconn-128+somaxconn-32768")
    assert "'somaxconn-128' and 'somaxconn-32768' set the same thing, to 128 and to 32768" in text
    text = refused(scratch, "nginx+keep-alive-requests-10000")
    assert text.startswith("nginx+keep-alive-requests-10000: kustomize:") and text.count("\n") == 1
    assert "ConfigMap ingress-nginx-controller does not exist" in text and "&{" not in text


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        (notes(title=None), "metadata.annotations: lab/title is missing"),
        (notes(hypothesis=None), "metadata.annotations: lab/hypothesis is missing"),
        (notes(readback=None), "lab/readback is missing"),
        (notes(titel="x"), "unknown key 'lab/titel'\n  did you mean 'lab/title'?"),
        (notes() | {"title": "x"}, "unknown key 'title'"),
        (notes(title=""), "lab/title: "),
        (notes(hypothesis="faster"), "lab/hypothesis: "),
        (notes(hypothesis=" " * 30), "lab/hypothesis: "),
        (notes(sweep="quik"), "lab/sweep: unknown sweep 'quik'\n  did you mean 'quick'?"),
        (notes(primary_metric="p98"), "lab/primary-metric: "),
        (notes(study="Digital Ocean"), "lab/study: "),
        (notes() | {"lab/published": 10000}, "lab/published: expected text, got 10000\n  put it in quotes"),
        (notes(readback="- {kind: sysctl"), "lab/readback: not YAML: "),
        (notes(readback="kind: sysctl"), "lab/readback: expected a list of checks"),
        (notes(readback="[]"), "lab/readback: expected a list of checks"),
        (notes(readback="- {kind: sysctl, name: a}"), "lab/readback.0.value: field required"),
        (notes(readback="- {kind: sysctl, nam: a, value: 1}"), "lab/readback.0.nam: unknown key: did you mean 'name'?"),
        (notes(readback="- {kind: sysctl, value: 1}"), "a check of kind 'sysctl' needs name"),
        (notes(readback="- {kind: backlog, value: 1}"), "a check of kind 'backlog' needs port"),
        (notes(readback="- {kind: backlog, value: 1, port: 0}"), "lab/readback.0.port: "),
        (notes(readback="- {kind: limit, value: 1}"), "a check of kind 'limit' needs name and process"),
        (notes(readback="- {kind: sysctl, name: a, value: 1, port: 80}"), "a check of kind 'sysctl' has no port"),
        (notes(readback="- {kind: nginx, name: gzip, value: on}"), "lab/readback.0.value: "),
        (notes(readback="- &a {kind: sysctl, name: a, value: 1}\n- *a"), "two checks read the same thing"),
    ],
)
def test_a_knob_with_faulty_annotations_is_refused(
    scratch: Path, knob: Write, changed: dict[str, Any], fault: str
) -> None:
    knob("bad", configmap("worker-processes", "2"), changed)
    text = refused(scratch, "ingress-nginx+bad")
    assert text.startswith("manifests/components/bad/kustomization.yaml: ")
    assert fault in text


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("", "is no mapping"),
        ("kind: [", "not YAML"),
        ("kind: Kustomization", "kind: expected Component, got 'Kustomization'"),
        ("kind: Component\nnamePrefix: x-", "unknown key 'namePrefix'"),
        ("kind: Component\npatchs: []", "unknown key 'patchs'\n  did you mean 'patches'?"),
        ("kind: Component\npatches: {}", "patches: expected a list, got {}"),
        ("kind: Component\nmetadata: {annotations: []}", "metadata.annotations: lab/title is missing"),
        ("kind: Component\nmetadata: {annotations: [a]}", "metadata.annotations: is no mapping"),
    ],
)
def test_a_component_that_is_none_is_refused(scratch: Path, knob: Write, content: str, fault: str) -> None:
    file = knob("bad", {}) / "kustomization.yaml"
    file.write_text(content)
    assert f"manifests/components/bad/kustomization.yaml: {fault}" in refused(scratch, "ingress-nginx+bad")
    file.write_bytes(b"\xff\xfe\x00")
    assert "cannot be read" in refused(scratch, "ingress-nginx+bad")
    file.unlink()
    assert "there is no such file" in refused(scratch, "ingress-nginx+bad")


ON_IT = ("ingress-nginx",)
KNOB = ("somaxconn-128",)
OVERLAYS: list[tuple[Sequence[str], Sequence[str], dict[str, Any], str]] = [
    (("ingress-nginx", "nginx"), KNOB, {}, "resources: two baselines, ingress-nginx and nginx"),
    (("ingress-nginx", "../base/nginx"), KNOB, {}, "a base together with the baseline 'ingress-nginx'"),
    (ON_IT, (), {}, "components: none, so that it is its baseline 'ingress-nginx' again"),
    ((), (), {}, "resources: missing or empty"),
    (("ingress-ngin",), KNOB, {}, "there is no overlay or base 'ingress-ngin'\n  did you mean 'ingress-nginx'?"),
    (("https://example.test/base",), (), {}, "resources: there is no overlay or base 'base'"),
    (ON_IT, ("somaxcon-128",), {}, "there is no knob 'somaxcon-128'\n  did you mean 'somaxconn-128'?"),
    (ON_IT, (), {"patches": []}, "unknown key 'patches'"),
    (ON_IT, KNOB * 2, {}, "lists knob 'somaxconn-128' twice"),
    (("backlog-128",), KNOB, {}, "lists knob 'somaxconn-128' again, which 'backlog-128' has"),
]
"""Parents, knobs, what else stands there, and what is wrong with it."""


def test_an_overlay_is_a_baseline_and_knobs_and_nothing_else(scratch: Path, overlay: Write) -> None:
    overlay("too", ["../../base/direct"], metadata={"annotations": {"lab/title": "x", "lab/reference": "true"}})
    with pytest.raises(UsageError, match="direct and too are both annotated lab/reference"):
        reference_name(scratch)
    for number, (parents, added, more, fault) in enumerate(OVERLAYS):
        resources = [parent if ":" in parent else f"../{parent}" for parent in parents]
        overlay(f"mine-{number}", resources, [f"../../components/{knob}" for knob in added], **more)
        assert fault in refused(scratch, f"mine-{number}"), fault
    overlay("one", ["../two"], ["../../components/somaxconn-128"])
    overlay("two", ["../one"], ["../../components/somaxconn-32768"])
    overlay("self", ["../self"], ["../../components/somaxconn-128"])
    for name in ("one", "self"):
        assert f"a circle of baselines through '{name}'" in refused(scratch, name)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("keepalvie", "unknown variant 'keepalvie'\n  did you mean 'keepalive'?"),
        ("backlog-409", "did you mean 'backlog-4096'?"),
        ("somaxcon-32768", "did you mean 'somaxconn-32768'?"),
        ("qqqqqqqq", "`just list` has all"),
        ("", "unknown variant ''\n  known: aws-a1, "),
        ("../overlays/direct", "unknown variant '../overlays/direct'"),
        ("ingress-nginx+", "unknown knob ''"),
        ("+somaxconn-128", "unknown variant ''"),
        ("ingress-nginx+somaxcon-128", "unknown knob 'somaxcon-128'\n  did you mean 'somaxconn-128'?"),
        ("ingress-nginx+keepalive", "unknown knob 'keepalive'"),
        ("ingress-nginx+somaxconn-128+somaxconn-128", "lists knob 'somaxconn-128' twice"),
        ("keepalive+keep-alive-requests-10000", "lists knob 'keep-alive-requests-10000' again, which 'keepalive' has"),
    ],
)
def test_a_name_that_is_no_variant_is_refused(scratch: Path, name: str, fault: str) -> None:
    text = refused(scratch, name)
    assert text.startswith("variant: ") and fault in text


@pytest.fixture
def anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if nothing had been built yet, by this process or another."""
    kustomize._build.cache_clear()  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(kustomize, "CACHE", Renders(tmp_path / "renders"))


@pytest.mark.usefixtures("anew")
def test_a_kustomize_that_is_missing_cannot_be_run_or_hangs_ends_in_an_error(
    scratch: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    said = refused(scratch, "ingress-nginx")
    assert "kustomize: not found on PATH\n  start the lab by `scripts/shell just …`" in said
    stub = tmp_path / "kustomize"
    stub.write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    assert "kustomize: cannot be run: Permission denied" in refused(scratch, "ingress-nginx")
    stub.chmod(0o755)
    monkeypatch.setattr(kustomize, "TIMEOUT_S", 0.2)
    assert "kustomize: no answer" in refused(scratch, "ingress-nginx")


@pytest.mark.usefixtures("anew")
def test_a_temporary_folder_that_cannot_be_written_is_an_error(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/proc/self/nowhere")
    assert "temporary folder: " in refused(scratch, "ingress-nginx+somaxconn-128")


def test_differences_tell_elements_by_name_and_words_by_what_they_are() -> None:
    def pod(*args: str, **env: str) -> dict[str, Any]:
        named = [{"name": k, "value": v} for k, v in env.items()]
        return {"kind": "Pod", "metadata": {"name": "p"}, "args": list(args), "env": named}

    assert not differences.changes([pod("a", X="1", Y="2")], [pod("a", Y="2", X="1")])
    assert differences.changes([pod("a")], [pod("a", "b", X="1")]) == {
        ("Pod/p", "args['b']"): (differences.ABSENT, 1),
        ("Pod/p", "env[X].name"): (differences.ABSENT, "X"),
        ("Pod/p", "env[X].value"): (differences.ABSENT, "1"),
    }
    assert differences.unified([pod("a")], [pod("a")], ("x", "y")) == ""


def test_the_annotations_schema_names_what_the_files_have() -> None:
    component = variants.annotation_schema()["$defs"]["component"]
    for name in knob_names():
        file = yaml.safe_load((MANIFESTS / "components" / name / "kustomization.yaml").read_text())
        given = set(file["metadata"]["annotations"])
        assert set(component["required"]) <= given <= set(component["properties"])
    assert component["properties"]["lab/primary-metric"]["enum"]
    assert variants.annotation_schema()["$defs"]["overlay"]["properties"]["lab/reference"]["enum"] == ["true", "false"]


def test_the_list_is_of_what_has_all_of_some_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """For people and for programs, of a few; nothing at all is refused. A baseline stands before what stands on it."""
    monkeypatch.setattr(variants, "variant_names", lambda *_: ["backlog", "backlog-128", "ingress-nginx", "keepalive"])
    few = [load_knob(name) for name in ("gzip-level-6", "keep-alive-requests-10000")]
    monkeypatch.setattr(catalog, "_knobs", lambda: few)
    monkeypatch.setattr(catalog, "_sweeps", lambda: [load_sweep("quick")])
    out = io.StringIO()
    catalog.print_list(Console(file=out, width=200), ["keep-alive", "requests"])
    names = [line.split()[0] for line in out.getvalue().splitlines() if line.strip()]
    assert "keep-alive-requests-10000" in names and "gzip-level-6" not in names
    told = catalog.as_json(["keep-alive", "requests"])
    assert [knob["name"] for knob in told["knobs"]] == ["keep-alive-requests-10000"]
    with pytest.raises(UsageError, match="nothing has 'no such thing' in it"):
        catalog.print_list(Console(file=out), ["no such thing"])
    rows = [line.split("|")[1].strip(" `") for line in catalog.readme_table().splitlines()[2:]]
    assert rows == ["ingress-nginx", "backlog-128", "backlog", "keepalive"]
    shown = catalog.show_json("keepalive")
    assert shown["baseline"] == "ingress-nginx" and "keep-alive-requests" in shown["diff"] and shown["sweep"] == "quick"


@pytest.mark.parametrize(
    ("resources", "components", "rival", "said"),
    [
        (["../../base/backend"], [], "nowhere", "there is no other variant 'nowhere'"),
        (["../../base/backend"], [], "mine", "there is no other variant 'mine'"),
        (["../ingress-nginx"], ["../../components/gzip-level-6"], "nginx", "it has a baseline"),
    ],
)
def test_only_a_root_names_another_overlay_to_be_compared_with(
    scratch: Path, overlay: Write, resources: list[str], components: list[str], rival: str, said: str
) -> None:
    overlay(
        "mine", resources, components, metadata={"annotations": {"lab/title": "a title", "lab/compare-with": rival}}
    )
    with pytest.raises(UsageError, match=said):
        load_overlay("mine", scratch)
    nginx = load_variant("nginx")  # so that `just bench nginx` says what the controller costs beside plain nginx
    assert (nginx.baseline, nginx.compared_with, nginx.primary_metric) == (None, "ingress-nginx", "cpu_per_request")
    assert load_variant("keepalive").compared_with == "ingress-nginx"
    assert load_variant("direct").compared_with is None


def test_a_root_may_hold_its_objects_itself(scratch: Path, overlay: Write) -> None:
    folder = overlay("mine", ["../../base/backend", "objects.yaml"])
    with pytest.raises(UsageError, match="there is no overlay or base 'objects.yaml'"):
        load_overlay("mine", scratch)
    (folder / "objects.yaml").write_text("")
    assert load_overlay("mine", scratch).resources == (folder,)
    (overlay("other", ["objects.yaml"], ["../../components/gzip-level-6"]) / "objects.yaml").write_text("")
    with pytest.raises(UsageError, match="components: together with objects of its own"):
        load_overlay("other", scratch)


def test_what_some_targets_alone_can_run_is_refused_on_the_others() -> None:
    """A system with its variants, and a knob with whatever comes after it; one that no target of its system has is no variant."""
    variant = load_variant("envoy-access-log")
    variant.refuse_on("local")
    with pytest.raises(NotMeasurableError, match="(?s)needs target local: .*\n  add --target local"):
        variant.refuse_on("kind")
    load_variant("ingress-nginx").refuse_on("kind")
    named = {target for name in overlay_names() for target in load_overlay(name).only_on.split()}
    named |= {target for name in knob_names() for target in load_knob(name).only_on.split()}
    assert named <= set(TARGETS)
    load_variant("ingress-nginx+metrics-on").refuse_on("apiserver")
    with pytest.raises(NotMeasurableError, match="(?s)needs a controller: .*\n  add --target apiserver"):
        load_variant("metrics-on").refuse_on("local")
    with pytest.raises(UsageError, match="no target has all of it: local; apiserver kind remote"):
        load_variant("traefik+metrics-on")


ROUTES: list[dict[str, Any]] = [
    {"kind": "Route", "metadata": {"name": f"r{size}", "labels": {"lab/routes": size}}} for size in ("1", "10", "100")
] + [{"kind": "Route", "metadata": {"name": "bare"}}, {"kind": "Service", "metadata": {"labels": {"lab/routes": "1"}}}]


@pytest.mark.parametrize(
    ("selector", "count"),
    [("lab/routes", 3), ("lab/routes=10", 1), ("lab/routes in (10, 100)", 2), ("lab/routes in (7)", 0), ("other", 0)],
)
def test_a_selector_means_what_kustomize_takes_it_for(selector: str, count: int) -> None:
    (target,) = parse_patch_targets({"patches": [{"target": {"kind": "Route", "labelSelector": selector}}]}, "here")
    assert target == PatchTarget("Route", labels=selector) and sum(map(target.means, ROUTES)) == count


@pytest.mark.parametrize(
    "target",
    [
        {"kind": "Route"},
        {"kind": "Route", "name": "r.*"},
        {"kind": "Route", "name": "r1", "labelSelector": "lab/routes"},
        {"kind": "Route", "labelSelector": "lab/routes!=1"},
        {"kind": "Route", "labelSelector": "a=b,c=d"},
        {"kind": ".*", "labelSelector": "a"},
        "Route",
    ],
)
def test_a_target_that_is_not_exact_is_refused(target: Any) -> None:
    with pytest.raises(UsageError, match="here: patches.target: expected an exact kind and name"):
        parse_patch_targets({"patches": [{"target": target}]}, "here")


def test_a_selector_that_selects_nothing_is_an_error(tmp_path: Path) -> None:
    """kustomize itself would render the same and say nothing. The same knob on its own base is fine."""
    manifests = tmp_path / "manifests"
    shutil.copytree(MANIFESTS, manifests)
    with pytest.raises(
        UsageError, match=r"there is no Route with lab/routes in \(100\) in 'ingress-nginx\+okd-routes-10'"
    ):
        load_variant("ingress-nginx+okd-routes-10", manifests)
    knob = manifests / "components/okd-tls-edge/kustomization.yaml"
    knob.write_text(knob.read_text().replace('labelSelector: "lab/routes"', 'labelSelector: "lab/routes=7"'))
    with pytest.raises(UsageError, match="there is no Route with lab/routes=7 in 'okd-edge'"):
        load_variant("okd-edge", manifests)
    left = [item["metadata"]["name"] for item in load_variant("okd-routes-10").manifests if item["kind"] == "Route"]
    assert left == [f"bench-{number:04}" for number in range(10)], "a patch may delete what it is for"


def test_a_component_is_added_to_the_parent_that_its_file_names_or_else_to_its_root() -> None:
    variant_of = map_components()
    assert variant_of["haproxy-h2-window-1m"] == "haproxy+gateway-tls++haproxy-h2-window-1m"
    assert variant_of["use-gzip"] == "ingress-nginx+use-gzip"
    assert variant_of.keys() == set(knob_names())
