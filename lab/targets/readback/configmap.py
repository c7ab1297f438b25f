"""Check kind `configmap`: a key of the ConfigMap that the proxy's controller was started with, as it is in the API server now.

    name: strict-validate-path-type     --configmap=ingress-lab/controller                 →  data: {strict-validate-path-type: "true"}

Which ConfigMap that is, the running process's own command line says. Such a key changes nothing that the proxy's configuration or a
request would show; where one does, its system's own kind is the stronger check.
"""

from __future__ import annotations

import re

from lab.model.variants.variants import Check
from lab.systems.reading import ABSENT, Reading, UnreadableError, compared, given, run
from lab.targets.base import System


def _configmap(system: System, check: Check) -> Reading:
    name = given(check, "name")
    words = run(system, check, ["cat", "/proc/1/cmdline"]).split("\0")
    named = [match for word in words if (match := re.fullmatch(r"--configmap=([^/]+)/(.+)", word))]
    if not named:
        raise UnreadableError("its main process was not started with --configmap=NAMESPACE/NAME")
    return compared(check, system.configmap(named[-1][1], named[-1][2]).get(name, ABSENT))


READERS = {"configmap": _configmap}
