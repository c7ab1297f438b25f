"""Errors a user can act on: the place, the fault, the remedy and the exit status.

A defect in the lab itself is another kind of error. It is shown with its traceback (`LAB_DEBUG=1`), or as one line that
asks for a report.
"""

import difflib
from collections.abc import Collection, Iterable


class LabError(Exception):
    """The base of all errors that a user can act on.

    Such an error is printed as `place: fault`, followed by the remedy on a separate line.

    Attributes:
        exit_status: The exit status of the command that fails with this error.
        place: The file, option, object or program that the error is about.
        fault: The fault, in words.
        remedy: The advice for the user; empty if there is none.

    """

    exit_status = 2

    def __init__(self, place: str, fault: str, remedy: str = "") -> None:
        self.place, self.fault, self.remedy = place, fault, remedy
        super().__init__(f"{place}: {fault}" + (f"\n  {remedy}" if remedy else ""))


class UsageError(LabError):
    """The error for wrong usage, bad input or a missing prerequisite.

    The command ends with exit status 2 before it has started anything.
    """


class NotMeasurableError(UsageError):
    """The error for a variant or load that this machine or target cannot measure.

    In a table of results, the error becomes a row "not measurable: <what>" without a number. If nothing else was
    requested, the command fails as for any other wrong usage.

    Attributes:
        what: A short name of what cannot be measured or is missing, such as `cores` or `open files`.
        why: The fault as a sentence.

    """

    def __init__(self, what: str, place: str, fault: str, remedy: str = "") -> None:
        self.what, self.why = what, fault
        super().__init__(place, f"{fault}: not measurable: {what}", remedy)


class MeasuringError(LabError):
    """The error for a failure in measuring, or for stored samples (single measurements) that do not fit together.

    If a system fails in a run, its samples become invalid and the run goes on. Otherwise the command ends with exit
    status 1; the samples that were recorded until then are kept.
    """

    exit_status = 1


class StartError(MeasuringError):
    """The error for a program that does not start with its configuration.

    Its container ends at every start, or its controller does not apply the Kubernetes objects that configure it.
    """


class NodeRefusesError(StartError):
    """The error for a setting that a Kubernetes node refuses, such as a kernel setting.

    The setting cannot be measured on that node, whatever program runs in the pod.
    """


class LostError(MeasuringError):
    """The error for a run that loses what it needs: the cluster, the load generator's pod, or the right to measure there.

    The run stops. In contrast to other errors, the loss shows nothing about the measured system. So nothing is recorded
    for the current sample (a single measurement), and a run with `--resume` measures it again.
    """


class ImageError(LostError):
    """The error for a container image that cannot be fetched.

    The run stops, because everything else that needs the image would fail the same way.

    Attributes:
        image: The reference of the image.

    """

    def __init__(self, image: str, place: str, fault: str, remedy: str = "") -> None:
        self.image = image
        super().__init__(place, fault, remedy)


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return a remedy for an unknown name: it suggests the most similar of the valid names.

    If none of the valid names is similar, the remedy lists all of them.

    >>> did_you_mean("keepalvie", ["keepalive", "direct"])
    "did you mean 'keepalive'?"
    >>> did_you_mean("x", ["keepalive", "direct"])
    'known: direct, keepalive'
    """
    choices = sorted(names)
    near = difflib.get_close_matches(name, choices, n=1, cutoff=0.6)
    if near:
        return f"did you mean '{near[0]}'?"
    return f"known: {', '.join(choices)}" if choices else "none are known"


def refuse_unknown(name: object, names: Collection[object], place: str, fault: str) -> None:
    """Raise UsageError if a name is not among the valid names.

    The error's remedy suggests the nearest valid name.

    Args:
        name: The name to check.
        names: The valid names.
        place: The file, option or object that the error is about.
        fault: The fault in words.

    Raises:
        UsageError: `name` is not in `names`.

    """
    if name not in names:
        raise UsageError(place, fault, did_you_mean(str(name), map(str, names)))


def refuse_if(condition: object, place: str, fault: str, remedy: str = "", what: str = "") -> None:
    """Raise an error about the user's request if the condition is true.

    Args:
        condition: Any value; only its truth counts.
        place: The file, option or object that the error is about.
        fault: The fault in words.
        remedy: The advice for the user; empty for none.
        what: A short name of what cannot be measured (see `NotMeasurableError`); empty for plain wrong usage.

    Raises:
        NotMeasurableError: The condition is true and `what` is given.
        UsageError: The condition is true and `what` is empty.

    """
    if condition:
        raise NotMeasurableError(what, place, fault, remedy) if what else UsageError(place, fault, remedy)


def refuse_first(*rules: tuple[object, str, str, str]) -> None:
    """Raise UsageError for the first of several rules that is broken; without a broken rule do nothing.

    Args:
        rules: For each rule: whether it is broken (any value; only its truth counts), and the place, the fault and the
            remedy of the error.

    Raises:
        UsageError: A rule is broken.

    """
    for broken, place, fault, remedy in rules:
        refuse_if(broken, place, fault, remedy)
