"""The manifests of a git ref beside the checkout's: what a change makes of a variant, and what is refused."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from lab.base.errors import UsageError
from lab.experiments import against_ref
from lab.experiments.against_ref import add_ref_manifests, commit_of, read_at_ref
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


def test_a_file_is_read_as_its_own_repository_had_it(tmp_path: Path) -> None:
    """Whatever the working folder is; what is in no repository, or new, is refused."""
    file = tmp_path / "there" / "values" / "mine.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("keep-alive: '75'\n")
    for words in (["init", "-q"], ["add", "."], [*FIELDS, "commit", "-qm", "then"]):
        subprocess.run(["git", "-C", str(tmp_path / "there"), *words], check=True)
    file.write_text("keep-alive: '300'\n")
    assert read_at_ref(file, "HEAD") == b"keep-alive: '75'\n"
    new = file.with_name("new.yaml")
    new.write_text("keep-alive: '300'\n")
    alone = tmp_path / "mine.yaml"
    alone.write_text("")
    for path, ref, fault in (
        (new, "HEAD", "new.yaml' exists on disk, but not in 'HEAD'"),
        (file, "no-such", "invalid object name 'no-such'"),
        (alone, "HEAD", "not a git repository"),
    ):
        with pytest.raises(UsageError) as raised:
            read_at_ref(path, ref)
        assert raised.value.place == "--against" and fault in raised.value.fault, raised.value
        assert "--config OLD NEW" in raised.value.remedy
