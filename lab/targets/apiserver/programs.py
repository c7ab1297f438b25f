"""Functions that fetch or build the programs of the target `apiserver`: etcd, kube-apiserver and the controllers.

The programs are provided when they are first needed. This happens outside the lab's namespaces, because inside them
there is no network.

The two servers come from the folder that the environment variable KUBEBUILDER_ASSETS names, or else from PATH (nix,
Debian, or `scripts/controllers`, which builds the servers from pinned Go modules). A controller's files come from its
image: from the image that the user has chosen by LAB_IMAGES, or else from the pinned image if its registry answers.
If neither image is available, `scripts/controllers` builds the files from the controller's Go module, once. Downloads
and builds are reported on stderr, and the facts of a run contain the versions.

An image is unpacked once, into a folder. The image may be a folder, an archive (the output of `docker save`, or a plain
tar of a root folder), an image in the local Docker engine, or an image in a registry. The files belong to the user who
unpacks them. Devices are left out, because a container gets those of the machine. An image is refused if a file would
be written outside the folder, or if its contents do not match the requested digest.
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

from lab.base.errors import UsageError, refuse_if
from lab.systems.programs import CONTROLLER_ROOTS, ROOT, ROOTS, SCRIPTS
from lab.systems.table import CONTROLLERS
from lab.targets.cluster import docker
from lab.targets.cluster import images as references

ASK_S, READ_S = 5.0, 60.0
"""The timeouts in seconds for a registry's answer: for a small answer, and for an image's layer."""
KINDS = ", ".join(
    f"application/vnd.{kind}+json"
    for kind in ("oci.image.index.v1", "oci.image.manifest.v1", "docker.distribution.manifest.list.v2",
                 "docker.distribution.manifest.v2")
)  # fmt: skip
"""The media types of manifests that are accepted from a registry."""
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""The machine's name of a processor architecture → the registry's name."""
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
"""The marks of deletions in an image's layer.

The first is the prefix of a file that removes a file of a lower layer. The second is the name of a file that empties
the folder in which it lies.
"""
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
ASSETS = "KUBEBUILDER_ASSETS"
"""The environment variable that names a folder with the servers."""
SERVERS = ("etcd", "kube-apiserver")
"""The names of the servers' programs."""
SCRIPT = SCRIPTS / "controllers"
"""The script that makes servers and controllers."""
UNPACKED = CONTROLLER_ROOTS / "images"
"""The folder of unpacked images."""
SERVERS_ALONE = "servers"
"""The script's argument to make the servers only."""


def unpack_image(reference: str, cache_folder: Path) -> Path:
    """Return the folder with an image's files; unpack the image into the cache first if it is not there yet.

    Args:
        reference: Where the image is: a folder (returned as it is), the absolute path of an archive, or an image
            reference such as `docker.io/library/busybox:1.36`.
        cache_folder: The folder of all unpacked images.

    Raises:
        UsageError: There is no such folder or archive, or the image cannot be unpacked.

    """
    path = Path(reference)
    if path.is_dir():
        return path
    if path.is_absolute():
        refuse_if(not path.is_file(), f"image {reference}", "there is no such folder or archive", "correct LAB_IMAGES")
        state = path.stat()
        return _unpack_once(
            cache_folder,
            f"{path} {state.st_mtime_ns} {state.st_size}",
            lambda into: _unpack_archive(path, into),
        )
    if shutil.which("docker") is not None and (held := docker.find_image_id(reference)) is not None:
        return _unpack_once(cache_folder, held, lambda into: _unpack_from_docker(reference, into))
    return _unpack_once(
        cache_folder, docker.expand_reference(reference), lambda into: _pull(docker.expand_reference(reference), into)
    )


def is_unpacked(reference: str, cache_folder: Path) -> bool:
    """Return whether the cache folder has the unpacked files of an image that comes from a registry."""
    return _locate_folder(cache_folder, docker.expand_reference(reference)).is_dir()


def _locate_folder(cache_folder: Path, key: str) -> Path:
    return cache_folder / hashlib.sha256(key.encode()).hexdigest()[:16]


def _unpack_once(cache_folder: Path, key: str, make: Callable[[Path], None]) -> Path:
    """Return the folder of unpacked files for a key; if there is none yet, create and fill it.

    Args:
        cache_folder: The folder of all unpacked images.
        key: The text that identifies the image: path, time and size of an archive, the id of a local image, or the reference
            of one in a registry. An image in a registry whose tag gets other contents is not unpacked again.
        make: The function that fills an empty folder with the files.

    Raises:
        UsageError: The folder cannot be filled.

    """
    folder = _locate_folder(cache_folder, key)
    if not folder.is_dir():
        cache_folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache_folder, prefix="new-", ignore_cleanup_errors=True) as new:
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


def _unpack_from_docker(reference: str, into: Path) -> None:
    """Export an image from the local Docker engine, and unpack its files into the folder `into`."""
    with tempfile.TemporaryDirectory(dir=into.parent) as folder:
        file = Path(folder) / "image.tar"
        argv = ["docker", "image", "save", "--output", str(file), reference]
        docker.run_for_output(argv, 600.0, f"image {reference}", "LAB_IMAGES names another")
        _unpack_archive(file, into)


def _unpack_archive(file: Path, into: Path) -> None:
    """Unpack an image's files from an archive into the folder `into`.

    The archive is the output of `docker save`, or a plain tar of a root file system.
    """
    with tarfile.open(file) as archive:
        if "manifest.json" not in archive.getnames():
            _unpack_layer(archive, into)
            return
        (image,) = json.loads(_read_member(archive, "manifest.json"))
        for layer in image["Layers"]:
            with tarfile.open(fileobj=io.BytesIO(_read_member(archive, layer))) as packed:
                _unpack_layer(packed, into)


def _read_member(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    if file is None:
        raise ValueError(f"{name} is no file in it")
    return file.read()


def _unpack_layer(archive: tarfile.TarFile, into: Path) -> None:
    """Unpack one layer of an image into a folder that already has the files of the lower layers.

    Files that the layer marks as deleted (whiteouts) are removed.

    Raises:
        ValueError: A file would land outside the folder.

    """
    root = into.resolve()
    archive.extraction_filter = lambda member, path: member  # this function itself checks where a file lands
    for member in archive:
        member.name = member.name.lstrip("/")
        path = root / member.name
        if path == root or member.isdev():
            continue  # the root's own entry, `.`, or a device, which a container gets from the machine
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


def _pull(reference: str, into: Path) -> None:
    """Download an image from its registry without credentials, and unpack its files into the folder `into`.

    The requests follow the OCI distribution-spec 1.1.
    """
    host, _, repository = reference.partition("/")
    name, separator, version = repository.partition("@")
    if not separator:
        name, _, version = repository.rpartition(":")
    scheme = "http" if host.split(":")[0] in ("localhost", "127.0.0.1") else "https"
    registry = ImageRegistry(f"{scheme}://{'registry-1.docker.io' if host == 'docker.io' else host}/v2/{name}")
    manifest = registry.manifest(version)
    if "manifests" in manifest:
        manifest = registry.manifest(_select_digest(manifest["manifests"]))
    for layer in manifest["layers"]:
        with tempfile.TemporaryFile(dir=into.parent) as file:
            registry.get("blobs", layer["digest"], file)
            with tarfile.open(fileobj=file) as packed:
                _unpack_layer(packed, into)


def _select_digest(manifests: Sequence[Mapping[str, Any]]) -> str:
    """Return the digest of the image manifest for Linux on this machine's CPU architecture.

    If there is only one manifest, its digest is returned, whatever its platform.

    Args:
        manifests: The entries of an OCI image index, one for each platform.

    Raises:
        LookupError: No manifest is for this architecture.

    """
    machine = platform.machine()
    needed = {"os": "linux", "architecture": _ARCHITECTURES.get(machine, machine)}
    for manifest in manifests:
        if len(manifests) == 1 or needed.items() <= manifest.get("platform", {}).items():
            return manifest["digest"]
    raise LookupError(f"it has nothing for linux/{needed['architecture']}")


class ImageRegistry:
    """A client of one repository in an image registry.

    Every method raises OSError if the registry does not answer or refuses, and ValueError if it sends contents with
    another digest than requested.
    """

    def __init__(self, url: str) -> None:
        """Prepare the client; nothing is sent yet.

        Args:
            url: The URL of the repository.

        """
        self._url, self._token = url, ""

    def manifest(self, reference: str) -> dict[str, Any]:
        """Return the parsed manifest that a tag or digest names: that of one image, or an index of manifests by platform."""
        body = io.BytesIO()
        self.get("manifests", reference, body)
        return json.load(body)

    def get(self, kind: str, reference: str, into: IO[bytes]) -> None:
        """Download a manifest or a blob (such as a layer) into a file, and rewind the file.

        Args:
            kind: `manifests` or `blobs`.
            reference: The tag or digest; with a digest, the downloaded contents must match it.
            into: The open file.

        Raises:
            OSError: The registry does not answer, or refuses.
            ValueError: The contents have another digest.

        """
        digest = hashlib.sha256()
        with self._request(f"{kind}/{reference}") as response:
            while part := response.read(1 << 20):
                digest.update(part)
                into.write(part)
        if reference.startswith("sha256:") and reference != f"sha256:{digest.hexdigest()}":
            raise ValueError(f"{reference} has other contents: sha256:{digest.hexdigest()}")
        into.seek(0)

    def _request(self, path: str, again: bool = True) -> Any:
        """Send a GET for a path of the repository, and return the open response.

        If the registry asks for a token (status 401), an anonymous token is fetched and the request is repeated once.

        Args:
            path: The path below the repository's URL, such as `manifests/latest`.
            again: Whether the request may be repeated with a token.

        """
        request = urllib.request.Request(f"{self._url}/{path}", headers={"Accept": KINDS})
        if self._token:  # for the registry only, not for a server that it redirects to
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        try:
            return urllib.request.urlopen(request, timeout=READ_S if path.startswith("blobs") else ASK_S)
        except urllib.error.HTTPError as error:
            if error.code != 401 or not again:
                raise
            challenge = dict(_CHALLENGE.findall(error.headers.get("WWW-Authenticate", "")))
            query = "&".join(f"{key}={value}" for key, value in challenge.items() if key != "realm")
            with urllib.request.urlopen(f"{challenge['realm']}?{query}", timeout=ASK_S) as response:
                grant = json.loads(response.read())
            self._token = str(grant.get("token") or grant["access_token"])
            return self._request(path, again=False)


def server(name: str) -> str:
    """Return the path of a server's program (`etcd` or `kube-apiserver`).

    Raises:
        UsageError: The program is missing.

    """
    folder = os.environ.get(ASSETS)
    path = shutil.which(name, path=folder) if folder else shutil.which(name)
    if path is None:
        remedy = f"scripts/controllers builds it, or {ASSETS} names a folder that has it"
        raise UsageError("--target apiserver", f"{name} is not {f'in {folder}' if folder else 'there'}", remedy)
    return path


@cache
def version(program: str) -> str:
    """Return the version that etcd or kube-apiserver prints, such as `v1.34.4`; `unknown` if there is none in its output.

    Args:
        program: The path of the program.

    """
    output = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    number = re.search(r"\d+\.\d+\.\d+\S*", output)
    return f"v{number[0]}" if number else "unknown"


def provide() -> None:
    """Fetch or build everything that the target apiserver runs: etcd, kube-apiserver and the controllers' files.

    The files of a controller come from the first available of these sources: the image that the user has chosen, files
    that were built earlier, the pinned image, and a new build from the controller's Go module. The folders of unpacked
    images are stored in the environment variable that ROOTS names.

    Raises:
        UsageError: A program can be neither fetched nor built.

    """
    roots, systems = list_chosen(), list[str]()
    pinned = references.read_images()
    for controller in CONTROLLERS.values():
        if controller.short in roots or not controller.made:
            continue
        if (CONTROLLER_ROOTS / controller.system / "root").is_dir():
            systems.append(controller.system)  # the script makes it again if its pins have changed
            continue
        reference = pinned.named(controller.short)
        if not is_unpacked(reference, UNPACKED):
            _report(f"for --target apiserver, once: {reference} …")
        try:
            roots[controller.short] = (reference, str(unpack_image(reference, UNPACKED)))
        except UsageError as error:
            _report(f"  ✗ {error.fault}: {controller.system} is made from its Go module")
            systems.append(controller.system)
    made = subprocess.run([SCRIPT, *(systems or [SERVERS_ALONE])], check=False)
    refuse_if(
        made.returncode,
        "--target apiserver",
        "what it runs could not be made (see above)",
        f"{SCRIPT.relative_to(ROOT)} --help says what it needs",
    )
    os.environ[ROOTS] = json.dumps(roots)


def list_chosen() -> dict[str, tuple[str, str]]:
    """Unpack the controller images that the user has chosen in the file named by LAB_IMAGES, and return their folders.

    Returns:
        Short name of the image → (its reference, the folder with its files).

    Raises:
        UsageError: An image cannot be found or unpacked.

    """
    images = references.read_images().chosen
    names = [controller.short for controller in CONTROLLERS.values() if controller.short in images]
    return {short: (images[short], str(unpack_image(images[short], UNPACKED))) for short in names}


def _report(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
