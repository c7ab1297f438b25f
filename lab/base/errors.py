"""Errors a user can act on: the place, the fault, the remedy, and the exit status that goes with them.

Refuses to be a catch-all: a defect in the lab itself is not one of these and keeps its traceback
(`LAB_DEBUG=1`) or becomes one line asking for a report.
"""

import difflib
from collections.abc import Collection, Iterable


class LabError(Exception):
    """`place: fault`, then the remedy on a line of its own. `exit_status` is what the command ends with."""

    exit_status = 2

    def __init__(self, place: str, fault: str, remedy: str = "") -> None:
        self.place, self.fault, self.remedy = place, fault, remedy
        super().__init__(f"{place}: {fault}" + (f"\n  {remedy}" if remedy else ""))


class UsageError(LabError):
    """Wrong usage, bad input or a missing prerequisite: nothing was started (exit 2)."""


class NotMeasurableError(UsageError):
    """What this machine or target cannot show (README, "How to read a table", 6): a row "not measurable: <what>" of the table, not a number.

    `what` is short: `cores`, `open files`, `host-wide`; `why` is the fault in words. Asked for alone it is an error like any other wrong usage.
    """

    def __init__(self, what: str, place: str, fault: str, remedy: str = "") -> None:
        self.what, self.why = what, fault
        super().__init__(place, f"{fault}: not measurable: {what}", remedy)


class MeasuringError(LabError):
    """Something failed once measuring had begun; what was recorded is kept (exit 1)."""

    exit_status = 1


class StartError(MeasuringError):
    """A container's program ends whenever it is started, or a controller makes nothing of its objects: it refuses what it is told."""


class NodeRefusesError(StartError):
    """A node does not take a setting: what it cannot show, whatever runs on it."""


class LostError(MeasuringError):
    """What the run goes on with is gone (the cluster, the generator's pod, the right to measure there): it stops here.

    Unlike any other fault it says nothing about the variant, so nothing is recorded, and `--resume` measures it.
    """


class ImageError(LostError):
    """A container's `image` cannot be had: the next variant lacks it, too."""

    def __init__(self, image: str, place: str, fault: str, remedy: str = "") -> None:
        self.image = image
        super().__init__(place, fault, remedy)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A remedy that names the nearest known name, or lists them all when none is near.

    >>> did_you_mean("keepalvie", ["keepalive", "direct"])
    "did you mean 'keepalive'?"
    """
    choices = sorted(known)
    near = difflib.get_close_matches(name, choices, n=1, cutoff=0.6)
    if near:
        return f"did you mean '{near[0]}'?"
    return f"known: {', '.join(choices)}" if choices else "none are known"


def refuse_unknown(name: object, known: Collection[object], place: str, fault: str) -> None:
    """UsageError of this place and fault, with the nearest known name, where `name` is none of them."""
    if name not in known:
        raise UsageError(place, fault, did_you_mean(str(name), map(str, known)))


def refuse_if(wrong: object, place: str, fault: str, remedy: str = "", what: str = "") -> None:
    """UsageError of this place and fault where something is wrong; NotMeasurableError where `what` cannot be shown then."""
    if wrong:
        raise NotMeasurableError(what, place, fault, remedy) if what else UsageError(place, fault, remedy)
