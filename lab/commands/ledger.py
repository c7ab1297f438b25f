"""`ledger`: the published claims, and what the committed runs say of each."""

from __future__ import annotations

import argparse

from rich.console import Console

from lab.base.errors import refuse_unknown
from lab.commands import Adder
from lab.commands.arguments import add_options


def add(adder: Adder) -> None:
    verb = adder(_ledger, "every published claim: whether its own data bear it out, and whether the committed runs do")
    verb.add_argument("study", metavar="STUDY", nargs="?", help="its claims alone")
    verb.add_argument("--rules", action="store_true", help="by which rules each is judged, and each kind of claim")
    verb.add_argument(
        "--boots",
        action="store_true",
        help="instead: what to measure once the machine has booted anew, for findings and claims that rest on too few boots",
    )
    add_options(verb, "--json", "--markdown")


def _ledger(options: argparse.Namespace, talk: Console) -> int:
    from lab.analysis import evidence
    from lab.report.json.shape import dumps
    from lab.report.markdown import markdown
    from lab.report.terminal import show
    from lab.studies import boots, ledger
    from lab.studies.steps import boots_wanted
    from lab.studies.study_files import study_keys

    if options.study is not None:
        refuse_unknown(options.study, study_keys(), "study", f"unknown study '{options.study}'")
    verdicts = ledger.ledger(options.study)
    if options.boots:
        wanted = boots_wanted(evidence.references()[0], verdicts)
        page, as_json = boots.page(wanted), dumps(wanted)
    else:
        known = ledger.checks(options.study)
        page, as_json = ledger.page(verdicts, known, linked=True), dumps(ledger.list_verdicts(verdicts, known))
    if options.json:
        print(as_json)
    elif options.markdown:
        print(markdown(page), end="")
    elif options.boots:
        show(Console(), page)
    else:
        ledger.show(Console(), verdicts, options.rules, known)
    return 0
