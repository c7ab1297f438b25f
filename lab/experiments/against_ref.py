"""The manifests of a git ref beside the checkout's, in one folder: each variant as it is now against itself as it was there.

It lies in the runs folder, so that such a run goes on after a cut, whatever becomes of the checkout meanwhile. The lab's code is the checkout's
in both. Refuses a ref that is none, and variants that are not there.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lab.base.errors import UsageError
from lab.base.files import writing
from lab.model.facts import ROOT
from lab.model.variants.naming import AT, is_variant, name_in
from lab.model.variants.variants import load_variant

SHORT = 12
"""Of a commit's digits, in a name."""


def commit_of(ref: str) -> str:
    """UsageError where git knows no such commit."""
    found = _git("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
    if found.returncode != 0:
        said = found.stderr.decode(errors="replace").strip() or "no such commit in this repository"
        raise UsageError(
            "--against", f"'{ref}': {said}", "name a branch, a tag or a commit: git fetch may bring it here"
        )
    return found.stdout.decode().strip()[:SHORT]


def beside(manifests: Path, ref: str, variants: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Write a ref's manifests into a copy of the checkout's; each variant is compared with itself as it was there.

    Returns:
        The variants with their names at the ref; and those that are left out as no rendered manifest of theirs differs.

    """
    commit = commit_of(ref)
    there = manifests / f"at-{commit}"
    with writing(manifests), tempfile.TemporaryDirectory(dir=manifests) as scratch:
        archive = Path(scratch, "manifests.tar")
        packed = _git("archive", "--format=tar", f"--output={archive}", commit, "manifests")
        if packed.returncode != 0:
            said = packed.stderr.decode(errors="replace").strip()
            raise UsageError("--against", f"'{ref}' has no manifests: {said}", "name a ref of this project")
        shutil.unpack_archive(archive, scratch)
        Path(scratch, "manifests").rename(there)
    for name in variants:
        if not is_variant(name_in(name, there), there):
            fault = f"'{ref}' has no variant '{name}': it is new"
            raise UsageError("--against", fault, f"measure it against its baseline: just bench {name}")
    before = {name: f"{name}{AT}{commit}" for name in variants}
    same = [
        name
        for name, then in before.items()
        if load_variant(name, manifests).manifests_sha256 == load_variant(then, manifests).manifests_sha256
    ]
    return {name: then for name, then in before.items() if name not in same}, same


def _git(*words: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["git", "-C", str(ROOT), "-c", f"safe.directory={ROOT}", *words], check=False, capture_output=True
        )
    except OSError as error:
        raise UsageError("git", f"cannot be run: {error.strerror}", "install git") from None
