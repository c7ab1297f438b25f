"""The local target: no cluster, no Docker, no root.

namespaces   enter them, and never outlive the process that did      network      places, addresses, veth pairs, names
objects      manifests → services, routes, pods (deployments, pods,  images       what an image stands for here
             fields: nothing is silently ignored)                    configmap    ingress-nginx's keys → directives
bringup      objects → addresses, volumes, what is started           nginx_conf   the nginx.conf of it all
kubelet      pods: init containers, readiness, deletion              target       the protocol of lab.targets.base
runner       one container: probes, restarts, events                 system       one variant that is up
containers   one container as a process in namespaces of its own     cpus         which CPU belongs to whom
cgroups      limits of containers                                    services     the way into the proxy, a Service's NAT
routes       Ingresses and OpenShift's Routes; secrets: a Secret,    haproxy_conf Routes → the router's haproxy.config and maps
             its certificate made                                    rendering    texts from templates/
pod_objects  running pods as Kubernetes shows them                   routing      what the proxies know; reloads: their queues
hostwide     the machine's own settings, which nothing here changes  shaping      the client's link: its rate, its bytes
control      pods that come and go: who is an endpoint, what starts  recorder     what happened, in the words of lab.model.events
replicas     a Deployment's rules, and PodDisruptionBudgets          refusals     disturbances that cannot be done here
"""

from lab.targets.local.system import LocalSystem
from lab.targets.local.target import LocalTarget

__all__ = ["LocalSystem", "LocalTarget"]
