"""Stand-ins: the base has the named release's defaults, each is read back, and no output names a program that did not run."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import ValidationError

from lab.analysis.applied import describe_programs
from lab.model.variants.knobs import Check
from lab.model.variants.variants import load_overlay, load_variant, variant_names
from lab.records.store import RunStore
from lab.systems import stand_ins, table
from lab.systems.ingress_nginx.configmap import KEYS
from lab.systems.stand_ins import Setting, load_stand_ins
from lab.targets.cluster import images as references
from lab.targets.readback import read_back
from lab.tests.support.inside import changed

CONTROLLER = next(each for each in load_stand_ins() if each.image == "ingress-nginx/controller" and each.setting)
CONFIGMAP = "ingress-nginx-controller"
RISK = Check(kind="configmap", name="annotations-risk-level", value="High")
MODULE = {
    "controllers": "ingress-nginx: program: k8s.io/ingress-nginx v0.0.0-20240708192948-52c50467d67d; on: Debian nginx 1.26.3"
}


@dataclass
class Controller:
    """A controller's container as `/proc/1/cmdline` and the API server show it."""

    words: Sequence[str]
    data: Mapping[str, str] = field(default_factory=dict[str, str])

    def exec(self, _role: str, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        printed = "\0".join(self.words) + "\0" if argv[-1] == "/proc/1/cmdline" else ""
        return subprocess.CompletedProcess(list(argv), 0, printed, "")

    def configmap(self, namespace: str, name: str) -> Mapping[str, str]:
        assert (namespace, name) == ("ingress-lab", CONFIGMAP)
        return self.data


def started(without: str = "") -> Any:
    """Return a controller that runs with what the base's manifests say, less one setting."""
    objects = {(each["kind"], each["metadata"]["name"]): each for each in load_variant("ingress-nginx").manifests}
    (container,) = objects["Deployment", "proxy"]["spec"]["template"]["spec"]["containers"]
    words = [word.replace("$(POD_NAMESPACE)", "ingress-lab") for word in container["args"]]
    return Controller(
        [word for word in words if word.partition("=")[0] != without],
        {key: value for key, value in objects["ConfigMap", CONFIGMAP]["data"].items() if key != without},
    )


@pytest.mark.parametrize("setting", CONTROLLER.setting, ids=lambda setting: setting.name)
def test_the_base_has_the_named_releases_default_and_it_is_read_back(setting: Setting) -> None:
    """On every target where the stand-in may run; with it left out of the manifests, the read-back fails."""
    manifests = load_variant("ingress-nginx").manifests
    assert setting.value_in(manifests) == setting.named
    own = setting.checks[0]
    for target in ("apiserver", "kind"):
        assert set(setting.checks) <= set(stand_ins.list_checks(manifests, target))
    (reading,) = read_back(started(), [own])
    assert reading.ok, str(reading)
    (reading,) = read_back(started(without=setting.name), [own])
    assert (reading.ok, reading.observed) == (False, "absent")


def test_a_setting_that_is_left_out_is_still_asked_for_and_one_that_a_knob_sets_is_the_knobs_own() -> None:
    """Else the check would vanish together with what it checks."""
    bare = changed("ingress-nginx", lambda each: each.update(data={}), "ConfigMap", CONFIGMAP)
    assert RISK in stand_ins.list_checks(bare.manifests, "kind")
    metrics, equal = (
        {check.name for check in stand_ins.list_checks(load_variant(name).manifests, "apiserver")}
        for name in ("metrics-on", "ingress-nginx-equal")
    )
    assert "--enable-metrics" not in metrics and "--enable-annotation-validation" in metrics
    assert not equal & {"ssl-ciphers", "ssl_ciphers"}


def test_the_tables_defaults_are_those_of_the_local_target() -> None:
    """Whose table of keys was written from the same release."""
    keys = {setting.key: setting.named for setting in CONTROLLER.setting if setting.key}
    assert len(keys) == 4 and keys == {key: KEYS[key].default for key in keys}


def test_every_image_that_this_machines_programs_stand_in_for_is_in_the_table() -> None:
    """Those whose tag decides what runs are themselves."""
    there = {each.image for each in load_stand_ins() if "local" in each.targets}
    for system in filter(None, map(table.find, references.pinned().values())):
        itself = system.realise is None or system.by_tag
        assert itself or any(each.endswith(system.image) for each in there), system.image


def test_no_title_names_a_release_that_need_not_have_run() -> None:
    assert [name for name in variant_names() if "ingress-nginx 1.15.1" in load_overlay(name).title] == []


@pytest.mark.parametrize(
    ("run", "ran"),
    [
        ("knobs-kind", "ingress-nginx 1.11.0"),
        ("nds-apiserver", "ingress-nginx 1.11.0"),
        ("knobs-local", "the nginx on PATH"),
    ],
)
def test_a_stored_run_says_what_ran_and_which_default_it_kept(run: str, ran: str) -> None:
    """Its manifests are those of its own time: the ones that say nothing of metrics left it to the program."""
    stored = RunStore.open(f"data/reference/{run}")
    said = " ".join(describe_programs(stored))
    assert ran in said and "in the place of ingress-nginx 1.15.1" in said
    baseline = str(stored.manifests("ingress-nginx"))
    assert ("--enable-metrics=true" in said) is (run != "knobs-local" and "--enable-metrics" not in baseline)


def test_an_image_of_ones_own_is_no_stand_in() -> None:
    """`LAB_IMAGES` named it, and the facts say so. What did run kept no default where the base is as it is."""
    baseline = {"ingress-nginx": load_variant("ingress-nginx").manifests}
    (said,) = stand_ins.describe_run("apiserver", MODULE, baseline)
    assert said.endswith("ran in the place of ingress-nginx 1.15.1: ingress-nginx")
    official = {"controllers": "ingress-nginx: the files of registry.k8s.io/ingress-nginx/controller:v1.15.1"}
    assert stand_ins.describe_run("apiserver", official, baseline) == []
    named = {"image_ingress-nginx-controller": "registry.k8s.io/ingress-nginx/controller:v1.15.1"}
    assert stand_ins.describe_run("kind", named, baseline) == []


def test_a_setting_that_is_neither_flag_nor_key_is_refused() -> None:
    either: tuple[dict[str, Any], ...] = {}, {"flag": "--a", "key": "a"}
    for given in either:
        with pytest.raises(ValidationError, match="expected either flag or key"):
            Setting(**given, stand_in="true", named="false", changes="nothing")


def test_without_a_configmap_on_the_command_line_nothing_is_read_back() -> None:
    system: Any = Controller(["/nginx-ingress-controller"])
    (reading,) = read_back(system, [RISK])
    assert (reading.observed, reading.ok) == ("unreadable", False)
