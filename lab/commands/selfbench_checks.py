"""The two long checks of `selfbench`: what is claimed beside a noisy neighbour, and how often known effects are found."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from lab.base.errors import UsageError
from lab.commands.answers import answer, print_answer
from lab.commands.arguments import known_target
from lab.commands.measuring import say, settle
from lab.model.names import DEFAULT_TARGET


def check_neighbour(options: argparse.Namespace, talk: Console) -> int:
    from lab.experiments.selfbench import neighbour

    folder = _into(options.into, "selfbench-neighbour")
    done = neighbour.finished(folder)
    say(talk, "plan", neighbour.plan_text(options.neighbour, len(done)))
    say(talk, "goes on", f"just selfbench --neighbour {options.neighbour} --into {folder}\n")
    if options.plan:
        return 0
    for one in done:
        talk.print(neighbour.line(one), markup=False, highlight=False, soft_wrap=True)
    for one in neighbour.measured(folder, options.neighbour, options.seed):
        talk.print(neighbour.line(one), markup=False, highlight=False, soft_wrap=True)
    found = sorted(neighbour.finished(folder), key=lambda one: one.number)[: options.neighbour]
    held, text = neighbour.verdict(found)
    if options.json:
        _answer([neighbour.NeighbourReport(runs=tuple(found), held=held, verdict=text).model_dump_json(indent=1)])
    else:
        _answer([*map(neighbour.line, found), f"\n{text}"])
    return 0 if held else 1


def check_pairs(options: argparse.Namespace, talk: Console) -> int:
    from lab.analysis.noise import BASELINE
    from lab.analysis.pairs import report_of
    from lab.experiments.selfbench import pairs
    from lab.report.tables.pairs import page
    from lab.stats.units import format_duration

    folder, variants = _into(options.into, "selfbench-pairs"), list(dict.fromkeys(options.variant or [BASELINE]))
    _known(variants)
    target = known_target(DEFAULT_TARGET, None)
    if not options.plan:
        inside = target.enter(options.argv)
        if inside is not None:
            return inside
    takes = format_duration(pairs.takes_s(options.rounds, len(variants)))
    done = len({(one.round, one.variant) for one in pairs.finished(folder)})
    said = f"{options.rounds} rounds of {', '.join(variants)} against {BASELINE}, alone and as pairs: about {takes}"
    say(talk, "plan", said + (f"; {done} done" if done else ""))
    say(talk, "goes on", f"just selfbench pairs --rounds {options.rounds} --into {folder}\n")
    if options.plan:
        return 0
    settle()
    for one in pairs.measured(target, BASELINE, variants, options.rounds, options.seed, folder):
        say(talk, "", pairs.line(one))
    report = report_of(pairs.finished(folder))
    print_answer(options, lambda: page(report), lambda: report.model_dump_json(indent=1))
    return 0 if report.rows else 1


def check_quick(options: argparse.Namespace, talk: Console) -> int:
    from lab.experiments.selfbench import quick
    from lab.stats.units import format_duration

    folder, variants = _into(options.into, "selfbench-quick"), list(dict.fromkeys(options.variant or ["keepalive"]))
    _known(variants)
    target = known_target(options.target, None).name

    def asked() -> list[quick.Quick]:
        """Of this call; others' may lie there, too."""
        done = quick.finished(folder)
        return [
            one for one in done if one.target == target and one.variant in variants and one.number <= options.rounds
        ]

    done = len(asked())
    takes = format_duration((options.rounds * len(variants) - done) * quick.takes_s(target))
    again = [f"--rounds {options.rounds}", *(f"--variant {name}" for name in options.variant or ())]
    again += [f"--target {options.target}"] if options.target else []
    again += [f"--seed {options.seed}"] if options.seed != 1 else []
    say(talk, "plan", f"{options.rounds} runs of {', '.join(variants)}, {done} of them done: about {takes}")
    say(talk, "goes on", f"just selfbench quick {' '.join(again)} --into {folder}\n")
    if options.plan:
        return 0
    settle()
    for one in quick.measured(folder, variants, options.rounds, options.seed, target):
        talk.print(quick.line(one), markup=False, highlight=False, soft_wrap=True)
    found = asked()
    text = quick.verdict(found)
    if options.json:
        _answer([quick.QuickReport(runs=tuple(found), verdict=text).model_dump_json(indent=1)])
    else:
        _answer([*map(quick.line, found), f"\n{text}"])
    return 0


def check_order(options: argparse.Namespace, talk: Console) -> int:
    """Test every committed run of steady loads for a dependence on the order of points; exit 1 where there is one."""
    from lab.analysis.order_report import OrderReport, report_of_reference
    from lab.report.tables.order import page
    from lab.report.terminal import show

    say(talk, "plan", "every order test of every committed run, some minutes where verbatim output is read for p99\n")
    if options.plan:
        return 0
    report: OrderReport = report_of_reference()
    if options.json:
        _answer([report.model_dump_json(indent=1)])
    else:
        with answer() as out:
            show(out, page(report))
    return 0 if not report.dependent else 1


def check_effects(options: argparse.Namespace, talk: Console) -> int:
    from lab.experiments.selfbench import injected
    from lab.report.tables.known_costs import page
    from lab.report.terminal import show

    folder = _into(options.into, "selfbench-effects")
    names = injected.variants()
    blocks = options.effects - options.effects % injected.TEN
    say(talk, "plan", injected.plan_text(names, blocks, folder))
    say(talk, "goes on", f"just selfbench --effects {blocks} --into {folder}\n")
    if options.plan:
        return 0
    run = injected.measure(folder, names, blocks, options.seed)
    known, found = injected.read(run)
    told = injected.report(run.record.id, known, found)
    if options.json:
        _answer([told.model_dump_json(indent=1)])
    else:
        with answer() as out:
            show(out, page(known))
        _answer([*map(injected.line, found), f"\n{told.verdict}", str(run.folder)])
    return 0 if told.kept else 1


def _answer(lines: Sequence[str]) -> None:
    with answer() as out:
        for line in lines:
            out.print(line, markup=False, highlight=False, soft_wrap=True)


def _known(variants: Sequence[str]) -> None:
    """UsageError for one that there is not, before anything starts."""
    from lab.model.variants.variants import load_variant

    for name in variants:
        load_variant(name)


def _into(named: str | None, default: str) -> Path:
    from lab.base.files import runs_folder

    if named and Path(named).exists() and not Path(named).is_dir():
        raise UsageError("--into", f"{named} is no folder", "name one, or what does not exist yet")
    return Path(named).absolute() if named else runs_folder() / default
