"""The verb `capacity`: how many proxies of which size a load needs, by the CPU time per request in a measured run."""

from __future__ import annotations

import re

from rich.console import Console

from lab.base.errors import UsageError, did_you_mean, refuse_first
from lab.base.quantities import parse_share, whole_number_in
from lab.commands import Options, Verb, one_of, print_answer, variant_name

TLS = ("none", "edge", "passthrough", "reencrypt")
RESUMPTION = {None: None, "full": False, "resumed": True}
UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
RATE_MOST = 1e12
SHARE_LEAST = 0.01
RATE_FORM = re.compile(r"(\d[\d_,]*(?:\.\d+)?)([kMG]?)", re.ASCII)
RATE_REMEDY = "requests per second, as 1M, 250k or 12_000"


def _run_capacity(options: Options, _talk: Console) -> None:
    from lab.analysis.capacity.answer import Wanted, compute_capacity
    from lab.model.pages import PAGES
    from lab.report.json.answers import CAPACITY
    from lab.report.tables.capacity import page

    name = options.page if options.page in PAGES else f"{options.page}.bin"
    handshakes, utilisation = options.handshakes, parse_share(options.utilisation) or 0.0
    refuse_first(
        (name not in PAGES, "--page", f"unknown page '{options.page}'", did_you_mean(options.page, PAGES)),
        (
            handshakes not in RESUMPTION,
            "--handshakes",
            f"expected full or resumed, got '{handshakes}'",
            "choose one of them",
        ),
        (
            handshakes is not None and (options.tls == "none" or not options.close),
            "--handshakes",
            "is for new TLS connections",
            "give it with --close and a --tls other than none",
        ),
        (
            not SHARE_LEAST <= utilisation <= 1,
            "--utilisation",
            f'expected a share of the CPU, got "{options.utilisation}"',
            "as 70% or 0.7: 1% to 100%",
        ),
        (len(options.run or ()) > 1, "--run", "is given twice", "name one run: an answer goes by one"),
    )
    resumption, run = RESUMPTION[handshakes], options.run[0] if options.run else None
    demand = Wanted(
        parse_rate(options.rate), options.tls, not options.close, name, utilisation, resumption, options.variant
    )
    capacity = compute_capacity(run, demand, options.cores)
    print_answer(options, lambda: page(capacity), lambda: CAPACITY.dumps(capacity))


def parse_rate(text: str | None) -> float:
    """Parse a rate in requests per second: `1M`, `250k`, `1.5M`, `12_000` or `12,000`.

    Args:
        text: The value of `--rate`; None = the option was left out.

    Raises:
        UsageError: The rate is missing, is not a number, is 0, or is larger than `RATE_MOST`.

    """
    if text is None:
        raise UsageError("--rate", "is missing", RATE_REMEDY)
    match = RATE_FORM.fullmatch(text)
    if match is None:
        raise UsageError("--rate", f'expected a rate, got "{text}"', RATE_REMEDY)
    value = float(re.sub("[_,]", "", match[1])) * UNITS[match[2]]
    if not 0 < value <= RATE_MOST:
        raise UsageError("--rate", f"expected more than 0 and at most {RATE_MOST:,.0f}, got {text}", RATE_REMEDY)
    return value


CAPACITY = Verb(
    "compute how many proxies of which size a rate needs, from the CPU per request of a measured run",
    _run_capacity,
    {
        "--rate": {"metavar": "RATE", "help": f"the load of all proxies together (required): {RATE_REMEDY}"},
        "--tls": {
            "type": one_of("--tls", "mode", TLS),
            "metavar": "MODE",
            "default": "none",
            "help": f"where TLS ends: {', '.join(TLS)} (default: none)",
        },
        "--page": {
            "metavar": "PAGE",
            "default": "1kB.bin",
            "help": "the response, a page that was measured, such as 8kB.bin or 1MB (default: 1kB.bin)",
        },
        "--close": {
            "action": "store_true",
            "help": "clients open a new connection for every request (default: they keep connections)",
        },
        "--handshakes": {
            "metavar": "HOW",
            "help": "kind of TLS handshakes, full or resumed; with --close and --tls (default: as the run measured)",
        },
        "--variant": {
            "type": variant_name,
            "metavar": "VARIANT",
            "help": "the variant whose CPU per request is used (default: the run's baseline, if it has one)",
        },
        "--cores": {
            "type": whole_number_in("--cores", 1, 1024),
            "metavar": "N",
            "help": "CPU cores of each proxy (default: an answer for each of several sizes)",
        },
        "--utilisation": {
            "metavar": "SHARE",
            "default": "70%",
            "help": "highest CPU utilisation of the proxies that you allow (default: 70%%)",
        },
        "--run": {
            "action": "append",
            "metavar": "RUN",
            "help": "the run with the costs, by its name or folder (default: your latest that has them, else a committed one)",
        },
    },
    ("--json", "--markdown"),
    examples=("just capacity --rate 250k --tls edge", "just capacity --rate 1M --page 8kB.bin --cores 4"),
)
