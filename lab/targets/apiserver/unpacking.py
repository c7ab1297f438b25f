"""An image → a folder of its own files: from a folder, an archive, the Docker engine here, or a registry; each once.

An archive is what `docker save` or an OCI tool writes (layers in it), or a plain tar of a root. Files belong to whoever unpacks them;
devices are left out, since a container gets the machine's. Refuses what would land outside the folder, and contents whose digest is
not the one that was asked for.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import platform
import re
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import zstandard

from lab.base.errors import UsageError
from lab.targets.cluster import docker

ASK_S, READ_S = 5.0, 60.0
KINDS = ", ".join(
    f"application/vnd.{kind}+json"
    for kind in ("oci.image.index.v1", "oci.image.manifest.v1", "docker.distribution.manifest.list.v2",
                 "docker.distribution.manifest.v2")
)  # fmt: skip
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


def unpacked(reference: str, kept: Path) -> Path:
    """The folder of what LAB_IMAGES or the pinned images name. `kept`: where unpacked images lie. UsageError when it cannot be had."""
    path = Path(reference)
    if path.is_dir():
        return path
    if path.is_absolute():
        if not path.is_file():
            raise UsageError(f"image {reference}", "there is no such folder or archive", "correct LAB_IMAGES")
        state = path.stat()
        return _once(kept, f"{path} {state.st_mtime_ns} {state.st_size}", lambda into: _archive(path, into))
    if shutil.which("docker") is not None and (held := docker.held(reference)) is not None:
        return _once(kept, held, lambda into: _saved(reference, into))
    return _once(kept, docker.full(reference), lambda into: _pulled(docker.full(reference), into))


def there(reference: str, kept: Path) -> bool:
    """Whether a registry's image has been unpacked before."""
    return _folder(kept, docker.full(reference)).is_dir()


def _folder(kept: Path, key: str) -> Path:
    return kept / hashlib.sha256(key.encode()).hexdigest()[:16]


def _once(kept: Path, key: str, make: Any) -> Path:
    folder = _folder(kept, key)
    if not folder.is_dir():
        kept.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept, prefix="new-", ignore_cleanup_errors=True) as new:
            into = Path(new) / "root"
            into.mkdir(mode=0o755)
            try:
                make(into)
            except (OSError, tarfile.TarError, ValueError, LookupError) as error:
                remedy = "LAB_IMAGES names another: a folder, an archive, or what Docker holds"
                raise UsageError(f"image {key.split()[0]}", f"cannot be unpacked: {error}", remedy) from None
            with contextlib.suppress(OSError):  # another lab was faster
                into.rename(folder)
    return folder


def _saved(reference: str, into: Path) -> None:
    with tempfile.TemporaryDirectory(dir=into.parent) as folder:
        file = Path(folder) / "image.tar"
        argv = ["docker", "image", "save", "--output", str(file), reference]
        docker.output(argv, 600.0, f"image {reference}", "LAB_IMAGES names another")
        _archive(file, into)


def _archive(file: Path, into: Path) -> None:
    with tarfile.open(file) as archive:
        names = set(archive.getnames())
        if "manifest.json" in names:
            (image,) = json.loads(_read(archive, "manifest.json"))
            layers = list(image["Layers"])
        elif "index.json" in names:
            layers = list(_of_index(archive))
        else:
            _extract(archive, into)
            return
        for layer in layers:
            _layer(io.BytesIO(_read(archive, layer)), into)


def _of_index(archive: tarfile.TarFile) -> Iterator[str]:
    manifest = json.loads(_read(archive, "index.json"))
    while "manifests" in manifest:
        manifest = json.loads(_read(archive, _blob(_ours(manifest["manifests"])["digest"])))
    yield from (_blob(layer["digest"]) for layer in manifest["layers"])


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _read(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    if file is None:
        raise ValueError(f"{name} is no file in it")
    return file.read()


def _ours(manifests: list[dict[str, Any]]) -> dict[str, Any]:
    """The one for this machine; LookupError."""
    machine = platform.machine()
    wanted = _ARCHITECTURES.get(machine, machine)
    for each in manifests:
        where = each.get("platform", {})
        if len(manifests) == 1 or (where.get("os"), where.get("architecture")) == ("linux", wanted):
            return each
    raise LookupError(f"it has nothing for linux/{wanted}")


def _layer(stream: IO[bytes], into: Path) -> None:
    magic = stream.read(4)
    stream.seek(0)
    if magic == b"\x28\xb5\x2f\xfd":
        stream = io.BytesIO(zstandard.ZstdDecompressor().stream_reader(stream).read())
    with tarfile.open(fileobj=stream, mode="r|gz" if magic[:2] == b"\x1f\x8b" else "r|") as archive:
        _extract(archive, into)


def _extract(archive: tarfile.TarFile, into: Path) -> None:
    """One layer over what is there. ValueError for what would land elsewhere."""
    root = into.resolve()
    for member in archive:
        path = root / member.name.lstrip("/")
        if path == root:
            continue  # the root's own entry, `.`
        parent = path.parent.resolve()
        if parent != root and root not in parent.parents:
            raise ValueError(f"{member.name} would land outside")
        path = parent / path.name
        if path.name == _OPAQUE:
            for old in parent.iterdir():
                _remove(old)
            continue
        if path.name.startswith(_WHITEOUT):
            _remove(parent / path.name.removeprefix(_WHITEOUT))
            continue
        if member.isdev():
            continue
        parent.mkdir(parents=True, exist_ok=True)
        if member.isdir():
            if path.is_symlink() or (path.exists() and not path.is_dir()):
                _remove(path)
            path.mkdir(exist_ok=True)
            path.chmod(member.mode & 0o777 | 0o700)
            continue
        _remove(path)
        if member.issym():
            path.symlink_to(member.linkname)
        elif member.islnk():
            other = (root / member.linkname.lstrip("/")).parent.resolve() / Path(member.linkname).name
            if root not in other.parents:
                raise ValueError(f"{member.name} would be a link to what is outside")
            os.link(other, path, follow_symlinks=False)
        else:
            source = archive.extractfile(member)
            assert source is not None
            with path.open("wb") as target:
                shutil.copyfileobj(source, target)
            path.chmod(member.mode & 0o777 | 0o600)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _pulled(reference: str, into: Path) -> None:
    """By the registry's HTTP API (OCI distribution-spec 1.1), anonymously."""
    host, _, rest = reference.partition("/")
    name, at, digest = rest.partition("@")
    if not at:
        name, _, digest = rest.rpartition(":")
    plain = host.split(":")[0] in ("localhost", "127.0.0.1")
    registry = Registry(
        f"{'http' if plain else 'https'}://{'registry-1.docker.io' if host == 'docker.io' else host}", name
    )
    manifest = registry.manifest(digest)
    if "manifests" in manifest:
        manifest = registry.manifest(_ours(manifest["manifests"])["digest"])
    for layer in manifest["layers"]:
        with tempfile.TemporaryFile(dir=into.parent) as file:
            registry.blob(layer["digest"], file)
            file.seek(0)
            _layer(file, into)


class Registry:
    """One repository of one registry. Every call raises OSError, ValueError for other contents than were asked for."""

    def __init__(self, url: str, name: str) -> None:
        self._url, self._name, self._token = url, name, ""

    def manifest(self, reference: str) -> dict[str, Any]:
        """By tag or digest."""
        with self._ask(f"manifests/{reference}") as answer:
            body = answer.read()
        if reference.startswith("sha256:"):
            _compare(reference, hashlib.sha256(body).hexdigest())
        return json.loads(body)

    def blob(self, digest: str, into: IO[bytes]) -> None:
        found = hashlib.sha256()
        with self._ask(f"blobs/{digest}") as answer:
            while part := answer.read(1 << 20):
                found.update(part)
                into.write(part)
        _compare(digest, found.hexdigest())

    def _ask(self, what: str, again: bool = True) -> Any:
        asked = urllib.request.Request(f"{self._url}/v2/{self._name}/{what}", headers={"Accept": KINDS})
        if self._token:  # for the registry alone, not for where it sends us on to
            asked.add_unredirected_header("Authorization", f"Bearer {self._token}")
        try:
            return urllib.request.urlopen(asked, timeout=READ_S if what.startswith("blobs") else ASK_S)
        except urllib.error.HTTPError as error:
            if error.code != 401 or not again:
                raise
            self._token = _token(dict(_CHALLENGE.findall(error.headers.get("WWW-Authenticate", ""))))
            return self._ask(what, again=False)


def _token(challenge: Mapping[str, str]) -> str:
    query = "&".join(f"{key}={value}" for key, value in challenge.items() if key != "realm")
    with urllib.request.urlopen(f"{challenge['realm']}?{query}", timeout=ASK_S) as answer:
        said = json.loads(answer.read())
    return str(said.get("token") or said["access_token"])


def _compare(wanted: str, found: str) -> None:
    if wanted != f"sha256:{found}":
        raise ValueError(f"{wanted} has other contents: sha256:{found}")
