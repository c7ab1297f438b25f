"""The rights that the lab needs on a Kubernetes cluster, as tuples (verb, API group, resource, namespace).

The command `up remote` checks beforehand which of these rights the user has. A run checks none of them. If a right is missing,
the API server answers with status 403, and its message names the right.
"""

from __future__ import annotations

from lab.targets.cluster.api import CLIENT_NAMESPACE

NAMESPACE = "ingress-lab"
"""The namespace of every variant, as `manifests/` names it."""
Right = tuple[str, str, str, str | None]
VERBS = ("create", "get", "list", "patch", "delete")
EVERY_RUN: tuple[Right, ...] = (
    *((verb, "", "namespaces", None) for verb in VERBS),
    ("list", "", "nodes", None),
    *((verb, "", resource, CLIENT_NAMESPACE) for resource in ("pods", "configmaps") for verb in VERBS),
    *((verb, "coordination.k8s.io", "leases", CLIENT_NAMESPACE) for verb in ("create", "get", "update")),
    ("create", "", "pods/exec", CLIENT_NAMESPACE),
    *((verb, "", "pods/portforward", CLIENT_NAMESPACE) for verb in ("create", "get")),
    *((verb, "apps", "deployments", NAMESPACE) for verb in VERBS),
    *((verb, "", resource, NAMESPACE) for resource in ("services", "configmaps") for verb in VERBS),
    *(("deletecollection", "apps", resource, NAMESPACE) for resource in ("replicasets", "controllerrevisions")),
    *((verb, "", "pods", NAMESPACE) for verb in ("get", "list", "delete")),
    ("create", "", "pods/exec", NAMESPACE),
    ("get", "", "pods/log", NAMESPACE),
)
"""The rights that every run needs.

A websocket is opened by GET, so a port-forward over one needs `get` [lab.targets.cluster.entrypoint]; from Kubernetes
1.35 it needs `create` as well.
"""
KINDS: tuple[Right, ...] = (("create", "apiextensions.k8s.io", "customresourcedefinitions", None),)
"""The right to add the kinds that Kubernetes does not have."""
BY_FEATURE: dict[str, tuple[Right, ...]] = {
    "pairs": tuple(
        (verb, group, resource, f"{NAMESPACE}-right")
        for verb, group, resource, namespace in EVERY_RUN
        if namespace == NAMESPACE
    ),
    "disturbances": (
        *((verb, "", "events", NAMESPACE) for verb in ("list", "watch")),
        ("watch", "", "pods", NAMESPACE),
        *((verb, "discovery.k8s.io", "endpointslices", NAMESPACE) for verb in (*VERBS, "watch")),
        ("create", "", "pods", NAMESPACE),
        ("create", "", "pods/eviction", NAMESPACE),
        *(("patch", "", f"pods/{part}", NAMESPACE) for part in ("resize", "ephemeralcontainers")),
        ("get", "", "nodes", None),
    ),
    "points of many generators": (
        *((verb, "k6.io", "testruns", CLIENT_NAMESPACE) for verb in ("create", "get", "list", "delete")),
        *(("deletecollection", *resource, CLIENT_NAMESPACE) for resource in (("batch", "jobs"), ("", "pods"))),
        ("get", "", "pods/log", CLIENT_NAMESPACE),
    ),
}
"""The rights that only some runs need, in addition to EVERY_RUN, by what needs them."""
