"""Workers and threads that run are counted by the titles of processes."""

from __future__ import annotations

import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from lab.systems.traefik import system as traefik
from lab.systems.workers import list_script, listed, started, told

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


def test_a_traefik_in_a_container_tells_of_itself(tmp_path: Path) -> None:
    """By its metrics, asked where one runs and nowhere else: what the kernel calls its threads says nothing of Go's."""
    asked: list[str] = []

    class Metrics(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"# TYPE go_sched_gomaxprocs_threads gauge\ngo_sched_gomaxprocs_threads 3\ngo_threads 9\n")

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Metrics)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    script = list_script().replace(str(traefik.PORT), str(server.server_port))
    program = tmp_path / "traefik"
    program.write_bytes(Path("/bin/sleep").read_bytes())
    program.chmod(0o755)
    try:
        with subprocess.Popen([program, "60"]) as running:
            try:
                text = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
            finally:
                running.kill()
        assert asked == [traefik.METRICS] and told(text) == 3
        assert f"{program} 60" in [title for _, title in listed(text)]
    finally:
        server.shutdown()
        server.server_close()
