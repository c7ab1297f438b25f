"""Contour itself, which reads Ingresses from the API server, with the Envoy that it configures by xDS while it runs.

Both run in the versions that their images name, on the machine's own files. Contour is built from its pinned Go module
(scripts/tools/contour) when a variant first runs it. All processes of Contour's container are control plane. The command
`contour bootstrap` writes the file by which Envoy connects to Contour, as an init container does in a cluster. Envoy gets all
other configuration by xDS on the pod's own loopback. Envoy's admin interface is a socket, and Contour's configuration opens the
read-only pages of that interface on the port that `lab.systems.envoy` queries. Contour may only run its command `serve`. An
Envoy without Contour in its pod is refused.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator

from lab.base.errors import NotMeasurableError
from lab.systems import programs
from lab.systems.envoy.system import BOOTSTRAP, HOME, provide_envoy
from lab.systems.manifests.pods import Container
from lab.systems.system import (
    KLOG_FAULT,
    Context,
    Controller,
    ProxySystem,
    Realisation,
    extract_messages,
    is_repository_of,
    refuse_unexpected,
)

IMAGE = "projectcontour/contour"
MODULE = "github.com/projectcontour/contour"
XDS = ("--xds-address=127.0.0.1", "--xds-port=8001", "--xds-resource-version=v3")
_ENTRY = re.compile(r'\blevel=(?P<level>\w+) msg=(?P<words>"(?:[^"\\]|\\.)*"|\S+)(?P<rest>.*)$')
"""The form of an entry in logrus: time="…" level=error msg="…" context=… error="…"."""
_FAULTS, _ENDS = {"error", "fatal", "panic"}, re.compile(r"^(?P<words>(?:panic: |contour: error: ).*)$")
_ENVOYS = re.compile(r"^(?P<words>.*\]\[(?:critical|error)\].*)$")
"""The form of an error in Envoy's log: [2026-11-26 02:00:00.000][7][critical][main] …"""
_REASON = re.compile(r'\berror=("(?:[^"\\]|\\.)*"|\S+)')
_INVALID = re.compile(r"\b(?:ingress|invalid|ignor\w*|unknown)\b", re.IGNORECASE)


def realise(context: Context) -> Realisation:
    """Return how the lab starts Contour in place of a container of Contour's image, in the same version.

    The program is built from Contour's Go module. It gets the container's arguments and environment.

    Args:
        context: the facts about the container.

    Raises:
        UsageError: when the container's command is not `contour serve`, or this version of Contour cannot be built.

    """
    container = context.container
    held = container.command == ("contour",) and container.args[:1] == ("serve",)
    refuse_unexpected(container, held, "the command contour, and serve as the first argument", "contour")
    program = _provide_program(container)
    return Realisation(
        command=(program.inside, *container.args),
        env=container.env,
        programs={program.inside: program.file},
        about=f"{program.about} (built from its Go module)",
    )


def realise_envoy(context: Context) -> Realisation:
    """Return how the lab starts Envoy, which Contour in the same pod configures, in place of a container of Envoy's image.

    The command first runs `contour bootstrap`, which writes the file by which Envoy connects to Contour.

    Args:
        context: the facts about the container.

    Raises:
        NotMeasurableError: when there is no Contour in the pod, or Envoy is to have more workers than the container has CPUs.
        UsageError: when the container has other arguments than expected, or a version of Envoy or Contour is not available.

    """
    container = context.container
    contour = next((item for item in context.pod.containers if is_repository_of(IMAGE, item.repository)), None)
    if contour is None:
        fault = "no controller is in its pod, and nobody writes a file of routes here"
        raise NotMeasurableError("a file of routes", container.place, fault, "--target local")
    proxy, controller = provide_envoy(context), _provide_program(contour)
    options = (f"--admin-address={HOME}/admin.sock", f"--namespace={context.pod.namespace}", *XDS)
    bootstrap = shlex.join((controller.inside, "bootstrap", BOOTSTRAP, *options))
    hook = (controller.inside, *container.pre_stop[1:]) if container.pre_stop[:1] == ("contour",) else None
    return Realisation(
        command=("sh", "-c", f"mkdir -p {HOME} && {bootstrap} && exec {shlex.join((proxy.inside, *container.args))}"),
        env=container.env,
        pre_stop=hook,
        programs={proxy.inside: proxy.file, controller.inside: controller.file},
        about=proxy.about,
    )


def _provide_program(container: Container) -> programs.Program:
    """Return the program Contour in the version that the container's image names.

    Raises:
        UsageError: when that version cannot be built.

    """
    return programs.provide_go_program(container.place, "contour", MODULE, programs.read_tag_version(container))


def ignored(log: Iterable[str]) -> list[str]:
    """Return the warnings and errors in Contour's log that are about faulty objects, such as an invalid Ingress.

    Contour serves such an object without the faulty part, or not at all. Each message is returned once.

    Args:
        log: the lines of the log.

    """
    return list(dict.fromkeys(text for text in _read_entries(log, {"warning", *_FAULTS}) if _INVALID.search(text)))


def complaints(log: Iterable[str]) -> list[str]:
    """Return the errors in Contour's log, each once.

    Args:
        log: the lines of the log.

    """
    return list(dict.fromkeys(_read_entries(log, _FAULTS)))


def _read_entries(log: Iterable[str], levels: set[str]) -> Iterator[str]:
    """Yield the message of each entry in Contour's log whose level is one of the given levels.

    If an entry has a field `error`, the text of this field is appended to the message. Errors of Contour's Kubernetes client, and
    the line with which Contour reports that it ends, have no level. These messages are always yielded.

    Args:
        log: the lines of the log.
        levels: the levels, such as `warning`.

    """
    for line in log:
        if (match := _ENTRY.search(line)) and match["level"] in levels:
            reason = _REASON.search(match["rest"])
            yield ": ".join([_unquote(match["words"]), *([_unquote(reason[1])] if reason else [])])
        else:
            yield from extract_messages([line], KLOG_FAULT, _ENDS)


def _unquote(text: str) -> str:
    return text[1:-1].replace('\\"', '"') if text.startswith('"') else text


SYSTEM = ProxySystem(
    name="contour",
    image=IMAGE,
    migrations={"contour": "migrate.tsv"},
    controllers=(
        # No reload makes new workers: Envoy receives changes by xDS, loads no file anew, and logs no change.
        Controller(image=IMAGE, realise=realise, proxy="envoy", ignored=ignored, complaints=complaints),
        # Contour judges the objects that it receives.
        Controller(
            image="envoyproxy/envoy",
            realise=realise_envoy,
            proxy="envoy",
            complaints=lambda log: extract_messages(log, _ENVOYS),
        ),
    ),
)
