"""Is the knob really set? Each check of a variant is compared with the running system, before a sample counts.

Knows no target: everything is asked through `System`, mostly by commands inside the role's container. One file per
family of checks; kinds that only one proxy system has are that system's (`lab.systems.table.READBACKS`). Refuses to fail silently: what
cannot be read is not ok, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lab.base.files import own_faults
from lab.model.variants.variants import Check, Variant
from lab.systems.reading import Reader, Reading, UnreadableError
from lab.systems.stand_ins import list_checks
from lab.systems.table import READBACKS
from lab.targets.base import System
from lab.targets.readback import network, pods

READERS: Mapping[str, Reader] = {
    **network.READERS,
    **pods.READERS,
    **{kind: how.read for kind, how in READBACKS.items()},
}
"""Kind of each check → its reader."""


def read_variant(system: System, variant: Variant, target: str) -> list[Reading]:
    """Read back what a variant sets, and that what runs in the place of its programs on a target has their defaults."""
    return read_back(system, [*list_checks(variant.manifests, target), *variant.readback])


def read_back(system: System, checks: Sequence[Check]) -> list[Reading]:
    """One reading per check, in their order. Never raises for what it finds, or fails to find, in the system.

    StoreError when this machine lacks what the asking takes (space, descriptors, memory): the knob is not to blame.
    """
    readings = []
    for check in checks:
        try:
            with own_faults("read-back"):
                readings.append(READERS[check.kind](system, check))
        except UnreadableError as error:
            readings.append(Reading(check, "unreadable", ok=False, detail=str(error)))
        except (ValueError, LookupError, StopIteration, OSError) as error:  # garbage in the answer
            readings.append(Reading(check, "unreadable", ok=False, detail=f"{type(error).__name__}: {error}"))
    return readings
