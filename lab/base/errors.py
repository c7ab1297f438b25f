"""Errors a user can act on: the place, the fault, the remedy and the exit status.

A defect in the lab itself is not one of these: it keeps its traceback (`LAB_DEBUG=1`) or becomes one line that
asks for a report.
"""

import difflib
from collections.abc import Collection, Iterable


class LabError(Exception):
    """An error a user can act on, printed as `place: fault` and then the remedy on a separate line.

    Attributes:
        exit_status: The status that the command ends with.
        place: The file, option, object or program that the error is about.
        fault: The fault, in words.
        remedy: The advice for the user; empty if there is none.

    """

    exit_status = 2

    def __init__(self, place: str, fault: str, remedy: str = "") -> None:
        self.place, self.fault, self.remedy = place, fault, remedy
        super().__init__(f"{place}: {fault}" + (f"\n  {remedy}" if remedy else ""))


class UsageError(LabError):
    """The error for wrong usage, bad input or a missing prerequisite: nothing was started (exit 2)."""


class NotMeasurableError(UsageError):
    """The error for a variant or load that this machine or target cannot measure.

    The error becomes a row "not measurable: <what>" of the table, without a number (README, "How to read a table",
    6). Where the user requested nothing else, the command fails as for any other wrong usage.

    Attributes:
        what: A short name of what cannot be measured or is missing: `cores`, `open files`, `host-wide`.
        why: The fault as a sentence.

    """

    def __init__(self, what: str, place: str, fault: str, remedy: str = "") -> None:
        self.what, self.why = what, fault
        super().__init__(place, f"{fault}: not measurable: {what}", remedy)


class MeasuringError(LabError):
    """The error for a failure after measuring had begun: recorded samples are kept (exit 1)."""

    exit_status = 1


class StartError(MeasuringError):
    """The error for a program that rejects its configuration.

    The program's container ends at every start, or a controller does not apply the variant's objects.
    """


class NodeRefusesError(StartError):
    """The error for a setting that a node refuses: the setting cannot be measured there, whatever program runs."""


class LostError(MeasuringError):
    """The error for a lost prerequisite of the run: the cluster, the generator's pod or the right to measure there.

    The run stops. In contrast to other faults the loss shows nothing about the variant. So nothing is recorded, and
    `--resume` measures the sample again.
    """


class ImageError(LostError):
    """The error for a container's `image` that cannot be fetched: the next variant would fail the same way."""

    def __init__(self, image: str, place: str, fault: str, remedy: str = "") -> None:
        self.image = image
        super().__init__(place, fault, remedy)


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return a remedy that suggests the nearest valid name, or lists all of them when none is near.

    >>> did_you_mean("keepalvie", ["keepalive", "direct"])
    "did you mean 'keepalive'?"
    """
    choices = sorted(names)
    near = difflib.get_close_matches(name, choices, n=1, cutoff=0.6)
    if near:
        return f"did you mean '{near[0]}'?"
    return f"known: {', '.join(choices)}" if choices else "none are known"


def refuse_unknown(name: object, names: Collection[object], place: str, fault: str) -> None:
    """Refuse a name that is not among the valid ones; the error suggests the nearest.

    Raises:
        UsageError: `name` is not in `names`; the error carries `place` and `fault`.

    """
    if name not in names:
        raise UsageError(place, fault, did_you_mean(str(name), map(str, names)))


def refuse_if(condition: object, place: str, fault: str, remedy: str = "", what: str = "") -> None:
    """Refuse the request when the condition is true.

    Args:
        condition: Any value; only its truth counts.
        place: The place of the error.
        fault: The fault of the error.
        remedy: The remedy of the error.
        what: What is not measurable then, in short (see `NotMeasurableError`); empty for plain wrong usage.

    Raises:
        NotMeasurableError: The condition is true and `what` is given.
        UsageError: The condition is true and `what` is empty.

    """
    if condition:
        raise NotMeasurableError(what, place, fault, remedy) if what else UsageError(place, fault, remedy)
