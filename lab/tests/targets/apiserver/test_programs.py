"""Where etcd, kube-apiserver and a controller's files are looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.base.errors import UsageError
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


def test_files_that_lab_images_names_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = tmp_path / "images.yaml"
    monkeypatch.setenv(programs.IMAGES, str(images))
    monkeypatch.setattr(programs, "MADE", tmp_path / "nothing")
    images.write_text(f"nginx: mirror/nginx:1\ningress-nginx-controller: {tmp_path}\n")
    assert programs.files("ingress-nginx", "ingress-nginx-controller").folder == tmp_path
    images.write_text("nginx: mirror/nginx:1\n")
    with pytest.raises(UsageError, match="scripts/controllers ingress-nginx"):
        programs.files("ingress-nginx", "ingress-nginx-controller")
    images.write_text("ingress-nginx-controller: /not/there\n")
    with pytest.raises(UsageError, match="ingress-nginx-controller: /not/there"):
        programs.files("ingress-nginx", "ingress-nginx-controller")


def test_what_a_root_is_made_of_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(programs.IMAGES, raising=False)
    monkeypatch.setattr(programs, "MADE", tmp_path)
    root = tmp_path / "ingress-nginx" / "root"
    root.mkdir(parents=True)
    (root / programs.ABOUT).write_text("program: k8s.io/ingress-nginx v1\non: Debian nginx 1.26.3\n")
    about = programs.files("ingress-nginx", "ingress-nginx-controller").about
    assert about == "program: k8s.io/ingress-nginx v1; on: Debian nginx 1.26.3"
