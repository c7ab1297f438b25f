"""Functions that several kinds of disruption share: they read a variant's manifests, and request pages before a load.

From the manifests they read the Deployments and numbers of pods of a role, and the reload interval of the proxy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from lab.base.errors import MeasuringError, NotMeasurableError, refuse_if
from lab.base.quantities import parse_duration_s
from lab.model.disturbance import DisturbanceContext, Manifests
from lab.model.endpoint import Endpoint, Response

SETTLE = 1.25
"""The number of reload intervals that a load must last after its last change: one interval, and the time for the reload."""
PAGE = "/1kB.bin"
FETCH_S = 5.0


def deployments(manifests: Manifests, role: str) -> list[Mapping[str, Any]]:
    """Return all Deployments of a role among a variant's manifests.

    The list has several items where several proxies share the routes. It is empty where the variant has no pods of the role.

    Args:
        manifests: The rendered manifests of the variant (a configuration of the measured system).
        role: The role of the Deployment's pods: `proxy`, `backend` or `balancer`.

    """
    candidates = (obj for obj in manifests if obj["kind"] == "Deployment")
    return [obj for obj in candidates if obj["metadata"].get("labels", {}).get("lab/role") == role]


def deployment(manifests: Manifests, role: str) -> Mapping[str, Any]:
    """Return the first Deployment of a role (`proxy`, `backend` or `balancer`) among a variant's manifests.

    Raises:
        NotMeasurableError: The variant has no Deployment of the role, so there is nothing to disrupt.

    """
    if matches := deployments(manifests, role):
        return matches[0]
    raise NotMeasurableError(f"no {role}", f"disturbance.role: {role}", "the variant has no such pods", "leave it out")


def replicas(manifests: Manifests, role: str) -> int:
    """Return the total number of replicas of all Deployments of a role (`proxy`, `backend` or `balancer`)."""
    return sum(int(obj["spec"].get("replicas", 1)) for obj in deployments(manifests, role))


def container(manifests: Manifests, role: str) -> Mapping[str, Any]:
    """Return the manifest of the first container in the first Deployment of a role (`proxy`, `backend` or `balancer`).

    Raises:
        NotMeasurableError: The variant has no Deployment of the role.

    """
    return deployment(manifests, role)["spec"]["template"]["spec"]["containers"][0]


def configured_interval_s(manifests: Manifests) -> float | None:
    """Return the interval between two reloads, in seconds, that a variant's manifests configure for OKD's router.

    It is the proxy container's environment variable RELOAD_INTERVAL. The result is None if the variable is missing or is no
    duration.

    Raises:
        NotMeasurableError: The variant has no Deployment of a proxy.

    """
    variables = container(manifests, "proxy").get("env", [])
    values = (str(variable.get("value", "")) for variable in variables if variable["name"] == "RELOAD_INTERVAL")
    return next(map(parse_duration_s, values), None)


def reload_interval_s(manifests: Manifests) -> float:
    """Return the number of seconds that a change of routes may have to wait until OKD's router reloads.

    Returns:
        The configured RELOAD_INTERVAL; 0 where the manifests do not set it, or have no proxy.

    """
    return (configured_interval_s(manifests) or 0.0) if deployments(manifests, "proxy") else 0.0


def refuse_short_wait(manifests: Manifests, key: str, given_s: float, fault: str, remedy: str = "") -> None:
    """Refuse a disruption that would end before the proxy has surely loaded the disruption's last change.

    OKD's router may wait for its reload interval before it loads a change. So a sweep must wait at least `SETTLE` such
    intervals after the last change.

    Args:
        manifests: The manifests of the variant.
        key: The key in the sweep that sets how long the disruption waits after the last change.
        given_s: The value of that key, in seconds.
        fault: The fault as a format string, in which `{interval_s}` becomes the reload interval.
        remedy: A text that is appended to the error's remedy.

    Raises:
        UsageError: `given_s` is too short.

    """
    interval_s = reload_interval_s(manifests)
    sweep = f"a sweep whose {key} is {SETTLE * interval_s:g} or more{remedy}"
    refuse_if(given_s < SETTLE * interval_s, f"disturbance.{key}", fault.format(interval_s=f"{interval_s:g} s"), sweep)


def await_answers(
    context: DisturbanceContext, endpoint: Endpoint, check: Callable[[Response], str], within_s: float, fault: str
) -> None:
    """Request a page again and again until an answer passes a check.

    Args:
        context: The context of the disruption.
        endpoint: The address that the page is requested from.
        check: A function that returns what is wrong with an answer, in words; an empty text if nothing is.
        within_s: The seconds after which to give up.
        fault: The beginning of the error message; what was wrong with the last answer is appended.

    Raises:
        MeasuringError: No answer passed the check in time.

    """
    deadline = time.monotonic() + within_s
    while True:
        try:
            problem = check(context.system.fetch(endpoint, PAGE, FETCH_S))
        except OSError as error:
            problem = str(error)
        if not problem:
            return
        if time.monotonic() > deadline:
            raise MeasuringError(endpoint.host, f"{fault}: {problem}", "the proxy's log may say why")
        context.wait(0.1)


def status_fault(answer: Response) -> str:
    """Return a text such as `status 503` if the answer's status is wrong; empty if the status is 200."""
    return "" if answer.status == 200 else f"status {answer.status}"
