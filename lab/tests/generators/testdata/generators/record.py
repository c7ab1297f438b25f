"""Records the golden cases again from the real tools: `python record.py GENERATOR…` (all that are installed without).

Starts an nginx on loopback, runs each case below against it, and keeps what the tool printed (`support.recorded` says how). What the
parsers make of it is then written by `LAB_GOLDEN=write pytest lab/tests/generators/test_generators.py` and reviewed as a diff.
`wrk/whole-latencies` is not recorded here: our script printed so until 23 November 2026, and runs of then are read on. `GENERATOR/CASE` records
one only.
"""

import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import asdict, replace
from pathlib import Path

from lab.generators import GENERATORS, Generator, command, find
from lab.model.load import Load
from lab.tests.support.recorded import keep

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
    location = /64kb.txt {{ }}
    location = /slow {{ alias {folder}/1kb; limit_rate 400; }}
    location = /redirect {{ return 302 /1kb; }}
    location = /answer {{ alias {folder}/1kb; add_header X-Lab-Answer "backend-0 9003 17" always; }}
    location = /mixed {{ rewrite ^ /$fate last; }}
    location = /none {{ internal; return 444; }}
    location = /wrong {{ internal; return 503; }}
    location = /late {{ internal; alias {folder}/1kb; limit_rate 400; }}
    location = /good {{ internal; alias {folder}/1kb; add_header X-Lab-Backend backend-0 always; }}
    location = /flaky {{ if ($drop) {{ return 444; }} alias {folder}/1kb; }}
  }}
}}
"""
CLOSED = Load(url=f"http://127.0.0.1:{PORT}/1kb", host="lab.test", connections=4, duration_s=1)
OPEN = replace(CLOSED, rate_rps=200.0)
HOSTS = replace(CLOSED, hosts=("lab.test", "two.lab.test", "three.lab.test"), connections=6)
LOGGED = replace(CLOSED, rate_rps=50.0, connections=60, keepalive=False, timeout_s=1.0, logged=True)
# Addresses in the place of names, as nothing here resolves those.
SECURE = replace(CLOSED, url=f"https://127.0.0.2:{TLS}/1kb", host="127.0.0.2", hosts=("127.0.0.2", "127.0.0.3"))


def at(load: Load, path: str, **changes: object) -> Load:
    return replace(load, url=f"http://127.0.0.1:{PORT}/{path}", **changes)  # type: ignore[arg-type]


def common(load: Load) -> dict[str, Load]:
    return {
        "ok": load,
        "close": at(load, "1kb", keepalive=False),
        "http404": at(load, "missing"),
        "refused": replace(load, url="http://127.0.0.1:9/1kb"),
        "slow": at(load, "slow", timeout_s=10.0),  # two seconds each, so the rate is not reached
        "late": at(load, "slow", timeout_s=1.0),
        "flaky": at(load, "flaky"),
        "redirect": at(load, "redirect"),
    }


def named(cases: dict[str, Load], suffix: str) -> dict[str, Load]:
    return {name + suffix: load for name, load in cases.items()}


ENOUGH = at(OPEN, "1kb", rate_rps=100.0, duration_s=30, connections=10)
FEW = {case: at(CLOSED, "slow", requests=8, timeout_s=limit_s) for case, limit_s in (("slow", 10.0), ("late", 1.0))}
H2 = replace(SECURE, hosts=(), protocol="h2", duration_s=0.1)


def over_tls(load: Load, path: str, **changes: object) -> Load:
    return replace(load, url=f"https://127.0.0.2:{TLS}/{path}", **changes)  # type: ignore[arg-type]


CASES: dict[str, dict[str, Load]] = {
    "wrk": common(replace(CLOSED, duration_s=3))
    | {"hosts": HOSTS, "sni": replace(SECURE, sni_per_host=True), "gzip": at(CLOSED, "64kb.txt", gzip=True)},
    "wrk2": {"ok": ENOUGH, "http404": at(ENOUGH, "missing"), "refused": replace(ENOUGH, url="http://127.0.0.1:9/")},
    "hey": common(replace(CLOSED, requests=200))
    | FEW
    | {"time": replace(CLOSED, duration_s=0.1), "gzip": at(CLOSED, "64kb.txt", requests=50, gzip=True)}
    | {"tls-close": replace(SECURE, hosts=(), keepalive=False, requests=50)},
    "oha": named(common(OPEN), "-open"),
    "h2load": {
        "ok-closed": H2,
        "ok-open": replace(H2, rate_rps=200.0, duration_s=1),
        "streams": replace(H2, streams=8),
        "h1": replace(H2, protocol="h1"),
        "http404": over_tls(H2, "missing"),
        "flaky": over_tls(H2, "flaky"),
        "late": over_tls(H2, "slow", timeout_s=1.0, duration_s=4),
        "refused": replace(H2, url="https://127.0.0.1:9/1kb"),
    },
    "k6": named(common(OPEN), "-open")
    | named(common(CLOSED), "-closed")
    | {"sni": replace(SECURE, sni_per_host=True), "gzip": at(CLOSED, "64kb.txt", gzip=True)}
    | {"logged": at(LOGGED, "answer"), "logged-failing": at(LOGGED, "mixed")}
    | {"logged-dropped": at(LOGGED, "slow", connections=10, timeout_s=5.0)},
}


def record(generator: Generator, case: str, load: Load) -> None:
    program = find(generator)
    assert program is not None
    with tempfile.TemporaryDirectory() as folder:
        for name, text in generator.files(load).items():
            Path(folder, name).write_text(text)
        argv = command(generator, program.path, load)
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    told = {"version": program.version, "load": asdict(load), "exit_status": done.returncode}
    keep(f"{generator.name}/{case}", done.stdout, done.stderr, told)
    sys.stderr.write(f"{generator.name}/{case}: {len(done.stdout)} bytes\n")


def main(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "1kb").write_bytes(bytes(1024))
        Path(folder, "64kb.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 1490)
        made = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=lab.test -keyout s.pem -out c.pem"
        subprocess.run(made.split(), cwd=folder, check=True, capture_output=True)
        Path(folder, "s.pem").write_text(Path(folder, "s.pem").read_text() + Path(folder, "c.pem").read_text())
        Path(folder, "nginx.conf").write_text(NGINX.format(folder=folder, port=PORT, tls=TLS))
        server = subprocess.Popen(["nginx", "-p", folder, "-c", f"{folder}/nginx.conf"])
        try:
            deadline = time.monotonic() + 5
            while True:
                try:
                    urllib.request.urlopen(CLOSED.url, timeout=1)
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.05)
            for wanted in names or CASES:
                name, _, only = wanted.partition("/")
                generator = GENERATORS[name]
                if find(generator) is None:
                    sys.stderr.write(f"{name}: not installed, kept as it is\n")
                    continue
                for case, load in CASES[name].items():
                    if only in ("", case):
                        record(generator, case, load)
        finally:
            server.terminate()
            server.wait(10)


if __name__ == "__main__":
    main(sys.argv[1:])
