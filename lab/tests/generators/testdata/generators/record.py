"""Records the golden cases again from the real tools: `python record.py GENERATOR…` (all that are installed without).

Starts an nginx on loopback, runs the load of each case against it, and keeps what the tool printed (`support.recorded` says how; a load
that is written into `<generator>.json` is a further case). What the parsers make of it is then written by
`LAB_GOLDEN=write pytest lab/tests/generators/test_generators.py` and reviewed as a diff. `wrk/whole-latencies` is not recorded here: our
script printed so until 23 November 2026, and runs of then are read on. `GENERATOR/CASE` records one only.
"""

import subprocess
import sys
import tempfile
import urllib.request
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from lab.generators import GENERATORS, build_command, find
from lab.model.load import GeneratorLoad
from lab.systems.programs import provide_own_program
from lab.tests.support.recorded import CASES, keep, told
from lab.tests.support.waiting import until

PORT, TLS = 18765, 18766
NGINX = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
  access_log off; keepalive_requests 1000000; root {folder}; gzip on; gzip_types text/plain; types {{ text/plain txt; }}
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  map $request_id $drop {{ "~^0" 1; default 0; }}
  map $request_id $fate {{ "~^[01]" none; "~^[23]" wrong; "~^[45]" late; default good; }}
  server {{
    listen 127.0.0.1:{port};
    listen 127.0.0.2:{tls} ssl http2; listen 127.0.0.3:{tls} ssl http2; ssl_certificate {folder}/s.pem; ssl_certificate_key {folder}/s.pem;
    location = /1kb {{ }}
    location = /1mb {{ }}
    location = /upload {{ client_max_body_size 2m; proxy_method GET; proxy_pass_request_body off; proxy_set_header Content-Length "";
      proxy_pass http://127.0.0.1:{port}/ok; }}
    location = /ok {{ return 200 "ok\n"; }}
    location = /64kb.txt {{ }}
    location = /slow {{ alias {folder}/1kb; limit_rate 400; }}
    location = /redirect {{ return 302 /1kb; }}
    location = /answer {{ alias {folder}/1kb; add_header X-Lab-Answer "backend-0 9003 17" always; }}
    location = /mixed {{ rewrite ^ /$fate last; }}
    location = /none {{ internal; return 444; }}
    location = /wrong {{ internal; return 503; }}
    location = /late {{ internal; alias {folder}/1kb; limit_rate 400; }}
    location = /good {{ internal; alias {folder}/1kb; add_header X-Lab-Backend backend-0 always; }}
    proxy_set_header Host $host;
    location = /events {{ proxy_pass http://127.0.0.1:8080/events; proxy_http_version 1.1; proxy_buffering off; }}
    location = /held {{ proxy_pass http://127.0.0.1:8080/events; proxy_http_version 1.0; }}
    location = /cut {{ proxy_pass http://127.0.0.1:8080/events; proxy_http_version 1.1; proxy_read_timeout 1s; proxy_buffering off; }}
    location = /websocket {{ proxy_pass http://127.0.0.1:8080/websocket/echo; proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection upgrade; }}
    location = /websocket-cut {{ proxy_pass http://127.0.0.1:8080/websocket/echo; proxy_http_version 1.1; proxy_read_timeout 1s;
      proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; }}
    location = /websocket-http {{ proxy_pass http://127.0.0.1:8080/websocket/echo; }}
    location = /flaky {{ if ($drop) {{ return 444; }} alias {folder}/1kb; }}
    location /grpc.testing. {{ grpc_pass grpc://127.0.0.1:8080; }}
  }}
  server {{
    listen 127.0.0.4:{tls} ssl http2; ssl_certificate {folder}/s.pem; ssl_certificate_key {folder}/s.pem; keepalive_requests 20;
    location / {{ grpc_pass grpc://127.0.0.1:8080; }}
  }}
  server {{
    listen 127.0.0.5:{tls} ssl http2; ssl_certificate {folder}/s.pem; ssl_certificate_key {folder}/s.pem;
    location / {{ if ($drop) {{ return 503; }} grpc_pass grpc://127.0.0.1:8080; }}
  }}
  server {{
    listen 127.0.0.6:{tls} ssl http2; ssl_certificate {folder}/s.pem; ssl_certificate_key {folder}/s.pem;
    location / {{ proxy_pass http://127.0.0.1:8080; }}
  }}
}}
"""
STREAMS = "http://127.0.0.1:8080/healthz"
URL = f"http://127.0.0.1:{PORT}/1kb"
NOT_RECORDED = "wrk/whole-latencies"


def record(name: str) -> None:
    tool, _, _ = name.partition("/")
    generator, load = GENERATORS[tool], GeneratorLoad(**told(name)["load"])
    program = find(generator)
    if program is None:
        sys.stderr.write(f"{name}: {tool} is not installed, kept as it is\n")
        return
    with tempfile.TemporaryDirectory() as folder:
        for file, text in generator.files(load).items():
            Path(folder, file).write_text(text)
        argv = build_command(generator, program.path, load)
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    known = {"version": program.version, "load": asdict(load), "exit_status": done.returncode}
    keep(name, done.stdout, done.stderr, known)
    sys.stderr.write(f"{name}: {len(done.stdout)} bytes\n")


def answers(url: str) -> bool:
    with suppress(OSError):
        return bool(urllib.request.urlopen(url, timeout=1))
    return False


def main(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "1kb").write_bytes(bytes(1024))
        Path(folder, "1mb").write_bytes(bytes(1024 * 1024))
        Path(folder, "64kb.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 1490)
        made = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=lab.test -keyout s.pem -out c.pem"
        subprocess.run(made.split(), cwd=folder, check=True, capture_output=True)
        Path(folder, "s.pem").write_text(Path(folder, "s.pem").read_text() + Path(folder, "c.pem").read_text())
        Path(folder, "nginx.conf").write_text(NGINX.format(folder=folder, port=PORT, tls=TLS))
        server = subprocess.Popen(["nginx", "-p", folder, "-c", f"{folder}/nginx.conf"])
        wanted = [name for name in CASES if not names or {name, name.partition("/")[0]} & {*names}]
        try:
            for backend in ("events-backend", "grpc-backend", "websocket-backend"):
                own = subprocess.Popen([provide_own_program(backend).file])
                until(lambda: answers(URL) and answers(STREAMS), f"nginx or {backend} does not answer")
                for name in wanted:
                    tool = name.partition("/")[0].removeprefix("k6-")
                    its_own = f"{tool}-backend" if tool in ("grpc", "websocket") else "events-backend"
                    if its_own == backend and name != NOT_RECORDED:
                        record(name)
                own.terminate()
                own.wait(10)
        finally:
            server.terminate()
            server.wait(10)


if __name__ == "__main__":
    main(sys.argv[1:])
