"""A file of `lab/targets/provision/` read into a model: wrong keys and values as place, fault, remedy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from lab.base.errors import UsageError
from lab.base.validation import faults

Model = TypeVar("Model", bound=BaseModel)


def read(path: Path, model: type[Model], *parts: type[BaseModel]) -> Model:
    """UsageError that names every wrong key; `parts` are the models inside it, for the nearest known key."""
    place = os.path.relpath(path)
    try:
        return model.model_validate(yaml.safe_load(path.read_text("utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(place, f"cannot be read: {error}", "restore it (git checkout)") from None
    except yaml.YAMLError as error:
        raise UsageError(
            place, f"not YAML: {' '.join(str(error).split())}", "mend it, or restore it (git checkout)"
        ) from None
    except ValidationError as error:
        raise UsageError(place, "; ".join(faults(error, model, *parts)), "see its comments, or git diff") from None
