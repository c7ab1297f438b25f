"""Generated parts in a text: found by their markers, made anew, their links as seen from the file; and those about the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.base.errors import UsageError
from lab.commands import readme
from lab.commands.readme import Maker

MAKERS: dict[str, Maker] = {
    "words": lambda _path, words: f"{'+'.join(words)}\n",
    "linked": lambda *_: "[+1 % [0, 2], b](data/published/README.md#sources), [that](https://example.org/a)\n",
    "pasted": lambda _path, _words: "```text\n[no link](data)\n```\n",
}


def written(folder: Path, text: str) -> Path:
    path = folder / "README.md"
    path.write_text(text)
    return path


def test_a_part_is_written_anew(tmp_path: Path) -> None:
    """Only what stands between the markers changes."""
    path = written(tmp_path, "# T\n\n<!-- generated: words a 'b c' -->\nold\n<!-- end -->\n\nmine\n")
    path.write_text(readme.rendered(path, MAKERS))
    assert path.read_text() == "# T\n\n<!-- generated: words a 'b c' -->\na+b c\n<!-- end -->\n\nmine\n"


def test_a_part_that_nobody_makes_is_refused(tmp_path: Path) -> None:
    """With the nearest that is made."""
    path = written(tmp_path, "<!-- generated: wrds -->\n<!-- end -->\n")
    with pytest.raises(UsageError, match=r"README.md: unknown generated part 'wrds'\n.*did you mean 'words'"):
        readme.rendered(path, MAKERS)


def test_links_are_as_seen_from_the_file() -> None:
    """Also one whose text has brackets, as an interval has; other sites' and what is pasted stay."""
    path = readme.ROOT / "lab" / "base" / "README.md"
    match = readme.PART.search("<!-- generated: linked -->\n<!-- end -->")
    assert match is not None
    assert readme.made(path, match, MAKERS) == (
        "[+1 % [0, 2], b](../../data/published/README.md#sources), [that](https://example.org/a)\n"
    )
    match = readme.PART.search("<!-- generated: pasted -->\n<!-- end -->")
    assert match is not None
    assert readme.made(path, match, MAKERS) == "```text\n[no link](data)\n```\n"


def test_every_package_has_its_floor() -> None:
    packages = {path.parent.name for path in readme.LAB.glob("*/__init__.py")}
    assert set(readme.floors()) == packages
    table = readme.makers()["floors"](readme.ROOT, [])
    assert all(f"[`{name}`](lab/{name}/README.md)" in table for name in packages)


def test_a_folder_says_what_it_may_import_and_what_is_in_it() -> None:
    text = readme.folder(readme.LAB / "stats")
    assert text.startswith("Floor 1: `stats` imports nothing of ours")
    assert "| [`histogram.py`](lab/stats/histogram.py) | " in text
    assert readme.folder(readme.LAB / "model").startswith("Floor 2: `model` may import `base`, `stats` ")
    assert "| [`bench/`](lab/experiments/bench/README.md) | " in readme.folder(readme.LAB / "experiments")
