"""The form of a knob (single setting) for OpenShift, whose operator manages the router: patches, and commands that apply them.

The patches are in the annotation `lab/openshift` of the knob:

    apiVersion: operator.openshift.io/v1
    kind: IngressController                        →  oc -n openshift-ingress-operator patch ingresscontroller/default
    metadata: {name: default, namespace: …}               --type=merge -p '{"spec":{"tuningOptions":{"threadCount":4}}}'
    spec: {tuningOptions: {threadCount: 4}}

Fields are those of the operator's API (openshift/api, operator/v1/types_ingresscontroller.go). A Deployment's patch may have probe
timeouts (openshift/enhancements, tunable-router-kubelet-probes) and a CPU limit: the operator leaves those unchanged
(openshift/cluster-ingress-operator 015e6d6, deployment.go), and reverts most other changes there. An IngressController with a
`domain` is a separate router, which the operator makes: it is applied, not patched. Patches of other objects are refused.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lab.base.errors import UsageError

PLACES = {
    "IngressController": ("operator.openshift.io/v1", "openshift-ingress-operator"),
    "Deployment": ("apps/v1", "openshift-ingress"),
}
"""The API version and the namespace of the objects that may be patched, by their kind."""
FOOTNOTE = "for OpenShift, as its operator's API has it; not run on OpenShift by this project"


def check_patches(patches: Iterable[Any], place: str) -> tuple[dict[str, Any], ...]:
    """Check that patches are ones that OpenShift's ingress operator accepts, and return them as a tuple.

    A patch may change the `spec` of the operator's IngressController or of its router's Deployment.

    Args:
        patches: The patches, as read from the annotation `lab/openshift`.
        place: The name of file and key for the error message.

    Raises:
        UsageError: A value is no such patch.

    """
    result = tuple(patches)
    for patch in result:
        head: dict[str, Any] = patch if isinstance(patch, dict) else {}
        version_and_namespace = head.get("apiVersion"), (head.get("metadata") or {}).get("namespace")
        if PLACES.get(str(head.get("kind"))) != version_and_namespace or not isinstance(head.get("spec"), dict):
            fault = f"expected the spec of an IngressController or a Deployment, got {patch!r}"
            raise UsageError(place, fault, "manifests/components/okd-threads-4 and okd-probe-timeout-5s show the forms")
    return result


def commands(patches: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the `oc` commands, as lines of shell, that apply patches to OpenShift's router.

    Patches of one kind are merged into a single command. Each IngressController with a `domain`, which is a further router,
    has a command of its own. Some commands are preceded by a line with a comment.

    Args:
        patches: Patches that `check_patches` accepts.

    Raises:
        UsageError: Two patches set one field to different values.

    """
    merged: dict[str, dict[str, Any]] = {}
    for patch in patches:
        if "domain" not in patch["spec"]:
            kind = str(patch["kind"])
            merged[kind] = _merge(merged.get(kind, {}), {"spec": patch["spec"]}, kind)
    lines: list[str] = []
    for controller in (patch for patch in patches if "domain" in patch["spec"]):
        lines += [
            f"# a router of its own; in the place of {controller['spec']['domain']}, a domain of yours:",
            f"oc apply -f - <<<{shlex.quote(json.dumps(controller, separators=(',', ':')))}",
        ]
    if controller := merged.get("IngressController"):
        text = shlex.quote(json.dumps(controller, separators=(",", ":")))
        place = "oc -n openshift-ingress-operator"
        if "endpointPublishingStrategy" in controller["spec"]:
            lines += [
                "# endpoint publishing cannot be updated: the IngressController is replaced, and serves nothing meanwhile",
                f"{place} get ingresscontroller/default -o json |"
                f" oc patch --local -f - --type=merge -p {text} -o json | oc replace --force --wait -f -",
            ]
        else:
            lines.append(f"{place} patch ingresscontroller/default --type=merge -p {text}")
    if deployment := merged.get("Deployment"):
        text = shlex.quote(json.dumps(deployment, separators=(",", ":")))
        lines += ["# when the new router is there:"] if len(lines) > 1 else []
        lines.append(f"oc -n openshift-ingress patch deployment/router-default --type=strategic -p {text}")
    return lines


def snippet(patches: Sequence[Mapping[str, Any]]) -> str:
    """Return the shell commands that apply patches to OpenShift's router, after a comment; empty if there are no patches.

    Args:
        patches: Patches that `check_patches` accepts.

    """
    return "".join(f"{line}\n" for line in (f"# {FOOTNOTE}", *commands(patches))) if patches else ""


def _merge(first: Mapping[str, Any], second: Mapping[str, Any], place: str) -> dict[str, Any]:
    merged = dict(first)
    for key, value in second.items():
        path = f"{place}.{key}"
        if key not in merged or merged[key] == value:
            merged[key] = value
        elif isinstance(value, Mapping):
            merged[key] = _merge(merged[key], value, path)
        elif isinstance(value, list):  # the only container
            merged[key] = [_merge(merged[key][0], value[0], f"{path}[0]")]
        else:
            raise UsageError(path, f"set to {merged[key]!r} and to {value!r}", "keep one of the knobs")
    return merged
