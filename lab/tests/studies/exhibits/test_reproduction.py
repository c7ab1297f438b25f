"""Tables come from a run's files and from nowhere else: the same files give the same numbers, one other file gives others.

A table is made of `sample.json` and `hist.parquet`, which were read off `raw.zst`, a generator's verbatim output; `--from-raw` reads it again.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.analysis import evidence
from lab.commands.measuring import print_result
from lab.records.store import Reparsed, RunStore, run_names
from lab.tests.support.unpacked import unpacked

pytestmark = pytest.mark.committed

REFERENCE = Path(__file__).resolve().parents[4] / "data" / "reference"
STEADY, OUTAGE = "quick-keepalive", "outage"
ARM, POINT = "keepalive", "ceiling"
Change = Callable[[Path, Path], None]
"""Takes the folder of a sample, and that of the same arm and point in another block."""
Printed = Callable[..., dict[str, Any]]
Copy = Callable[[str], Path]


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    """What `just table --json` prints of a run's folder."""

    def told(folder: Path, raw: bool = False) -> dict[str, Any]:
        run = RunStore.open(str(folder))
        print_result(argparse.Namespace(json=True, markdown=False), Reparsed.of(run) if raw else run)
        return json.loads(capsys.readouterr().out)

    return told


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Copy:
    """A committed run by its folder's name, alone in a folder that stands for data/reference."""
    monkeypatch.setenv("LAB_REFERENCE", str(tmp_path))
    return lambda name: unpacked(REFERENCE / name, tmp_path / name)


def sample_of(run: Path, block: int) -> Path:
    (found,) = (run / "samples").glob(f"*-b{block:02}-{ARM}-{POINT}")
    return found


def cells(told: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """Every row's own numbers, without what it is compared with."""
    return {(row["arm"], row["point"]): {key: row[key] for key in row if key != "effects"} for row in told["rows"]}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in (STEADY, OUTAGE) else [pytest.mark.long]) for name in run_names(REFERENCE)],
)
def test_untouched_files_give_the_same_numbers(name: str, tmp_path: Path, printed: Printed) -> None:
    committed = printed(REFERENCE / name)
    run = Path(shutil.copytree(REFERENCE / name, tmp_path / name))
    assert committed == printed(run) == printed(run, raw=True)


@pytest.mark.parametrize("name", [STEADY, OUTAGE])
def test_without_what_is_derived_the_numbers_are_the_same(name: str, copy: Copy, printed: Printed) -> None:
    """As it was measured, a folder per sample, without hist.parquet of any: its histograms are those of the verbatim output."""
    run = copy(name)
    committed = printed(REFERENCE / name)
    assert committed == printed(run)
    for path in run.glob("samples/*/hist.parquet"):
        path.unlink()
    assert committed == printed(run)
    (found,) = evidence.shelf().runs
    assert found.name == name


def removed(sample: Path, _: Path) -> None:
    shutil.rmtree(sample)


def half_the_rate(sample: Path, _: Path) -> None:
    told = json.loads((sample / "sample.json").read_text())
    told |= {"requests": told["requests"] // 2, "achieved_rps": told["achieved_rps"] / 2}
    (sample / "sample.json").write_text(json.dumps(told))


def latencies_of_another_block(sample: Path, other: Path) -> None:
    shutil.copy(other / "hist.parquet", sample)


@pytest.mark.parametrize("change", [removed, half_the_rate, latencies_of_another_block])
def test_one_other_file_of_one_sample_changes_its_row(change: Change, copy: Copy, printed: Printed) -> None:
    run = copy(STEADY)
    before = printed(run)
    change(sample_of(run, 3), sample_of(run, 4))
    after = printed(run)
    one, other = cells(before), cells(after)
    assert one.keys() == other.keys() and {cell for cell in one if one[cell] != other[cell]} == {(ARM, POINT)}
    assert before["rows"] != after["rows"]
    if change is removed:
        assert before["complete"] and not after["complete"]
        assert other[ARM, POINT]["valid_blocks"] == 5, "five blocks give the effect no interval"
