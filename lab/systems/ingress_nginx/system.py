"""The ingress-nginx controller as a stock nginx with the same directives: *directive-equivalent, not the controller*.

What is missing: Lua (the balancer's endpoint choice, its log phase), headers-more (the Server header stays), the controller process
(`lab.systems.nginx.control` stands in for its queue and its reloads), a certificate for hosts that have none of their own (port 443 refuses their
handshakes). Its nginx.conf is made of settings and routes by the template of that name: upstream keep-alive is stated in both directions, since nginx
versions differ in its default; `backlog=` is the pod's net.core.somaxconn when this is written, as the controller does it (511 below 512:
internal/ingress/controller/util.go). `worker-processes: auto` is its CPU limit, rounded up, however many CPUs there are (quota / period,
pkg/util/runtime/cpu_linux.go); without one the CPUs that it may use.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from lab.base.errors import UsageError, refuse_unknown
from lab.systems import programs
from lab.systems.ingress_nginx.configmap import items, lines, settings
from lab.systems.manifests.objects import Route
from lab.systems.manifests.pods import Container
from lab.systems.nginx import system as nginx
from lab.systems.nginx.control import NginxControl
from lab.systems.nginx.system import CONFIG, LOADER, PID, count, nginx_version, refuse_nginx_workers
from lab.systems.rendering import rendered
from lab.systems.renewing import by_signal
from lab.systems.system import (
    Context,
    Control,
    Controller,
    Process,
    ProxySystem,
    Realisation,
    Root,
    Workers,
    arguments,
    configmap_of,
    cores,
    expect,
    limit_up,
    refuse_open_files,
)

NAME, SHORT = "ingress-nginx", "ingress-nginx-controller"
ENTRYPOINT = ("/usr/bin/dumb-init", "--")
"""The image's own."""
PATH = "/usr/local/nginx/sbin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
OWN = ("/etc/nginx", "/etc/ingress-controller", "/tmp", "/var/log", "/var/lib/nginx", "/usr/local/nginx", "/run")
MOST_LINES = 12
"""Of an entry that are told: what follows may be an access log."""
_LINE = re.compile(r"^(?P<level>[IWEF])\d{4} \S+\s+\d+ (?P<file>[\w.]+):\d+\] (?P<words>.*)$")
"""klog: level and date, time, process, place. What follows without such a beginning belongs to it."""
_SETTINGS = "configmap.go"
"""Where the controller reads its ConfigMap."""
_ENDS = re.compile(r"^(?:nginx: )?(?:[\d/]+ [\d:]+ )?(?P<words>(?:panic: |\[emerg\]).*)$")
"""How Go and nginx say that they end."""


_ROUTERS = re.compile(r"ROUTER_\w+|RELOAD_INTERVAL|STATS_PORT")


def refuse_routers(container: Container) -> None:
    """UsageError for variables of OKD's router, of which ingress-nginx would do nothing."""
    if foreign := [name for name in container.env if _ROUTERS.fullmatch(name)]:
        fault = f"{', '.join(foreign)}: variables of OKD's router, which ingress-nginx does not read"
        raise UsageError(f"{container.place}.env", fault, "put them on a variant of the router, such as okd-edge")


def realise_controller(context: Context) -> Realisation:
    """The controller itself: its Go process, template, Lua and nginx, from a root of its own files, on the target `apiserver`.

    Refuses more workers or open files than a container has here; every other key is the controller's to take or refuse, and what it says of it is told.
    """
    container = context.container
    refuse_routers(container)
    given = {name: value for name, _, value in (item.partition("=") for item in container.args)}
    # Of a ConfigMap that is not there the controller tells itself.
    data = context.objects.configmaps.get(given.get("--configmap", "").rpartition("/")[2], {})
    for key, refuse in (("worker-processes", refuse_nginx_workers), ("max-worker-open-files", refuse_open_files)):
        if (value := data.get(key, "")).isdigit():
            refuse(f"{container.place}: {key}", int(value), context)
    root = Root(programs.files(NAME, SHORT).folder, OWN, "/etc/nginx")
    command = (*(container.command or ENTRYPOINT), *container.args)
    return Realisation(command, {"PATH": PATH, **container.env}, root=root)


def ignored(log: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(words for level, file, words in _entries(log) if file == _SETTINGS and level in "WE"))


def complaints(log: Iterable[str]) -> list[str]:
    found = [(file, words) for level, file, words in _entries(log) if level in ("E", "F")]
    ends = [words for file, words in found if not file]
    return list(dict.fromkeys(ends or [words for _, words in found]))


def _entries(log: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """(level, file, words on one line); of nginx's and Go's ends without a file."""
    entries: list[tuple[str, str, list[str]]] = [("", "", [])]
    for line in log:
        if match := _LINE.match(line):
            entries.append((match["level"], match["file"], [match["words"]]))
        elif ends := _ENDS.match(line):
            entries += [("F", "", [ends["words"]]), ("", "", [])]
        else:
            entries[-1][2].append(line)
    for level, file, words in entries:
        yield level, file, " ".join(" ".join(words[:MOST_LINES]).split())


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


def render(values: Mapping[str, str], context: Context, version: tuple[int, ...], http_port: int = 80) -> str:
    """The whole nginx.conf, without carriage returns, as the controller cleans it. Pure: everything that depends on the machine is handed in."""
    routes = context.objects.routes
    open_files = int(values["max-worker-open-files"]) or max(1024, context.open_files - 1024)
    hosts = sorted({route.host for route in routes})
    # Bytes that nginx needs for the longest name, rounded up to a power of two (at least 32).
    bucket = 1 << (16 + (max(map(len, hosts), default=1) + 9) // 8 * 8 - 1).bit_length()
    names_size = 1 << (sum(map(len, hosts)) - 1).bit_length() if hosts else 0
    upstreams = {
        _upstream(context, service, port): context.objects.members(service, port, context.addresses)
        for service, port in sorted({(route.service, route.port) for route in routes}, key=str)
    }
    reached = {name: members for name, members in upstreams.items() if members}  # nginx would refuse an empty one
    servers = [_server(context, host, reached) for host in hosts]
    asked = values["proxy-next-upstream"].split()
    again = values["retry-non-idempotent"] == "true" or "non_idempotent" in asked
    where, to = values["proxy-redirect-from"], values["proxy-redirect-to"]  # empty: the controller writes none
    text = rendered(
        Path(__file__).with_name("nginx.conf.j2"),
        values=values,
        on=lambda key: values[key] == "true",
        names=lambda key: items(values[key]),
        lines=partial(lines, values),
        pid=PID,
        version=version,
        http_port=http_port,
        status=nginx.PORT,
        status_path=nginx.PATH,
        workers=workers_of(values, context),
        open_files=open_files,
        connections=int(values["max-worker-connections"]) or open_files * 3 // 4,
        backlog=context.somaxconn if context.somaxconn >= 512 else 511,
        names_hash_max_size=max(int(values["server-name-hash-max-size"]), names_size),
        names_hash_bucket_size=max(int(values["server-name-hash-bucket-size"]), bucket),
        idle=max(0, int(values["upstream-keepalive-connections"])),
        http2=values["use-http2"] == "true" and version >= (1, 25, 1),
        upstreams=reached.items(),
        servers=servers,
        tries=" ".join([word for word in asked if word != "non_idempotent"] + (["non_idempotent"] if again else [])),
        redirected=where if where in ("off", "default") else "" if to == "off" else f"{where} {to}",
        redirects=any(server["certificate"] for server in servers),
    )
    return text.replace("\r\n", "\n").replace("\r", " ")


def _certificate(secret: str) -> str:
    return f"{nginx.FOLDER}/ssl/{secret}.pem"


def workers_of(values: Mapping[str, str], context: Context) -> str:
    """As asked for, a number or not, or as the controller itself would settle it here."""
    if (asked := values["worker-processes"]) != "auto":
        return asked
    return str(limit_up(cores(context.container.limits.get("cpu")), context.cpus) or 1)


def _server(context: Context, host: str, reached: Mapping[str, object]) -> Mapping[str, object]:
    routes = [route for route in context.objects.routes if route.host == host]
    # One rewrite makes all paths of a host regular expressions, of which the first that matches is taken.
    regex = any(route.rewrite for route in routes)
    if regex:
        routes.sort(key=lambda route: len(route.path), reverse=True)
    return {
        "name": host if not host.startswith("*.") else f"~^[^.]+{re.escape(host[1:])}$",
        "has_root": any(route.path == "/" for route in routes),
        "certificate": next((_certificate(route.secret) for route in routes if route.secret), ""),
        "locations": [
            _location(route, regex, _upstream(context, route.service, route.port), reached) for route in routes
        ],
    }


def _location(route: Route, regex: bool, upstream: str, reached: Mapping[str, object]) -> Mapping[str, object]:
    """A Prefix path matches whole elements: /a is `= /a` and `/a/`."""
    path = route.path.replace("\\", "\\\\").replace('"', '\\"')
    exact, prefix = f'= "{path}"', f'"{path.rstrip("/")}/"'
    matches = [exact] if route.path_type == "Exact" else [prefix] if path.endswith("/") else [exact, prefix]
    if regex:
        matches = [f'~* "^{path}"']
    return {"route": route, "path": path, "matches": matches, "upstream": upstream, "reached": upstream in reached}


def _upstream(context: Context, service: str, port: int | str) -> str:
    return f"{context.pod.namespace}-{service}-{port}"


def realise(context: Context) -> Realisation:
    container = context.container
    held = not container.command and container.args[:1] == ("/nginx-ingress-controller",)
    expect(container, held, "no command, and /nginx-ingress-controller as the first argument", "ingress-nginx")
    given, at = _arguments(container), f"{container.place}.args"
    pre_stop = _pre_stop(container)
    controller = given.get("--controller-class", "k8s.io/ingress-nginx")
    fault = f"no IngressClass belongs to --controller-class={controller}: it would serve no route"
    refuse_unknown(controller, set(context.objects.classes.values()), at, fault)
    if not (named := given.get("--configmap", "")):
        raise UsageError(at, "--configmap is missing", "--configmap=$(POD_NAMESPACE)/ingress-nginx-controller")
    place, data = configmap_of(at, named, context)
    values = settings(place, data)
    by = f"{container.place}: limits.cpu" if values["worker-processes"] == "auto" else f"{place}: worker-processes"
    if (workers := workers_of(values, context)).isdecimal():
        refuse_nginx_workers(by, int(workers), context)
    refuse_open_files(f"{place}: max-worker-open-files", int(values["max-worker-open-files"]), context)
    text = render(values, context, nginx_version(), int(given.get("--http-port", "80")))
    refuse_routers(container)
    return Realisation(
        command=("nginx", "-c", CONFIG),
        env={key: value for key, value in container.env.items() if key != "LD_PRELOAD"},  # mimalloc is the image's
        files=files(text, context),
        pre_stop=pre_stop,
        checker=CHECKER,
        stop_signal=signal.SIGQUIT,  # the controller, told to end, sends its nginx `quit`
        waits=(float(given.get(_BEFORE, "0")), float(given.get(_AFTER, "10")) + LOOKS_EVERY_S),
    )


def files(text: str, context: Context) -> dict[str, str]:
    """What lies in the container beside this nginx.conf. UsageError for a certificate that is not there."""
    secrets = dict.fromkeys(route.secret for route in context.objects.routes if route.secret)
    pairs = {_certificate(name): context.objects.certificate(name, "Ingress: spec.tls") for name in secrets}
    certificates = {path: found["tls.crt"] + found["tls.key"] for path, found in pairs.items()}
    links = {"/var/log/nginx/access.log": "-> /dev/stdout", "/var/log/nginx/error.log": "-> /dev/stderr"}
    return {CONFIG: text, **certificates, **links}


def _pre_stop(container: Container) -> tuple[str, ...] | None:
    """The image's own hook, which is no file here, alone or after a sleep."""
    match container.pre_stop:
        case ():
            return None
        case ("/wait-shutdown",):
            return ("sh", "-c", _WAIT_SHUTDOWN)
        case ("sh", "-c", text) if found := re.fullmatch(r"(sleep \d+; )exec /wait-shutdown", text):
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


CONTROLLER = Controller(
    image="ingress-nginx/controller",
    realise=realise_controller,
    proxy="nginx",
    system=NAME,
    short=SHORT,
    made=True,
    config="/etc/nginx/nginx.conf",
    renew=by_signal(signal.SIGHUP, "nginx"),  # as the controller's `nginx -s reload` tells it
    load_lines={
        '"Configuration changes detected, backend reload required"': "Reload",
        '"Backend successfully reloaded"': "Reloaded",
    },
    about=lambda: f"{NAME}: {programs.files(NAME, SHORT).about}",
    ignored=ignored,
    complaints=complaints,
)

SYSTEM = ProxySystem(
    name=NAME,
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
