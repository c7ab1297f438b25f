"""Where etcd, kube-apiserver and a controller's files are looked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.base.errors import UsageError
from lab.systems import programs as brought
from lab.systems.programs import ABOUT, ROOTS, files
from lab.targets.apiserver import programs


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
    """Which says what it is made of."""
    monkeypatch.setattr(brought, "MADE", tmp_path)
    monkeypatch.setenv(ROOTS, json.dumps({"ingress-nginx-controller": ["mirror/controller:v1", "/srv/files"]}))
    found = files("ingress-nginx", "ingress-nginx-controller")
    assert found.folder == Path("/srv/files") and found.about == "the files of mirror/controller:v1"
    monkeypatch.delenv(ROOTS)
    with pytest.raises(UsageError, match="scripts/controllers ingress-nginx"):
        files("ingress-nginx", "ingress-nginx-controller")
    root = tmp_path / "ingress-nginx" / "root"
    root.mkdir(parents=True)
    (root / ABOUT).write_text("program: k8s.io/ingress-nginx v1\non: Debian nginx 1.26.3\n")
    about = files("ingress-nginx", "ingress-nginx-controller").about
    assert about == "program: k8s.io/ingress-nginx v1; on: Debian nginx 1.26.3"
