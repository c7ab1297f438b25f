"""What systems scatter by at which level, as measured and committed: data/levels, a line for each system, target and load.

just export RUN --what levels --format json --output data/levels/apiserver.jsonl      of a run of sweep `generations`
"""

from __future__ import annotations

from functools import cache

from pydantic import Field, ValidationError

from lab.base.errors import UsageError
from lab.base.files import reference_folder
from lab.base.validation import Record
from lab.model.pairs import Scheme
from lab.model.variants.naming import stored_name

FOLDER = reference_folder().parent / "levels"


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
    found: list[Known] = []
    for path in sorted(FOLDER.glob("*.jsonl")):
        try:
            found += [Known.model_validate_json(line) for line in path.read_text("utf-8").splitlines() if line]
        except (OSError, ValidationError) as error:
            raise UsageError(str(path), str(error).splitlines()[0], "restore it from a copy") from None
    return tuple(one.model_copy(update={"variant": stored_name(one.variant)}) for one in found)
