"""kustomize: folders → the Kubernetes objects they render. Never writes beside them and never asks the network.

Refuses to know what a variant is. A build takes about 0.1 s, minutes with many Routes; the same thing is built once, until a
file that it reads changes: for this process, and in `.cache/renders` for those after it.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from lab.base.errors import UsageError
from lab.model.variants import renders

Objects = tuple[dict[str, Any], ...]
Stamp = frozenset[renders.Stat]

PROGRAM = "kustomize"
KEPT = renders.Renders(Path(__file__).resolve().parents[3] / ".cache" / "renders")
LISTS = frozenset({"kustomization.yaml", "kustomization.yml", "Kustomization"})
TIMEOUT_S = 180.0  # 2000 Routes with a patch each take a busy machine a minute


class BuildError(Exception):
    """kustomize's own words, on one line."""


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


def _stamp(folders: Iterable[Path]) -> Stamp:
    """Name, size and time of every file in these folders and in those that they list: changes when a build could."""
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


@lru_cache(maxsize=512)
def _build(resources: tuple[Path, ...], components: tuple[Path, ...], stamp: Stamp) -> bytes:
    key = renders.key(resources, components, stamp, PROGRAM)
    if key is None:
        return _built(resources, components)
    kept = KEPT.get(key)
    if kept is None:
        kept = _built(resources, components)
        if _stamp((*resources, *components)) == stamp:  # else it may be made from what came after
            KEPT.put(key, kept)
    return kept


@lru_cache(maxsize=64)
def _laid_over(text: str, component: Path, stamp: Stamp) -> bytes:
    """`stamp`: of what the component reads, so that it is built anew when that changes."""
    return _together((), (component,), text)


def _built(resources: tuple[Path, ...], components: tuple[Path, ...]) -> bytes:
    if len(resources) == 1 and not components:
        return _kustomize(resources[0])
    return _together(resources, components)


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
        raise UsageError(
            "temporary folder", str(error), "free some space there, or set TMPDIR to a writable folder"
        ) from None


def _kustomize(folder: Path) -> bytes:
    try:
        done = subprocess.run([PROGRAM, "build", str(folder)], capture_output=True, timeout=TIMEOUT_S, check=False)
    except FileNotFoundError:
        raise UsageError(
            "kustomize", "not found on PATH", "start the lab by `scripts/shell just …`, which brings it"
        ) from None
    except PermissionError as error:
        raise UsageError(
            "kustomize", f"cannot be run: {error.strerror}", "`just doctor` names the one on PATH"
        ) from None
    except subprocess.TimeoutExpired:
        raise UsageError(
            "kustomize", f"no answer in {TIMEOUT_S:.0f} s", f"try `kustomize build {folder}` by hand"
        ) from None
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
