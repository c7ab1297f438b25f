"""`ledger`: the published claims, and what the committed runs say of each."""

from __future__ import annotations

import argparse

from rich.console import Console

from lab.commands import Adder


def add(adder: Adder) -> None:
    verb = adder(_ledger, "every published claim: whether its own data bear it out, and whether the committed runs do")
    verb.add_argument("study", metavar="STUDY", nargs="?", help="its claims alone")
    verb.add_argument("--rules", action="store_true", help="by which rules each is judged, and each kind of claim")
    verb.add_argument(
        "--boots",
        action="store_true",
        help="instead: what to measure once the machine has booted anew, for findings and claims that rest on too few boots",
    )
    verb.add_argument("--json", action="store_true", help="print it as JSON")
    verb.add_argument("--markdown", action="store_true", help="print it as Markdown")


def _ledger(options: argparse.Namespace, talk: Console) -> int:
    from lab.analysis.claims import ledger
    from lab.analysis.claims.studies import study_keys
    from lab.base.errors import UsageError, did_you_mean
    from lab.report.json.answers import list_verdicts
    from lab.report.json.shape import dumps
    from lab.report.markdown import markdown
    from lab.report.tables import ledger as tables

    if options.study is not None and options.study not in study_keys():
        raise UsageError("study", f"unknown study '{options.study}'", did_you_mean(options.study, study_keys()))
    if options.boots:
        return _boots(options)
    verdicts, known = ledger.ledger(options.study), ledger.checks(options.study)
    if options.json:
        print(dumps(list_verdicts(verdicts, known)))
    elif options.markdown:
        print(markdown(tables.page(verdicts, known, linked=True)), end="")
    else:
        tables.show(Console(), verdicts, options.rules, known)
    return 0


def _boots(options: argparse.Namespace) -> int:
    import json
    from dataclasses import asdict

    from lab.analysis.claims import evidence, ledger
    from lab.analysis.steps import boots_wanted
    from lab.report.markdown import markdown
    from lab.report.tables import boots as tables
    from lab.report.terminal import show

    wanted = boots_wanted(evidence.references()[0], ledger.ledger(options.study))
    if options.json:
        print(json.dumps([asdict(one) for one in wanted], indent=1))
    elif options.markdown:
        print(markdown(tables.page(wanted)), end="")
    else:
        show(Console(), tables.page(wanted))
    return 0
