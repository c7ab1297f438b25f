"""A copy of the manifests at a git ref, so that a run can compare each variant with its state at that ref.

It is in a folder of the runs folder, next to a copy of the present manifests. So `--resume` can continue such a run
even after the checkout has changed. The code of the lab is that of the checkout for both. An unknown ref is an error,
and so is a variant that does not exist at the ref.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lab.base.errors import UsageError, refuse_if
from lab.base.files import writing
from lab.model.facts import ROOT
from lab.model.variants.naming import AT, is_variant, name_in
from lab.model.variants.variants import load_variant

SHORT = 12
"""The number of digits of a commit in a name."""


def commit_of(ref: str) -> str:
    """Return the first SHORT digits of the commit that a git ref names in the lab's repository.

    Raises:
        UsageError: git knows no such commit.

    """
    result = _run_git("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
    if result.returncode != 0:
        message = result.stderr.decode(errors="replace").strip() or "no such commit in this repository"
        raise UsageError(
            "--against", f"'{ref}': {message}", "name a branch, a tag or a commit: git fetch may bring it here"
        )
    return result.stdout.decode().strip()[:SHORT]


def read_at_ref(file: Path, ref: str) -> bytes:
    """Return the content that a file has at a git ref of the repository that contains the file.

    Args:
        file: The path of the file.
        ref: The git ref.

    Raises:
        UsageError: The file is in no git repository, git knows no such commit, or the file does not exist there.

    """
    shown = _run_git("show", f"{ref}:./{file.name}", folder=file.absolute().parent)
    if shown.returncode != 0:
        fault = f"{file} at '{ref}': {shown.stderr.decode(errors='replace').strip()}"
        raise UsageError(
            "--against", fault, "name a ref of its own repository that has it, or two files: --config OLD NEW"
        )
    return shown.stdout


def add_ref_manifests(manifests: Path, ref: str, variants: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Add the manifests of a git ref to a copy of the checkout's manifests, so that variants can be compared with their old state.

    Args:
        manifests: The copy of the checkout's manifests.
        ref: The git ref.
        variants: The names of the variants.

    Returns:
        (old names, unchanged variants). The first is variant → the name of its state at the ref, for variants that differ there. The second
        are the variants whose rendered manifests are equal at the ref.

    Raises:
        UsageError: git knows no such commit, it has no manifests, or a variant does not exist there.

    """
    commit = commit_of(ref)
    folder = manifests / f"at-{commit}"
    with writing(manifests), tempfile.TemporaryDirectory(dir=manifests) as scratch:
        archive = Path(scratch, "manifests.tar")
        packed = _run_git("archive", "--format=tar", f"--output={archive}", commit, "manifests")
        fault = f"'{ref}' has no manifests: {packed.stderr.decode(errors='replace').strip()}"
        refuse_if(packed.returncode != 0, "--against", fault, "name a ref of this project")
        shutil.unpack_archive(archive, scratch)
        Path(scratch, "manifests").rename(folder)
    for name in variants:
        if not is_variant(name_in(name, folder), folder):
            fault = f"'{ref}' has no variant '{name}': it is new"
            raise UsageError("--against", fault, f"measure it against its baseline: just bench {name}")
    old_names = {name: f"{name}{AT}{commit}" for name in variants}
    same = [
        name
        for name, old_name in old_names.items()
        if load_variant(name, manifests).manifests_sha256 == load_variant(old_name, manifests).manifests_sha256
    ]
    return {name: old_name for name, old_name in old_names.items() if name not in same}, same


def _run_git(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    place = ["-C", str(folder or ROOT), "-c", f"safe.directory={'*' if folder else ROOT}"]
    try:
        return subprocess.run(["git", *place, *arguments], check=False, capture_output=True)
    except OSError as error:
        raise UsageError("git", f"cannot be run: {error.strerror}", "install git") from None
