"""A Kubernetes cluster as a place to measure: what `--target kind` and `--target remote` share.

target     the protocol of lab.targets.base     system     one variant that is up
api        the API server of one context        images     which image stands for which short name
objects    manifests → what is applied          inventory  what the lab has applied there; pruning, removal
rollout    is it ready, and if not, why         lease      one lab per cluster
client     the generator's pod                  shell      many questions to one container, one connection
tunnel     a TCP connection from that pod       tools      programs that a pod's own image lacks
sampling   CPU, memory, counters meanwhile      kubelet    what the kubelets count, other people's pods too
look       one look into a container            spot       a container and what was seen there
machines   how full their CPUs were             hostwatch  who else works on the machine under kind
ways       where clients reach a Service        facts      versions, nodes, modes
needs      what a variant asks of the nodes     reloads    how long a router may still reload
testrun    one load by many generators          connection one context → requests with deadlines
ending     the end of workloads and objects     namespaces whose a namespace is
last_words why a pod did not come up            tether     a remote process that ends with the local one
kind       the lab's kind cluster               docker     the engine that it runs on
loadgen    the generators' image, built         node_images images on kind's nodes
route_kind OpenShift's Route on any cluster     readiness  a new cluster's nodes and system pods
programs   other programs, with a deadline      steps      one line of progress per step
names      labels and namespaces                pods       what a pod's status says
changes    what disturbances do to a variant    crash      SIGKILL from the node
recorder   what happens to its pods meanwhile   watches    every change of one kind of object
happenings objects and Events → our events      probing    the kubelets' probes, attempt by attempt
reload_logs a proxy's log → its reloads         gauges     what a proxy says of itself
clock      the client's clock against the lab's rights     what the lab must be allowed to do
"""
