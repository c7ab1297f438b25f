"""Reference runs that git alone has: found once each, with their last commit and effects; those of the first lab are read, too."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from lab.analysis import history
from lab.base.errors import UsageError
from lab.experiments.bench.request import chosen_points
from lab.experiments.replaced import record_replaced, replaced_runs
from lab.records.folders import RECORD
from lab.records.sweep_files import load_sweep
from lab.tests.support.boots import on_boot
from lab.tests.support.unpacked import unpacked

RUN = "quick-keepalive"


def git(root: Path, *words: str) -> str:
    identity = ("-c", "user.name=lab", "-c", "user.email=lab@example.org")
    return subprocess.run(
        ["git", "-C", str(root), *identity, *words], check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout in which a run of the first lab was overwritten by another, and a second boot removed."""
    top = tmp_path / "data" / "reference"
    top.mkdir(parents=True)
    monkeypatch.setenv("LAB_REFERENCE", str(top))
    git(tmp_path, "init", "-q")
    first = unpacked(on_boot(RUN, tmp_path / "packed", "first"), top / RUN)
    for path in first.glob(f"samples/*/{RECORD}"):  # the first lab did not record it
        sample = json.loads(path.read_bytes())
        del sample["latency_from"]
        path.write_text(json.dumps(sample))
    on_boot(RUN, top / RUN / "boot-2", "second")
    git(tmp_path, "add", "data")
    git(tmp_path, "commit", "-qm", "both")
    shutil.rmtree(top / RUN)
    on_boot(RUN, top / RUN, "third")
    git(tmp_path, "add", "-A", "data")
    git(tmp_path, "commit", "-qm", "another in its place")
    return tmp_path


def test_what_was_replaced_is_found_and_kept_once(root: Path) -> None:
    last = git(root, "rev-parse", "HEAD^")
    found = {version.run.rpartition("-")[2]: version for version in replaced_runs(root)}
    assert found.keys() == {"first", "second"}
    assert {(version.folder, version.commit) for version in found.values()} == {(RUN, last), (f"{RUN}/boot-2", last)}
    counts: dict[str, int] = {}
    record_replaced(lambda version, rows: counts.update({version.folder: rows}), root)
    assert counts[RUN] == counts[f"{RUN}/boot-2"] > 4, "unpacked or packed, old or new, it has the same effects"
    text = history.table_path().read_text()
    assert text.count("\n") == 1 + sum(counts.values())
    assert record_replaced(lambda version, rows: None, root) == [], "the table has them"
    assert history.table_path().read_text() == text


def test_without_history_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_REFERENCE", str(tmp_path / "none"))
    with pytest.raises(UsageError, match="git log: .*not a git repository"):
        replaced_runs(tmp_path)


def test_the_committed_table_can_be_read() -> None:
    """41 runs were replaced before there was a table, and no reference run of today is in it."""
    known = history.known_runs()
    assert len(known) >= 41


def test_points_of_a_sweep_are_chosen_by_name_with_their_control_run() -> None:
    points = tuple(load_sweep("kill-held")[1].expanded())
    assert [point.name for point in chosen_points(points, ("held",))] == ["held", "control"]
    assert chosen_points(points, ()) == points
    with pytest.raises(UsageError, match="--points: the sweep has no point 'hold'\n.*did you mean 'held'"):
        chosen_points(points, ("hold",))
