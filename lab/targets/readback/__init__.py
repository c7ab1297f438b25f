"""The read-backs: functions that read a variant's settings back from the running system, to check that they took effect.

The read-backs are the same on all targets: everything is read through `System`, mostly by commands inside the role's
container. Each family of checks has a module. The kinds of checks of a single proxy system are in that system's package
(`lab.systems.table.READBACKS`). If a value cannot be read, the reading is not ok and contains the reason.
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
    """Read a variant's settings back from the running system, and compare them with what the variant should have set.

    A stand-in (a program that runs instead of an image that could not be had) must have the image's defaults. So these
    defaults are read back, too.

    Args:
        system: The running system.
        variant: The variant.
        target: The name of the target; it decides which images have stand-ins.

    Returns:
        One reading (a check with the observed value, and whether it is ok) per check; those of stand-ins come first.

    """
    return read_back(system, [*list_checks(variant.manifests, target), *variant.readback])


def read_back(system: System, checks: Sequence[Check]) -> list[Reading]:
    """Read the setting of each check from the running system, and return one reading per check, in the same order.

    If a setting cannot be read because of the system, its reading is not ok.

    Raises:
        StoreError: A setting cannot be read because of this machine: it lacks disk space, file descriptors or memory.

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
