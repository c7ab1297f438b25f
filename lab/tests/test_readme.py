"""README.md's generated parts are what would be generated now (`just readme` writes them)."""

from pathlib import Path

import pytest

from lab import readme
from lab.errors import UsageError
from lab.samples import Reason

README = Path(__file__).parent.parent.parent / "README.md"


def test_the_texts_are_up_to_date() -> None:
    """The table of variants and the table of reasons."""
    assert readme.stale_parts(README) == []


def test_the_picture_is_up_to_date() -> None:
    """It shows the reference run as `just table` prints it."""
    assert readme.stale_picture() == []


def test_every_reason_has_its_row() -> None:
    """Reason and meaning."""
    text = README.read_text()
    assert all(f"| `{reason}` | {reason.meaning}" in text for reason in Reason)


def test_what_differs_or_is_missing_is_named(tmp_path: Path) -> None:
    """A changed part is stale, and so is one whose place is not in the text."""
    path = tmp_path / "README.md"
    path.write_text("# T\n\n<!-- generated: reasons -->\n`steal`\n<!-- end -->\n")
    assert readme.stale_parts(path) == ["variants", "studies", "disturbances", "reasons", "claims"]
    path.write_text(readme.rendered(path.read_text()))
    assert readme.stale_parts(path) == ["variants", "studies", "disturbances", "claims"]
    assert "\n<!-- end -->\n" in path.read_text()


def test_a_part_that_nobody_makes_is_refused() -> None:
    """With the names of those that are made."""
    with pytest.raises(
        UsageError, match="unknown generated part 'knobz'.*\n.*variants, studies, disturbances, reasons, claims"
    ):
        readme.rendered("<!-- generated: knobz -->\n<!-- end -->\n")
