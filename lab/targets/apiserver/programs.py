"""What this target runs: the two servers, etcd and kube-apiserver, and the controllers' files. Where they lie, what they are, and how they come
here when they are first used: outside the lab's namespaces, in which there is no network.

The servers come from the folder that KUBEBUILDER_ASSETS names, else from PATH (nix, Debian, or `scripts/controllers`, which builds them from
pinned Go modules). A controller's files are those of its image: the one that LAB_IMAGES names, else the pinned one where its registry answers.
Where neither can be had, `scripts/controllers` makes a root of its Go module, once. Refuses to say nothing: what is fetched or made is told on
stderr, and what was run is a fact of the run.

An image becomes a folder of its own files, each once: from a folder, an archive (what `docker save` writes, or a plain tar of a root), the Docker
engine here, or a registry. Files belong to whoever unpacks them; devices are left out, since a container gets the machine's. Refuses what would
land outside the folder, and contents whose digest is not the one that was asked for.
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
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any

from lab.base.errors import UsageError
from lab.systems.programs import MADE, ROOT, ROOTS, SCRIPTS
from lab.systems.table import CONTROLLERS
from lab.targets.cluster import docker
from lab.targets.cluster import images as references

ASK_S, READ_S = 5.0, 60.0
KINDS = ", ".join(
    f"application/vnd.{kind}+json"
    for kind in ("oci.image.index.v1", "oci.image.manifest.v1", "docker.distribution.manifest.list.v2",
                 "docker.distribution.manifest.v2")
)  # fmt: skip
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
ASSETS = "KUBEBUILDER_ASSETS"
SERVERS = ("etcd", "kube-apiserver")
SCRIPT = SCRIPTS / "controllers"
UNPACKED = MADE / "images"
SERVERS_ALONE = "servers"


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


def _once(kept: Path, key: str, make: Callable[[Path], None]) -> Path:
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
        if "manifest.json" not in archive.getnames():
            _extract(archive, into)
            return
        (image,) = json.loads(_read(archive, "manifest.json"))
        for layer in image["Layers"]:
            with tarfile.open(fileobj=io.BytesIO(_read(archive, layer))) as packed:
                _extract(packed, into)


def _read(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    if file is None:
        raise ValueError(f"{name} is no file in it")
    return file.read()


def _extract(archive: tarfile.TarFile, into: Path) -> None:
    """One layer over what is there. ValueError for what would land elsewhere."""
    root = into.resolve()
    archive.extraction_filter = lambda member, path: member  # what lands where is judged here
    for member in archive:
        member.name = member.name.lstrip("/")
        path = root / member.name
        if path == root or member.isdev():
            continue  # the root's own entry, `.`, or what a container gets of the machine's
        parent = path.parent.resolve()
        if not parent.is_relative_to(root):
            raise ValueError(f"{member.name} would land outside")
        path = parent / path.name
        if path.name == _OPAQUE:
            for old in parent.iterdir():
                _remove(old)
        elif path.name.startswith(_WHITEOUT):
            _remove(parent / path.name.removeprefix(_WHITEOUT))
        else:
            if not member.isdir() or path.is_symlink() or not path.is_dir():
                _remove(path)
            if member.islnk():
                member.linkname = member.linkname.lstrip("/")
                if not (root / member.linkname).parent.resolve().is_relative_to(root):
                    raise ValueError(f"{member.name} would be a link to what is outside")
            member.mode = member.mode & 0o777 | (0o700 if member.isdir() else 0o600)
            member.uid, member.gid, member.uname, member.gname = os.geteuid(), os.getegid(), "", ""
            archive.extract(member, root)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _pulled(reference: str, into: Path) -> None:
    """By the registry's HTTP API (OCI distribution-spec 1.1), anonymously."""
    host, _, rest = reference.partition("/")
    name, at, wanted = rest.partition("@")
    if not at:
        name, _, wanted = rest.rpartition(":")
    scheme = "http" if host.split(":")[0] in ("localhost", "127.0.0.1") else "https"
    registry = Registry(f"{scheme}://{'registry-1.docker.io' if host == 'docker.io' else host}/v2/{name}")
    manifest = registry.manifest(wanted)
    if "manifests" in manifest:
        manifest = registry.manifest(_ours(manifest["manifests"]))
    for layer in manifest["layers"]:
        with tempfile.TemporaryFile(dir=into.parent) as file:
            registry.get("blobs", layer["digest"], file)
            with tarfile.open(fileobj=file) as packed:
                _extract(packed, into)


def _ours(manifests: Sequence[Mapping[str, Any]]) -> str:
    """The digest of the one for this machine; LookupError."""
    machine = platform.machine()
    wanted = {"os": "linux", "architecture": _ARCHITECTURES.get(machine, machine)}
    for each in manifests:
        if len(manifests) == 1 or wanted.items() <= each.get("platform", {}).items():
            return each["digest"]
    raise LookupError(f"it has nothing for linux/{wanted['architecture']}")


class Registry:
    """One repository of one registry, by its URL. Every call raises OSError, ValueError for other contents than were asked for."""

    def __init__(self, url: str) -> None:
        self._url, self._token = url, ""

    def manifest(self, reference: str) -> dict[str, Any]:
        """By tag or digest."""
        body = io.BytesIO()
        self.get("manifests", reference, body)
        return json.load(body)

    def get(self, kind: str, reference: str, into: IO[bytes]) -> None:
        """To a file, which is at its beginning then."""
        found = hashlib.sha256()
        with self._ask(f"{kind}/{reference}") as answer:
            while part := answer.read(1 << 20):
                found.update(part)
                into.write(part)
        if reference.startswith("sha256:") and reference != f"sha256:{found.hexdigest()}":
            raise ValueError(f"{reference} has other contents: sha256:{found.hexdigest()}")
        into.seek(0)

    def _ask(self, what: str, again: bool = True) -> Any:
        asked = urllib.request.Request(f"{self._url}/{what}", headers={"Accept": KINDS})
        if self._token:  # for the registry alone, not for where it sends us on to
            asked.add_unredirected_header("Authorization", f"Bearer {self._token}")
        try:
            return urllib.request.urlopen(asked, timeout=READ_S if what.startswith("blobs") else ASK_S)
        except urllib.error.HTTPError as error:
            if error.code != 401 or not again:
                raise
            challenge = dict(_CHALLENGE.findall(error.headers.get("WWW-Authenticate", "")))
            query = "&".join(f"{key}={value}" for key, value in challenge.items() if key != "realm")
            with urllib.request.urlopen(f"{challenge['realm']}?{query}", timeout=ASK_S) as answer:
                said = json.loads(answer.read())
            self._token = str(said.get("token") or said["access_token"])
            return self._ask(what, again=False)


def server(name: str) -> str:
    """The path of etcd or kube-apiserver. UsageError."""
    folder = os.environ.get(ASSETS)
    found = shutil.which(name, path=folder) if folder else shutil.which(name)
    if found is None:
        remedy = f"scripts/controllers builds it, or {ASSETS} names a folder that has it"
        raise UsageError("--target apiserver", f"{name} is not {f'in {folder}' if folder else 'there'}", remedy)
    return found


@cache
def version(program: str) -> str:
    """`v1.34.4`, as etcd or kube-apiserver prints it."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"\d+\.\d+\.\d+\S*", said)
    return f"v{found[0]}" if found else "unknown"


def provide() -> None:
    """UsageError when something can be neither had nor made."""
    roots, made = chosen(), list[str]()
    written = references.written()
    for controller in CONTROLLERS.values():
        if controller.short in roots or not controller.made:
            continue
        if (MADE / controller.system / "root").is_dir():
            made.append(controller.system)  # again where its pins are others now
            continue
        reference = written.named(controller.short)
        if not there(reference, UNPACKED):
            _say(f"for --target apiserver, once: {reference} …")
        try:
            roots[controller.short] = (reference, str(unpacked(reference, UNPACKED)))
        except UsageError as error:
            _say(f"  ✗ {error.fault}: {controller.system} is made from its Go module")
            made.append(controller.system)
    if subprocess.run([SCRIPT, *(made or [SERVERS_ALONE])], check=False).returncode:
        remedy = f"{SCRIPT.relative_to(ROOT)} --help says what it needs"
        raise UsageError("--target apiserver", "what it runs could not be made (see above)", remedy)
    os.environ[ROOTS] = json.dumps(roots)


def chosen() -> dict[str, tuple[str, str]]:
    """Short name → (reference, folder) of the images that LAB_IMAGES names. UsageError for one that cannot be had."""
    given = references.written().chosen
    wanted = [controller.short for controller in CONTROLLERS.values() if controller.short in given]
    return {short: (given[short], str(unpacked(given[short], UNPACKED))) for short in wanted}


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
