"""Questions that several kinds of disruption put to a variant's manifests, and to the running system before a load.

The manifests answer for the Deployments and pods of a role, and for the reload interval of the proxy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from lab.base.errors import MeasuringError, NotMeasurableError, UsageError
from lab.base.quantities import parse_duration_s
from lab.model.disturbance import DisturbanceContext, Manifests
from lab.model.endpoint import Endpoint, Response

SETTLE = 1.25
"""The number of reload intervals that a load must last after its last change: one, and the time for the reload."""
PAGE = "/1kB.bin"
FETCH_S = 5.0


def deployments(manifests: Manifests, role: str) -> list[Mapping[str, Any]]:
    """Return all Deployments of a role, such as `proxy` or `backend`.

    There are several where several proxies share the routes, and none where the variant has no such pods.
    """
    candidates = (obj for obj in manifests if obj["kind"] == "Deployment")
    return [obj for obj in candidates if obj["metadata"].get("labels", {}).get("lab/role") == role]


def deployment(manifests: Manifests, role: str) -> Mapping[str, Any]:
    """Return the first Deployment of a role.

    Raises:
        NotMeasurableError: The variant has none, so that there is nothing to disrupt.

    """
    if matches := deployments(manifests, role):
        return matches[0]
    raise NotMeasurableError(f"no {role}", f"disturbance.role: {role}", "the variant has no such pods", "leave it out")


def replicas(manifests: Manifests, role: str) -> int:
    """Return how many pods the role's Deployments request in total."""
    return sum(int(obj["spec"].get("replicas", 1)) for obj in deployments(manifests, role))


def container(manifests: Manifests, role: str) -> Mapping[str, Any]:
    """Return the first container of the role's first Deployment.

    Raises:
        NotMeasurableError: The variant has no such Deployment.

    """
    return deployment(manifests, role)["spec"]["template"]["spec"]["containers"][0]


def configured_interval_s(manifests: Manifests) -> float | None:
    """Return the RELOAD_INTERVAL, in seconds, of OKD's router in the manifests, or None without a valid one.

    Raises:
        NotMeasurableError: The variant has no Deployment of a proxy.

    """
    variables = container(manifests, "proxy").get("env", [])
    values = (str(variable.get("value", "")) for variable in variables if variable["name"] == "RELOAD_INTERVAL")
    return next(map(parse_duration_s, values), None)


def reload_interval_s(manifests: Manifests) -> float:
    """Return the seconds that a change may wait for the next reload of OKD's router.

    Returns:
        The configured interval; 0 where the manifests set none, or have no proxy.

    """
    return (configured_interval_s(manifests) or 0.0) if deployments(manifests, "proxy") else 0.0


def refuse_short_wait(manifests: Manifests, key: str, given_s: float, fault: str, remedy: str = "") -> None:
    """Refuse a disruption whose last change the proxy might load only after the disruption's end.

    Args:
        manifests: The manifests of the variant.
        key: The key of the disruption's table that limits the wait.
        given_s: The value of that key, in seconds.
        fault: The fault as a format string, in which `{interval_s}` is the reload interval.
        remedy: The end of the remedy, which follows the value that the key needs.

    Raises:
        UsageError: `given_s` is shorter than `SETTLE` reload intervals.

    """
    interval_s = reload_interval_s(manifests)
    if given_s < SETTLE * interval_s:
        sweep = f"a sweep whose {key} is {SETTLE * interval_s:g} or more{remedy}"
        raise UsageError(f"disturbance.{key}", fault.format(interval_s=f"{interval_s:g} s"), sweep)


def await_answers(
    context: DisturbanceContext, endpoint: Endpoint, check: Callable[[Response], str], within_s: float, fault: str
) -> None:
    """Request a page again and again until an answer passes the check.

    Args:
        context: The context of the disruption.
        endpoint: The endpoint that the page is requested from.
        check: Returns what is wrong with an answer, or an empty text for a good one.
        within_s: The seconds after which to give up.
        fault: The beginning of the error's fault; what was wrong with the last answer follows.

    Raises:
        MeasuringError: No answer passed in time.

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
    """Return the status of an answer as a fault, or an empty text for status 200."""
    return "" if answer.status == 200 else f"status {answer.status}"
