"""What the lab's JSON outputs have in common: models whose schema is generated, plain data with stable keys.

Seconds, bytes, requests per second, ratios and counts as they are: nothing is scaled or rounded for people. A key is never left out
because its value is not known: it is null.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from lab.model.samples import Reason

Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Invalid = Annotated[dict[Reason, Count], Field(description="samples by reason")]
Bound = Annotated[float | None, Field(description="95 % interval; null below six blocks")]

DIALECT = {"$schema": "https://json-schema.org/draft/2020-12/schema"}


class Printed(BaseModel):
    """A part of an output. Refuses a key that it does not have."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True, from_attributes=True)

    def plain(self) -> dict[str, Any]:
        """As JSON has it, in the order of the fields."""
        return self.model_dump(mode="json")

    def dumps(self) -> str:
        """What a verb prints."""
        return json.dumps(self.plain(), indent=1)
