"""Check kinds of a role's pods: `pods`, how many run and are ready; `budget`, how many a drain must leave; `pod`, a field of theirs.

The path of a field, in Kubernetes' own names:

    spec.hostNetwork                                          fields, separated by dots
    spec.containers[proxy].livenessProbe.timeoutSeconds       [NAME]: the element of a list with that `name`

Values as YAML writes them (`true`, `5`), the words of a command with a space between. All pods of the role must agree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lab.model.variants.variants import Check
from lab.systems.reading import ABSENT, Reading, UnreadableError, compared, given, joined
from lab.targets.base import System

_STEP = re.compile(r"\.?([A-Za-z][\w-]*)|\[([^\]]+)\]")


def _pod(system: System, check: Check) -> Reading:
    path = given(check, "name")
    found = system.pods(check.role)
    if not found:
        raise UnreadableError(f"no pod of the role {check.role} runs and is ready")
    return compared(check, joined([look_up(pod, path) for pod in found]))


def look_up(pod: Mapping[str, Any], path: str) -> str:
    """The value at a path; `absent` where a step leads nowhere. UnreadableError when it is no path or no single value.

    >>> look_up({"spec": {"containers": [{"name": "proxy", "tty": True}]}}, "spec.containers[proxy].tty")
    'true'
    """
    if not re.fullmatch(rf"(?:{_STEP.pattern})+", path):
        raise UnreadableError(f"{path!r} is no path such as spec.containers[proxy].livenessProbe.timeoutSeconds")
    value: Any = pod
    for field, element in _STEP.findall(path):
        if element and isinstance(value, list):
            value = next((item for item in value if isinstance(item, dict) and item.get("name") == element), None)
        else:
            value = value.get(field) if field and isinstance(value, dict) else None
        if value is None:
            return ABSENT
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return " ".join(value)
    if isinstance(value, dict | list):
        raise UnreadableError(f"{path} is no single value")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _pods(system: System, check: Check) -> Reading:
    return compared(check, str(len(system.pods(check.role))))


def _budget(system: System, check: Check) -> Reading:
    """All budgets over the role's pods must agree; `absent` where there is none, or none says this."""
    name = given(check, "name")
    found = [str(budget["spec"].get(name, ABSENT)) for budget in system.budgets(check.role)]
    return compared(check, joined(found) if found else ABSENT)


READERS = {"pod": _pod, "pods": _pods, "budget": _budget}
