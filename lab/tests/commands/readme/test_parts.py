"""The generated parts are what would be generated now (`just maintain readme` writes them)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lab.analysis import levels
from lab.commands import readme
from lab.commands.readme import starts
from lab.records.levels import Known
from lab.studies.site.rows import picture

pytestmark = pytest.mark.committed

ROOT = readme.ROOT
MAKERS = readme.makers()


@pytest.mark.parametrize("path", readme.files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_parts_are_up_to_date(path: Path) -> None:
    assert path.read_text() == readme.rendered(path, MAKERS)


def test_the_picture_is_up_to_date_and_fetches_nothing() -> None:
    """It has no font, style or image from elsewhere: the one address in it is the name of SVG itself."""
    drawn = readme.PICTURE.read_text()
    assert drawn == picture(readme.judged())
    assert set(re.findall(r"https?://[^\"']+", drawn)) == {"http://www.w3.org/2000/svg"}


def test_what_one_start_is_off_by_is_its_workers_and_its_bring_up_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what was not repeated nothing is said; bring-ups are the longest line's, which has no row of its own."""
    one = Known(
        run="r", target="apiserver", variant="baseline", point="ceiling", scheme="slices",
        repeat=0.006, generation=0.04, bring_up=0.03, bring_ups=8, generations=6, load_s=4.0,
    )  # fmt: skip
    long = one.model_copy(update={"repeat": None, "bring_up": 0.03, "bring_ups": 30, "generations": 24})
    few = one.model_copy(update={"bring_up": 0.0})
    known = [few, one.model_copy(update={"variant": "x", "generation": None}), long]
    monkeypatch.setattr(levels, "committed", lambda: tuple(known))
    *_, first, second = starts(known).splitlines()
    assert first == "| `baseline` on apiserver, ceiling | 5.0 % | 4.0 % | 3.0 % | 0.6 % | 8 × 6, 30 × 24 |"
    assert second == "| `x` on apiserver, ceiling | 3.0 % | – | 3.0 % | 0.6 % | 8 × 6 |"
