"""Reference runs that git has and data/reference has no more: their effects, computed by the lab as it is now, for data/reference/history.csv.

Refuses to leave a version out in silence: one that cannot be read any more is an error with its commit.
"""

from __future__ import annotations

import json
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from lab.analysis.history import Past, add_rows, effects_of_run, known_runs, shortened
from lab.base.errors import LabError, UsageError
from lab.generators import generator
from lab.model.facts import ROOT, git_commit
from lab.records.references import committed_runs
from lab.records.store import RunStore

TOP = "data/reference"
UNREADABLE = "mend what reads it: the run is in git for ever"


@dataclass(frozen=True, slots=True)
class Version:
    """A run that was replaced: its id, its folder below data/reference, and the last commit that has it there."""

    run: str
    folder: str
    commit: str


def replaced_runs(root: Path = ROOT) -> list[Version]:
    """Return every run that a commit removed from data/reference or overwrote with another, the newest change first, each once."""
    there = {run.record.id for run in committed_runs(root / TOP)}
    found: dict[str, Version] = {}
    for commit, path in _changes(root):
        last = _git(root, "rev-parse", f"{commit}^").decode().strip()
        name = json.loads(_git(root, "show", f"{last}:{path}"))["id"]
        if name not in there:
            found.setdefault(name, Version(name, str(Path(path).parent.relative_to(TOP)), last))
    return list(found.values())


def record_replaced(told: Callable[[Version, int], None], root: Path = ROOT) -> list[Version]:
    """Write the effects of every replaced run that the table lacks into it, and return these runs.

    Args:
        told: called for each run with its number of rows.
        root: the checkout.

    Raises:
        UsageError: git or a run's files cannot be read.

    """
    known, computed_by, rows = known_runs(), git_commit() or "", list[Past]()
    missing = [version for version in replaced_runs(root) if version.run not in known]
    for version in missing:
        with TemporaryDirectory() as folder:
            found = _effects(version, _extracted(root, version, Path(folder)), computed_by)
        told(version, len(found))
        rows += found
    if rows:
        add_rows(rows)
    return missing


def _effects(version: Version, folder: Path, computed_by: str) -> list[Past]:
    _complete(folder)
    try:
        return effects_of_run(RunStore.open(str(folder)), version.folder, version.commit, computed_by)
    except LabError as error:
        place = f"{shortened(version.commit)}:{TOP}/{version.folder}"
        raise UsageError(place, f"{error.place}: {error.fault}", UNREADABLE) from None


def _changes(root: Path) -> Iterator[tuple[str, str]]:
    """(commit, path of a run.json that it removed or changed), the newest first."""
    places = [f"{TOP}/*/run.json", f"{TOP}/*/*/run.json"]
    asked = ("log", "--no-renames", "--diff-filter=DM", "--format=@%H", "--name-only", "--", *places)
    commit = ""
    for line in filter(None, _git(root, *asked).decode().splitlines()):
        if line.startswith("@"):
            commit = line[1:]
        else:
            yield commit, line


def _extracted(root: Path, version: Version, into: Path) -> Path:
    path = f"{TOP}/{version.folder}"
    with tarfile.open(fileobj=BytesIO(_git(root, "archive", version.commit, path))) as files:
        files.extractall(into)  # of our own history
    return into / path


def _complete(folder: Path) -> None:
    """Fill in what the first lab's samples do not say: from when a generator counts latencies, which each has always done alike."""
    for path in folder.glob("samples/*/sample.json"):
        sample = json.loads(path.read_bytes())
        if "latency_from" not in sample:
            sample["latency_from"] = generator(sample["generator"]).latency_from
            path.write_text(json.dumps(sample))


def _git(root: Path, *words: str) -> bytes:
    ask = ["git", "-C", str(root), "-c", f"safe.directory={root}", *words]
    try:
        return subprocess.run(ask, check=True, capture_output=True).stdout
    except FileNotFoundError:
        raise UsageError("git", "is not there", "install it: replaced runs are in its history alone") from None
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().splitlines()
        remedy = "use a checkout with its whole history (git fetch --unshallow)"
        raise UsageError(f"git {words[0]}", said[-1] if said else "failed", remedy) from None
