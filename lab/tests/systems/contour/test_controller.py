"""What is read in Contour's log, and what its image and its Envoy's may be asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.base.errors import LabError, NotMeasurableError, UsageError
from lab.model.variants.variants import load_variant
from lab.systems import programs
from lab.systems.contour import system as contour
from lab.systems.manifests import objects as local_objects
from lab.systems.programs import Program
from lab.targets.apiserver import objects
from lab.targets.apiserver.target import ApiserverTarget
from lab.targets.cluster.objects import on_side
from lab.targets.local import LocalTarget
from lab.targets.local.kubelet import bringup
from lab.targets.local.sandbox.cpus import split
from lab.tests.support.factories import make_point
from lab.tests.support.inside import changed

PINNED = split([0, 1])
LOG = """\
time="2026-11-26T02:00:00Z" level=info msg="started status update handler" context=StatusUpdateHandler
time="2026-11-26T02:00:01Z" level=error msg="unresolved service reference" error="Service \\"nope\\" not found" name=bench
time="2026-11-26T02:00:02Z" level=warning msg="ignoring invalid ingress" name=other
time="2026-11-26T02:00:03Z" level=fatal msg="Contour server failed" error="no such thing"
E1126 02:00:04.560355       1 reflector.go:227] "Failed to watch" err="secrets is forbidden"
""".splitlines()


@pytest.fixture
def brought(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both programs are there: what is asked of them is what is looked at."""
    there = Path("/bin/true")
    monkeypatch.setattr(programs, "program", lambda place, name, version: Program(name, version, there))
    monkeypatch.setattr(programs, "built", lambda place, name, module, version: Program(name, version, there))


def vet(edit: Callable[[Any], object] = lambda containers: None) -> None:
    variant = changed("contour", lambda deployment: edit(deployment["spec"]["template"]["spec"]["containers"]))
    bringup.vet(local_objects.read(objects.read(variant.manifests)), PINNED, ApiserverTarget().realise)


def test_its_log_is_told_in_its_words_with_what_they_are_about() -> None:
    assert contour.complaints([*LOG, *LOG]) == [
        'unresolved service reference: Service "nope" not found',
        "Contour server failed: no such thing",
        '"Failed to watch" err="secrets is forbidden"',
    ]
    assert contour.ignored(LOG) == ["ignoring invalid ingress"]


def test_elsewhere_it_is_refused_with_the_target_that_can_before_anything_is_built() -> None:
    for target in ("local", "kind"):
        with pytest.raises(NotMeasurableError) as caught:
            load_variant("contour-log-off").refuse_on(target)
        assert caught.value.remedy == "--target apiserver"
    with pytest.raises(NotMeasurableError, match="target apiserver alone"):
        LocalTarget().check_variant(load_variant("contour"), [make_point()])


@pytest.mark.usefixtures("brought")
@pytest.mark.parametrize(
    ("edit", "fault"),
    [
        (lambda containers: containers[1].update(command=["sh"]), "expected the command contour"),
        (lambda containers: containers[1].update(args=["bootstrap"]), "serve as the first argument"),
        (lambda containers: containers[1].update(image="ghcr.io/projectcontour/contour"), "names no version"),
        (lambda containers: containers.pop(1), "no controller is in its pod"),
        (lambda containers: containers[0]["args"].extend(["--concurrency", "2"]), "asks for 2 workers"),
        (lambda containers: containers[0]["args"].extend(["--concurrency", "all"]), "expected a positive number"),
    ],
)
def test_what_cannot_be_honoured_is_refused(edit: Any, fault: str) -> None:
    vet()
    with pytest.raises(LabError, match=fault):
        vet(edit)


def test_a_version_that_is_not_pinned_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The program of another version is there, and building brings it again."""
    (tmp_path / "contour").touch()
    monkeypatch.setattr(programs, "BUILT", tmp_path)
    monkeypatch.setattr(programs, "built_from", lambda *_: "1.0.0")
    monkeypatch.setattr(programs, "run_outside", lambda *_: 0)
    with pytest.raises(UsageError, match="is asked for"):
        programs.built("here", "contour", contour.MODULE, "1.33.8")


def test_each_side_of_a_pair_has_its_own_of_all_but_the_definitions() -> None:
    manifests = load_variant("contour").manifests
    left, right = ({(o["kind"], str(o["metadata"])): o for o in on_side(manifests, s)} for s in ("left", "right"))  # type: ignore[arg-type]
    assert not left.keys() & right.keys()
    (settings,) = [obj for (kind, _), obj in right.items() if kind == "ContourConfiguration"]
    assert settings["spec"]["ingress"]["classNames"] == ["ingress-lab-right"]
    names = [obj["metadata"]["name"] for obj in objects.definitions(right.values())]
    assert "contourconfigurations.projectcontour.io" in names and all("contour" in name for name in names)
