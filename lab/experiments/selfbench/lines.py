"""What a long check has done so far: a record a line, in a file that is whole at any time; who goes on there reads it first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from lab.base.errors import UsageError
from lab.base.files import replace, writing

Model = TypeVar("Model", bound=BaseModel)


def read(path: Path, model: type[Model]) -> list[Model]:
    """Empty where nothing was done yet. UsageError for a file that is damaged."""
    if not path.is_file():
        return []
    try:
        return [model.model_validate_json(line) for line in path.read_text("utf-8").splitlines() if line]
    except (OSError, ValidationError) as error:
        raise UsageError(str(path), str(error).splitlines()[0], "name another folder by --into") from None


def add(path: Path, records: Sequence[BaseModel]) -> None:
    """All of them or none. StoreError without room."""
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        known = path.read_text("utf-8") if path.is_file() else ""
        replace(path, (known + "".join(f"{one.model_dump_json()}\n" for one in records)).encode())
