"""What the lab does on a cluster, as rights: (verb, group, resource, namespace).

`up remote` asks beforehand which of them you have. A run asks nothing: what you may not, the API server's 403 says in its own words.
"""

from __future__ import annotations

from lab.targets.cluster.api import CLIENT_NAMESPACE

NAMESPACE = "ingress-lab"
"""Of every variant, as `manifests/` has it."""
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
"""A websocket is opened by GET: a port-forward by one needs `get` [lab.targets.cluster.entrypoint], from Kubernetes 1.35 `create`, too."""
KINDS: tuple[Right, ...] = (("create", "apiextensions.k8s.io", "customresourcedefinitions", None),)
"""To add the kinds that Kubernetes does not have."""
SOME_RUNS: dict[str, tuple[Right, ...]] = {
    "pairs": tuple(
        (verb, group, what, f"{NAMESPACE}-right") for verb, group, what, where in EVERY_RUN if where == NAMESPACE
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
        *(("deletecollection", *what, CLIENT_NAMESPACE) for what in (("batch", "jobs"), ("", "pods"))),
        ("get", "", "pods/log", CLIENT_NAMESPACE),
    ),
}
"""What needs them → those beside EVERY_RUN."""
