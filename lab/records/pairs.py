"""The comparisons of data/pairs, as an earlier release measured them: a file of lines for each machine and target."""

from __future__ import annotations

from functools import cache

from pydantic import ValidationError

from lab.base.errors import UsageError
from lab.base.files import reference_folder
from lab.model.pairs import Compared
from lab.model.variants.naming import stored_name

FOLDER = reference_folder().parent / "pairs"


@cache
def committed() -> tuple[Compared, ...]:
    """Of every file, each variant by its present name, rounds numbered on, so that no two files share one. UsageError for one that is damaged."""
    found: list[Compared] = []
    for path in sorted(FOLDER.glob("*.jsonl")):
        try:
            of_file = [Compared.model_validate_json(line) for line in path.read_text("utf-8").splitlines() if line]
        except (OSError, ValidationError) as error:
            raise UsageError(str(path), str(error).splitlines()[0], "restore it from a copy") from None
        before = max((one.round + 1 for one in found), default=0)
        found += [one.model_copy(update={"round": before + one.round}) for one in of_file]
    names = ({"variant": stored_name(one.variant), "baseline": stored_name(one.baseline)} for one in found)
    return tuple(one.model_copy(update=name) for one, name in zip(found, names, strict=True))
