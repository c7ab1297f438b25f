"""The call of the program kustomize, which turns folders of manifests into Kubernetes objects, and a cache of its results.

No network is used, and nothing is written into the folders. The module does not know what a variant is. A build takes about
0.1 s, or minutes with many Routes. Its result is stored for this process and for later ones, until one of the files that it was
made from changes:

    .cache/renders/<key>.zst    one result; the key is a digest of everything that it was made from

The cache is never needed: a damaged entry, a folder without write access or a full disk mean another build, and no error. Processes may
share the folder: an entry appears complete, under a name that only the same content gets.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
import zstandard

from lab.base.errors import UsageError

Objects = tuple[dict[str, Any], ...]
Stamp = frozenset[tuple[str, int, int]]
"""The absolute path, size in bytes and time of the last change in ns of each file that a build reads."""

PROGRAM = "kustomize"
LISTS = frozenset({"kustomization.yaml", "kustomization.yml", "Kustomization"})
"""The names of files that list others."""
TIMEOUT_S = 180.0
"""The seconds that a build may take: 2000 Routes with a patch each take a busy machine a minute."""


class BuildError(Exception):
    """The error that kustomize failed; the text is kustomize's message on one line."""


@dataclass(frozen=True, slots=True)
class Renders:
    """A cache folder for the YAML that kustomize prints; the least recently used entries are removed first.

    Attributes:
        folder: The folder.
        max_bytes: The largest size of all entries together. The default is ten times what all variants need, with each
            of their settings left out once.

    """

    folder: Path
    max_bytes: int = 64_000_000

    def get(self, key: str) -> bytes | None:
        """Return the YAML that is stored under a key; None if there is none or it is damaged."""
        entry = self.folder / f"{key}.zst"
        try:
            content = zstandard.ZstdDecompressor().decompress(entry.read_bytes())
        except (OSError, zstandard.ZstdError):
            return None
        with suppress(OSError):  # the file may belong to another user
            os.utime(entry)
        return content

    def put(self, key: str, content: bytes) -> None:
        """Store YAML under a key; if it cannot be stored (a full disk), nothing happens."""
        partial = self.folder / f".{key}-{os.getpid()}-{threading.get_ident()}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(zstandard.ZstdCompressor(write_checksum=True).compress(content))
            partial.rename(self.folder / f"{key}.zst")
            self._prune()
        except OSError:
            with suppress(OSError):
                partial.unlink()

    def _prune(self) -> None:
        """Remove the oldest entries if the cache is larger than its limit, down to three quarters of the limit.

        The reserve avoids that every further entry removes another one.
        """
        entries: list[tuple[int, int, str]] = []
        for entry in os.scandir(self.folder):
            with suppress(OSError):  # another process pruned it
                stat = entry.stat(follow_symlinks=False)
                entries.append((stat.st_mtime_ns, stat.st_size, entry.path))
        total = sum(size for _, size, _ in entries)
        bound = self.max_bytes * 3 // 4 if total > self.max_bytes else total
        for _, size, path in sorted(entries):
            if total <= bound:
                return
            Path(path).unlink(missing_ok=True)
            total -= size


CACHE = Renders(Path(__file__).resolve().parents[3] / ".cache" / "renders")
"""The cache of renders."""


def render(resources: Iterable[Path], components: Iterable[Path] = ()) -> bytes:
    """Return the YAML that `kustomize build` prints for folders of resources with components applied, from the cache if possible.

    Args:
        resources: The folders of the resources.
        components: The folders of the components, in the order in which they are applied.

    Raises:
        BuildError: kustomize failed.

    """
    resource_paths, component_paths = tuple(resources), tuple(components)
    return _build(resource_paths, component_paths, _stamp((*resource_paths, *component_paths)))


def parse_objects(rendered: bytes) -> Objects:
    """Return the Kubernetes objects in the YAML that kustomize printed."""
    return tuple(item for item in yaml.load_all(rendered, Loader=yaml.CSafeLoader) if item)


def apply_component(rendered: Iterable[Mapping[str, Any]], component: Path) -> Objects:
    """Return Kubernetes objects with a kustomize component applied.

    Args:
        rendered: The objects.
        component: The folder of the component.

    Raises:
        BuildError: kustomize failed.

    """
    text = yaml.dump_all(rendered, Dumper=yaml.CSafeDumper)
    return parse_objects(_apply_component(text, component, _stamp([component])))


def read_yaml(path: Path, place: str) -> Any:
    """Read a file that has a single YAML document.

    Args:
        path: The file.
        place: The file's name for the error message.

    Raises:
        UsageError: The file cannot be read or is not YAML.

    """
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    except FileNotFoundError:
        raise UsageError(place, "there is no such file", "add it, or remove the folder") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(place, f"cannot be read: {error}", "make it a readable text file") from None
    except yaml.YAMLError as error:
        raise UsageError(place, f"not YAML: {' '.join(str(error).split())}", "correct it at the line named") from None


# -- the inputs of a build ---------------------------------------------------------------------------------


def _stamp(folders: Iterable[Path]) -> Stamp:
    """Return the path, size and modification time of every file in some folders and in the folders that they list.

    The result changes whenever the result of a build could change.

    Args:
        folders: The folders, whose kustomization.yaml may list further ones.

    """
    stamp: set[tuple[str, int, int]] = set()
    queue = [folder.resolve() for folder in folders]
    for folder in queue:  # which grows meanwhile
        for path in (Path(root, name) for root, _, names in os.walk(folder) for name in names):
            stat = path.stat(follow_symlinks=False)
            stamp.add((str(path), stat.st_size, stat.st_mtime_ns))
            if path.name in LISTS:
                queue += {*_read_listed_paths(path, stat.st_size, stat.st_mtime_ns)}.difference(queue)
    return frozenset(stamp)


@lru_cache(maxsize=1024)
def _read_listed_paths(path: Path, size: int, time_ns: int) -> tuple[Path, ...]:
    """Return the absolute paths that a kustomization.yaml lists under any of its keys; empty for an unreadable file.

    Args:
        path: The file.
        size: The file's size. Like `time_ns` it is only part of the cache's key, so that a changed file is read anew.
        time_ns: The time of the file's last change.

    """
    try:
        content = read_yaml(path, str(path))
    except UsageError:
        return ()
    lists = [value for value in content.values() if isinstance(value, list)] if isinstance(content, dict) else []
    return tuple((path.parent / entry).resolve() for value in lists for entry in value if isinstance(entry, str))


def _key(resources: tuple[Path, ...], components: tuple[Path, ...], stamp: Stamp) -> str | None:
    """Return the cache key of a build: a digest of everything that determines its result.

    It covers the files' contents and relative paths, the order of the folders, and the kustomize program.

    Args:
        resources: The folders of the resources.
        components: The folders of the components.
        stamp: The path, size and time of each file, from `_stamp`.

    Returns:
        None if the result cannot be cached: kustomize is not on PATH, or a file has disappeared.

    """
    program = shutil.which(PROGRAM)
    if program is None:
        return None
    lists = [[path.resolve() for path in paths] for paths in (resources, components)]
    try:
        binary = Path(program).resolve()
        stat = binary.stat()
        parts = [str(binary), str(stat.st_size), str(stat.st_mtime_ns)]
        top = os.path.commonpath([*(path for path, _, _ in stamp), *(path for paths in lists for path in paths)])
        for paths in lists:
            parts += [*(os.path.relpath(path, top) for path in paths), ""]
        for path, size, time_ns in sorted(stamp):
            parts += [os.path.relpath(path, top), _content(path, size, time_ns)]
    except OSError:
        return None
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@lru_cache(maxsize=8192)
def _content(path: str, size: int, time_ns: int) -> str:
    """Return the SHA-256 digest of a file's content; for a symbolic link, the path in the link is part of it.

    Args:
        path: The file.
        size: The file's size. Like `time_ns` it is only part of the cache's key, so that a changed file is read anew.
        time_ns: The time of the file's last change.

    """
    link = str(Path(path).readlink()) if Path(path).is_symlink() else ""
    return hashlib.sha256(link.encode() + b"\0" + Path(path).read_bytes()).hexdigest()


# -- building ----------------------------------------------------------------------------------------------


@lru_cache(maxsize=512)
def _build(resources: tuple[Path, ...], components: tuple[Path, ...], stamp: Stamp) -> bytes:
    key = _key(resources, components, stamp)
    if key is not None and (cached := CACHE.get(key)) is not None:
        return cached
    single = len(resources) == 1 and not components
    built = _kustomize(resources[0]) if single else _build_together(resources, components)
    if key is not None and _stamp((*resources, *components)) == stamp:  # else a file changed during the build
        CACHE.put(key, built)
    return built


@lru_cache(maxsize=64)
def _apply_component(text: str, component: Path, stamp: Stamp) -> bytes:
    """Apply a kustomize component to Kubernetes objects, and return the resulting objects as YAML; cached.

    Args:
        text: The objects as YAML.
        component: The folder of the component.
        stamp: The path, size and time of each of the component's files (`_stamp`). It is only part of the cache's key,
            so that a changed component is applied anew.

    """
    return _build_together((), (component,), text)


def _build_together(resources: Iterable[Path], components: Iterable[Path], text: str = "") -> bytes:
    """Build resources and components by a temporary kustomization.yaml that lists them all, and return the YAML.

    Args:
        resources: The folders of resources.
        components: The folders of components, in the order in which they are applied.
        text: Further Kubernetes objects as YAML; empty = none.

    Raises:
        UsageError: The temporary file cannot be written.
        BuildError: kustomize failed.

    """
    try:
        with tempfile.TemporaryDirectory(prefix="lab-overlay-") as name:
            scratch = Path(name).resolve()
            # kustomize accepts folders by relative path only, and follows them outside its root.
            paths = [os.path.relpath(folder.resolve(), scratch) for folder in resources]
            if text:
                (scratch / "objects.yaml").write_text(text, encoding="utf-8")
                paths.append("objects.yaml")
            content = {
                "apiVersion": "kustomize.config.k8s.io/v1beta1",
                "kind": "Kustomization",
                "resources": paths,
                "components": [os.path.relpath(folder.resolve(), scratch) for folder in components],
            }
            (scratch / "kustomization.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
            return _kustomize(scratch)
    except OSError as error:
        remedy = "free some space there, or set TMPDIR to a writable folder"
        raise UsageError("temporary folder", str(error), remedy) from None


def _kustomize(folder: Path) -> bytes:
    try:
        done = subprocess.run([PROGRAM, "build", str(folder)], capture_output=True, timeout=TIMEOUT_S, check=False)
    except FileNotFoundError:
        remedy = "start the lab by `scripts/shell just …`, which brings it"
        raise UsageError(PROGRAM, "not found on PATH", remedy) from None
    except PermissionError as error:
        raise UsageError(PROGRAM, f"cannot be run: {error.strerror}", "`just doctor` names the one on PATH") from None
    except subprocess.TimeoutExpired:
        remedy = f"try `kustomize build {folder}` by hand"
        raise UsageError(PROGRAM, f"no answer in {TIMEOUT_S:.0f} s", remedy) from None
    if done.returncode != 0:
        raise BuildError(_clean_message(done.stderr.decode(errors="replace")) or f"exit status {done.returncode}")
    return done.stdout


def _clean_message(stderr: str) -> str:
    """Return kustomize's error message on one line, without the Go data structures that it prints.

    >>> _clean_message('Error: merging from generator &{0x1 <nil>}: id resid.ResId{Kind:"ConfigMap", Name:"a"} is gone')
    'merging from generator: ConfigMap a is gone'
    """
    text = " ".join(stderr.split()).replace('\\"', '"').removeprefix("Error: ")
    text = re.sub(r" &\{[^}]*\}", "", text)
    return re.sub(r'id resid\.ResId\{.*?Kind:"(\w+)".*?Name:"([^"]*)"[^}]*\}', r"\1 \2", text)[-600:]
