"""The read-backs: each check of a variant is compared with the running system before a sample counts.

The read-backs are the same on all targets: everything is read through `System`, mostly by commands inside the role's
container. Each family of checks has a module. Kinds that only one proxy system has are in that system's package
(`lab.systems.table.READBACKS`). A value that cannot be read makes a reading that is not ok, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lab.base.files import as_store_error
from lab.model.variants.variants import Check, Variant
from lab.systems.reading import Reader, Reading, UnreadableError
from lab.systems.stand_ins import list_checks
from lab.systems.table import READBACKS
from lab.targets.base import System
from lab.targets.readback import network, pods

READERS: Mapping[str, Reader] = {
    **network.READERS,
    **pods.READERS,
    **{kind: readback.read for kind, readback in READBACKS.items()},
}
"""The reader of each kind of check."""


def read_variant(system: System, variant: Variant, target: str) -> list[Reading]:
    """Read a variant's settings from the running system, and the defaults of the stand-ins for its images.

    A stand-in is a program that runs where an image could not be had. It must have the image's defaults.

    Args:
        system: The running system.
        variant: The variant.
        target: The name of the target; it decides which images have stand-ins.

    """
    return read_back(system, [*list_checks(variant.manifests, target), *variant.readback])


def read_back(system: System, checks: Sequence[Check]) -> list[Reading]:
    """Read the setting of each check from the running system, and return one reading per check, in the same order.

    A fault of the system makes a reading that is not ok.

    Raises:
        StoreError: This machine lacks what a query takes (space, descriptors, memory), so the knob is not to blame.

    """
    readings = []
    for check in checks:
        try:
            with as_store_error("read-back"):
                readings.append(READERS[check.kind](system, check))
        except UnreadableError as error:
            readings.append(Reading(check, "unreadable", ok=False, detail=str(error)))
        except (ValueError, LookupError, StopIteration, OSError) as error:  # the answer has an unexpected form
            readings.append(Reading(check, "unreadable", ok=False, detail=f"{type(error).__name__}: {error}"))
    return readings
