"""Check kind `echo`: what the backend was told of a request that came as from two proxies: a header (`name`) as it arrived there.

    {kind: echo, name: X-Forwarded-For, value: "203.0.113.7, 198.51.100.4, client"}

`client` stands for the address of whoever opened the connection, `balancer` for that of the load balancer in front. `context`: further
headers of the request, `Name: value`, a line each. `absent`: the header did not come. Asked of manifests/base/backend.
"""

from __future__ import annotations

import re

from lab.base.errors import LabError
from lab.model.load import FORWARDED
from lab.model.variants.variants import Check
from lab.systems.reading import ABSENT, Reading, UnreadableError, compared, given
from lab.targets.base import System

TIMEOUT_S = 5.0
_ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b")


def _echo(system: System, check: Check) -> Reading:
    path = f"/echo/{given(check, 'name').lower()}"
    more = dict(line.split(": ", 1) for line in (check.context or "").splitlines())
    answer = system.fetch(system.entry(), path, TIMEOUT_S, {**FORWARDED, **more})
    if answer.status != 200:
        raise UnreadableError(f"{path} was answered with status {answer.status}")
    said = " ".join([*FORWARDED.values(), *more.values(), check.value])
    balancer = _balancer(system)

    def named(found: re.Match[str]) -> str:
        return "balancer" if found[0] == balancer else found[0] if found[0] in said else "client"

    return compared(check, _ADDRESS.sub(named, answer.body.decode(errors="replace")) or ABSENT)


def _balancer(system: System) -> str | None:
    try:
        return system.pod_address("balancer") if system.pods("balancer") else None
    except LabError:
        return None


READERS = {"echo": _echo}
