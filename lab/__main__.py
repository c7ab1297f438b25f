"""The command line: the only module that parses arguments, prints and exits.

Exit status: 0 good; 1 measuring had begun and some cell has no valid sample; 2 wrong usage or a missing prerequisite.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from rich.console import Console

from lab.errors import LabError, UsageError, did_you_mean

if TYPE_CHECKING:
    from lab.bench import Prepared
    from lab.reparse import Reparsed
    from lab.store import RunStore
    from lab.targets.base import Target

BLOCKS_MOST = 1000


class Parser(argparse.ArgumentParser):
    """argparse whose complaints are the lab's own kind of error."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(self.prog, message, f"`{self.prog} --help` shows the usage")


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    talk = Console(stderr=True)
    try:
        options = parser().parse_args(arguments)
        return int(options.verb(options, talk))
    except LabError as error:
        place, rest = error.place, str(error)[len(error.place) :]
        talk.print(
            f"[bold red]{_plain(place)}[/]{_plain(rest)}",
            highlight=False,
            soft_wrap=True,
        )
        return error.exit_status
    except KeyboardInterrupt:
        talk.print("interrupted", highlight=False, soft_wrap=True)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader (`| head`) has gone
        return 0
    except Exception as error:
        if os.environ.get("LAB_DEBUG"):
            raise
        remedy = "this is a defect of the lab: LAB_DEBUG=1 shows where; what was recorded is kept"
        talk.print(
            f"[bold red]lab[/]: {type(error).__name__}: {_plain(str(error))}\n  {remedy}",
            highlight=False,
        )
        return 1


def parser() -> Parser:
    top = Parser(
        prog="lab",
        description="A benchmark lab for ingress proxies: did the tuning step matter?",
    )
    verbs = top.add_subparsers(required=True, metavar="VERB", parser_class=Parser)

    def verb(name: str, function: Callable[[argparse.Namespace, Console], int], about: str) -> argparse.ArgumentParser:
        added = verbs.add_parser(name, help=about, description=about)
        added.set_defaults(verb=function)
        return added

    bench = verb("bench", _bench, "measure variants against their baselines")
    bench.add_argument(
        "variants",
        nargs="*",
        metavar="VARIANT",
        help="an overlay, or BASELINE+KNOB+KNOB",
    )
    bench.add_argument("--target", help="where it runs (default: local)")
    bench.add_argument("--sweep", help="the loads (default: quick)")
    bench.add_argument(
        "--blocks",
        type=_number("--blocks", 1, BLOCKS_MOST),
        help="how often each is measured",
    )
    bench.add_argument("--seed", type=_number("--seed", 0, 2**31 - 1), help="of the shuffled order")
    bench.add_argument("--resume", metavar="RUN", help="go on with an interrupted run")
    bench.add_argument("--json", action="store_true", help="print the result as JSON")
    bench.add_argument("--plan", action="store_true", help="print the plan and stop")

    beside = verb("with", _with, "bring a variant up and run a command in the client's place (LAB_URL, LAB_HOST)")
    beside.add_argument("--target", default=None, help="where it runs (default: local)")
    beside.add_argument("variant", metavar="VARIANT")
    beside.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="CMD", help="e.g. sh -c 'wrk -c64 $LAB_URL/1kB.bin'"
    )

    table = verb("table", _table, "print a run's table again")
    table.add_argument("run", metavar="RUN")
    table.add_argument(
        "--from-raw",
        action="store_true",
        help="recompute every number from the verbatim output",
    )
    table.add_argument("--json", action="store_true")
    table.add_argument("--markdown", action="store_true")

    listing = verb("list", _list, "variants, knobs, sweeps and runs")
    listing.add_argument("--json", action="store_true")
    show = verb("show", _show, "a variant: its knobs, read-backs and manifest diff")
    show.add_argument("variant", metavar="VARIANT")
    show.add_argument("--json", action="store_true")
    doctor = verb("doctor", _doctor, "try every prerequisite and say how to get what is missing")
    doctor.add_argument("--json", action="store_true")
    schema = verb(
        "schema",
        _schema,
        "print or write the JSON schemas of everything the lab reads and records",
    )
    schema.add_argument("--write", action="store_true")
    readme = verb("readme", _readme, "check or write the generated parts of README.md")
    readme.add_argument("--write", action="store_true")
    return top


def _number(place: str, least: int, most: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise UsageError(
                place,
                f'expected a whole number, got "{text}"',
                f"from {least} to {most}",
            ) from None
        if not least <= value <= most:
            raise UsageError(
                place,
                f"expected {least} to {most}, got {value}",
                "choose a number in that range",
            )
        return value

    return convert


def _bench(options: argparse.Namespace, talk: Console) -> int:
    from lab.targets import DEFAULT

    if options.resume and (options.variants or options.sweep or options.blocks or options.seed is not None):
        fault = "--resume goes on with the run's own variants, sweep, blocks and seed"
        raise UsageError("bench", fault, "leave them out")
    if not options.variants and not options.resume:
        raise UsageError(
            "bench",
            "no variant named",
            "`just list` shows them; try `just bench baseline`",
        )
    if options.target is not None:
        _known_target(options.target)
    target = _known_target(_target_of(options) or DEFAULT)
    inside = target.enter(["bench", *_rebuilt(options)])
    return _bench_here(options, talk) if inside is None else inside


def _with(options: argparse.Namespace, talk: Console) -> int:
    from lab.process import run_beside
    from lab.targets import DEFAULT
    from lab.variants import load_variant

    if not options.command:
        raise UsageError("with", "no command given", "for example: just with baseline sh -c 'curl -i $LAB_URL/healthz'")
    variant = load_variant(options.variant)
    target = _known_target(options.target or DEFAULT)
    arguments = ["with", f"--target={target.name}", options.variant, *options.command]
    inside = target.enter(arguments)
    return run_beside(target, variant, options.command) if inside is None else inside


def _known_target(name: str) -> Target:
    from lab.targets import targets

    if name not in targets():
        raise UsageError("--target", f"unknown target '{name}'", did_you_mean(name, targets()))
    return targets()[name]


def _target_of(options: argparse.Namespace) -> str | None:
    from lab.store import RunStore

    return RunStore.open(options.resume).record.target if options.resume else options.target


def _rebuilt(options: argparse.Namespace) -> list[str]:
    """The arguments again, for the process inside the target's own tree."""
    named = ("target", "sweep", "blocks", "seed", "resume")
    flags = [f"--{name}={value}" for name in named if (value := getattr(options, name)) is not None]
    return [*flags, *(f"--{name}" for name in ("json", "plan") if getattr(options, name)), "--", *options.variants]


def _bench_here(options: argparse.Namespace, talk: Console) -> int:
    from lab import bench
    from lab.progress import Terminal
    from lab.run import Bench, settled
    from lab.targets import DEFAULT, targets

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as cleanly as Ctrl-C
    for name in [name for name in os.environ if name.startswith(("K6_", "LUA_"))]:
        del os.environ[name]  # k6, wrk and wrk2 would take them for options of the load
    command = ("lab", "bench", *_rebuilt(options))
    if options.resume:
        prepared, run = bench.resume(options.resume, options.target, targets())
        target = targets()[prepared.record.target]
        done = [sample for sample in run.samples() if settled(sample)]
    else:
        target = targets()[options.target or DEFAULT]
        request = bench.Request(
            tuple(options.variants),
            options.sweep or "quick",
            options.blocks,
            options.seed,
        )
        prepared = bench.prepare(request, target, command)
        run, done = None, []
    _print_plan(talk, prepared, len(done))
    if options.plan:
        return 0
    begun = False
    try:
        with bench.opened(prepared, run, target) as store:
            begun = True
            done = [sample for sample in store.samples() if settled(sample)]
            with Terminal(talk, prepared.plan, prepared.forecast.duration_s, len(done)) as watching:
                subject = bench.overflow_is_subject(prepared.variants.values())
                Bench(target, prepared.variants, prepared.chosen, store, watching, subject).measure()
            watching.account()
    except KeyboardInterrupt:
        if not begun:
            raise
        _say_resume(talk, prepared.record.id, "interrupted")
        return 1
    except LabError:
        if begun:
            _say_resume(talk, prepared.record.id, "stopped")
        raise
    return _print_result(options, store)


def _say_resume(talk: Console, run: str, what: str) -> None:
    talk.print(
        f"\n{what}; every complete sample is kept. Go on with:\n  just bench --resume {run}",
        highlight=False,
    )


def _print_plan(talk: Console, prepared: Prepared, done: int) -> None:
    from lab.units import format_duration

    def line(head: str, text: str) -> None:
        talk.print(f"[bold]{head:<10}[/] {text}", highlight=False, soft_wrap=True)

    record, planned, known = prepared.record, prepared.plan, prepared.forecast
    measured = [arm.name for arm in planned.arms if arm.role != "reference"]
    references = [arm.name for arm in planned.arms if arm.role == "reference"]
    line("run", record.id)
    line("target", f"{record.target}: {_roles(record.facts)}")
    line("arms", ", ".join(measured) + (f"; once: {', '.join(references)}" if references else ""))
    for point in planned.points:
        used = prepared.chosen[point.name]
        name = used.generator.name + (f" standing in for {used.stand_in_for}" if used.stand_in_for else "")
        load = f"{point.rate_rps:g} req/s" if point.rate_rps is not None else "closed loop"
        text = f"{point.name}: {name}, {point.connections} connections, {load}, {point.duration_s:g} s of /{point.page}"
        line("point", text)
    samples = f"{len(planned.slots)} samples in {planned.blocks} block{'s' if planned.blocks != 1 else ''}"
    line("plan", f"{samples}{f', {done} of them done' if done else ''}, seed {planned.seed}")
    share = 1 - done / len(planned.slots) if planned.slots else 0
    line("duration", f"about {format_duration(known.duration_s * share)}")
    effects = ", ".join(f"{effect:.1%} in {label}" for label, effect in known.resolves)
    line("resolves", f"{f'effects from {effects}' if effects else 'nothing'} ({known.source})\n")


def _roles(facts: Mapping[str, str]) -> str:
    """`proxy on CPU 0; generator, backend, lab on CPU 1`."""
    found: dict[str, list[str]] = {}
    for key, cpus in facts.items():
        if key.startswith("cpus_"):
            found.setdefault(cpus, []).append(key.removeprefix("cpus_"))
    return "; ".join(f"{', '.join(roles)} on CPU {cpus}" for cpus, roles in found.items())


def _print_result(options: argparse.Namespace, run: RunStore | Reparsed) -> int:
    from lab import tables
    from lab.summary import summarise_run

    summary = summarise_run(run.record, run.samples(), run.histogram)
    out = Console(soft_wrap=False)
    if options.json:
        print(json.dumps(tables.as_json(summary), indent=1))
    elif getattr(options, "markdown", False):
        print(tables.as_markdown(summary), end="")
    else:
        tables.print_table(out, summary)
        out.print(f"\n[dim]{run.folder}[/]", highlight=False, soft_wrap=True)
    return 0 if summary.complete else 1


def _table(options: argparse.Namespace, talk: Console) -> int:
    from lab.reparse import from_raw
    from lab.store import RunStore

    run = RunStore.open(options.run)
    return _print_result(options, from_raw(run) if options.from_raw else run)


def _list(options: argparse.Namespace, talk: Console) -> int:
    from lab import catalog

    if options.json:
        print(json.dumps(catalog.as_json(), indent=1))
    else:
        catalog.print_list(Console())
    return 0


def _show(options: argparse.Namespace, talk: Console) -> int:
    from lab import catalog

    if options.json:
        print(json.dumps(catalog.show_json(options.variant), indent=1))
    else:
        catalog.print_show(Console(), options.variant)
    return 0


def _doctor(options: argparse.Namespace, talk: Console) -> int:
    from lab import doctor

    return doctor.doctor(Console(), as_json=options.json)


def _schema(options: argparse.Namespace, talk: Console) -> int:
    from lab import schema

    if options.write:
        schema.write()
    else:
        print(json.dumps(schema.schemas(), indent=1))
    return 0


def _readme(options: argparse.Namespace, talk: Console) -> int:
    from lab import readme

    path = Path(__file__).parent.parent / "README.md"
    if options.write:
        readme.write(path)
        return 0
    stale = readme.stale(path)
    if stale:
        raise UsageError(
            "README.md",
            f"generated parts are out of date: {', '.join(stale)}",
            "`just readme` writes them",
        )
    return 0


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)


if __name__ == "__main__":
    sys.exit(main())
