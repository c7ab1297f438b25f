"""Contour: the controller, which reads Ingresses from the API server, and the Envoy beside it, which it tells of changes by xDS, live.

The real ones, in the versions that their images name, on the machine's own files: Contour built from its pinned Go module (scripts/tools/contour)
when a variant first runs it. All of its container is the control plane. Its `bootstrap` writes how the Envoy finds it, as its init container
does in a cluster; everything else comes by xDS on the pod's own loopback. Its admin interface is a socket; Contour's configuration puts what
only reads of it on the port that `lab.systems.envoy` asks. Refuses any command but its own `serve`, and an Envoy without a controller.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator

from lab.base.errors import NotMeasurableError
from lab.systems import programs
from lab.systems.envoy import system as envoy
from lab.systems.envoy.system import BOOTSTRAP, HOME
from lab.systems.manifests.pods import Container
from lab.systems.system import (
    KLOG_FAULT,
    Context,
    Controller,
    ProxySystem,
    Realisation,
    expect,
    is_repository_of,
    words_in,
)

IMAGE = "projectcontour/contour"
MODULE = "github.com/projectcontour/contour"
XDS = ("--xds-address=127.0.0.1", "--xds-port=8001", "--xds-resource-version=v3")
_SAID = re.compile(r'\blevel=(?P<level>\w+) msg=(?P<words>"(?:[^"\\]|\\.)*"|\S+)(?P<rest>.*)$')
"""logrus: time="…" level=error msg="…" context=… error="…"."""
_FAULTS, _ENDS = {"error", "fatal", "panic"}, re.compile(r"^(?P<words>(?:panic: |contour: error: ).*)$")
_ENVOYS = re.compile(r"^(?P<words>.*\]\[(?:critical|error)\].*)$")
"""Envoy's own errors: [2026-11-26 02:00:00.000][7][critical][main] …"""
_WHY = re.compile(r'\berror=("(?:[^"\\]|\\.)*"|\S+)')
_INVALID = re.compile(r"\b(?:ingress|invalid|ignor\w*|unknown)\b", re.IGNORECASE)


def realise(context: Context) -> Realisation:
    container = context.container
    held = container.command == ("contour",) and container.args[:1] == ("serve",)
    expect(container, held, "the command contour, and serve as the first argument", "contour")
    found = _program(container)
    return Realisation(
        command=(found.inside, *container.args),
        env=container.env,
        programs={found.inside: found.file},
        about=f"{found.about} (built from its Go module)",
    )


def realise_envoy(context: Context) -> Realisation:
    container = context.container
    contour = next((item for item in context.pod.containers if is_repository_of(IMAGE, item.repository)), None)
    if contour is None:
        fault = "no controller is in its pod, and nobody writes a file of routes here"
        raise NotMeasurableError("a file of routes", container.place, fault, "--target local")
    proxy, made = envoy.program(context), _program(contour)
    own = (f"--admin-address={HOME}/admin.sock", f"--namespace={context.pod.namespace}", *XDS)
    bootstrap = shlex.join((made.inside, "bootstrap", BOOTSTRAP, *own))
    hook = (made.inside, *container.pre_stop[1:]) if container.pre_stop[:1] == ("contour",) else None
    return Realisation(
        command=("sh", "-c", f"mkdir -p {HOME} && {bootstrap} && exec {shlex.join((proxy.inside, *container.args))}"),
        env=container.env,
        pre_stop=hook,
        programs={proxy.inside: proxy.file, made.inside: made.file},
        about=proxy.about,
    )


def _program(container: Container) -> programs.Program:
    """UsageError where it cannot be built."""
    return programs.built(container.place, "contour", MODULE, programs.tagged(container))


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
        else:
            yield from words_in([line], KLOG_FAULT, _ENDS)


def _plain(text: str) -> str:
    return text[1:-1].replace('\\"', '"') if text.startswith('"') else text


SYSTEM = ProxySystem(
    name="contour",
    image=IMAGE,
    migrations={"contour": "migrate.tsv"},
    controllers=(
        # It makes no new workers: Envoy is told of changes. It never loads a file anew, and its log tells of no change.
        Controller(image=IMAGE, realise=realise, proxy="envoy", ignored=ignored, complaints=complaints),
        # What Contour was given, Contour judges.
        Controller(
            image="envoyproxy/envoy",
            realise=realise_envoy,
            proxy="envoy",
            complaints=lambda log: words_in(log, _ENVOYS),
        ),
    ),
)
