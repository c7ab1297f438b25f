"""Traefik itself, as a controller: it reads Ingresses from the API server, by its ingress-nginx provider or its Kubernetes Ingress provider.

The real one, in the version that its image names, from the same wheel as on the local target, on the machine's own files. Its control plane
and its proxy are one process, so its watches and configuration are in the proxy's CPU and memory, which those of other controllers
are not. Refuses to run without one of the two: nobody writes the file of its
file provider here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from lab.base.errors import UsageError
from lab.targets.apiserver.images import MACHINE
from lab.targets.local import proxies
from lab.targets.local.containers import Realisation
from lab.targets.local.images import Context
from lab.targets.local.images.traefik import refuse_threads

IMAGE = "traefik"
SYSTEM = SHORT = MACHINE
MADE = False
CONFIG, PROXY = "", "traefik"
SAYS = ("stdout", "stderr")
_CHECK = """\
said=$("$0" healthcheck "$@" 2>&1) ||
! printf '%s' "$said" | sed -n 's/.*"error":"command healthcheck error: \\(.*\\)","time".*/\\1/p' | grep . >&2"""
"""It has no checker; its healthcheck reads the same command line first, and fails for another reason where it takes that."""
_PROVIDER = re.compile(r"--providers\.kubernetesingress(nginx)?(=true|\.\w+=.*)?", re.IGNORECASE)
_COLOUR = re.compile(r"\x1b\[\d*m")
_SAID = re.compile(r"^\S+ (?:ERR|FTL|PNC) (?P<words>.*)$")
"""An entry of its log, on its output: when, level, words, and what they are about as NAME=VALUE."""
_WATCH = re.compile(r"^[EF]\d{4} \S+\s+\d+ [\w.]+:\d+\] (?P<words>.*)$")
"""What its Kubernetes client says to its error output, of what it may not read."""
_REFUSED = re.compile(r'^\{.*"error":"(?:command traefik error: )?(?P<words>[^"]*)".*$')
"""Of its command line, before it has a log."""
_PANICS = re.compile(r"^(?P<words>panic: .*)$")
_ABOUT_INGRESS = re.compile(r"\bingress=", re.IGNORECASE)


RENEW = None  # it makes no new workers: routes change in the one process


def realise(context: Context) -> Realisation:
    container = context.container
    if container.command or not any(map(_PROVIDER.fullmatch, container.args)):
        fault = "expected no command, and a Kubernetes provider among the arguments"
        raise UsageError(container.place, fault, "as in manifests/base/traefik-ingress")
    refuse_threads(context)
    program = proxies.program(container.place, "traefik", proxies.tagged(container))
    return Realisation(
        command=(program.inside, *container.args),
        env=container.env,
        checker=("sh", "-c", _CHECK, program.inside, *container.args),
        programs={program.inside: program.file},
        about=f"{program.about} (control plane and proxy are one process)",
    )


def about() -> str:
    return ""


def ignored(log: Iterable[str]) -> list[str]:
    """What it says of Ingresses, which it serves without that, or not at all."""
    return list(dict.fromkeys(words for words in _entries(log) if _ABOUT_INGRESS.search(words)))


def complaints(log: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(_entries(log)))


def _entries(log: Iterable[str]) -> Iterator[str]:
    for line in log:
        plain = _COLOUR.sub("", line)
        yield from (match["words"] for form in (_SAID, _WATCH, _REFUSED, _PANICS) if (match := form.match(plain)))


def loads(line: str) -> str | None:
    """It never loads a file anew, and tells of no change."""
    return None
