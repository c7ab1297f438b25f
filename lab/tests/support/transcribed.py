"""A copy of data/published that a test may change."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.records import published


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str, str], None]]:
    """A copy of data/published in which text of a file can be replaced."""
    folder = tmp_path / "published"
    shutil.copytree(published.FOLDER, folder)
    monkeypatch.setattr(published, "FOLDER", folder)

    def replace(name: str, old: str, new: str) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))
        forget()

    def forget() -> None:
        for read in (published.read_package, published.read_rows, published.read_texts, published.read_frame):
            read.cache_clear()
        published._read_table.cache_clear()  # pyright: ignore[reportPrivateUsage]  # what was read of another folder

    forget()
    yield replace
    monkeypatch.undo()
    forget()
