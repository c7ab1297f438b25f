"""What a cluster costs roughly, from `lab/targets/provision/prices.yaml`: shown before anybody is asked for a yes. No bill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from lab.base.errors import UsageError

PRICES = Path(__file__).parents[1] / "prices.yaml"


@dataclass(frozen=True, slots=True)
class Nodes:
    """Machines of one kind. `disk_gb`: of each, where it is paid for apart from the machine."""

    pool: str
    count: int
    machine: str
    disk_gb: int = 0


def lines(provider: str, pools: Sequence[Nodes]) -> list[str]:
    """One line for each pool, one for the control plane, the sum, and where the prices are from.

    UsageError for a machine without a price: nobody is asked for a yes to an unknown sum.
    """
    listed = yaml.safe_load(PRICES.read_text())
    prices = listed[provider]
    plane = prices["control plane"]
    said, total = [], plane
    for pool in pools:
        if pool.machine not in prices:
            known = ", ".join(sorted(name for name in prices if name != "source"))
            raise UsageError(str(PRICES), f"{provider}: no price for {pool.machine}", f"add one; known: {known}")
        each = prices[pool.machine] + prices.get("address", 0.0) + pool.disk_gb * prices.get("disk GB", 0.0)
        total += pool.count * each
        said.append(f"{pool.count} × {pool.machine} ({pool.pool}): about {pool.count * each:.2f} USD an hour")
    return [
        *said,
        f"control plane: about {plane:.2f} USD an hour" if plane else "control plane: free",
        f"together: about {total:.2f} USD an hour, {24 * total:.2f} USD a day, until `just down` (plus taxes, traffic)",
        f"prices of {listed['as_of']}: {prices['source']}",
    ]
