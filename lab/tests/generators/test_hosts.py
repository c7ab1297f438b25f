"""Many hosts, TLS and compression: what each generator asks of a server, seen from that server, and what it refuses."""

from __future__ import annotations

import ssl
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lab.generators import command, find, generator
from lab.generators.base import common_refusal, destinations
from lab.model.load import Load, OutputError, Result, Shard
from lab.tests.support.recorded import case

HOSTS = ("a.lab.test", "b.lab.test", "c.lab.test")
MANY = Load("http://127.0.0.1:1/", HOSTS[0], 6, 1, hosts=HOSTS)
SECURE = replace(MANY, url="https://a.lab.test:444/page", sni_per_host=True)


@dataclass
class Seen:
    """Requests by Host header, connections by the address they came to, what was accepted as encoding."""

    hosts: Counter[str] = field(default_factory=Counter[str])
    places: dict[str, set[int]] = field(default_factory=dict[str, set[int]])
    encodings: set[str | None] = field(default_factory=set[str | None])
    forwarded: set[str | None] = field(default_factory=set[str | None])
    resumed: Counter[bool] = field(default_factory=Counter[bool])


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    made = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=lab.test -keyout key.pem -out cert.pem"
    subprocess.run(made.split(), cwd=folder, check=True, capture_output=True)
    return folder


@contextmanager
def server(certificate: Path | None = None) -> Iterator[tuple[int, Seen]]:
    """A server on every loopback address, with TLS where it is given a certificate."""
    seen = Seen()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            place = self.request.getsockname()[0]
            if certificate:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
                self.request = context.wrap_socket(self.request, server_side=True)
            seen.places.setdefault(place, set()).add(self.client_address[1])
            super().setup()

        def do_GET(self) -> None:
            seen.hosts[self.headers["Host"]] += 1
            seen.encodings.add(self.headers["Accept-Encoding"])
            seen.forwarded.add(self.headers["X-Forwarded-For"])
            self.close_connection = self.headers.get("Connection", "").lower() == "close"
            closing = b"Connection: close\r\n" if self.close_connection else b""
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n" + closing + b"\r\n" + bytes(9))

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name for it)
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:  # a client that went at its end
            pass

    running = Quiet(("0.0.0.0", 0), Handler)  # every 127.x must do
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    try:
        yield running.server_address[1], seen
    finally:
        running.shutdown()
        running.server_close()
        thread.join(5)


def made(name: str, load: Load, folder: Path) -> Result:
    wanted = generator(name)
    program = find(wanted)
    if program is None:
        pytest.skip(f"{wanted.binary} is not installed")
    assert wanted.refusal(load) is None
    for file, text in wanted.files(load).items():
        (folder / file).write_text(text)
    argv = command(wanted, program.path, load)
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=30, check=False)
    return wanted.parse(done.stdout, done.stderr, done.returncode, load)


def test_wrks_script_has_the_hosts_and_of_several_proxies_each_ones_own() -> None:
    """As Lua takes them; how wrk asks for them is for the slow tests."""
    assert 'ipairs({"a.lab.test", "b.lab.test", "c.lab.test"})' in generator("wrk").files(MANY)["wrk.lua"]
    shards = (Shard("http://127.0.0.1:1/", (HOSTS[0], HOSTS[2])), Shard("http://127.0.0.1:2/", (HOSTS[1],)))
    own = '{["127.0.0.1:1"] = {"a.lab.test", "c.lab.test"}, ["127.0.0.1:2"] = {"b.lab.test"}}'
    assert (
        f'ipairs(({own})[wrk.host .. ":" .. wrk.port])'
        in generator("wrk").files(replace(MANY, shards=shards))["wrk.lua"]
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wrk", "k6"])
def test_hosts_of_two_proxies_are_asked_for_at_their_own(name: str, tmp_path: Path) -> None:
    """Two servers, each with hosts of its own."""
    with server() as (one, first), server() as (two, second):
        urls = (f"http://127.0.0.1:{one}/page", f"http://127.0.0.1:{two}/page")
        shards = (Shard(urls[0], (HOSTS[0], HOSTS[2])), Shard(urls[1], (HOSTS[1],)))
        result = made(name, replace(MANY, url=urls[0], shards=shards), tmp_path)
    assert (set(first.hosts), set(second.hosts)) == ({HOSTS[0], HOSTS[2]}, {HOSTS[1]})
    asked = sum(first.hosts.values()) + sum(second.hosts.values())
    assert result.errors == {} and 0 <= asked - result.requests <= MANY.connections
    assert ("2 wrk processes, one for each proxy" in result.notes) == (name == "wrk")


def test_what_cannot_ask_several_proxies_is_refused() -> None:
    shards = (Shard("http://a.lab.test:80/", HOSTS[:1]), Shard("http://b.lab.test:80/", HOSTS[1:]))
    load = replace(MANY, shards=shards)
    assert generator("wrk").refusal(load) is None
    assert "not a multiple of 2 proxies" in str(generator("wrk").refusal(replace(load, connections=5)))
    assert "not both" in str(generator("wrk").refusal(replace(SECURE, shards=shards)))
    assert "knows one way in" in str(
        generator("wrk2").refusal(replace(load, rate_rps=100.0, duration_s=30, connections=6))
    )
    for name in ("oha", "hey"):
        assert generator(name).refusal(replace(load, rate_rps=None)) is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wrk", "k6"])
def test_requests_are_spread_evenly_over_the_hosts(name: str, tmp_path: Path) -> None:
    """Each host gets its third, whoever of the connections asks."""
    with server() as (port, seen):
        result = made(name, replace(MANY, url=f"http://127.0.0.1:{port}/"), tmp_path)
    assert set(seen.hosts) == set(HOSTS)
    assert max(seen.hosts.values()) - min(seen.hosts.values()) < 0.3 * result.requests
    assert result.errors == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wrk", "k6"])
def test_each_host_has_connections_of_its_own_where_tls_names_it(name: str, certificate: Path, tmp_path: Path) -> None:
    """As many for each; the addresses stand for names, which are what the URL says and SNI follows."""
    places = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
    with server(certificate) as (port, seen):
        # Longer than the handshakes of a server in Python take where the CPUs are shared.
        load = replace(SECURE, url=f"https://{places[0]}:{port}/", host=places[0], hosts=places, duration_s=4)
        result = made(name, load, tmp_path)
    kept = {place: len(ports) for place, ports in seen.places.items()}
    assert set(kept) == set(places) and min(kept.values()) >= 2
    assert {place.partition(":")[0] for place in seen.hosts} == set(places)
    assert result.requests > 0 and result.errors == {}
    assert sum(seen.hosts.values()) >= result.requests


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wrk", "k6", "hey", "oha"])
def test_what_is_asked_of_a_server_beyond_the_page_is_asked_only_where_the_load_says_so(
    name: str, tmp_path: Path
) -> None:
    def seen_with(**changed: bool) -> Seen:
        """By a server of its own: a request that was still being read when its run ended is not the next one's."""
        with server() as (port, seen):
            made(name, replace(Load(f"http://127.0.0.1:{port}/", "h", 2, 1), **changed), tmp_path)
        return seen

    assert (plain := seen_with()).encodings <= {None, "identity"} and plain.forwarded == {None}
    assert (packed := seen_with(gzip=True)).encodings == {"gzip"} and packed.forwarded == {None}
    assert seen_with(forwarded=True).forwarded == {"203.0.113.7, 198.51.100.4"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hey", "k6", "wrk", "oha"])
@pytest.mark.parametrize("keepalive", [True, False], ids=["keep-alive", "close"])
def test_tls_works_with_a_certificate_that_nobody_knows(
    name: str, keepalive: bool, certificate: Path, tmp_path: Path
) -> None:
    """The lab makes its own: nothing is verified, everything is answered."""
    with server(certificate) as (port, seen):
        result = made(name, Load(f"https://127.0.0.1:{port}/", "", 2, 1, keepalive=keepalive), tmp_path)
    assert result.requests > 0 and result.errors == {}
    connections = len(seen.places["127.0.0.1"])
    # Kept ones are not counted to the last: wrk asks once before it starts, and Go's client opens one more where
    # it waits for a handshake while another connection becomes idle.
    assert 10 * connections < result.requests if keepalive else connections >= result.requests


def test_processes_that_cannot_start_fail_together_and_at_once(tmp_path: Path) -> None:
    """Nothing waits for the ones that are not ready; what they said is quoted."""
    load = replace(SECURE, url="https://127.0.0.2:9/", host="127.0.0.2", hosts=("127.0.0.2", "127.0.0.3"))
    with pytest.raises(OutputError, match="of each of 2 processes.*unable to connect to 127.0.0.2:9"):
        made("wrk", load, tmp_path)


def test_several_processes_are_one_load() -> None:
    """Their requests, bytes and latencies are added, over the longest of their runs."""
    made_by, stdout, stderr, status, load = case("wrk/sni")
    result = made_by.parse(stdout, stderr, status, load)
    blocks = [line.split() for line in stdout.splitlines() if line.startswith("LAB summary ")]
    assert len(blocks) == len(load.hosts) == 2
    assert result.requests == result.latency.total == sum(int(block[3]) for block in blocks)
    assert result.size_bytes == sum(int(block[4]) for block in blocks)
    assert result.duration_s == max(int(block[2]) for block in blocks) * 1e-6
    assert result.notes == ("2 wrk processes, one for each host",)


def test_one_process_missing_is_no_result() -> None:
    """Half of a load is not the load: also where the last output is cut, or ran by itself."""
    made_by, stdout, stderr, status, load = case("wrk/sni")
    first = stdout.index("LAB end")
    for cut in (stdout[: first + 8], stdout[:first], stdout[: stdout.rindex("LAB end")]):
        with pytest.raises(OutputError, match="of each of 2 processes"):
            made_by.parse(cut, stderr, status, load)
    summary = next(line for line in stdout.splitlines() if line.startswith("LAB summary "))
    words = summary.split()
    alone = stdout.replace(summary, " ".join([*words[:2], str(int(words[2]) * 2), *words[3:]]), 1)
    with pytest.raises(OutputError, match="ran together"):
        made_by.parse(alone, stderr, status, load)


@pytest.mark.parametrize("name", ["wrk/hosts", "wrk/sni", "wrk/gzip", "k6/sni", "k6/gzip", "hey/tls-close", "hey/gzip"])
def test_output_tells_everything_without_the_hosts(name: str) -> None:
    """`--from-raw` knows the point, but not which hosts there were."""
    made_by, stdout, stderr, status, load = case(name)
    bare = replace(load, url="http://192.0.2.1/", host="", hosts=(), sni_per_host=False)
    one, other = made_by.parse(stdout, stderr, status, load), made_by.parse(stdout, stderr, status, bare)
    assert replace(one, latency=other.latency, size_includes_tls=False) == other
    assert (one.latency.counts == other.latency.counts).all()


def test_k6_says_that_its_bytes_hold_tls() -> None:
    made_by, stdout, stderr, status, load = case("k6/sni")
    assert made_by.parse(stdout, stderr, status, load).size_includes_tls
    assert not made_by.parse(stdout, stderr, status, replace(load, url="http://h/")).size_includes_tls


def test_a_url_names_its_host_only_under_tls() -> None:
    """There SNI comes from it; else the address stays, and the Host header tells."""
    plain = [(MANY.url, host) for host in HOSTS]
    assert destinations(MANY) == plain
    assert destinations(SECURE) == [(f"https://{host}:444/page", host) for host in HOSTS]
    assert destinations(replace(MANY, hosts=())) == [(MANY.url, HOSTS[0])]


def test_the_program_that_was_found_takes_the_place_of_its_name() -> None:
    """Also behind the shell that starts one for each host."""
    wrk = generator("wrk")
    assert command(wrk, "/opt/wrk", MANY)[0] == "/opt/wrk"
    assert command(wrk, "/opt/wrk", SECURE)[:3] == ["sh", "per-host.sh", "/opt/wrk"]
    assert "-c2" in command(wrk, "/opt/wrk", SECURE) and "-t1" in command(wrk, "/opt/wrk", SECURE)


REFUSALS: list[tuple[str, Load, str]] = [
    ("hey", MANY, "one host only, got 3: wrk, wrk2 and k6"),
    ("oha", MANY, "one host only"),
    ("wrk", replace(SECURE, connections=7), "7 connections are not a multiple of 3 hosts"),
    ("k6", replace(MANY, connections=7), "7 connections are not a multiple of 3 hosts"),
    ("wrk2", replace(SECURE, rate_rps=600, duration_s=30), "wrk and k6 take one for each host"),
    ("wrk", replace(MANY, resumption=False), "hey and k6 never do"),
    ("wrk2", replace(MANY, rate_rps=600, duration_s=30, resumption=False), "hey and k6 never do"),
    ("oha", replace(MANY, hosts=(), resumption=False), "hey and k6 never do"),
    ("hey", replace(MANY, hosts=(), resumption=True), "wrk does"),
    ("k6", replace(MANY, resumption=True), "wrk does"),
]


@pytest.mark.parametrize(("name", "load", "says"), REFUSALS)
def test_what_a_generator_cannot_do_it_refuses(name: str, load: Load, says: str) -> None:
    """The sentence says who can."""
    assert says in (generator(name).refusal(load) or "no refusal")


@pytest.mark.parametrize(
    ("name", "load"),
    [
        ("wrk", replace(SECURE, resumption=True)),
        ("k6", replace(SECURE, resumption=False)),
        ("hey", replace(MANY, hosts=("one",), resumption=False)),
        ("wrk2", replace(MANY, rate_rps=600, duration_s=30, resumption=True)),
    ],
)
def test_what_it_can_do_it_does_not(name: str, load: Load) -> None:
    assert generator(name).refusal(load) is None


def test_names_in_a_handshake_need_a_handshake() -> None:
    assert "https://" in (common_refusal(replace(SECURE, url="http://a/")) or "")


def test_hosts_of_a_recorded_load_come_back_as_they_were() -> None:
    """The golden cases hold what the scripts were made from."""
    *_, load = case("wrk/sni")
    assert load.sni_per_host is True
