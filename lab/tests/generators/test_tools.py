"""The generators themselves, where they are installed: what each asks of a server, seen from that server (what it measures of one: selfbench's calibration)."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from lab.generators import build_command, find, get_generator
from lab.model.load import GeneratorLoad, GeneratorResult, OutputError, Shard
from lab.tests.support.answering import Seen, answering

HOSTS = ("a.lab.test", "b.lab.test", "c.lab.test")
MANY = GeneratorLoad("http://127.0.0.1:1/", HOSTS[0], 6, 1, hosts=HOSTS)
RATES = {"oha": 50.0}
"""Of those that make no closed loop."""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    made = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=lab.test -keyout key.pem -out cert.pem"
    subprocess.run(made.split(), cwd=folder, check=True, capture_output=True)
    return folder


def made(name: str, load: GeneratorLoad, folder: Path) -> GeneratorResult:
    wanted = get_generator(name)
    program = find(wanted)
    if program is None:
        pytest.skip(f"{wanted.binary} is not installed")
    assert wanted.refusal(load) is None
    for file, text in wanted.files(load).items():
        (folder / file).write_text(text)
    argv = build_command(wanted, program.path, load)
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=load.duration_s + 30, check=False)
    return wanted.parse(done.stdout, done.stderr, done.returncode, load)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wrk", "k6"])
def test_requests_are_spread_evenly_over_the_hosts_and_asked_for_at_their_own_proxy(name: str, tmp_path: Path) -> None:
    """Each host gets its third, whoever of the connections asks; of two servers each has hosts of its own."""
    with answering() as (port, seen):
        result = made(name, replace(MANY, url=f"http://127.0.0.1:{port}/"), tmp_path)
    assert set(seen.hosts) == set(HOSTS)
    assert max(seen.hosts.values()) - min(seen.hosts.values()) < 0.3 * result.requests
    assert result.errors == {}
    with answering() as (one, first), answering() as (two, second):
        urls = (f"http://127.0.0.1:{one}/page", f"http://127.0.0.1:{two}/page")
        shards = (Shard(urls[0], (HOSTS[0], HOSTS[2])), Shard(urls[1], (HOSTS[1],)))
        result = made(name, replace(MANY, url=urls[0], shards=shards), tmp_path)
    assert (set(first.hosts), set(second.hosts)) == ({HOSTS[0], HOSTS[2]}, {HOSTS[1]})
    asked = sum(first.hosts.values()) + sum(second.hosts.values())
    assert result.errors == {} and 0 <= asked - result.requests <= MANY.connections
    assert ("2 wrk processes, one for each proxy" in result.notes) == (name == "wrk")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wrk", "k6"])
def test_each_host_has_connections_of_its_own_where_tls_names_it(name: str, certificate: Path, tmp_path: Path) -> None:
    """As many for each; the addresses stand for names, which are what the URL says and SNI follows."""
    places = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
    with answering(certificate) as (port, seen):
        # Longer than the handshakes of a server in Python take where the CPUs are shared.
        load = GeneratorLoad(f"https://{places[0]}:{port}/", places[0], 6, 4, hosts=places, sni_per_host=True)
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
        with answering() as (port, seen):
            made(
                name,
                replace(GeneratorLoad(f"http://127.0.0.1:{port}/", "h", 2, 1, RATES.get(name)), **changed),
                tmp_path,
            )
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
    with answering(certificate) as (port, seen):
        load = GeneratorLoad(f"https://127.0.0.1:{port}/", "", 2, 1, RATES.get(name), keepalive=keepalive)
        result = made(name, load, tmp_path)
    assert result.requests > 0 and result.errors == {}
    connections = len(seen.places["127.0.0.1"])
    # Kept ones are not counted to the last: wrk asks once before it starts, and Go's client opens one more where
    # it waits for a handshake while another connection becomes idle.
    assert 10 * connections < result.requests if keepalive else connections >= result.requests


def test_processes_that_cannot_start_fail_together_and_at_once(tmp_path: Path) -> None:
    load = GeneratorLoad("https://127.0.0.2:9/", "127.0.0.2", 6, 1, hosts=("127.0.0.2", "127.0.0.3"), sni_per_host=True)
    with pytest.raises(OutputError, match="of each of 2 processes.*unable to connect to 127.0.0.2:9"):
        made("wrk", load, tmp_path)
