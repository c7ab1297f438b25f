"""An image's files from wherever they are: a folder, an archive, a registry; layers over each other, nothing outside the folder; and where etcd,
kube-apiserver and a controller's files are looked for.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lab.base.errors import UsageError
from lab.systems import programs as brought
from lab.systems.programs import ROOTS, locate_root_files
from lab.targets.apiserver import programs

Entry = str | tuple[str, str]
"""A file's text, or (`->`, where a symbolic link leads)."""


def tar(entries: Mapping[str, Entry]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, entry in entries.items():
            member = tarfile.TarInfo(name)
            if name.endswith("/"):
                member.type, member.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(member)
            elif isinstance(entry, tuple):
                member.type, member.linkname = tarfile.SYMTYPE, entry[1]
                archive.addfile(member)
            else:
                member.size, member.mode = len(entry), 0o755
                archive.addfile(member, io.BytesIO(entry.encode()))
    return made.getvalue()


LAYERS = (
    tar(
        {
            "./": "",
            "bin/": "",
            "bin/nginx": "old",
            "etc/": "",
            "etc/gone": "x",
            "all/": "",
            "all/of": "it",
            "run": ("->", "/var/run"),
        }
    ),
    gzip.compress(tar({"bin/nginx": "new", "etc/.wh.gone": "", "all/.wh..wh..opq": "", "all/new": "y"})),
)


def holds_both_layers(folder: Path) -> None:
    assert (folder / "bin/nginx").read_text() == "new" and (folder / "bin/nginx").stat().st_mode & 0o111
    assert not (folder / "etc/gone").exists() and [path.name for path in (folder / "all").iterdir()] == ["new"]
    assert (folder / "run").readlink() == Path("/var/run")


def saved(path: Path) -> Path:
    """As `docker save` writes it."""
    manifest = [{"Layers": ["0/layer.tar", "1/layer.tar"]}]
    with tarfile.open(path, "w") as archive:
        for name, body in {
            "manifest.json": json.dumps(manifest).encode(),
            "0/layer.tar": LAYERS[0],
            "1/layer.tar": LAYERS[1],
        }.items():
            member = tarfile.TarInfo(name)
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))
    return path


def test_an_archive_a_plain_tar_and_a_folder_will_do_and_nothing_else(tmp_path: Path) -> None:
    file = saved(tmp_path / "image.tar")
    folder = programs.unpack_image(str(file), tmp_path / "kept")
    holds_both_layers(folder)
    (folder / "mark").touch()
    assert (programs.unpack_image(str(file), tmp_path / "kept") / "mark").exists()
    assert programs.unpack_image(str(tmp_path), tmp_path / "kept") == tmp_path
    (tmp_path / "root.tar").write_bytes(tar({"nginx-ingress-controller": "program"}))
    folder = programs.unpack_image(str(tmp_path / "root.tar"), tmp_path / "kept")
    assert (folder / "nginx-ingress-controller").read_text() == "program"
    with pytest.raises(UsageError, match="no such folder or archive"):
        programs.unpack_image(str(tmp_path / "none"), tmp_path / "kept")
    (tmp_path / "text").write_text("no archive")
    with pytest.raises(UsageError, match="cannot be unpacked"):
        programs.unpack_image(str(tmp_path / "text"), tmp_path / "kept")


@pytest.mark.parametrize(
    "entries",
    [{"../out": "x"}, {"etc": ("->", "/tmp"), "etc/out": "x"}, {"up": ("->", ".."), "up/out": "x"}],
    ids=["dots", "absolute link", "relative link"],
)
def test_nothing_lands_outside_the_folder(tmp_path: Path, entries: Mapping[str, Entry]) -> None:
    (tmp_path / "root.tar").write_bytes(tar(entries))
    with pytest.raises(UsageError, match="would land outside"):
        programs.unpack_image(str(tmp_path / "root.tar"), tmp_path / "kept")
    assert not list(tmp_path.rglob("out")) and not list((tmp_path / "kept").iterdir())


@pytest.fixture
def registry() -> Iterator[tuple[str, dict[str, bytes]]]:
    """(its address, path → body) of one that asks for a token first."""
    bodies: dict[str, bytes] = {}

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            known = path == "/token" or self.headers.get("Authorization") == "Bearer drawn"
            body = b'{"token": "drawn"}' if path == "/token" else bodies.get(path)
            self.send_response(401 if not known else 404 if body is None else 200)
            if not known:
                where = f"http://{self.headers['Host']}/token"
                self.send_header("WWW-Authenticate", f'Bearer realm="{where}",service="s",scope="pull"')
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 - the base's name

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}", bodies
    server.shutdown()
    server.server_close()


def offered(bodies: dict[str, bytes]) -> str:
    """The digest of an image index with one manifest of both layers."""

    def put(kind: str, body: bytes) -> str:
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        bodies[f"/v2/ingress-nginx/controller/{kind}/{digest}"] = body
        return digest

    manifest = {"layers": [{"digest": put("blobs", layer)} for layer in LAYERS]}
    index = {"manifests": [{"digest": put("manifests", json.dumps(manifest).encode())}]}
    return put("manifests", json.dumps(index).encode())


def test_an_image_is_pulled_by_its_digest_and_other_contents_refused(
    registry: tuple[str, dict[str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no Docker
    address, bodies = registry
    reference = f"{address}/ingress-nginx/controller:v1@{offered(bodies)}"
    assert not programs.is_unpacked(reference, tmp_path / "kept")
    holds_both_layers(programs.unpack_image(reference, tmp_path / "kept"))
    assert programs.is_unpacked(reference, tmp_path / "kept")
    digest = offered(bodies)
    for path in [path for path in bodies if "/blobs/" in path]:
        bodies[path] = LAYERS[0]
    with pytest.raises(UsageError, match="has other contents"):
        programs.unpack_image(f"{address}/ingress-nginx/controller@{digest}", tmp_path / "other")
    with pytest.raises(UsageError, match="404"):
        programs.unpack_image(f"{address}/ingress-nginx/controller:v2", tmp_path / "other")


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
    monkeypatch.setattr(brought, "CONTROLLER_ROOTS", tmp_path)
    monkeypatch.setenv(ROOTS, json.dumps({"ingress-nginx-controller": ["mirror/controller:v1", "/srv/files"]}))
    found = locate_root_files("ingress-nginx", "ingress-nginx-controller")
    assert found.folder == Path("/srv/files") and found.about == "the files of mirror/controller:v1"
    monkeypatch.delenv(ROOTS)
    with pytest.raises(UsageError, match="scripts/controllers ingress-nginx"):
        locate_root_files("ingress-nginx", "ingress-nginx-controller")
    root = tmp_path / "ingress-nginx" / "root"
    root.mkdir(parents=True)
    (root / "about.txt").write_text("program: k8s.io/ingress-nginx v1\non: Debian nginx 1.26.3\n")
    about = locate_root_files("ingress-nginx", "ingress-nginx-controller").about
    assert about == "program: k8s.io/ingress-nginx v1; on: Debian nginx 1.26.3"
