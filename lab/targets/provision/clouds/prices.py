"""What a cluster costs roughly, from `lab/targets/provision/prices.yaml`: shown before anybody is asked for a yes. No bill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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

    def __str__(self) -> str:
        return f"{self.count} × {self.machine} ({self.pool})"


def lines(provider: str, pools: Sequence[Nodes], path: Path = PRICES) -> list[str]:
    """One line for each pool, one for the control plane, the sum, and where the prices are from.

    UsageError for a machine without a price: nobody is asked for a yes to an unknown sum.
    """
    listed = yaml.safe_load(path.read_text())
    prices: dict[str, Any] = listed[provider]
    said, total = [], float(prices["control plane"])
    for pool in pools:
        if pool.machine not in prices:
            known = ", ".join(sorted(str(name) for name in prices if name != "source"))
            raise UsageError(str(path), f"{provider}: no price for {pool.machine}", f"add one; known: {known}")
        each = prices[pool.machine] + prices.get("address", 0.0) + pool.disk_gb * prices.get("disk GB", 0.0)
        total += pool.count * each
        said.append(f"{pool}: about {_usd(pool.count * each)} an hour")
    plane = float(prices["control plane"])
    said.append(f"control plane: about {_usd(plane)} an hour" if plane else "control plane: free")
    said.append(
        f"together: about {_usd(total)} an hour, {_usd(24 * total)} a day, until `just down` (plus taxes, traffic)"
    )
    return [*said, f"prices of {listed['as_of']}: {prices['source']}"]


def _usd(amount: float) -> str:
    return f"{amount:.2f} USD"
