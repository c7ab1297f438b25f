"""Workers and threads that run are counted by the titles of processes."""

from __future__ import annotations

from lab.targets.common.workers import listed, started

MASTER, WORKER = (1, "nginx: master process nginx -c /tmp/nginx/nginx.conf"), (33, "nginx: worker process")


def test_nginx_workers_are_counted_and_nothing_else_of_it() -> None:
    """A worker that shuts down serves no new connection, and a cache's manager none at all; its pool of threads serves files."""
    leaving, manager = (33, "nginx: worker process is shutting down"), (1, "nginx: cache manager process")
    assert started([MASTER, WORKER, WORKER, leaving, manager]) == 2


def test_haproxy_works_in_threads() -> None:
    assert started([(1, "bash /var/lib/haproxy/router.bash"), (4, "haproxy -f /var/lib/haproxy/conf")]) == 4
    assert started([(2, "/usr/sbin/haproxy -f haproxy.config"), (2, "haproxy -f haproxy.config")]) == 4, "of two pods"
    assert started([(1, "haproxy -W -db -f h.cfg"), (2, "haproxy -W -db -f h.cfg")]) == 2, "a master serves nobody"


def test_of_what_is_not_known_here_nothing_is_told() -> None:
    assert started([]) is started([(8, "envoy -c envoy.yaml"), (1, "sh -c nginx: worker process")]) is None


def test_a_container_lists_its_processes() -> None:
    said = "1 nginx: master process nginx \n33 nginx: worker process \n1 sh -c for p in /proc/[0-9]* \n\nnonsense\n"
    assert started(listed(said)) == 1
