"""The manifests of a git ref beside the checkout's: what a change makes of a variant, and what is refused."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from lab.base.errors import UsageError
from lab.experiments import against_ref
from lab.experiments.against_ref import add_ref_manifests, commit_of
from lab.model.facts import ROOT
from lab.model.variants.variants import load_variant

FIELDS = ("-c", "user.name=t", "-c", "user.email=t@t")


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the checkout's manifests, of which one commit has a knob otherwise, and no `backlog`."""
    root = tmp_path / "there"
    shutil.copytree(ROOT / "manifests", root / "manifests")
    knob = root / "manifests/components/keep-alive-requests-10000/kustomization.yaml"
    knob.write_text(knob.read_text().replace("keep-alive-requests=10000", "keep-alive-requests=5000"))
    shutil.rmtree(root / "manifests/overlays/backlog")
    for words in (["init", "-q"], ["add", "."], [*FIELDS, "commit", "-qm", "then"]):
        subprocess.run(["git", "-C", str(root), *words], check=True)
    monkeypatch.setattr(against_ref, "ROOT", root)
    return shutil.copytree(ROOT / "manifests", tmp_path / "both")


def test_a_variant_stands_beside_itself_as_it_was_unless_no_rendered_manifest_of_it_differs(both: Path) -> None:
    at = commit_of("HEAD")
    assert add_ref_manifests(both, "HEAD", ["keepalive", "gzip", "ingress-nginx+access-log-off"]) == (
        {"keepalive": f"keepalive@{at}"},
        ["gzip", "ingress-nginx+access-log-off"],
    )
    now, before = (load_variant(name, both) for name in ("keepalive", f"keepalive@{at}"))
    assert before.name == f"keepalive@{at}" and before.readback == now.readback
    assert "keep-alive-requests': '5000'" in str(before.manifests) and "'10000'" in str(now.manifests)
    assert load_variant(f"ingress-nginx+access-log-off@{at}", both).own_knobs == ("access-log-off",)


def test_what_is_new_and_a_ref_that_is_none_are_refused(both: Path) -> None:
    with pytest.raises(UsageError, match="(?s)has no variant 'backlog'.*just bench backlog"):
        add_ref_manifests(both, "HEAD", ["keepalive", "backlog"])
    with pytest.raises(UsageError, match="(?s)'no-such': .*fetch"):
        commit_of("no-such")
