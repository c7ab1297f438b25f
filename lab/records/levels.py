"""What earlier runs showed of the measuring itself, as committed: data/levels has what systems scatter by at which level, data/pairs what pairs
showed of known costs, in lines for each target.

just export RUN --what levels --format json --output data/levels/apiserver.jsonl      of a run of sweep `generations`
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, Field, ValidationError

from lab.base.errors import UsageError
from lab.base.files import reference_folder
from lab.base.validation import Record
from lab.model.pairs import Compared, Scheme
from lab.model.variants.naming import stored_name

FOLDER = reference_folder().parent / "levels"
PAIRS = reference_folder().parent / "pairs"
Line = TypeVar("Line", bound=BaseModel)


class Known(Record):
    """Standard deviations of one system's log CPU per request; null: that level was not repeated."""

    run: str
    target: str
    variant: str
    point: str
    scheme: Scheme
    repeat: float | None
    generation: float | None
    bring_up: float | None
    bring_ups: int = Field(description="of which every measurement counts")
    generations: int = Field(description="of workers in each of them")
    load_s: float = Field(description="seconds of load of each measurement")
    bring_up_at_most: float | None = Field(
        default=None, description="the upper 80 % limit of `bring_up`; null: nothing below bring-ups was repeated"
    )


@cache
def committed() -> tuple[Known, ...]:
    """Of every file, each variant by its present name. UsageError for one that is damaged."""
    found = (one for lines in _files(FOLDER, Known) for one in lines)
    return tuple(one.model_copy(update={"variant": stored_name(one.variant)}) for one in found)


@cache
def committed_pairs() -> tuple[Compared, ...]:
    """The comparisons of an earlier release, each variant by its present name, rounds numbered on, so that no two files share one. UsageError."""
    found: list[Compared] = []
    for lines in _files(PAIRS, Compared):
        before = max((one.round + 1 for one in found), default=0)
        for one in lines:
            names = {"variant": stored_name(one.variant), "baseline": stored_name(one.baseline)}
            found.append(one.model_copy(update={"round": before + one.round, **names}))
    return tuple(found)


def _files(folder: Path, model: type[Line]) -> list[list[Line]]:
    """The lines of every file."""
    found: list[list[Line]] = []
    for path in sorted(folder.glob("*.jsonl")):
        try:
            found.append([model.model_validate_json(line) for line in path.read_text("utf-8").splitlines() if line])
        except (OSError, ValidationError) as error:
            raise UsageError(str(path), str(error).splitlines()[0], "restore it from a copy") from None
    return found
