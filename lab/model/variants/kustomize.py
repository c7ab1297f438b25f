"""kustomize: folders → the Kubernetes objects they render. Never writes beside them and never asks the network.

Refuses to know what a variant is. A build takes about 0.1 s, minutes with many Routes; the same thing is built once, until a
file that it reads changes: for this process, and for those after it:

    .cache/renders/<key>.zst    one render; the key is a digest of everything that it was made from

What is kept there is never needed: an entry that is damaged, a folder that cannot be written and a full disk mean one more build, and no
error. Processes may share the folder: an entry appears whole, under a name that only the same content gets.
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
"""Of each file that is read its absolute path, size in bytes and time of its last change in ns."""

PROGRAM = "kustomize"
LISTS = frozenset({"kustomization.yaml", "kustomization.yml", "Kustomization"})
TIMEOUT_S = 180.0  # 2000 Routes with a patch each take a busy machine a minute


class BuildError(Exception):
    """kustomize's own words, on one line."""


@dataclass(frozen=True, slots=True)
class Renders:
    """A folder of renders, at most `max_bytes` of them: those that were wanted longest ago go first.

    All overlays, each without each of its knobs, are a tenth of what it may hold.
    """

    folder: Path
    max_bytes: int = 64_000_000

    def get(self, key: str) -> bytes | None:
        """The render of that key; None if there is none that can be read."""
        entry = self.folder / f"{key}.zst"
        try:
            content = zstandard.ZstdDecompressor().decompress(entry.read_bytes())
        except (OSError, zstandard.ZstdError):
            return None
        with suppress(OSError):  # of another user
            os.utime(entry)
        return content

    def put(self, key: str, content: bytes) -> None:
        """Keep it, if that can be done."""
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
        """Down to three quarters of what it may hold, so that not every entry more costs one."""
        kept: list[tuple[int, int, str]] = []
        for entry in os.scandir(self.folder):
            with suppress(OSError):  # another process pruned it
                stat = entry.stat(follow_symlinks=False)
                kept.append((stat.st_mtime_ns, stat.st_size, entry.path))
        held = sum(size for _, size, _ in kept)
        bound = self.max_bytes * 3 // 4 if held > self.max_bytes else held
        for _, size, path in sorted(kept):
            if held <= bound:
                return
            Path(path).unlink(missing_ok=True)
            held -= size


KEPT = Renders(Path(__file__).resolve().parents[3] / ".cache" / "renders")


def render(resources: Iterable[Path], components: Iterable[Path] = ()) -> bytes:
    """What kustomize prints for these resources with these components applied in order. BuildError in its own words."""
    wanted, applied = tuple(resources), tuple(components)
    return _build(wanted, applied, _stamp((*wanted, *applied)))


def objects(rendered: bytes) -> Objects:
    """The objects of a rendered stream."""
    return tuple(item for item in yaml.load_all(rendered, Loader=yaml.CSafeLoader) if item)


def laid_over(rendered: Iterable[Mapping[str, Any]], component: Path) -> Objects:
    """These objects with a component applied. BuildError in kustomize's own words."""
    text = yaml.dump_all(rendered, Dumper=yaml.CSafeDumper)
    return objects(_laid_over(text, component, _stamp([component])))


def read_yaml(path: Path, place: str) -> Any:
    """One YAML document from a file of ours. UsageError when it cannot be read or is not YAML."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    except FileNotFoundError:
        raise UsageError(place, "there is no such file", "add it, or remove the folder") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(place, f"cannot be read: {error}", "make it a readable text file") from None
    except yaml.YAMLError as error:
        raise UsageError(place, f"not YAML: {' '.join(str(error).split())}", "correct it at the line named") from None


# -- what a build reads ------------------------------------------------------------------------------------


def _stamp(folders: Iterable[Path]) -> Stamp:
    """Of every file in these folders and in those that they list: changes when a build could."""
    found: set[tuple[str, int, int]] = set()
    seen: set[Path] = set()
    left = [folder.resolve() for folder in folders]
    while left:
        folder = left.pop()
        if folder in seen:
            continue
        seen.add(folder)
        for path in (Path(root, name) for root, _, names in os.walk(folder) for name in names):
            stat = path.stat(follow_symlinks=False)
            found.add((str(path), stat.st_size, stat.st_mtime_ns))
            if path.name in LISTS:
                left += _listed(path, stat.st_size, stat.st_mtime_ns)
    return frozenset(found)


@lru_cache(maxsize=1024)
def _listed(path: Path, size: int, time_ns: int) -> tuple[Path, ...]:
    """What a kustomization.yaml of this size and time lists, under whatever key; nothing if it cannot be read."""
    try:
        content = read_yaml(path, str(path))
    except UsageError:
        return ()
    lists = [value for value in content.values() if isinstance(value, list)] if isinstance(content, dict) else []
    return tuple((path.parent / entry).resolve() for value in lists for entry in value if isinstance(entry, str))


def _key(resources: tuple[Path, ...], components: tuple[Path, ...], stamp: Stamp) -> str | None:
    """A digest of the files' content and places to each other, of the order of what is listed, and of the program itself.

    None where nothing can be kept: the program is not on PATH, or a file went away meanwhile.
    """
    program = shutil.which(PROGRAM)
    if program is None:
        return None
    listed = [[path.resolve() for path in each] for each in (resources, components)]
    try:
        binary = Path(program).resolve()
        stat = binary.stat()
        told = [str(binary), str(stat.st_size), str(stat.st_mtime_ns)]
        top = os.path.commonpath([*(path for path, _, _ in stamp), *(path for each in listed for path in each)])
        for each in listed:
            told += [*(os.path.relpath(path, top) for path in each), ""]
        for path, size, time_ns in sorted(stamp):
            told += [os.path.relpath(path, top), _content(path, size, time_ns)]
    except OSError:
        return None
    return hashlib.sha256("\0".join(told).encode()).hexdigest()


@lru_cache(maxsize=8192)
def _content(path: str, size: int, time_ns: int) -> str:
    """A digest of the file, which had this size and time; of what a link leads to, and that it is one."""
    link = str(Path(path).readlink()) if Path(path).is_symlink() else ""
    return hashlib.sha256(link.encode() + b"\0" + Path(path).read_bytes()).hexdigest()


# -- building ----------------------------------------------------------------------------------------------


@lru_cache(maxsize=512)
def _build(resources: tuple[Path, ...], components: tuple[Path, ...], stamp: Stamp) -> bytes:
    key = _key(resources, components, stamp)
    if key is not None and (kept := KEPT.get(key)) is not None:
        return kept
    alone = len(resources) == 1 and not components
    built = _kustomize(resources[0]) if alone else _together(resources, components)
    if key is not None and _stamp((*resources, *components)) == stamp:  # else it may be made from what came after
        KEPT.put(key, built)
    return built


@lru_cache(maxsize=64)
def _laid_over(text: str, component: Path, stamp: Stamp) -> bytes:
    """`stamp`: of what the component reads, so that it is built anew when that changes."""
    return _together((), (component,), text)


def _together(resources: Iterable[Path], components: Iterable[Path], text: str = "") -> bytes:
    """The build of what no folder lists together. `text`: objects beside the folders' own."""
    try:
        with tempfile.TemporaryDirectory(prefix="lab-overlay-") as name:
            scratch = Path(name).resolve()
            # kustomize takes folders by relative path only, and follows them outside its own root.
            listed = [os.path.relpath(folder.resolve(), scratch) for folder in resources]
            if text:
                (scratch / "objects.yaml").write_text(text, encoding="utf-8")
                listed.append("objects.yaml")
            content = {
                "apiVersion": "kustomize.config.k8s.io/v1beta1",
                "kind": "Kustomization",
                "resources": listed,
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
        raise BuildError(_words(done.stderr.decode(errors="replace")) or f"exit status {done.returncode}")
    return done.stdout


def _words(stderr: str) -> str:
    """kustomize's complaint on one line, less its printed Go values.

    >>> _words('Error: merging from generator &{0x1 <nil>}: id resid.ResId{Kind:"ConfigMap", Name:"a"} does not exist')
    'merging from generator: ConfigMap a does not exist'
    """
    text = " ".join(stderr.split()).replace('\\"', '"').removeprefix("Error: ")
    text = re.sub(r" &\{[^}]*\}", "", text)
    return re.sub(r'id resid\.ResId\{.*?Kind:"(\w+)".*?Name:"([^"]*)"[^}]*\}', r"\1 \2", text)[-600:]
