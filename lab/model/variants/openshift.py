"""A knob on OpenShift itself, where the ingress operator owns the router: `lab/openshift` of a component, a list of patches.

    apiVersion: operator.openshift.io/v1
    kind: IngressController                        →  oc -n openshift-ingress-operator patch ingresscontroller/default
    metadata: {name: default, namespace: …}               --type=merge -p '{"spec":{"tuningOptions":{"threadCount":4}}}'
    spec: {tuningOptions: {threadCount: 4}}

Fields are those of the operator's own API (openshift/api, operator/v1/types_ingresscontroller.go). A Deployment's patch may hold probe
timeouts (openshift/enhancements, tunable-router-kubelet-probes) and a CPU limit: the operator leaves those as they are
(openshift/cluster-ingress-operator 015e6d6, deployment.go), and reverts most of what else is changed there. An IngressController with a
`domain` is a router of its own, which the operator makes: it is applied, not patched. Refuses patches of other objects.
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
"""Kind → API version and namespace of the objects that may be patched."""
FOOTNOTE = "for OpenShift, as its operator's API has it; not run on OpenShift by this project"


def checked(patches: Iterable[Any], place: str) -> tuple[dict[str, Any], ...]:
    """Return a component's patches. UsageError for one that is not of the operator's IngressController or its router's Deployment."""
    found = tuple(patches)
    for patch in found:
        head: dict[str, Any] = patch if isinstance(patch, dict) else {}
        where = head.get("apiVersion"), (head.get("metadata") or {}).get("namespace")
        if PLACES.get(str(head.get("kind"))) != where or not isinstance(head.get("spec"), dict):
            fault = f"expected the spec of an IngressController or a Deployment, got {patch!r}"
            raise UsageError(place, fault, "manifests/components/okd-threads-4 and okd-probe-timeout-5s show the forms")
    return found


def commands(patches: Iterable[Mapping[str, Any]]) -> list[str]:
    """The `oc` commands that apply these patches, those for one object as one. UsageError when two say different things."""
    merged: dict[str, dict[str, Any]] = {}
    further: list[Mapping[str, Any]] = []
    for patch in patches:
        kind = str(patch["kind"])
        if "domain" in patch["spec"]:
            further.append(patch)
        else:
            merged[kind] = _merge(merged.get(kind, {}), {"spec": patch["spec"]}, kind)
    found: list[str] = []
    for controller in further:
        found.append(f"# a router of its own; in the place of {controller['spec']['domain']}, a domain of yours:")
        found.append(f"oc apply -f - <<<{shlex.quote(json.dumps(controller, separators=(',', ':')))}")
    if controller := merged.get("IngressController"):
        said = shlex.quote(json.dumps(controller, separators=(",", ":")))
        place = "oc -n openshift-ingress-operator"
        if "endpointPublishingStrategy" in controller["spec"]:
            found += [
                "# the type of endpoint publishing cannot be updated: the IngressController is made anew, and nothing is served meanwhile",
                f"{place} get ingresscontroller/default -o json |"
                f" oc patch --local -f - --type=merge -p {said} -o json | oc replace --force --wait -f -",
            ]
        else:
            found.append(f"{place} patch ingresscontroller/default --type=merge -p {said}")
    if deployment := merged.get("Deployment"):
        said = shlex.quote(json.dumps(deployment, separators=(",", ":")))
        found += ["# when the new router is there:"] if len(found) > 1 else []
        found.append(f"oc -n openshift-ingress patch deployment/router-default --type=strategic -p {said}")
    return found


def snippet(patches: Sequence[Mapping[str, Any]]) -> str:
    """What to run on OpenShift, as a shell takes it; empty without patches."""
    return "".join(f"{line}\n" for line in (f"# {FOOTNOTE}", *commands(patches))) if patches else ""


def _merge(one: Mapping[str, Any], other: Mapping[str, Any], place: str) -> dict[str, Any]:
    merged = dict(one)
    for key, value in other.items():
        here = f"{place}.{key}"
        if key not in merged or merged[key] == value:
            merged[key] = value
        elif isinstance(value, Mapping):
            merged[key] = _merge(merged[key], value, here)
        elif isinstance(value, list):  # the one container
            merged[key] = [_merge(merged[key][0], value[0], f"{here}[0]")]
        else:
            raise UsageError(here, f"set to {merged[key]!r} and to {value!r}", "keep one of the knobs")
    return merged
