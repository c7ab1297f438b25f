"""What is read in the ingress-nginx controller's log, as it really writes it."""

from __future__ import annotations

from lab.systems.ingress_nginx import system as ingress_nginx
from lab.systems.table import find_controller
from lab.targets.apiserver.controllers import stamp

DECODING = """\
W1125 14:54:37.843120      27 client_config.go:659] Neither --kubeconfig nor --master was specified.
W1125 14:54:38.035273      27 configmap.go:471] unexpected error merging defaults: 1 error(s) decoding:

* cannot parse 'keep-alive' as int: strconv.ParseInt: parsing "abc": invalid syntax
I1125 14:54:38.059000      27 store.go:440] "Found valid IngressClass"
W1125 14:54:38.063287      27 configmap.go:471] unexpected error merging defaults: 1 error(s) decoding:

* cannot parse 'keep-alive' as int: strconv.ParseInt: parsing "abc": invalid syntax
""".splitlines()
REFUSED = """\
E1125 14:58:59.123456      27 controller.go:205] Unexpected failure reloading the backend:

-------------------------------------------------------------------------------
Error: exit status 1
2026/11/25 14:58:59 [emerg] 43#43: unknown directive "bogus" in /tmp/nginx/nginx-cfg3073164251:247
nginx: [emerg] unknown directive "bogus" in /tmp/nginx/nginx-cfg3073164251:247
nginx: configuration file /tmp/nginx/nginx-cfg3073164251 test failed
""".splitlines()
PANIC = """\
I1125 14:59:20.000000      27 main.go:205] "Creating API client" host="https://10.64.0.1:6443"
panic: runtime error: index out of range [1] with length 1

goroutine 1 [running]:
""".splitlines()


def test_a_key_that_is_no_number_is_told_once_in_the_controllers_words() -> None:
    (words,) = ingress_nginx.ignored(DECODING)
    assert words.startswith("unexpected error merging defaults") and "cannot parse 'keep-alive' as int" in words
    assert ingress_nginx.complaints(DECODING) == []


def test_what_ends_it_or_nginx_refuses_is_told_by_its_own_line_and_a_quiet_log_says_nothing() -> None:
    assert ingress_nginx.complaints(REFUSED)[-1].startswith('[emerg] unknown directive "bogus"')
    assert ingress_nginx.ignored(REFUSED) == []
    assert ingress_nginx.complaints(PANIC) == ["panic: runtime error: index out of range [1] with length 1"]
    assert ingress_nginx.complaints([]) == ingress_nginx.ignored([""]) == []


def test_reloads_are_told_and_when() -> None:
    begins = (
        'I1125 14:26:41.366508      27 controller.go:193] "Configuration changes detected, backend reload required"'
    )
    ends = 'I1125 14:26:41.551980      27 controller.go:213] "Backend successfully reloaded"'
    assert (ingress_nginx.CONTROLLER.event_of(begins), ingress_nginx.CONTROLLER.event_of(ends)) == (
        "Reload",
        "Reloaded",
    )
    assert ingress_nginx.CONTROLLER.event_of('10.64.0.2 - - [25/Nov/2026] "GET /1kB.bin HTTP/1.1" 200') is None
    began, ended = stamp(begins), stamp(ends)
    assert began is not None and ended is not None and abs(ended - began - 0.185472) < 1e-6
    assert stamp("10.64.0.2 - -") is None


def test_the_image_is_known_whatever_registry_it_comes_from() -> None:
    assert find_controller("registry.k8s.io/ingress-nginx/controller") is not None
    assert find_controller("mirror.example:5000/x/ingress-nginx/controller") is not None
    assert find_controller("docker.io/library/nginx") is None
