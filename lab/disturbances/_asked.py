"""What kinds ask of a variant's manifests (its Deployments, how many pods a role has, how late a proxy reloads), and of the system before a load."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from lab.base.errors import MeasuringError, NotMeasurableError, UsageError
from lab.base.quantities import seconds
from lab.model.disturbance import DisturbanceContext, Manifests
from lab.model.endpoint import Endpoint, Response

SETTLE = 1.25
"""A load goes on for so many reload intervals after its last change, at least: one, and what loading takes."""
PAGE = "/1kB.bin"
FETCH_S = 5.0


def deployments(manifests: Manifests, role: str) -> list[Mapping[str, Any]]:
    """All of a role: several where routers share the routes, none where the variant has no such pods."""
    made = (obj for obj in manifests if obj["kind"] == "Deployment")
    return [obj for obj in made if obj["metadata"].get("labels", {}).get("lab/role") == role]


def deployment(manifests: Manifests, role: str) -> Mapping[str, Any]:
    """The first Deployment of a role. NotMeasurableError where the variant has none: there is nothing to do it to."""
    if found := deployments(manifests, role):
        return found[0]
    raise NotMeasurableError(f"no {role}", f"disturbance.role: {role}", "the variant has no such pods", "leave it out")


def replicas(manifests: Manifests, role: str) -> int:
    """How many pods the role is asked to have, in all its Deployments."""
    return sum(int(found["spec"].get("replicas", 1)) for found in deployments(manifests, role))


def container(manifests: Manifests, role: str) -> Mapping[str, Any]:
    """The first container of the role's pods. NotMeasurableError as `deployment`."""
    return deployment(manifests, role)["spec"]["template"]["spec"]["containers"][0]


def asked_interval_s(manifests: Manifests) -> float | None:
    """What the manifests set as RELOAD_INTERVAL of OKD's router; None where they leave it to the router."""
    variables = container(manifests, "proxy").get("env", [])
    told = (str(each.get("value", "")) for each in variables if each["name"] == "RELOAD_INTERVAL")
    return next(map(seconds, told), None)


def reload_interval_s(manifests: Manifests) -> float:
    """How long a change may wait until OKD's router takes it up; 0 where nothing says so, as without a proxy."""
    return (asked_interval_s(manifests) or 0.0) if deployments(manifests, "proxy") else 0.0


def refuse_impatient(manifests: Manifests, key: str, given_s: float, fault: str, remedy: str = "") -> None:
    """UsageError where a change may wait longer for the proxy's reload than a disturbance's `key` gives it.

    `fault` says both, with `{interval_s}`; `remedy` follows the sweep that would do.
    """
    interval_s = reload_interval_s(manifests)
    if given_s < SETTLE * interval_s:
        sweep = f"a sweep whose {key} is {SETTLE * interval_s:g} or more{remedy}"
        raise UsageError(f"disturbance.{key}", fault.format(interval_s=f"{interval_s:g} s"), sweep)


def await_answers(
    context: DisturbanceContext, endpoint: Endpoint, lacks: Callable[[Response], str], within_s: float, fault: str
) -> None:
    """Ask for a page until an answer `lacks` nothing any more. MeasuringError after so many seconds: `fault`, and what the last one lacked."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            said = lacks(context.system.fetch(endpoint, PAGE, FETCH_S))
        except OSError as error:
            said = str(error)
        if not said:
            return
        if time.monotonic() > deadline:
            raise MeasuringError(endpoint.host, f"{fault}: {said}", "the proxy's log may say why")
        context.wait(0.1)


def not_200(answer: Response) -> str:
    """What an answer lacks that is not 200."""
    return "" if answer.status == 200 else f"status {answer.status}"
