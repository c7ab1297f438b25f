"""Running pods as Kubernetes would show them, made from what runs and not from the manifests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.systems.manifests.pods import Probe
from lab.targets.local.kubelet.kubelet import RunningPod
from lab.targets.local.kubelet.runner import Runner


def shown(pod: RunningPod, on_the_node: bool) -> Mapping[str, Any]:
    """`metadata`, `spec` and `status` in Kubernetes' own names; fields that have no meaning here are not there."""
    return {
        "metadata": {"name": pod.pod.name, "namespace": pod.pod.namespace, "labels": dict(pod.pod.labels)},
        "spec": {
            "hostNetwork": on_the_node,
            "terminationGracePeriodSeconds": pod.pod.grace_s,
            "containers": [_container(runner) for runner in pod.runners],
        },
        "status": {
            "podIP": pod.runners[0].process.setting.place.address,
            "conditions": [{"type": "Ready", "status": "True" if pod.ready else "False"}],
            "containerStatuses": [
                {"name": runner.container.name, "ready": runner.ready, "restartCount": runner.restarts}
                for runner in pod.runners
            ],
        },
    }


def _container(runner: Runner) -> Mapping[str, Any]:
    """A hook as the manifest has it: what an image's own is here, is told by nobody in a cluster."""
    container, setting = runner.container, runner.process.setting
    probes = {
        "livenessProbe": container.liveness,
        "readinessProbe": container.readiness,
        "startupProbe": container.startup,
    }
    return {
        "name": container.name,
        "image": container.image,
        "command": list(setting.started.command),
        "env": [{"name": name, "value": value} for name, value in setting.started.env.items()],
        "resources": {"limits": dict(container.limits)},
        "ports": [
            {"name": name, "containerPort": number}
            | ({"hostPort": container.host_ports[number]} if number in container.host_ports else {})
            for name, number in container.ports.items()
        ],
        **({"lifecycle": {"preStop": {"exec": {"command": list(container.pre_stop)}}}} if container.pre_stop else {}),
        **{name: _probe(probe) for name, probe in probes.items() if probe is not None},
    }


def _probe(probe: Probe) -> Mapping[str, Any]:
    handlers: Mapping[str, Mapping[str, Any]] = {
        "httpGet": {"path": probe.path, "port": probe.port},
        "tcpSocket": {"port": probe.port},
        "exec": {"command": list(probe.command)},
    }
    grace = {} if probe.grace_s is None else {"terminationGracePeriodSeconds": probe.grace_s}
    return {
        probe.kind: handlers[probe.kind],
        "initialDelaySeconds": probe.initial_delay_s,
        "periodSeconds": probe.period_s,
        "timeoutSeconds": probe.timeout_s,
        "successThreshold": probe.successes,
        "failureThreshold": probe.failures,
        **grace,
    }
