"""Where etcd, kube-apiserver and a controller's files are looked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.base.errors import UsageError
from lab.targets.apiserver import images, programs
from lab.targets.apiserver.images import table


def test_the_named_folder_comes_before_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("assets", "path"):
        (tmp_path / folder).mkdir()
        program = tmp_path / folder / "etcd"
        program.write_text("#!/bin/sh\necho etcd Version: 3.6.16\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/usr/bin:/bin")
    monkeypatch.delenv(programs.ASSETS, raising=False)
    assert programs.server("etcd") == str(tmp_path / "path/etcd")
    monkeypatch.setenv(programs.ASSETS, str(tmp_path / "assets"))
    assert programs.server("etcd") == str(tmp_path / "assets/etcd")
    assert programs.version(programs.server("etcd")) == "v3.6.16"
    with pytest.raises(UsageError, match=r"kube-apiserver is not in .*assets"):
        programs.server("kube-apiserver")


def test_an_images_own_files_come_before_what_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "MADE", tmp_path / "nothing")
    monkeypatch.setenv(programs.ROOTS, json.dumps({"ingress-nginx-controller": ["mirror/controller:v1", "/srv/files"]}))
    found = programs.files("ingress-nginx", "ingress-nginx-controller")
    assert found.folder == Path("/srv/files") and found.about == "the files of mirror/controller:v1"
    monkeypatch.delenv(programs.ROOTS)
    with pytest.raises(UsageError, match="scripts/controllers ingress-nginx"):
        programs.files("ingress-nginx", "ingress-nginx-controller")


def test_what_a_root_is_made_of_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(programs.ROOTS, raising=False)
    monkeypatch.setattr(programs, "MADE", tmp_path)
    root = tmp_path / "ingress-nginx" / "root"
    root.mkdir(parents=True)
    (root / programs.ABOUT).write_text("program: k8s.io/ingress-nginx v1\non: Debian nginx 1.26.3\n")
    about = programs.files("ingress-nginx", "ingress-nginx-controller").about
    assert about == "program: k8s.io/ingress-nginx v1; on: Debian nginx 1.26.3"


def test_every_image_says_all_that_is_asked_of_one() -> None:
    """What is missing in a file is found here, and not in the middle of a run."""
    asked = {*images.Image.__annotations__, *(name for name in vars(images.Image) if not name.startswith("_"))}
    missing = {name: asked - set(vars(image)) for name, image in table.IMAGES.items()}
    assert len(missing) > 3 and not any(missing.values()), missing
