"""`capacity`: how many proxies of which size, from what requests cost in measured runs."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from rich.console import Console

from lab.base.errors import UsageError, refuse_unknown
from lab.base.quantities import number
from lab.commands import Adder

if TYPE_CHECKING:
    from lab.analysis.capacity.size import Wanted

TLS = ("none", "edge", "passthrough", "reencrypt")
UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
BYTES = {"B": 1, "kB": 1024, "MB": 1024**2}
RATE_MOST = 1e12
PAGE_MOST_BYTES = 1024**4
SHARE_LEAST = 0.01
RATE_FORM = re.compile(r"(\d[\d_,]*(?:\.\d+)?)([kMG]?)", re.ASCII)
PAGE_FORM = re.compile(r"(\d+(?:\.\d+)?)(B|kB|MB)(?:\.(?:bin|txt))?", re.ASCII)
RATE_REMEDY = "requests per second, as 1M, 250k or 12_000"


def add(adder: Adder) -> None:
    verb = adder(_capacity, "how many proxies of which size, from what requests cost in measured runs")
    verb.add_argument("--rate", metavar="RATE", help=f"{RATE_REMEDY}, of all proxies together")
    verb.add_argument("--tls", metavar="MODE", default="none", help=f"{', '.join(TLS)} (default: none)")
    verb.add_argument("--page", default="1kB.bin", help="what an answer holds: 8kB.bin, 20kB, 1MB (default: 1kB.bin)")
    ways = verb.add_mutually_exclusive_group()
    ways.add_argument("--keepalive", action="store_true", help="clients keep their connections (default)")
    ways.add_argument("--close", action="store_true", help="a new connection for every request")
    verb.add_argument(
        "--handshakes", metavar="HOW", help="with --close and TLS: full or resumed (default: as measured)"
    )
    verb.add_argument("--variant", help="whose price (default: the run's baseline, where it has one)")
    verb.add_argument("--cores", type=number("--cores", 1, 1024), help="of each proxy (default: several sizes)")
    verb.add_argument("--utilisation", metavar="SHARE", default="70%", help="of the proxies' CPUs (default: 70%%)")
    verb.add_argument(
        "--run", action="append", metavar="RUN", help="the run to go by; several, if made alike (default: the latest)"
    )
    verb.add_argument("--json", action="store_true", help="print it as JSON")
    verb.add_argument("--markdown", action="store_true", help="print it as Markdown")


def _capacity(options: argparse.Namespace, talk: Console) -> int:
    if options.rate is None:
        raise UsageError("--rate", "is missing", RATE_REMEDY)
    from lab.analysis.capacity.answer import answer
    from lab.report.json.capacity import printed
    from lab.report.markdown import markdown
    from lab.report.tables.capacity import page
    from lab.report.terminal import show

    found = answer(options.run or [], _wanted(options), options.cores)
    for line in found.passed_over:
        talk.print(f"passed over: {line}", highlight=False, markup=False, soft_wrap=True)
    if options.json:
        print(printed(found).dumps())
    elif options.markdown:
        print(markdown(page(found)), end="")
    else:
        show(Console(), page(found))
    return 0


def _wanted(options: argparse.Namespace) -> Wanted:
    from lab.analysis.capacity.size import Wanted

    refuse_unknown(options.tls, TLS, "--tls", f"unknown mode '{options.tls}'")
    if options.handshakes is not None and options.handshakes not in ("full", "resumed"):
        raise UsageError("--handshakes", f"expected full or resumed, got '{options.handshakes}'", "choose one of them")
    if options.handshakes is not None and (options.tls == "none" or not options.close):
        raise UsageError(
            "--handshakes", "is for new TLS connections", "give it with --close and a --tls other than none"
        )
    return Wanted(
        rate_rps=rate(options.rate),
        tls=options.tls,
        keepalive=not options.close,
        page=options.page,
        page_bytes=page_bytes(options.page),
        utilisation=share(options.utilisation),
        resumption={None: None, "full": False, "resumed": True}[options.handshakes],
        variant=options.variant,
    )


def rate(text: str) -> float:
    """`1M`, `250k`, `1.5M`, `12_000`, `12,000` → requests per second; UsageError."""
    found = RATE_FORM.fullmatch(text)
    value = float(re.sub("[_,]", "", found[1])) * UNITS[found[2]] if found else 0.0
    if found is None:
        raise UsageError("--rate", f'expected a rate, got "{text}"', RATE_REMEDY)
    if not 0 < value <= RATE_MOST:
        raise UsageError("--rate", f"expected more than 0 and at most {RATE_MOST:,.0f}, got {text}", RATE_REMEDY)
    return value


def page_bytes(text: str) -> int:
    """`8kB.bin`, `20kB`, `500B`, `1MB` → bytes (powers of 1024, as the pages'); UsageError."""
    found = PAGE_FORM.fullmatch(text)
    size = float(found[1]) * BYTES[found[2]] if found else 0.0
    if not 1 <= size <= PAGE_MOST_BYTES:
        raise UsageError("--page", f'expected a page or a size, got "{text}"', "as 8kB.bin, 20kB, 500B or 1MB")
    return round(size)


def share(text: str) -> float:
    """`70%`, `0.7` → 0.7; UsageError for what is not 1 % to 100 %."""
    bare = text.removesuffix("%").strip()
    try:
        value = float(bare) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = float("nan")
    if not SHARE_LEAST <= value <= 1:
        raise UsageError("--utilisation", f'expected a share of the CPU, got "{text}"', "as 70% or 0.7: 1% to 100%")
    return value
