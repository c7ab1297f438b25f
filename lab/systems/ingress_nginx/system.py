"""The ingress-nginx controller as a stock nginx with the same directives: *directive-equivalent, not the controller*.

What is missing: Lua (the balancer's endpoint choice, its log phase), headers-more (the Server header stays), the
controller process (`lab.systems.nginx.control` stands in for its queue and its reloads), a certificate for hosts that have none of
their own (port 443 refuses their handshakes). Its nginx.conf is `config`'s. `worker-processes: auto` is its CPU
limit, rounded up, however many CPUs there are (quota / period, pkg/util/runtime/cpu_linux.go); without one the CPUs that it may use.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping

from lab.base.errors import UsageError, refuse_unknown
from lab.systems.ingress_nginx.config import PID, certificates, render, workers_of
from lab.systems.ingress_nginx.configmap import settings
from lab.systems.ingress_nginx.controller import CONTROLLER, refuse_routers
from lab.systems.manifests.pods import Container
from lab.systems.nginx.control import NginxControl
from lab.systems.nginx.system import LOADER, count, nginx_version, refuse_nginx_workers
from lab.systems.renewing import by_signal
from lab.systems.system import (
    Context,
    Control,
    Process,
    ProxySystem,
    Realisation,
    Workers,
    arguments,
    configmap_of,
    expect,
    limit_up,
    refuse_open_files,
)

CONFIG = "/tmp/nginx/nginx.conf"
CHECKER = ("nginx", "-t", "-q", "-c", CONFIG)
LOOKS_EVERY_S = 1.0
"""The controller that has told its nginx to quit looks once a second whether it has (NGINXController.Stop), then waits on."""

# Leader election, the API server and metrics are the controller process's own affairs.
_WAIVED = (
    "--publish-service",
    "--election-id",
    "--controller-class",
    "--ingress-class",
    "--watch-namespace",
    "--enable-metrics=false",
    "--enable-annotation-validation",
)
_RATE = "--sync-rate-limit"
_BEFORE, _AFTER = "--shutdown-grace-period", "--post-shutdown-grace-period"
_HONOURED = ("--configmap", "--http-port", _RATE, _BEFORE, _AFTER)
_WAIT_SHUTDOWN = f"pid=$(cat {PID}) && kill -QUIT $pid && while kill -0 $pid; do sleep 0.1; done"
_SLEEP_BEFORE = re.compile(r"(sleep \d+; )exec /wait-shutdown")


def realise(context: Context) -> Realisation:
    container = context.container
    held = not container.command and container.args[:1] == ("/nginx-ingress-controller",)
    expect(container, held, "no command, and /nginx-ingress-controller as the first argument", "ingress-nginx")
    given = _arguments(container)
    pre_stop = _pre_stop(container)
    controller = given.get("--controller-class", "k8s.io/ingress-nginx")
    fault = f"no IngressClass belongs to --controller-class={controller}: it would serve no route"
    refuse_unknown(controller, set(context.objects.classes.values()), f"{container.place}.args", fault)
    place, data = _configmap(context, given)
    values = settings(place, data)
    by = f"{container.place}: limits.cpu" if values["worker-processes"] == "auto" else f"{place}: worker-processes"
    if (workers := workers_of(values, context)).isdecimal():
        refuse_nginx_workers(by, int(workers), context)
    refuse_open_files(f"{place}: max-worker-open-files", int(values["max-worker-open-files"]), context)
    http_port = int(given.get("--http-port", "80"))
    text = render(values, context, nginx_version(), http_port)
    refuse_routers(container)
    own = {key: value for key, value in container.env.items() if key != "LD_PRELOAD"}  # mimalloc is the image's
    return Realisation(
        command=("nginx", "-c", CONFIG),
        env=own,
        files=files(text, context),
        pre_stop=pre_stop,
        checker=CHECKER,
        stop_signal=signal.SIGQUIT,  # the controller, told to end, sends its nginx `quit`
        waits=(float(given.get(_BEFORE, "0")), float(given.get(_AFTER, "10")) + LOOKS_EVERY_S),
    )


def files(text: str, context: Context) -> dict[str, str]:
    """What lies in the container beside this nginx.conf. UsageError for a certificate that is not there."""
    links = {"/var/log/nginx/access.log": "-> /dev/stdout", "/var/log/nginx/error.log": "-> /dev/stderr"}
    return {CONFIG: text, **certificates(context), **links}


def _pre_stop(container: Container) -> tuple[str, ...] | None:
    """The image's own hook, which is no file here, alone or after a sleep."""
    match container.pre_stop:
        case ():
            return None
        case ("/wait-shutdown",):
            return ("sh", "-c", _WAIT_SHUTDOWN)
        case ("sh", "-c", text) if found := _SLEEP_BEFORE.fullmatch(text):
            return ("sh", "-c", found[1] + _WAIT_SHUTDOWN)
        case other:
            remedy = 'only /wait-shutdown can, and sh -c "sleep 10; exec /wait-shutdown"'
            raise UsageError(container.place, f"the image's preStop {other} cannot be run here", remedy)


def control(process: Process) -> Control:
    return NginxControl(process, CONFIG, float(_arguments(process.container).get(_RATE, "0.3")))


def _arguments(container: Container) -> Mapping[str, str]:
    """UsageError for one that is not honoured, or is no rate or time."""
    found, at = arguments(container, container.args[1:], _HONOURED, _WAIVED), f"{container.place}.args"
    if not re.fullmatch(r"0*\.\d*[1-9]\d*|\d*[1-9]\d*(\.\d+)?", rate := found.get(_RATE, "0.3")):
        raise UsageError(at, f"{_RATE}: expected a rate per second, got {rate!r}", "0.3 is the default")
    for name in (_BEFORE, _AFTER):
        if not (text := found.get(name, "0")).isdecimal():
            raise UsageError(at, f"{name}: expected whole seconds, got {text!r}", "0 and 10 are the defaults")
    return found


def _configmap(context: Context, given: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
    path = given.get("--configmap", "")
    place = f"{context.container.place}.args"
    if not path:
        raise UsageError(place, "--configmap is missing", "--configmap=$(POD_NAMESPACE)/ingress-nginx-controller")
    return configmap_of(place, path, context)


SYSTEM = ProxySystem(
    name="ingress-nginx",
    image="ingress-nginx/controller",
    realise=realise,
    note="endpoints change by a reload (no Lua)",
    control=control,
    renew=by_signal(signal.SIGHUP),  # as `nginx -s reload` tells it
    renew_in_cluster="nginx",
    passing=LOADER,
    counters=count,
    controllers=(CONTROLLER,),
    config_files=("/etc/nginx/nginx.conf",),
    workers=Workers(rules={"ingress-nginx/controller": limit_up}, keys=("worker-processes",)),
)
