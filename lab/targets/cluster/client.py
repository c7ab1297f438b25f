"""The pod on a cluster in which load generators run (the generator's pod); it stays on the cluster between runs.

The directory manifests/clusters/client describes the pod. Its main process is a SOCKS server that only the lab reaches
(`lab.targets.cluster.entrypoint`). Generators run as further processes, each connected to a local process
(`lab.targets.cluster.shell`).

A run never continues in another pod than the one in which it began, because measurements from two pods cannot be compared. If
the pod is lost, a LostError is raised.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any

from lab.base.errors import LabError, LostError, MeasuringError
from lab.generators import VERSION_TIMEOUT_S, Generator, Installed
from lab.model.endpoint import ClockOffset
from lab.model.variants import kustomize
from lab.targets.cluster import inventory, objects, pods, rollout
from lab.targets.cluster.api import CLIENT_NAMESPACE, CLIENT_POD, Api
from lab.targets.cluster.images import Images
from lab.targets.cluster.shell import LEFTOVERS, Shell

MANIFESTS = objects.CLUSTERS / "client"
CONTAINER = "generator"
SPEC = "lab/spec"
"""The annotation with the hash of the spec that the pod was made from: another spec makes another pod."""
HOSTS = "/etc/hosts"
OURS = " # ingress-lab"


class ClientPod(Shell):
    """The pod on the cluster in which load generators run (the generator's pod), with a shell into it.

    `ensure` creates the pod. `check` raises LostError if this pod is gone, even if a new pod has the same name.
    """

    def __init__(self, api: Api, pod: Mapping[str, Any]) -> None:
        super().__init__(api, CLIENT_NAMESPACE, CLIENT_POD, CONTAINER)
        self._uid = pod["metadata"]["uid"]
        self._installed: dict[str, Installed | None] = {}
        self._resolved: list[Mapping[str, str]] = []
        self.node: str = pod["spec"]["nodeName"]

    @classmethod
    def ensure(cls, api: Api, images: Images, run: str, deadline: float) -> ClientPod:
        """Return the generator's pod once it is ready; create it if there is none.

        An existing pod is kept if it is ready and was made from the present manifests; otherwise a new one replaces it.
        Processes that a crashed run has left in the pod are killed.

        Args:
            api: The cluster.
            images: The images to use.
            run: The name of the run, for labels.
            deadline: The last moment, by time.monotonic().

        Raises:
            UsageError: The pod's namespace exists and is not the lab's.
            MeasuringError: The pod does not come up, or the pod that it replaces does not end.

        """
        rendered = kustomize.parse_objects(kustomize.render([MANIFESTS]))
        namespace, pod = objects.prepare(rendered, images, run, run)
        spec = hashlib.sha256(json.dumps(pod["spec"], sort_keys=True).encode()).hexdigest()[:12]
        pod["metadata"]["annotations"][SPEC] = spec
        inventory.claim_namespace(api, CLIENT_NAMESPACE, run, namespace)
        api.apply(namespace)
        existing = api.get("v1", "Pod", CLIENT_POD, CLIENT_NAMESPACE)
        fits = (
            existing is not None
            and pods.ready(existing)
            and existing["metadata"].get("annotations", {}).get(SPEC) == spec
        )
        if existing is not None and not fits:
            api.delete("v1", "Pod", CLIENT_POD, CLIENT_NAMESPACE, grace_s=1)
            uid, node = existing["metadata"]["uid"], existing["spec"].get("nodeName", "no node")
            while (ending := api.get("v1", "Pod", CLIENT_POD, CLIENT_NAMESPACE)) and ending["metadata"]["uid"] == uid:
                if time.monotonic() > deadline:
                    fault = f"is being deleted and does not end (on {node}): is that node there?"
                    place = f"pod {CLIENT_NAMESPACE}/{CLIENT_POD}"
                    raise MeasuringError(place, fault, "`kubectl get nodes`, then try again")
                time.sleep(0.1)
        api.apply(pod)
        rollout.wait_until_ready(api, [pod], deadline)
        client = cls(api, api.get("v1", "Pod", CLIENT_POD, CLIENT_NAMESPACE) or pod)
        client.script(f"{LEFTOVERS}\nrm -rf /scratch/tmp.*")
        client._write_hosts()
        return client

    @property
    def open_files(self) -> int | None:
        """The largest number of files that a process in the generator's pod may open (the hard limit); None = no limit.

        The lab assumes that the cluster's other containers have the same limit.
        """
        return self._read_number("ulimit -Hn")

    @cached_property
    def cpus(self) -> int | None:
        """The number of CPUs that a load generator may use in the generator's pod; None = unknown."""
        return self._read_number("nproc")

    def _read_number(self, script: str) -> int | None:
        output = self.script(script).stdout.strip()
        return int(output) if output.isdigit() else None

    def check(self) -> None:
        """Raise LostError if the pod is gone, no longer runs, is being deleted, or was replaced by another pod."""
        pod = self._api.get("v1", "Pod", CLIENT_POD, CLIENT_NAMESPACE)
        same = pod is not None and pod["metadata"]["uid"] == self._uid
        pods.check_running(self.place, pod if same else None)

    def installed(self, generator: Generator) -> Installed | None:
        """Return the path and version of a load generator in the pod; None if the pod's image lacks the generator.

        The result of the first call for a generator is stored and returned by later calls.
        """
        if generator.name not in self._installed:
            self._installed[generator.name] = None
            for binary in (generator.binary, *generator.aliases):
                flag = generator.version_flag
                script = f'path=$(command -v {shlex.quote(binary)}) || exit\necho "$path"\nexec "$path" {flag} 2>&1'
                path, _, output = self.script(script, VERSION_TIMEOUT_S).stdout.partition("\n")
                if path and (version := generator.version(output)) is not None:
                    self._installed[generator.name] = Installed(path, version)
                    break
        return self._installed[generator.name]

    def used_s(self, files: Sequence[str]) -> float | None:
        """Return the sum of the CPU seconds that ended load generators have used, and remove the files with these numbers.

        Args:
            files: The names of the files, one for each generator, as they were passed to `held` as `used`.

        Returns:
            The sum in seconds. None if a generator has left no file (it never began or was killed), or if `files` is
            empty.

        """
        if not files:
            return None
        # `times` prints two lines: for the shell, and for what it waited for.
        done = self.script(f'cd "${{TMPDIR:-/tmp}}" && cat {shlex.join(files)} && rm -f {shlex.join(files)}')
        lines = done.stdout.splitlines()
        if done.returncode or len(lines) != 2 * len(files):
            return None
        return sum(map(parse_times_seconds, " ".join(lines[1::2]).split()))

    @contextmanager
    def resolving(self, addresses: Mapping[str, str]) -> Iterator[None]:
        """Make host names resolve to the given addresses in the generator's pod (by /etc/hosts) until the `with` block ends.

        Several such blocks may be open at the same time; each removes only its own names at its end.

        Args:
            addresses: Host name → IP address.

        Raises:
            MeasuringError: /etc/hosts cannot be written.

        """
        self._resolved.append(addresses)
        try:
            self._write_hosts()
            yield
        except LostError:
            self._resolved.remove(addresses)
            raise  # it is gone, or another lab's now
        except BaseException:
            self._resolved.remove(addresses)
            with suppress(LabError):  # the first fault is the one to report
                self._write_hosts()
            raise
        self._resolved.remove(addresses)
        self._write_hosts()

    def _write_hosts(self) -> None:
        """Write the pod's /etc/hosts anew: its original lines, and a line for each host name of the open `resolving` blocks.

        The file is overwritten in place, because it is a mount.
        """
        pod_lines = [line for line in self.run(["cat", HOSTS]).stdout.splitlines() if not line.endswith(OURS)]
        ours = {host: address for addresses in self._resolved for host, address in addresses.items()}
        text = "".join(f"{line}\n" for line in [*pod_lines, *(f"{ours[host]} {host}{OURS}" for host in ours)])
        done = self.script(f"printf %s {shlex.quote(text)} >{HOSTS}")
        if done.returncode:
            fault = f"{HOSTS} cannot be written: {done.stderr.strip()}"
            raise MeasuringError(self.place, fault, "it must run as root (manifests/clusters/client)")


def parse_times_seconds(text: str) -> float:
    """Convert a duration in the form that the shell's `times` prints to seconds: `1m2.340000s` → 62.34.

    Raises:
        ValueError: The text has another form.

    """
    minutes, separator, remainder = text.partition("m")
    if not (separator and remainder.endswith("s")):
        raise ValueError(f"expected a time as `times` writes it, got {text!r}")
    return 60 * int(minutes) + float(remainder[:-1].replace(",", "."))


def measure_clock_offset(shell: Shell, tries: int = 12) -> ClockOffset:
    """Measure by how many seconds a container's clock is ahead of the lab's.

    The container's date(1) is called between two readings of the lab's clock. It is assumed to run in the middle between
    them, so the error is at most half the time between them. Of several such round trips, the shortest is used (Cristian,
    1989). The clocks may drift, so measure the offset before and after a sample.

    Args:
        shell: The shell into the container.
        tries: The number of round trips.

    Raises:
        MeasuringError: The container's date(1) prints no fractions of a second.

    """
    offsets: list[tuple[float, float]] = []
    for _ in range(tries):
        before_s = time.time()
        output = shell.script("date +%s.%N").stdout.strip()
        after_s = time.time()
        try:
            offsets.append(((after_s - before_s) / 2, float(output) - (before_s + after_s) / 2))
        except ValueError:
            remedy = "its image needs a date(1) that knows %N (coreutils)"
            raise MeasuringError(shell.place, f"does not print its time: {output!r}", remedy) from None
    error_s, offset_s = min(offsets)
    return ClockOffset(offset_s, error_s)


def open_tools(api: Api, images: Images, pod: Mapping[str, Any], container: str) -> Shell:
    """Return a shell that can run programs (ss, lsattr, sockperf) which the image of a pod's container lacks.

    The shell is in an ephemeral container of the generators' image, which is added to the pod unless it already
    exists. It shares the pod's network, and the given container's process namespace, securityContext and volumes. So
    it can see what the container's processes can see, and nothing more.

    The links in /proc/PID (root, fd) can be followed only by a process of the same group. They cannot be followed if
    the manifest sets a runAsUser but no runAsGroup. The ephemeral container stays in the pod, asleep.

    Args:
        api: The cluster.
        images: The images to use.
        pod: The pod.
        container: The name of the container that is to be looked at.

    Raises:
        LostError: The pod is gone.
        MeasuringError: The ephemeral container does not start.
        DeniedError: The user lacks the right to add it (patch on pods/ephemeralcontainers).

    """
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    deadline = time.monotonic() + 60.0

    def read_pod() -> dict[str, Any]:
        current = api.get("v1", "Pod", name, namespace)
        if current is None:
            raise LostError(f"pod {namespace}/{name}", "is gone", "`--resume` goes on when the cluster is well again")
        return current

    current = read_pod()
    names = {item["name"] for item in current["spec"].get("ephemeralContainers") or ()}
    tool = f"lab-tools-{container}"[:60]
    if tool not in names:
        target = next(item for item in current["spec"]["containers"] if item["name"] == container)
        added = {"spec": {"ephemeralContainers": [describe_ephemeral_container(tool, images.named("loadgen"), target)]}}
        api.change("v1", "Pod", name, namespace, added, "ephemeralcontainers")
    while "running" not in (state := _find_state(read_pod(), tool)):
        late = time.monotonic() > deadline
        details = state.get("waiting") or state.get("terminated") or {}
        if late or details.get("reason") in rollout.FATAL or "terminated" in state:
            message = pods.join_reason(details.get("reason"), details.get("message")) or "no state yet"
            raise MeasuringError(
                f"pod {namespace}/{name}",
                f"its tools ({tool}) do not start" + (" in 60 s" if late else "") + f": {message}",
                "`just up` brings the image loadgen to kind; elsewhere LAB_IMAGES names one that the nodes can pull",
            )
        time.sleep(0.05)
    return Shell(api, namespace, name, tool)


def describe_ephemeral_container(name: str, image: str, target: Mapping[str, Any]) -> dict[str, Any]:
    """Return the specification of an ephemeral container that can look into one container of a pod.

    Args:
        name: The name of the ephemeral container.
        image: The image of the ephemeral container.
        target: The specification of the container to look into.

    """
    # An ephemeral container may not mount a subPath.
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


def _find_state(pod: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the state of a pod's ephemeral container, as the API server reports it.

    The state has one of the keys `running`, `waiting` and `terminated`. It is empty if the kubelet has reported no
    state yet.
    """
    statuses = pod.get("status", {}).get("ephemeralContainerStatuses") or ()
    return next((item.get("state") or {} for item in statuses if item["name"] == name), {})
