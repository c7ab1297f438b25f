"""The verb `knee`: it finds the highest request rate that a variant serves within a latency bound."""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING, Any, get_args

from rich.console import Console

from lab.base.errors import refuse_first, refuse_if
from lab.base.quantities import parse_duration_s, parse_share, whole_number_in
from lab.commands import (
    RESUME,
    TARGETED,
    VARIANT,
    Options,
    Verb,
    command_for_record,
    new_run_options,
    one_of,
    print_answer,
)
from lab.commands.measuring import (
    answer_plan,
    done_samples,
    enter_target,
    measure,
    print_plan_lines,
    resume_command,
    target_of,
)
from lab.commands.traffic import hand_over_traffic
from lab.model.endpoint import Tls
from lab.model.load import Encoding
from lab.model.pages import PAGES
from lab.stats.units import format_duration

if TYPE_CHECKING:
    from lab.experiments.bench import PreparedRun
    from lab.records.store import RunStore


def _parse_latency(text: str) -> str:
    fault, remedy = f'expected a duration with its unit, got "{text}"', "write 20ms or 0.5s, up to 120s"
    refuse_if(not 0 < (parse_duration_s(text.strip()) or 0.0) <= 120, "--p99", fault, remedy)
    return text.strip()


def _parse_duration(text: str) -> float:
    try:
        value = float(text.removesuffix("s"))
    except ValueError:
        value = nan
    refuse_if(not 1 <= value <= 3600, "--duration", f'expected seconds, got "{text}"', "from 1 to 3600")
    return value


def _parse_precision(text: str) -> str:
    fault = f'expected a percentage, got "{text}"'
    refuse_if(not 0.01 <= (parse_share(text) or 0.0) <= 0.5, "--precision", fault, "write 5%, from 1% to 50%")
    return text


def _run_knee(options: Options, talk: Console) -> int:
    from lab.generators import get_generator

    refuse_first(
        (
            options.resume and new_run_options(options),
            "knee",
            "--resume goes on with the search's own variants, load and conditions",
            "leave them out",
        ),
        (
            not options.variants and not options.resume,
            "knee",
            "no variant named",
            "`just list` shows them; try `just knee ingress-nginx`",
        ),
    )
    if options.generator is not None:
        get_generator(options.generator)
    fault = "--traffic has its own: k6 makes a mix of requests"
    refuse_if(options.traffic and options.page, "--page", fault, "leave it out")
    refuse_if(options.traffic and options.generator not in (None, "k6"), "--generator", fault, "leave it out")

    with hand_over_traffic(options) as made:
        target = enter_target(options, target_of(options))
    from lab.commands.progress import SearchTerminal
    from lab.experiments import knee as experiment

    if options.resume:
        prepared, run = experiment.resume(options.resume, target)
    else:
        command, settings = command_for_record(options, "variants"), _search_settings(options)
        settings |= {} if made is None else {"generator": "k6", "traffic": made.traffic}
        prepared, run = experiment.prepare(options.variants, target, command, **settings), None
    _print_plan(talk, prepared, run)
    if options.plan:
        return answer_plan(options, [(prepared, done_samples(run))])

    def search(store: RunStore) -> None:
        chosen = next(iter(prepared.chosen.values()))
        experiment.search(target, prepared.variants, chosen, store, SearchTerminal(talk, store.record))

    resume = resume_command(options, "knee", prepared.record.id)
    store = measure(talk, prepared, run, target, resume, search)
    return 1 if store is None else print_knee(options, store, keep=True)


def _search_settings(options: Options) -> dict[str, Any]:
    """Return the settings of a search for the knee (the highest rate within a latency bound) that the user gave.

    Settings that were not given are absent, so that `prepare` uses its defaults.

    Returns:
        The name of a parameter of `prepare` → value.

    """
    settings = {
        "generator": options.generator,
        "connections": options.connections,
        "duration_s": options.duration,
        "start_rps": options.start,
        "p99_s": parse_duration_s(options.p99) if options.p99 else None,
        "precision": parse_share(options.precision) if options.precision else None,
        "page": options.page,
        "tls": options.tls,
        "accept_encoding": options.accept_encoding,
        "keepalive": False if options.close else None,
    }
    return {name: value for name, value in settings.items() if value is not None}


def _print_plan(talk: Console, prepared: PreparedRun, run: RunStore | None) -> None:
    from lab.report.loads import describe_load
    from lab.report.plan import describe_mix, name_generator
    from lab.report.tables.knee import describe_conditions

    record, search = prepared.record, prepared.record.knee
    assert search is not None
    point = record.points[0]
    bisection = f"bisection to within {100 * search.precision:g} %, 3 confirmations"
    lines = [
        ("run", record.id),
        ("target", record.target),
        ("variants", ", ".join(arm.variant for arm in record.arms)),
        ("load", f"{name_generator(record, point)}, {describe_load(point)} at first"),
        *describe_mix(record),
        ("passes", describe_conditions(search)),
        ("search", f"x2 from {search.start_rps:,} req/s, then {bisection}"),
        ("done", f"{len(run.samples())} samples of {len(record.slots)} trials\n")
        if run is not None
        else ("duration", f"about {format_duration(prepared.design.duration_s)} {prepared.design.promised_by}\n"),
    ]
    print_plan_lines(talk, lines)


def print_knee(options: Options, run: RunStore, keep: bool = False) -> int:
    """Print the result of a search for the knee: the highest rate that a variant serves within the latency bound.

    Args:
        options: The parsed options.
        run: The stored search.
        keep: Whether to write the result into the run's folder, too.

    Returns:
        The exit status: 0 if the knee of every variant was found, else 1.

    """
    from lab.analysis.knee.report import build_report
    from lab.records.tables import KNEE as RECORD
    from lab.report.grid import make_sentence
    from lab.report.result import describe_programs
    from lab.report.tables.knee import page

    report = build_report(run)
    if keep:
        run.write(RECORD, report)
    print_answer(
        options,
        lambda: [make_sentence(describe_programs(run), "dim"), *page(report)],
        lambda: report.model_dump_json(indent=1),
        [f"\n{run.folder}"],
    )
    return 0 if report.complete else 1


KNEE = Verb(
    "find the highest rate that a variant serves within a latency bound, and what limits it there",
    _run_knee,
    {
        "variants": {"nargs": "*", **VARIANT},
        "--p99": {
            "type": _parse_latency,
            "metavar": "50ms",
            "help": "latency bound: the highest acceptable p99 (default: 50ms)",
        },
        "--generator": {
            "metavar": "NAME",
            "help": "load generator: wrk2, oha or k6 (default: wrk2, or where it is missing oha or k6)",
        },
        "--connections": {
            "type": whole_number_in("--connections", 1, 100_000),
            "metavar": "N",
            "help": "number of client connections (default: 100)",
        },
        "--duration": {
            "type": _parse_duration,
            "metavar": "SECONDS",
            "help": "duration of each trial (default: 10, with wrk2 32)",
        },
        "--start": {
            "type": whole_number_in("--start", 1, 1_000_000),
            "metavar": "REQ/S",
            "help": "first rate to try (default: 100, or one request per connection where the generator needs as many)",
        },
        "--precision": {
            "type": _parse_precision,
            "metavar": "5%",
            "help": "how precisely the rate is found: the search stops when its two ends are this close (default: 5%%)",
        },
        "--page": {
            "type": one_of("--page", "page", PAGES),
            "metavar": "PAGE",
            "help": f"the page that is requested: {', '.join(PAGES)} (.txt compresses, .bin does not; default: 1kB.bin)",
        },
        "--tls": {
            "type": one_of("--tls", "mode", get_args(Tls)),
            "metavar": "MODE",
            "help": f"where TLS ends: {', '.join(get_args(Tls))} (default: whatever the variant routes)",
        },
        "--accept-encoding": {
            "type": one_of("--accept-encoding", "encoding", get_args(Encoding)),
            "metavar": "ENCODING",
            "help": f"compression that the client accepts: {', '.join(get_args(Encoding))} (default: identity, which is none)",
        },
        "--close": {"action": "store_true", "help": "open a new connection for every request"},
        "--resume": RESUME,
    },
    ("--traffic", *TARGETED, "--plan", "--json"),
    examples=("just knee ingress-nginx", "just knee traefik --p99 20ms --connections 200 --plan"),
)
