"""Access logs made by a seed, in the format of ingress-nginx, with known shares of paths and sizes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from random import Random

SERVICES = ("shop-front-80", "shop-api-8080", "media-static-80")
BEGIN_S = 1_700_000_000.0


def make_lines(count: int, seed: int = 1, paths: int = 200, rate_rps: float = 300.0) -> Iterator[str]:
    """Yield lines with Zipf's shares of paths, fixed sizes for some paths and scattered ones for others."""
    random = Random(seed)
    weights = [1 / rank for rank in range(1, paths + 1)]
    resources = [
        (random.choice(SERVICES), f"/users/{rank}/bill", int(10 ** random.uniform(2, 5))) for rank in range(paths)
    ]
    time_s = BEGIN_S
    for number, (service, path, size) in enumerate(random.choices(resources, weights, k=count)):
        time_s += random.expovariate(rate_rps)
        method = random.choices(["GET", "POST", "HEAD"], [90, 8, 2])[0]
        sent = 0 if method == "HEAD" else size if random.random() < 0.5 else int(size * random.lognormvariate(0, 0.5))
        when = datetime.fromtimestamp(time_s, UTC).strftime("%d/%b/%Y:%H:%M:%S +0000")
        client = f"10.{number % 7}.{number % 251}.9"
        tail = f'"-" "curl/7.68.0" 230 0.002 [{service}] [] 10.0.0.1:80 {sent} 0.002 200 {number:032x}'
        yield f'{client} - alice [{when}] "{method} {path}?token={number} HTTP/1.1" 200 {sent} {tail}'


def make_log(count: int, seed: int = 1, **settings: float) -> bytes:
    """Return such lines as a file."""
    return "".join(f"{line}\n" for line in make_lines(count, seed, **settings)).encode()  # type: ignore[arg-type]
