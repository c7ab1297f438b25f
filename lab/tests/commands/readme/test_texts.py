"""Generated parts in a text: found by their markers, made anew, their links as seen from the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.base.errors import UsageError
from lab.commands.readme import texts
from lab.commands.readme.texts import Maker

MAKERS: dict[str, Maker] = {
    "words": lambda _path, words: f"{'+'.join(words)}\n",
    "linked": lambda _path, _words: "see [it](data/published/README.md#sources) and [that](https://example.org/a)\n",
    "pasted": lambda _path, _words: "```text\n[no link](data)\n```\n",
}


def written(folder: Path, text: str) -> Path:
    path = folder / "README.md"
    path.write_text(text)
    return path


def test_what_differs_is_named_and_written(tmp_path: Path) -> None:
    """Only what stands between the markers changes."""
    path = written(tmp_path, "# T\n\n<!-- generated: words a 'b c' -->\nold\n<!-- end -->\n\nmine\n")
    assert texts.stale(path, MAKERS) == [f"words in {path}"]
    texts.write(path, MAKERS)
    assert path.read_text() == "# T\n\n<!-- generated: words a 'b c' -->\na+b c\n<!-- end -->\n\nmine\n"
    assert texts.stale(path, MAKERS) == []


def test_a_part_may_stand_in_a_text_twice_with_other_words(tmp_path: Path) -> None:
    one = "<!-- generated: words {} -->\n<!-- end -->\n"
    path = written(tmp_path, one.format("a") + one.format("b"))
    texts.write(path, MAKERS)
    assert [line for line in path.read_text().splitlines() if not line.startswith("<")] == ["a", "b"]


def test_a_part_that_nobody_makes_is_refused(tmp_path: Path) -> None:
    """With the nearest that is made."""
    path = written(tmp_path, "<!-- generated: wrds -->\n<!-- end -->\n")
    with pytest.raises(UsageError, match=r"README.md: unknown generated part 'wrds'\n.*did you mean 'words'"):
        texts.rendered(path, MAKERS)


def test_links_are_as_seen_from_the_file() -> None:
    """Those into the checkout; other sites' and what is pasted stay."""
    path = texts.ROOT / "lab" / "base" / "README.md"
    match = texts.PART.search("<!-- generated: linked -->\n<!-- end -->")
    assert match is not None
    assert texts.made(path, match, MAKERS) == (
        "see [it](../../data/published/README.md#sources) and [that](https://example.org/a)\n"
    )
    match = texts.PART.search("<!-- generated: pasted -->\n<!-- end -->")
    assert match is not None
    assert texts.made(path, match, MAKERS) == "```text\n[no link](data)\n```\n"


def test_a_link_whose_text_has_brackets_is_one() -> None:
    """As an interval has."""
    assert texts.seen_from(texts.ROOT / "lab", "[+1 % [0, 2], b](data/a)") == "[+1 % [0, 2], b](../data/a)"
