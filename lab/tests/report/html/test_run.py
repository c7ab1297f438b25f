"""A run's own page: what the terminal says and more, nothing from elsewhere, written whole or not at all."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from lab.base.errors import UsageError
from lab.report.html.run import FILE, figure_of, write
from lab.report.result import Result
from lab.tests.support.made_runs import MadeStore, made


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> MadeStore:
    found = made("mine")
    monkeypatch.setattr(MadeStore, "roundtrip", lambda self: None)
    return found


def test_it_says_what_the_terminal_says_and_what_is_larger_stands_farther_to_the_right(
    run: MadeStore, tmp_path: Path
) -> None:
    """Every effect as an interval with the same words, on one axis with no change in its middle and marks that do not meet."""
    result = Result(run)
    text = write(result, tmp_path / "new" / "folder").read_text()
    (summary,) = result.told
    figure = figure_of([summary])
    assert figure is not None and len(figure.lines) >= 2
    for line in figure.lines:
        assert line.text in text and line.low <= line.at <= line.high
        assert line.low >= 0 and line.high <= 100
    assert "just bench" in text and run.record.id in text and run.record.facts["kernel"] in text
    assert not re.search(r"<script|https?://|@import", text), "it asks nobody for anything"
    assert figure.worth[0] < 50 < figure.worth[1]
    places = sorted(place for place, _ in figure.ticks)
    assert 50 in places and all(after - before >= 11 for before, after in pairwise(places))
    signs = [(line.at > 50, "−" not in line.text.partition("%")[0]) for line in figure.lines if line.at != 50]
    assert all(right is more for right, more in signs)


def test_what_cannot_be_written_is_refused_and_leaves_the_old_one(run: MadeStore, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="--output: .* cannot be written"):
        write(Result(run), tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
    (tmp_path / FILE).write_text("old")
    assert write(Result(run), tmp_path).read_text() != "old"
