"""The ingress-nginx controller as a stock nginx with the same directives: *directive-equivalent, not the controller*.

These parts of the controller are missing:

- Lua: the balancer's choice of endpoints, and its log phase
- the nginx module headers-more, so the Server header is not removed
- the controller process; `lab.systems.nginx.control` imitates its queue and its reloads
- a certificate for hosts that have none; port 443 refuses their handshakes

The template `nginx.conf.j2` makes nginx.conf from settings and routes. It sets upstream keep-alive on or off explicitly, because
versions of nginx differ in the default. `backlog=` is the pod's net.core.somaxconn at the time when the file is written, as in
the controller (511 if it is below 512: internal/ingress/controller/util.go). `worker-processes: auto` means the CPU limit,
rounded up, even beyond the number of CPUs (quota / period, pkg/util/runtime/cpu_linux.go). Without a limit, it means the number
of CPUs that nginx may use.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from lab.base.errors import UsageError, refuse_unknown
from lab.systems import programs
from lab.systems.ingress_nginx.configmap import decode_settings, render_lines, split_list
from lab.systems.manifests.pods import Container
from lab.systems.manifests.routes import IngressPath
from lab.systems.nginx import system as nginx
from lab.systems.nginx.control import NginxControl
from lab.systems.nginx.system import CONFIG, LOADER, PID, count, nginx_version, refuse_nginx_workers
from lab.systems.rendering import render_template
from lab.systems.renewing import make_signal_renewal
from lab.systems.system import (
    ContainerProcess,
    Context,
    Control,
    Controller,
    ProxySystem,
    Realisation,
    Root,
    Workers,
    find_configmap,
    parse_arguments,
    parse_cpu_limit,
    refuse_open_files,
    refuse_unexpected,
    round_limit_up,
)

NAME, SHORT = "ingress-nginx", "ingress-nginx-controller"
ENTRYPOINT = ("/usr/bin/dumb-init", "--")
"""The entry point of the image."""
PATH = "/usr/local/nginx/sbin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
OWN = ("/etc/nginx", "/etc/ingress-controller", "/tmp", "/var/log", "/var/lib/nginx", "/usr/local/nginx", "/run")
MOST_LINES = 12
"""The number of lines of a log entry that are reported; lines after them may be an access log."""
_LINE = re.compile(r"^(?P<level>[IWEF])\d{4} \S+\s+\d+ (?P<file>[\w.]+):\d+\] (?P<words>.*)$")
"""The form of the first line of a klog entry: level and date, time, process, source line.

Lines of another form continue the entry.
"""
_SETTINGS = "configmap.go"
"""The source file in which the controller reads its ConfigMap."""
_ENDS = re.compile(r"^(?:nginx: )?(?:[\d/]+ [\d:]+ )?(?P<words>(?:panic: |\[emerg\]).*)$")
"""The form of the line by which Go or nginx reports that it ends."""


_ROUTERS = re.compile(r"ROUTER_\w+|RELOAD_INTERVAL|STATS_PORT")


def refuse_routers(container: Container) -> None:
    """Refuse a container of ingress-nginx that sets environment variables of OKD's router, which have no effect there.

    Raises:
        UsageError: when the container has such variables.

    """
    if foreign := [name for name in container.env if _ROUTERS.fullmatch(name)]:
        fault = f"{', '.join(foreign)}: variables of OKD's router, which ingress-nginx does not read"
        raise UsageError(f"{container.place}.env", fault, "put them on a variant of the router, such as okd-edge")


def realise_controller(context: Context) -> Realisation:
    """Return how the lab starts the real ingress-nginx controller on the target `apiserver`, from its image's unpacked files.

    The controller reads its ConfigMap from the API server, and writes nginx.conf itself. Its log shows which keys it ignores.

    Args:
        context: the facts about the container.

    Raises:
        NotMeasurableError: for more workers or open files than a container may have on this machine.
        UsageError: for 0 workers, for environment variables of OKD's router, and when the files are missing.

    """
    container = context.container
    refuse_routers(container)
    values = {name: value for name, _, value in (item.partition("=") for item in container.args)}
    # The controller itself reports a ConfigMap that does not exist.
    data = context.objects.configmaps.get(values.get("--configmap", "").rpartition("/")[2], {})
    for key, refuse in (("worker-processes", refuse_nginx_workers), ("max-worker-open-files", refuse_open_files)):
        if (value := data.get(key, "")).isdigit():
            refuse(f"{container.place}: {key}", int(value), context)
    root = Root(programs.locate_root_files(NAME, SHORT).folder, OWN, "/etc/nginx")
    command = (*(container.command or ENTRYPOINT), *container.args)
    return Realisation(command, {"PATH": PATH, **container.env}, root=root)


def ignored(log: Iterable[str]) -> list[str]:
    """Return the warnings and errors in the controller's log that are about its ConfigMap, each once.

    Args:
        log: the lines of the log.

    """
    return list(dict.fromkeys(text for level, file, text in _parse_log(log) if file == _SETTINGS and level in "WE"))


def complaints(log: Iterable[str]) -> list[str]:
    """Return the error messages in the controller's log that explain why the controller does not serve, each once.

    If Go or nginx report in the log that they end, only these messages are returned. Otherwise all errors are returned.

    Args:
        log: the lines of the log.

    """
    errors = [(file, text) for level, file, text in _parse_log(log) if level in ("E", "F")]
    ends = [text for file, text in errors if not file]
    return list(dict.fromkeys(ends or [text for _, text in errors]))


def _parse_log(log: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Parse the controller's log into entries: (level, source file, text on one line).

    A level is one letter: `I`, `W`, `E` or `F`. A line by which Go or nginx reports that it ends has level `F` and an empty
    source file. Lines before the first entry, and lines after such an end, form an entry with an empty level and source
    file. The text of an entry has at most its first `MOST_LINES` lines.

    Args:
        log: the lines of the log.

    """
    entries: list[tuple[str, str, list[str]]] = [("", "", [])]
    for line in log:
        if match := _LINE.match(line):
            entries.append((match["level"], match["file"], [match["words"]]))
        elif ends := _ENDS.match(line):
            entries += [("F", "", [ends["words"]]), ("", "", [])]
        else:
            entries[-1][2].append(line)
    for level, file, texts in entries:
        yield level, file, " ".join(" ".join(texts[:MOST_LINES]).split())


CHECKER = ("nginx", "-t", "-q", "-c", CONFIG)
LOOKS_EVERY_S = 1.0
"""The seconds between two checks by the controller whether its nginx has quit, when the controller has to end.

After nginx has quit, the controller waits for a further time. The source is NGINXController.Stop.
"""

# Leader election, the API server and metrics concern the controller process only.
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
    """Return the text of the nginx.conf that results from ConfigMap keys and Ingresses.

    Everything that depends on the machine comes from the arguments. Like the controller, the function removes carriage returns.

    Args:
        values: name of a ConfigMap key → value, for all keys that the lab applies.
        context: the facts about the container, with the Ingresses.
        version: the version of nginx.
        http_port: the port without TLS.

    """
    routes = context.objects.routes
    open_files = int(values["max-worker-open-files"]) or max(1024, context.open_files - 1024)
    hosts = sorted({route.host for route in routes})
    # The bytes that nginx needs for the longest name, rounded up to a power of two (at least 32).
    bucket = 1 << (16 + (max(map(len, hosts), default=1) + 9) // 8 * 8 - 1).bit_length()
    names_size = 1 << (sum(map(len, hosts)) - 1).bit_length() if hosts else 0
    upstreams = {
        _name_upstream(context, service, port): context.objects.members(service, port, context.addresses)
        for service, port in sorted({(route.service, route.port) for route in routes}, key=str)
    }
    reached = {name: members for name, members in upstreams.items() if members}  # nginx would refuse an empty one
    servers = [_render_server(context, host, reached) for host in hosts]
    conditions = values["proxy-next-upstream"].split()
    non_idempotent = values["retry-non-idempotent"] == "true" or "non_idempotent" in conditions
    origin, target = values["proxy-redirect-from"], values["proxy-redirect-to"]  # empty: the controller writes none
    text = render_template(
        Path(__file__).with_name("nginx.conf.j2"),
        values=values,
        on=lambda key: values[key] == "true",
        names=lambda key: split_list(values[key]),
        lines=partial(render_lines, values),
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
        tries=" ".join(
            [condition for condition in conditions if condition != "non_idempotent"]
            + (["non_idempotent"] if non_idempotent else [])
        ),
        redirected=origin if origin in ("off", "default") else "" if target == "off" else f"{origin} {target}",
        redirects=any(server["certificate"] for server in servers),
    )
    return text.replace("\r\n", "\n").replace("\r", " ")


def _locate_certificate(secret: str) -> str:
    return f"{nginx.FOLDER}/ssl/{secret}.pem"


def workers_of(values: Mapping[str, str], context: Context) -> str:
    """Return the number of worker processes as text, for the directive `worker_processes`.

    For the value `auto`, it is the number that the real controller would choose. Any other value of the ConfigMap key is returned
    unchanged, even if it is no number.

    Args:
        values: name of a ConfigMap key → value, for all keys that the lab applies.
        context: the facts about the container.

    """
    if (configured := values["worker-processes"]) != "auto":
        return configured
    return str(round_limit_up(parse_cpu_limit(context.container.limits.get("cpu")), context.cpus) or 1)


def _render_server(context: Context, host: str, reached: Mapping[str, object]) -> Mapping[str, object]:
    """Return the values that the template of nginx.conf needs for the `server` block of a host.

    Args:
        context: the facts about the container, with the Ingresses.
        host: the host.
        reached: name of an upstream → its endpoints, without upstreams that have none.

    """
    routes = [route for route in context.objects.routes if route.host == host]
    # A single rewrite makes all paths of a host regular expressions, of which the first that matches is used.
    regex = any(route.rewrite for route in routes)
    if regex:
        routes.sort(key=lambda route: len(route.path), reverse=True)
    return {
        "name": host if not host.startswith("*.") else f"~^[^.]+{re.escape(host[1:])}$",
        "has_root": any(route.path == "/" for route in routes),
        "certificate": next((_locate_certificate(route.secret) for route in routes if route.secret), ""),
        "locations": [
            _render_location(route, regex, _name_upstream(context, route.service, route.port), reached)
            for route in routes
        ],
    }


def _render_location(
    route: IngressPath, regex: bool, upstream: str, reached: Mapping[str, object]
) -> Mapping[str, object]:
    """Return the values that the template of nginx.conf needs for the `location` blocks of an Ingress's path.

    A path of type Prefix matches whole segments only. So `/a` becomes two locations, `= /a` and `/a/`.

    Args:
        route: the path of the Ingress.
        regex: whether the paths of the host are regular expressions.
        upstream: the name of the upstream to which the path leads.
        reached: name of an upstream → its endpoints, without upstreams that have none.

    """
    path = route.path.replace("\\", "\\\\").replace('"', '\\"')
    exact, prefix = f'= "{path}"', f'"{path.rstrip("/")}/"'
    matches = [exact] if route.path_type == "Exact" else [prefix] if path.endswith("/") else [exact, prefix]
    if regex:
        matches = [f'~* "^{path}"']
    return {"route": route, "path": path, "matches": matches, "upstream": upstream, "reached": upstream in reached}


def _name_upstream(context: Context, service: str, port: int | str) -> str:
    return f"{context.pod.namespace}-{service}-{port}"


def realise(context: Context) -> Realisation:
    """Return how the lab starts an nginx in place of a container of the ingress-nginx controller.

    The nginx on PATH gets the configuration that the controller would write. The controller itself does not run.

    Args:
        context: the facts about the container.

    Raises:
        UsageError: for arguments and ConfigMap keys that the lab cannot apply to this nginx.
        NotMeasurableError: for more workers or open files than the container may have on this machine.

    """
    container = context.container
    held = not container.command and container.args[:1] == ("/nginx-ingress-controller",)
    refuse_unexpected(
        container, held, "no command, and /nginx-ingress-controller as the first argument", "ingress-nginx"
    )
    flags, args_place = _read_arguments(container), f"{container.place}.args"
    pre_stop = _convert_pre_stop(container)
    controller = flags.get("--controller-class", "k8s.io/ingress-nginx")
    fault = f"no IngressClass belongs to --controller-class={controller}: it would serve no route"
    refuse_unknown(controller, set(context.objects.classes.values()), args_place, fault)
    if not (configmap := flags.get("--configmap", "")):
        raise UsageError(args_place, "--configmap is missing", "--configmap=$(POD_NAMESPACE)/ingress-nginx-controller")
    place, data = find_configmap(args_place, configmap, context)
    values = decode_settings(place, data)
    source = f"{container.place}: limits.cpu" if values["worker-processes"] == "auto" else f"{place}: worker-processes"
    if (workers := workers_of(values, context)).isdecimal():
        refuse_nginx_workers(source, int(workers), context)
    refuse_open_files(f"{place}: max-worker-open-files", int(values["max-worker-open-files"]), context)
    text = render(values, context, nginx_version(), int(flags.get("--http-port", "80")))
    refuse_routers(container)
    return Realisation(
        command=("nginx", "-c", CONFIG),
        env={key: value for key, value in container.env.items() if key != "LD_PRELOAD"},  # mimalloc is the image's
        files=files(text, context),
        pre_stop=pre_stop,
        checker=CHECKER,
        stop_signal=signal.SIGQUIT,  # the controller, when it has to end, sends its nginx `quit`
        waits=(float(flags.get(_BEFORE, "0")), float(flags.get(_AFTER, "10")) + LOOKS_EVERY_S),
    )


def files(text: str, context: Context) -> dict[str, str]:
    """Return the files of nginx's configuration: path in the container → text.

    They are nginx.conf, the certificates, and symbolic links from the logs to the standard streams (`-> /dev/stdout`).

    Args:
        text: the text of nginx.conf.
        context: the facts about the container, with the Ingresses and their Secrets.

    Raises:
        UsageError: for a certificate that does not exist.

    """
    secrets = dict.fromkeys(route.secret for route in context.objects.routes if route.secret)
    pairs = {_locate_certificate(name): context.objects.certificate(name, "Ingress: spec.tls") for name in secrets}
    certificates = {path: pair["tls.crt"] + pair["tls.key"] for path, pair in pairs.items()}
    links = {"/var/log/nginx/access.log": "-> /dev/stdout", "/var/log/nginx/error.log": "-> /dev/stderr"}
    return {CONFIG: text, **certificates, **links}


def _convert_pre_stop(container: Container) -> tuple[str, ...] | None:
    """Return a command with the effect of the container's preStop hook; None if the container has no hook.

    The hook runs the program /wait-shutdown of the controller's image, possibly after a sleep. That program is not on this
    machine, so a shell command replaces it.

    Raises:
        UsageError: for any other hook.

    """
    match container.pre_stop:
        case ():
            return None
        case ("/wait-shutdown",):
            return ("sh", "-c", _WAIT_SHUTDOWN)
        case ("sh", "-c", text) if match := re.fullmatch(r"(sleep \d+; )exec /wait-shutdown", text):
            return ("sh", "-c", match[1] + _WAIT_SHUTDOWN)
        case unknown:
            remedy = 'only /wait-shutdown can, and sh -c "sleep 10; exec /wait-shutdown"'
            raise UsageError(container.place, f"the image's preStop {unknown} cannot be run here", remedy)


def control(process: ContainerProcess) -> Control:
    """Return the handle by which the lab makes the nginx of ingress-nginx load changes.

    The controller's argument --sync-rate-limit (0.3 by default) is the maximum number of loads per second.
    """
    return NginxControl(process, CONFIG, float(_read_arguments(process.container).get(_RATE, "0.3")))


def _read_arguments(container: Container) -> Mapping[str, str]:
    """Parse the arguments of the ingress-nginx controller into name → value.

    Raises:
        UsageError: for an argument that the lab does not understand, or an invalid value of a rate or time.

    """
    values, place = parse_arguments(container, container.args[1:], _HONOURED, _WAIVED), f"{container.place}.args"
    if not re.fullmatch(r"0*\.\d*[1-9]\d*|\d*[1-9]\d*(\.\d+)?", rate := values.get(_RATE, "0.3")):
        raise UsageError(place, f"{_RATE}: expected a rate per second, got {rate!r}", "0.3 is the default")
    for name in (_BEFORE, _AFTER):
        if not (text := values.get(name, "0")).isdecimal():
            raise UsageError(place, f"{name}: expected whole seconds, got {text!r}", "0 and 10 are the defaults")
    return values


CONTROLLER = Controller(
    image="ingress-nginx/controller",
    realise=realise_controller,
    proxy="nginx",
    system=NAME,
    short=SHORT,
    made=True,
    config="/etc/nginx/nginx.conf",
    renew=make_signal_renewal(signal.SIGHUP, "nginx"),  # the signal of the controller's `nginx -s reload`
    load_lines={
        '"Configuration changes detected, backend reload required"': "Reload",
        '"Backend successfully reloaded"': "Reloaded",
    },
    about=lambda: f"{NAME}: {programs.locate_root_files(NAME, SHORT).about}",
    ignored=ignored,
    complaints=complaints,
)

SYSTEM = ProxySystem(
    name=NAME,
    image="ingress-nginx/controller",
    realise=realise,
    note="endpoints change by a reload (no Lua)",
    control=control,
    renew=make_signal_renewal(signal.SIGHUP),  # the signal of `nginx -s reload`
    renew_in_cluster="nginx",
    passing=LOADER,
    counters=count,
    controllers=(CONTROLLER,),
    config_files=("/etc/nginx/nginx.conf",),
    workers=Workers(rules={"ingress-nginx/controller": round_limit_up}, keys=("worker-processes",)),
)
