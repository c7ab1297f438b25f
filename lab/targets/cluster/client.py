"""The client's place on a cluster: one pod that load comes from, kept between runs.

manifests/clusters/client describes it. Its main process is a SOCKS server that only the lab reaches
(`lab.targets.cluster.entrypoint`); generators come and go beside it, each tied to a local process (`lab.targets.cluster.shell`).

Refuses to go on in another pod than it began in: LostError, since what was measured there is not what will be.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from subprocess import DEVNULL
from typing import IO, Any

from lab.base.errors import LabError, LostError, MeasuringError
from lab.generators import VERSION_TIMEOUT_S, Generator, Installed
from lab.model.endpoint import ClockOffset
from lab.model.variants import kustomize
from lab.targets.cluster import inventory, objects, pods, rollout
from lab.targets.cluster.api import CLIENT_NAMESPACE, CLIENT_POD, Api
from lab.targets.cluster.images import Images
from lab.targets.cluster.shell import LEFTOVERS, Held, Shell

MANIFESTS = Path(__file__).parents[3] / "manifests" / "clusters" / "client"
CONTAINER = "generator"
SPEC = "lab/spec"
"""Annotation: hash of the spec that the pod was made from. Another one, another pod."""
HOSTS = "/etc/hosts"
OURS = " # ingress-lab"


class ClientPod(Shell):
    """As it was found or made by `ensure`, and a shell into it. Every method raises LostError when that pod is gone."""

    def __init__(self, api: Api, pod: Mapping[str, Any]) -> None:
        super().__init__(api, CLIENT_NAMESPACE, CLIENT_POD, CONTAINER)
        self._uid = pod["metadata"]["uid"]
        self._installed: dict[str, Installed | None] = {}
        self._resolved: list[Mapping[str, str]] = []
        self.node: str = pod["spec"]["nodeName"]

    @classmethod
    def ensure(cls, api: Api, images: Images, run: str, deadline: float) -> ClientPod:
        """The pod, ready, and rid of what a lab that died left running in it; made anew when it is not as it should be.

        `deadline` is monotonic. UsageError when its namespace is somebody else's, MeasuringError when it does not come up.
        """
        rendered = kustomize.objects(kustomize.render([MANIFESTS]))
        namespace, pod = objects.prepare(rendered, images, run, run)
        spec = hashlib.sha256(json.dumps(pod["spec"], sort_keys=True).encode()).hexdigest()[:12]
        pod["metadata"]["annotations"][SPEC] = spec
        inventory.claim_namespace(api, CLIENT_NAMESPACE, run, namespace)
        api.apply(namespace)
        found = api.get("v1", "Pod", CLIENT_POD, CLIENT_NAMESPACE)
        fits = found is not None and pods.ready(found) and found["metadata"].get("annotations", {}).get(SPEC) == spec
        if found is not None and not fits:
            api.delete("v1", "Pod", CLIENT_POD, CLIENT_NAMESPACE, grace_s=1)
            uid, node = found["metadata"]["uid"], found["spec"].get("nodeName", "no node")
            while (ending := api.get("v1", "Pod", CLIENT_POD, CLIENT_NAMESPACE)) and ending["metadata"]["uid"] == uid:
                if time.monotonic() > deadline:
                    fault = f"is being deleted and does not end (on {node}): is that node there?"
                    place = f"pod {CLIENT_NAMESPACE}/{CLIENT_POD}"
                    raise MeasuringError(place, fault, "`kubectl get nodes`, then try again")
                time.sleep(0.1)
        api.apply(pod)
        rollout.wait(api, [pod], deadline)
        client = cls(api, api.get("v1", "Pod", CLIENT_POD, CLIENT_NAMESPACE) or pod)
        client.script(f"{LEFTOVERS}\nrm -rf /scratch/tmp.*")
        client._write_hosts()
        return client

    @property
    def open_files(self) -> int | None:
        """How many open files a container may have here; None = no limit."""
        return self._number("ulimit -Hn")

    @cached_property
    def cpus(self) -> int | None:
        """How many CPUs a generator may run on here; None = it does not say."""
        return self._number("nproc")

    def _number(self, script: str) -> int | None:
        said = self.script(script).stdout.strip()
        return int(said) if said.isdigit() else None

    def check(self) -> None:
        """LostError unless the pod is still the one that it was."""
        pod = self._api.get("v1", "Pod", CLIENT_POD, CLIENT_NAMESPACE)
        same = pod is not None and pod["metadata"]["uid"] == self._uid
        pods.check_there(self.place, pod if same else None)

    def installed(self, generator: Generator) -> Installed | None:
        """The generator as the pod's image has it, or None; asked once."""
        if generator.name not in self._installed:
            self._installed[generator.name] = None
            for binary in (generator.binary, *generator.aliases):
                asked = generator.version_flag
                script = f'path=$(command -v {shlex.quote(binary)}) || exit\necho "$path"\nexec "$path" {asked} 2>&1'
                path, _, said = self.script(script, VERSION_TIMEOUT_S).stdout.partition("\n")
                if path and (version := generator.version(said)) is not None:
                    self._installed[generator.name] = Installed(generator.name, path, version)
                    break
        return self._installed[generator.name]

    def held(
        self,
        argv: Sequence[str],
        files: Mapping[str, str] | None = None,
        stdout: IO[bytes] | int = DEVNULL,
        stderr: IO[bytes] | int = DEVNULL,
        used: str = "",
    ) -> Held:
        """A generator in the pod, in a fresh folder with these files, that waits to be let go."""
        self.check()
        return super().held(argv, files, stdout, stderr, used)

    def used_s(self, files: Sequence[str]) -> float | None:
        """CPU seconds of generators that have ended, by what `held` was to leave, which goes; None where one left nothing, as it never
        began or was killed.
        """
        if not files:
            return None
        # `times` says two lines: of the shell, and of what it waited for.
        done = self.script(f'cd "${{TMPDIR:-/tmp}}" && cat {shlex.join(files)} && rm -f {shlex.join(files)}')
        lines = done.stdout.splitlines()
        if done.returncode or len(lines) != 2 * len(files):
            return None
        return sum(map(seconds, " ".join(lines[1::2]).split()))

    @contextmanager
    def resolving(self, addresses: Mapping[str, str]) -> Iterator[None]:
        """Host → address, for everything in the pod, till the end, beside what else resolves then. MeasuringError."""
        self._resolved.append(addresses)
        try:
            self._write_hosts()
            yield
        except LostError:
            self._resolved.remove(addresses)
            raise  # it is gone, or another lab's now
        except BaseException:
            self._resolved.remove(addresses)
            with suppress(LabError):  # the first fault is the one to tell
                self._write_hosts()
            raise
        self._resolved.remove(addresses)
        self._write_hosts()

    def _write_hosts(self) -> None:
        """The pod's own lines, then ours: its /etc/hosts is a mount, so it is written in place."""
        kept = [line for line in self.run(["cat", HOSTS]).stdout.splitlines() if not line.endswith(OURS)]
        ours = {host: address for one in self._resolved for host, address in one.items()}
        text = "".join(f"{line}\n" for line in [*kept, *(f"{ours[host]} {host}{OURS}" for host in ours)])
        done = self.script(f"printf %s {shlex.quote(text)} >{HOSTS}")
        if done.returncode:
            fault = f"{HOSTS} cannot be written: {done.stderr.strip()}"
            raise MeasuringError(self.place, fault, "it must run as root (manifests/clusters/client)")


def seconds(told: str) -> float:
    """Of one time as `times` writes it: `1m2.340000s`. ValueError for another form."""
    minutes, separator, rest = told.partition("m")
    if not (separator and rest.endswith("s")):
        raise ValueError(f"expected a time as `times` writes it, got {told!r}")
    return 60 * int(minutes) + float(rest[:-1].replace(",", "."))


def clock_offset(shell: Shell, tries: int = 12) -> ClockOffset:
    """What a container's clock is ahead of the lab's: date(1) there, between two looks at the clock here.

    The answer was given somewhere in the round trip, so its middle is wrong by half the round trip at most; of several the
    shortest says it best (Cristian, 1989). Both clocks may drift apart later: to be asked before and after a sample.
    MeasuringError where date(1) tells no fractions of a second.
    """
    found: list[tuple[float, float]] = []
    for _ in range(tries):
        before_s = time.time()
        said = shell.script("date +%s.%N").stdout.strip()
        after_s = time.time()
        try:
            found.append(((after_s - before_s) / 2, float(said) - (before_s + after_s) / 2))
        except ValueError:
            remedy = "its image needs a date(1) that knows %N (coreutils)"
            raise MeasuringError(shell.place, f"does not tell its clock: {said!r}", remedy) from None
    error_s, offset_s = min(found)
    return ClockOffset(offset_s, error_s)


def tools(api: Api, images: Images, pod: Mapping[str, Any], container: str) -> Shell:
    """A shell in the pod's tools for this container, which are started if they are not there: programs that its own image lacks (ss, lsattr,
    sockperf), by an ephemeral container of the generators' image.

    It has the pod's network, the process namespace of the container it is made for, that container's volumes at the same places, and its
    securityContext: it may look at what the container's own processes may look at, and nothing more. Links in /proc/PID (root, fd) need the same
    group as well: where a manifest names a runAsUser and no runAsGroup, they are closed. A pod that was given one keeps it, asleep.

    LostError when the pod is gone, MeasuringError when they do not start, DeniedError without the right to add them
    (patch on pods/ephemeralcontainers).
    """
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    deadline = time.monotonic() + 60.0

    def shown() -> dict[str, Any]:
        found = api.get("v1", "Pod", name, namespace)
        if found is None:
            raise LostError(f"pod {namespace}/{name}", "is gone", "`--resume` goes on when the cluster is well again")
        return found

    found = shown()
    known = {item["name"] for item in found["spec"].get("ephemeralContainers") or ()}
    tool = f"lab-tools-{container}"[:60]
    if tool not in known:
        target = next(item for item in found["spec"]["containers"] if item["name"] == container)
        added = {"spec": {"ephemeralContainers": [described(tool, images.named("loadgen"), target)]}}
        api.change("v1", "Pod", name, namespace, added, "ephemeralcontainers")
    while "running" not in (state := _state(shown(), tool)):
        late = time.monotonic() > deadline
        why = state.get("waiting") or state.get("terminated") or {}
        if late or why.get("reason") in rollout.FATAL or "terminated" in state:
            said = pods.reasoned(why.get("reason"), why.get("message")) or "no state yet"
            raise MeasuringError(
                f"pod {namespace}/{name}",
                f"its tools ({tool}) do not start" + (" in 60 s" if late else "") + f": {said}",
                "`just up` brings the image loadgen to kind; elsewhere LAB_IMAGES names one that the nodes can pull",
            )
        time.sleep(0.05)
    return Shell(api, namespace, name, tool)


def described(name: str, image: str, target: Mapping[str, Any]) -> dict[str, Any]:
    """The ephemeral container for one container of the pod."""
    # A mount of a subPath is refused there.
    mounts = [
        mount for mount in target.get("volumeMounts") or () if "subPath" not in mount and "subPathExpr" not in mount
    ]
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", "infinity"],
        "targetContainerName": target["name"],
        "securityContext": dict(target.get("securityContext") or {}),
        "volumeMounts": mounts,
    }


def _state(pod: Mapping[str, Any], name: str) -> dict[str, Any]:
    """`{"running": …}`, `{"waiting": …}`, `{"terminated": …}`, or empty where the kubelet has not said yet."""
    statuses = pod.get("status", {}).get("ephemeralContainerStatuses") or ()
    return next((item.get("state") or {} for item in statuses if item["name"] == name), {})
