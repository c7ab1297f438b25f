"""The manifests of a git ref beside the checkout's: what a change makes of a variant, and what is refused."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from lab.base.errors import UsageError
from lab.experiments import against_ref
from lab.experiments.against_ref import beside, changed, commit_of
from lab.model.facts import ROOT
from lab.model.variants.variants import load_variant

FIELDS = ("-c", "user.name=t", "-c", "user.email=t@t")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One commit of the manifests that has a knob otherwise, and no `backlog`."""
    root = tmp_path / "there"
    shutil.copytree(ROOT / "manifests", root / "manifests")
    knob = root / "manifests/components/keep-alive-requests-10000/kustomization.yaml"
    knob.write_text(knob.read_text().replace("keep-alive-requests=10000", "keep-alive-requests=5000"))
    shutil.rmtree(root / "manifests/overlays/backlog")
    for words in (["init", "-q"], ["add", "."], [*FIELDS, "commit", "-qm", "then"]):
        subprocess.run(["git", "-C", str(root), *words], check=True)
    monkeypatch.setattr(against_ref, "ROOT", root)
    return root


def test_a_variant_stands_beside_itself_as_it_was(repository: Path, tmp_path: Path) -> None:
    (then,) = beside(tmp_path / "both", "HEAD", ["keepalive"])
    assert then == f"keepalive@{commit_of('HEAD')}"
    now, before = (load_variant(name, tmp_path / "both") for name in ("keepalive", then))
    assert before.name == then and before.readback == now.readback
    assert before.manifests_sha256 != now.manifests_sha256
    assert "keep-alive-requests': '5000'" in str(before.manifests) and "'10000'" in str(now.manifests)


def test_a_variant_of_which_no_rendered_manifest_changed_is_left_out(repository: Path, tmp_path: Path) -> None:
    """What changed in a component is of the overlays that have it alone."""
    names = ["keepalive", "gzip"]
    then = beside(tmp_path / "both", "HEAD", names)
    assert changed(tmp_path / "both", names, then) == ({"keepalive": then[0]}, ["gzip"])


def test_a_knob_on_an_overlay_is_found_there_too(repository: Path, tmp_path: Path) -> None:
    (then,) = beside(tmp_path / "both", "HEAD", ["ingress-nginx+access-log-off"])
    assert load_variant(then, tmp_path / "both").own_knobs == ("access-log-off",)


def test_what_is_new_has_nothing_to_be_held_against(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="(?s)has no variant 'backlog'.*just bench backlog"):
        beside(tmp_path / "both", "HEAD", ["keepalive", "backlog"])


def test_a_ref_that_is_none_is_refused(repository: Path) -> None:
    with pytest.raises(UsageError, match="(?s)'no-such': .*fetch"):
        commit_of("no-such")
