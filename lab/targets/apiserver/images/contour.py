"""Contour itself: the controller, which reads Ingresses from the API server and tells the Envoy beside it by xDS.

The real one, in the version that its image names, built from its pinned Go module (scripts/tools/contour) when a variant first runs it, on the
machine's own files. All of its container is the control plane; the Envoy has one of its own (`envoy.py`). What changes reaches Envoy
live, and its log tells of no reload. Refuses any command but its own `serve`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from lab.base.errors import UsageError
from lab.targets.apiserver.images import MACHINE
from lab.targets.local import proxies
from lab.targets.local.containers import Realisation
from lab.targets.local.images import Context
from lab.targets.local.pods import Container

IMAGE = "projectcontour/contour"
SYSTEM = SHORT = MACHINE
MADE = False
CONFIG, PROXY = "", "envoy"
SAYS = ("stderr",)
MODULE = "github.com/projectcontour/contour"
_SAID = re.compile(r'\blevel=(?P<level>\w+) msg=(?P<words>"(?:[^"\\]|\\.)*"|\S+)(?P<rest>.*)$')
"""logrus: time="…" level=error msg="…" context=… error="…"."""
_FAULTS, _ENDS = {"error", "fatal", "panic"}, re.compile(r"^(?:panic: |contour: error: ).*$")
_KUBERNETES = re.compile(r"^[EF]\d{4} \S+\s+\d+ [\w.]+:\d+\] (?P<words>.*)$")
"""klog, of what it may not read."""
_WHY = re.compile(r'\berror=("(?:[^"\\]|\\.)*"|\S+)')
_INVALID = re.compile(r"\b(?:ingress|invalid|ignor\w*|unknown)\b", re.IGNORECASE)

RENEW = None  # it makes no new workers: Envoy is told of changes


def realise(context: Context) -> Realisation:
    container = context.container
    if container.command != ("contour",) or container.args[:1] != ("serve",):
        fault = "expected the command contour, and serve as the first argument"
        raise UsageError(container.place, fault, "as in manifests/base/contour")
    found = program(container)
    return Realisation(
        command=(found.inside, *container.args),
        env=container.env,
        programs={found.inside: found.file},
        about=f"{found.about} (built from its Go module)",
    )


def program(container: Container) -> proxies.Program:
    """UsageError where it cannot be built."""
    return proxies.built(container.place, "contour", MODULE, proxies.tagged(container))


def about() -> str:
    return ""


def ignored(log: Iterable[str]) -> list[str]:
    """What it says of objects, which it serves without that, or not at all."""
    return list(dict.fromkeys(words for words in _entries(log, {"warning", *_FAULTS}) if _INVALID.search(words)))


def complaints(log: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(_entries(log, _FAULTS)))


def _entries(log: Iterable[str], levels: set[str]) -> Iterator[str]:
    """Words of its entries of these levels, with the error that they name."""
    for line in log:
        if (match := _SAID.search(line)) and match["level"] in levels:
            why = _WHY.search(match["rest"])
            yield ": ".join([_plain(match["words"]), *([_plain(why[1])] if why else [])])
        elif match := _KUBERNETES.match(line):
            yield match["words"]
        elif _ENDS.match(line):
            yield line


def _plain(text: str) -> str:
    return text[1:-1].replace('\\"', '"') if text.startswith('"') else text


def loads(line: str) -> str | None:
    """It never loads a file anew, and tells of no change."""
    return None
