"""A run packed for a repository, and read as if it had not been."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.analysis.claims import evidence
from lab.records.packing import main, packed
from lab.records.store import RunStore
from lab.records.tables import RAW, SMALL_LOG
from lab.tests.support.committed import nds_story, run_of


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunStore:
    manifests = {"kill-nds": [{"kind": "ConfigMap", "data": {"hide-headers": "Größe"}}, {"kind": "Service"}]}
    variants = [("kill-nds", "kill-grace-30")]
    return run_of(tmp_path / "runs", monkeypatch, "kill-quick", variants, nds_story, blocks=1, manifests=manifests)


def test_a_packed_run_is_the_same_run(run: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same output, tables and manifests; smaller; and its digests hold, so that it is evidence."""
    packed(run.folder, tmp_path / "reference" / "kill")
    monkeypatch.setenv("LAB_REFERENCE", str(tmp_path / "reference"))
    (found,) = evidence.shelf().runs
    copy = found.run
    for mine, its in zip(run.samples(), copy.samples(), strict=True):
        assert its == mine.model_copy(update={"raw_sha256": its.raw_sha256}) and its.raw_sha256 != mine.raw_sha256
        assert copy.raw(its) == run.raw(mine)
        assert copy.usage(its).equals(run.usage(mine))
        assert copy.events(its).equals(run.events(mine))
        folder = copy.folder / "samples" / its.id
        assert {path.name for path in folder.glob("raw.*")} == {SMALL_LOG}
        assert (folder / SMALL_LOG).stat().st_size < (run.folder / "samples" / mine.id / RAW).stat().st_size
    assert copy.manifests("kill-nds") == run.manifests("kill-nds") != []
    assert [path.name for path in (copy.folder / "manifests").iterdir()] == ["kill-nds.yaml.xz"]


def test_a_packed_run_that_was_changed_is_damaged(
    run: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another sample's output is whole, and not this one's."""
    packed(run.folder, tmp_path / "reference" / "kill")
    one, other, *_ = sorted((tmp_path / "reference" / "kill" / "samples").glob(f"*/{SMALL_LOG}"))
    one.write_bytes(other.read_bytes())
    monkeypatch.setenv("LAB_REFERENCE", str(tmp_path / "reference"))
    (damaged,) = evidence.shelf().damaged
    assert f"{SMALL_LOG}: not what sample.json has the digest of" in damaged.said


def test_packing_leaves_what_is_there(run: RunStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """So it is wrong usage, as is a folder that is no run."""
    (tmp_path / "kill").mkdir()
    for source, said in ((run.folder, "kill exists: name a folder that is not there yet"), (tmp_path, "is no run")):
        with pytest.raises(SystemExit, match="2"):
            main([str(source), str(tmp_path / "kill")])
        assert said in capsys.readouterr().err
    assert list((tmp_path / "kill").iterdir()) == []
