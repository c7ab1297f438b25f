"""README.md's generated parts are what would be generated now (`just readme` writes them)."""

import re
from pathlib import Path

import pytest

from lab.base.errors import UsageError
from lab.commands import readme
from lab.model.samples import Reason

pytestmark = pytest.mark.committed

README = Path(__file__).parents[3] / "README.md"


def test_the_texts_are_up_to_date() -> None:
    """The table of variants and the table of reasons."""
    assert readme.stale_parts(README) == []


def test_the_picture_is_up_to_date() -> None:
    """It shows the reference run as `just table` prints it."""
    assert readme.stale_picture() == []


def test_what_generators_were_found_to_do_is_typed_nowhere() -> None:
    """All of it is in the generated part."""
    section = README.read_text().partition("### What each generator really measures")[2].partition("\n### ")[0]
    before, _, rest = section.partition("<!-- generated: calibration -->")
    assert "hidden" in rest.partition("<!-- end -->")[0]
    assert "hidden" not in before + rest.partition("<!-- end -->")[2]


def test_a_command_is_pasted_without_its_answer() -> None:
    """What a command prints is generated, or not there: it would change with the run it is of."""
    text = readme.PART.sub("", README.read_text())
    blocks = re.findall(r"^```(?:console)?\n(\$ .*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) > 3
    assert [line for block in blocks for line in block.splitlines() if not line.startswith("$ ")] == []


def test_every_example_is_of_the_pictured_run() -> None:
    """As the command prints it, under the command."""
    for command in readme.EXAMPLES:
        text = readme.parts()[command.split()[0]]()
        assert text.startswith(f"```console\n$ just {command.format(f'data/reference/{readme.PICTURED}')}\n")
        assert len(text.splitlines()) > 10


def test_the_ledger_links_to_what_is_there() -> None:
    """Each claim to the notebook that shows it, each run to its folder."""
    links = {to for _, to in re.findall(r"\[([^\]]+)\]\(([^)]+)\)", readme.parts()["claims"]())}
    assert all((README.parent / to).exists() for to in links)
    assert {Path(to).parts[0] for to in links} == {"data", "notebooks"}


def test_every_reason_has_its_row() -> None:
    """Reason and meaning."""
    text = README.read_text()
    assert all(f"| `{reason}` | {reason.meaning}" in text for reason in Reason)


def test_what_differs_or_is_missing_is_named(tmp_path: Path) -> None:
    """A changed part is stale, and so is one whose place is not in the text."""
    path = tmp_path / "README.md"
    path.write_text("# T\n\n<!-- generated: reasons -->\n`steal`\n<!-- end -->\n")
    others = ["variants", "studies", "disturbances", "claims", "aa", "compare", "gate", "capacity"]
    assert set(readme.stale_parts(path)) == {*others, "reasons"}
    path.write_text(readme.rendered(path.read_text()))
    assert set(readme.stale_parts(path)) == set(others)
    assert "\n<!-- end -->\n" in path.read_text()


def test_a_part_that_nobody_makes_is_refused() -> None:
    """With the names of those that are made."""
    with pytest.raises(
        UsageError, match="unknown generated part 'knobz'.*\n.*variants, studies, disturbances, reasons, claims"
    ):
        readme.rendered("<!-- generated: knobz -->\n<!-- end -->\n")
