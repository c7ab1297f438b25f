"""Two routers that share the routes, a route that is new, bodies that are too large: on the local target, with real proxies."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lab.disturbances.new_route import HOST, NewRoute
from lab.model.disturbance import DisturbanceContext
from lab.model.events import EventLog
from lab.model.variants.variants import load_variant
from lab.records.tables import events_frame
from lab.targets.local import LocalSystem, LocalTarget
from lab.targets.readback import read_back
from lab.tests.support.factories import make_point
from lab.tests.support.inside import INSIDE, clean, inside, run_inside, target
from lab.tests.support.waiting import until

__all__ = ["clean", "target"]  # fixtures

MIB = 1024 * 1024
POST = """
import http.client, sys
host, port, name, size = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
asked = http.client.HTTPConnection(host, port, timeout=10)
try:
    asked.request("POST", "/upload", body=bytes(size), headers={"Host": name})
except ConnectionError:
    pass  # answered before it was sent whole
print(asked.getresponse().status)
"""


@pytest.mark.inside
@pytest.mark.skipif(INSIDE, reason="this is inside")
def test_inside() -> None:
    """All tests below, in the namespaces that `enter` would make."""
    run_inside(__file__, "this user", ("this user",))


@inside
def test_each_of_two_routers_answers_for_its_own_half(target: LocalTarget) -> None:
    variant = load_variant("okd+okd-sharded-2")
    point = make_point(routes="all")
    assert len(target.check_variant(variant, [point])[point.name].shards) == 2
    with target.up(variant) as system:
        assert [str(reading) for reading in read_back(system, variant.readback) if not reading.ok] == []
        first, second = system.endpoint(point).shards
        assert (first.url, len(first.hosts), len(second.hosts)) == ("http://10.65.0.1:80", 50, 50)
        assert second.url == "http://10.65.0.2:80"
        alone = replace(system.entry(), base_url=first.url)
        assert system.fetch(replace(alone, host=first.hosts[-1]), "/1kB.bin", 2.0).status == 200
        assert system.fetch(replace(alone, host=second.hosts[-1]), "/1kB.bin", 2.0).status == 503
        assert {pod.pod.name for pod in system.kubelet.pods if pod.pod.role == "proxy"} == {"proxy-0", "proxy-2-0"}
        # names lead there too, which TLS needs
        seen = subprocess.run([*system.client, "cat", "/etc/hosts"], capture_output=True, text=True, check=True)
        known = dict(line.split()[::-1] for line in seen.stdout.splitlines() if "apps.lab" in line)
        assert (known[first.hosts[0]], known[second.hosts[0]]) == ("10.65.0.1", "10.65.0.2")


@inside
@pytest.mark.parametrize(("name", "status"), [("baseline", 404), ("okd", 503)])
def test_a_new_route_is_answered_after_a_while(target: LocalTarget, name: str, status: int, tmp_path: Path) -> None:
    variant = load_variant(name)
    with target.up(variant, changing=True) as system:
        context = DisturbanceContext(system, EventLog(), variant.manifests, tmp_path, lambda name: name)
        asked = replace(system.entry(), host=HOST, hosts=(HOST,))
        NewRoute().prepare(context)
        assert system.fetch(asked, "/1kB.bin", 2.0).status == status
        NewRoute().disturb(context)
        until(lambda: system.fetch(asked, "/1kB.bin", 2.0).status == 200)
        assert events_frame(context.log.events)["kind"].to_list()[:2] == ["Begin", "Change"]


def posted(system: LocalSystem, size: int, folder: Path) -> int:
    """The status of an upload of so many bytes."""
    entry = system.entry()
    host, _, port = entry.base_url.removeprefix("http://").partition(":")
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        argv = [sys.executable, "-c", POST, host, port, entry.host, str(size)]
        done = system.popen(argv, folder, out, err).wait(20)
    assert done == 0, (folder / "err").read_text()
    return int((folder / "out").read_text())


@inside
@pytest.mark.parametrize(
    ("name", "allowed"), [("baseline", MIB), ("upload", 128 * MIB), ("upload-unbuffered", 128 * MIB), ("okd", None)]
)
def test_a_body_that_is_too_large_is_refused_with_413(
    target: LocalTarget, name: str, allowed: int | None, tmp_path: Path
) -> None:
    """What is just as large passes; OKD's router knows no such limit."""
    variant = load_variant(name, fixtures=("answers",))
    with target.up(variant) as system:
        assert [str(reading) for reading in read_back(system, variant.readback) if not reading.ok] == []
        assert posted(system, allowed or 2 * MIB, tmp_path) == 200
        if allowed is not None:
            assert posted(system, allowed + 1, tmp_path) == 413
