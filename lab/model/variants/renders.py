"""Renders kept on disk: what the same kustomize made of the same files before is not made again.

    .cache/renders/<key>.zst    one render; the key is a digest of everything that it was made from

Refuses to be needed: an entry that is damaged, a folder that cannot be written and a full disk mean one more build, and no
error. Processes may share a folder: an entry appears whole, under a name that only the same content gets.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import zstandard

Stat = tuple[str, int, int]
"""A file's absolute path, size in bytes and time of its last change in ns."""

MAX_BYTES = 64_000_000
"""What the folder may hold; all overlays, each without each of its knobs, are a tenth of it."""


@dataclass(frozen=True, slots=True)
class Renders:
    """A folder of renders, at most `max_bytes` of them: those that were wanted longest ago go first."""

    folder: Path
    max_bytes: int = MAX_BYTES

    def get(self, key: str) -> bytes | None:
        """The render of that key; None if there is none that can be read."""
        entry = self._entry(key)
        try:
            content = zstandard.ZstdDecompressor().decompress(entry.read_bytes())
        except (OSError, zstandard.ZstdError):
            return None
        with suppress(OSError):  # of another user
            os.utime(entry)
        return content

    def put(self, key: str, content: bytes) -> None:
        """Keep it, if that can be done."""
        entry = self._entry(key)
        partial = entry.with_name(f".{key}-{os.getpid()}-{threading.get_ident()}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(zstandard.ZstdCompressor(write_checksum=True).compress(content))
            partial.rename(entry)
            self._prune()
        except OSError:
            with suppress(OSError):
                partial.unlink()

    def _entry(self, key: str) -> Path:
        return self.folder / f"{key}.zst"

    def _prune(self) -> None:
        """Down to three quarters of what it may hold, so that not every entry more costs one."""
        kept = [
            (stat.st_mtime_ns, stat.st_size, entry.path) for entry in os.scandir(self.folder) if (stat := _stat(entry))
        ]
        held = sum(size for _, size, _ in kept)
        if held <= self.max_bytes:
            return
        for _, size, path in sorted(kept):
            Path(path).unlink(missing_ok=True)
            held -= size
            if held <= self.max_bytes * 3 // 4:
                return


def key(resources: Iterable[Path], components: Iterable[Path], files: Iterable[Stat], program: str) -> str | None:
    """A digest of the files' content and places to each other, of the order of what is listed, and of the program itself.

    None where nothing can be kept: the program is not on PATH, or a file went away meanwhile.
    """
    found = shutil.which(program)
    if found is None:
        return None
    listed = [*resources], [*components]
    read = sorted(files)
    digest = hashlib.sha256()
    try:
        binary = Path(found).resolve()
        stat = binary.stat()
        top = os.path.commonpath(
            [*(path for path, _, _ in read), *(path.resolve() for each in listed for path in each)]
        )
        told = [str(binary), str(stat.st_size), str(stat.st_mtime_ns)]
        for each in listed:
            told += [*(os.path.relpath(path.resolve(), top) for path in each), ""]
        for path, size, time_ns in read:
            told += [os.path.relpath(path, top), _content(path, size, time_ns)]
    except OSError:
        return None
    digest.update("\0".join(told).encode())
    return digest.hexdigest()


@lru_cache(maxsize=8192)
def _content(path: str, size: int, time_ns: int) -> str:
    """A digest of the file, which had this size and time; of what a link leads to, and that it is one."""
    link = str(Path(path).readlink()) if Path(path).is_symlink() else ""
    return hashlib.sha256(link.encode() + b"\0" + Path(path).read_bytes()).hexdigest()


def _stat(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError:  # another process pruned it
        return None
