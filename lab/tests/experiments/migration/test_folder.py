"""What is written to take away: both forms of a system, buildable from that folder alone."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.analysis.migration.table import list_successors
from lab.experiments.ablation.folder import copy_manifests
from lab.experiments.migration.folder import (
    export_manifests,
    has_manifests,
    writable_lines,
    write_accepted,
    write_overlay_with,
)
from lab.experiments.migration.plan import plan_migration
from lab.model.variants import kustomize
from lab.model.variants.variants import load_overlay

HERE = [system for system in list_successors() if has_manifests(system)]
SOME = [*HERE[:1], *(pytest.param(system, marks=pytest.mark.slow) for system in HERE[1:])]
MINE = b"keep-alive: 300\nproxy-read-timeout: 120\nproxy-body-size: 8m\nupstream-keepalive-connections: 1000\nhttp-snippet: |\n  # 'quotes' \"too\"\n"
BASE = {
    "namespace": "ingress-lab",
    "resources": ["deployment.yaml", "route.yaml"],
    "configMapGenerator": [{"name": "settings", "options": {"disableNameSuffixHash": True}}],
}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "proxy"},
    "spec": {"template": {"spec": {"containers": [{"name": "proxy", "args": ["-c", "x", "--two", "1", "--one=1"]}]}}},
}
ROUTE = {"apiVersion": "x/v1", "kind": "HTTPRoute", "metadata": {"name": "bench"}, "spec": {"rules": [{"matches": []}]}}
BEGUN = {
    "apiVersion": "x/v1",
    "kind": "Policy",
    "metadata": {"name": "proxy"},
    "spec": {"targetRef": {"name": "proxy"}},
}
OVERLAY = {"metadata": {"annotations": {"lab/title": "made"}}, "resources": ["../../base/made"]}
TABLE = [
    ("keep-alive", "arg", "--one=", "300"),
    ("keep-alive-requests", "arg", "--two", "9"),
    ("proxy-read-timeout", "field", "HTTPRoute spec.rules.0.timeouts.request", "120s"),
    ("proxy-send-timeout", "field", "HTTPRoute metadata.annotations.example.org/waits.long", "infinity"),
    ("proxy-connect-timeout", "field", "Policy spec.timeout.connect", "5s"),
    ("proxy-body-size", "key", "most.mostBytes", "8388608"),
]


@pytest.fixture
def made(tmp_path: Path) -> Path:
    base, overlay = tmp_path / "base" / "made", tmp_path / "overlays" / "made"
    for folder in (base / "migrate", overlay, tmp_path / "base" / "ingress-nginx"):
        folder.mkdir(parents=True)
    for path, content in [
        (base / "kustomization.yaml", BASE),
        (base / "deployment.yaml", DEPLOYMENT),
        (base / "route.yaml", ROUTE),
        (base / "migrate" / "Policy.yaml", BEGUN),
        (overlay / "kustomization.yaml", OVERLAY),
    ]:
        path.write_text(yaml.safe_dump(content))
    return tmp_path


def lines() -> Any:
    found = plan_migration("mine", MINE, to=["traefik"]).migrations[0]
    model = next(line for line in found.settings if line.standing == "set")
    made = [replace(model, key=key, how=how, setting=setting, to=to) for key, how, setting, to in TABLE]
    return replace(found, system="made", settings=tuple(made), defaults=(), extras=()), made


def rendered(folder: Path) -> dict[str, Any]:
    return {each["kind"]: each for each in kustomize.parse_objects(kustomize.render([folder]))}


def test_every_way_of_setting_is_written_where_it_belongs(made: Path) -> None:
    found, settings = lines()
    name = write_overlay_with(made, found, settings)
    objects = rendered(made / "overlays" / name)
    container = objects["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    assert container["args"] == ["-c", "x", "--two", "9", "--one=300"]
    assert objects["HTTPRoute"]["spec"]["rules"] == [{"matches": [], "timeouts": {"request": "120s"}}]
    assert objects["HTTPRoute"]["metadata"]["annotations"] == {"example.org/waits.long": "infinity"}
    assert objects["Policy"]["spec"] == {"targetRef": {"name": "proxy"}, "timeout": {"connect": "5s"}}
    assert objects["ConfigMap"]["data"] == {"most.mostBytes": "8388608"}


def test_what_is_refused_is_left_out_and_told(made: Path) -> None:
    found, _ = lines()

    def refusal(name: str) -> str | None:
        data = rendered(made / "overlays" / name).get("ConfigMap", {}).get("data") or {}
        return "it says that MOST_BYTES is no directive" if "most.mostBytes" in data else None

    name, notes = write_accepted(made, found, refusal)
    assert name == "made-yours"
    assert ["most.mostBytes" in note for note in notes] == [True]
    assert write_accepted(made, found, lambda _: "no")[0] is None


@pytest.mark.parametrize("system", SOME)
def test_a_successor_is_written_as_shipped_and_with_settings_and_builds_from_that_folder_alone(
    system: str, tmp_path: Path
) -> None:
    found = plan_migration("mine", MINE, to=[system]).migrations
    assert export_manifests(tmp_path / "out", found) == []
    moved = tmp_path / "elsewhere"
    shutil.move(tmp_path / "out", moved)
    shipped, yours = (kustomize.render([moved / "overlays" / name]).decode() for name in (system, f"{system}-yours"))
    assert shipped != yours
    assert not list(moved.rglob("*.tsv"))
    assert [
        line.to
        for line in writable_lines(found[0])
        if line.how == "key" and line.to not in yours and "\n" not in line.to
    ] == []


def test_settings_are_read_back_as_their_table_says_over_what_is_read_of_the_system_itself(tmp_path: Path) -> None:
    (found,) = plan_migration("mine", MINE, to=["contour"]).migrations
    copy_manifests(tmp_path / "manifests")
    shipped, yours = (
        {check.name: check.value for check in load_overlay(name, tmp_path / "manifests").readback}
        for name in ("contour", write_overlay_with(tmp_path / "manifests", found, writable_lines(found)))
    )
    idle = "http_connection_manager.common_http_protocol_options.idle_timeout"
    assert (shipped, yours[idle]) == ({idle: "60s"}, "300s")
    told = ("route.route.timeout", "route.route.upgrade_configs.0.upgrade_type", "cluster.connect_timeout")
    assert [yours[name] for name in told] == ["0s", "websocket", "5s"]
