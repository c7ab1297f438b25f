"""What a load leaves in a real system of the local target, seen from outside its namespaces."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lab.model.drained import undrained
from lab.model.variants.variants import load_variant
from lab.targets.local import LocalTarget
from lab.targets.local.system import PROBED_PAGE
from lab.tests.support.inside import IDENTITIES, INSIDE, clean, inside, run_inside, target

__all__ = ["clean", "target"]  # fixtures

SOME = 200
"""TIME_WAIT sockets that a second of load leaves at least, on a busy machine too."""


@pytest.mark.inside
@pytest.mark.skipif(INSIDE, reason="this is inside")
@pytest.mark.parametrize("identity", IDENTITIES)
def test_inside(identity: str) -> None:
    run_inside(__file__, identity)


@inside
@pytest.mark.skipif(shutil.which("wrk") is None, reason="no wrk on PATH")
def test_a_pool_of_one_leaves_ports_waiting_and_a_pool_of_many_none(target: LocalTarget, tmp_path: Path) -> None:
    """The proxy closes what its pool does not take: its own ports wait, towards the backend, until it is brought up anew."""
    for name, leaves in (("upstream-pool-1", True), ("baseline", False)):
        with target.up(load_variant(name)) as system:
            first = system.leftovers()
            assert undrained(first, None) == [] and first.old_workers == 0 and not first.unseen
            assert first.port_range == {"proxy": 28_232, "backend": 28_232}
            endpoint = system.entry()
            argv = ["wrk", "-c32", "-t1", "-d1s", "-H", f"Host: {endpoint.host}", f"{endpoint.base_url}/{PROBED_PAGE}"]
            with (tmp_path / "out").open("wb") as out:
                system.popen(argv, tmp_path, out, out).wait(timeout=30)
            left = system.leftovers()
            towards = f"{system.pod_address('backend')}:"
            waiting = sum(count for where, count in left.time_wait["proxy"].items() if where.startswith(towards))
            assert (waiting >= SOME) is leaves, (name, left)
            assert left.memory_bytes["proxy"] > 1_000_000 and left.accept_queue["proxy"] == 0


@inside
def test_a_reload_leaves_no_old_workers(target: LocalTarget) -> None:
    """`renew` waits for them to end; the new ones are the ordinary ones then."""
    with target.up(load_variant("baseline")) as system:
        system.leftovers()
        system.renew()
        assert [system.leftovers().old_workers for _ in range(2)] == [0, 0]
