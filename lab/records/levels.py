"""The committed results of runs that examine the measuring itself: variance components, and comparisons of known costs.

`data/levels` has the variance components of systems. `data/pairs` has comparisons of variants that differ by a known cost. Each
folder has a file per target, with a JSON object per line.

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


class SystemComponents(Record):
    """The variance components of one system: how much its log CPU time per request varies, as standard deviations.

    There is one component each between repeats, between worker generations (the workers between two reloads) and
    between starts of the system. A component is null if nothing was repeated at that level.
    """

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
def read_components() -> tuple[SystemComponents, ...]:
    """Return the variance components of all systems in `data/levels`: how much their CPU time per request varies.

    A system has one component each between repeats, between reloads and between starts. Variants have their present
    names.

    Raises:
        UsageError: A file is damaged.

    """
    components = (line for lines in _read_files(FOLDER, SystemComponents) for line in lines)
    return tuple(line.model_copy(update={"variant": stored_name(line.variant)}) for line in components)


@cache
def read_pairs() -> tuple[Compared, ...]:
    """Return the committed comparisons of variants with a known cost (`data/pairs`), with the present names of variants.

    An earlier release of the lab measured them. Rounds (repetitions) are renumbered from file to file, so that all
    rounds have different numbers.

    Raises:
        UsageError: A file is damaged.

    """
    comparisons: list[Compared] = []
    for lines in _read_files(PAIRS, Compared):
        next_round = max((line.round + 1 for line in comparisons), default=0)
        for line in lines:
            names = {"variant": stored_name(line.variant), "baseline": stored_name(line.baseline)}
            comparisons.append(line.model_copy(update={"round": next_round + line.round, **names}))
    return tuple(comparisons)


def _read_files(folder: Path, model: type[Line]) -> list[list[Line]]:
    """Return the parsed lines of every `.jsonl` file in a folder, one list per file in the order of the files' names.

    Args:
        folder: The folder.
        model: The class that each line is parsed into.

    Raises:
        UsageError: A file is damaged.

    """
    files: list[list[Line]] = []
    for path in sorted(folder.glob("*.jsonl")):
        try:
            files.append([model.model_validate_json(line) for line in path.read_text("utf-8").splitlines() if line])
        except (OSError, ValidationError) as error:
            raise UsageError(str(path), str(error).splitlines()[0], "restore it from a copy") from None
    return files
