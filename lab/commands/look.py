"""`list`, `show`, `doctor`: what there is to measure, what a variant changes, what this machine lacks."""

from __future__ import annotations

import argparse
import json

from rich.console import Console

from lab.commands import Adder
from lab.commands.arguments import VARIANT, variant_name


def add_list(adder: Adder) -> None:
    verb = adder(_list, "variants, knobs, sweeps and studies")
    verb.add_argument("words", nargs="*", metavar="WORD", help="only what has all of these words in it (default: all)")
    verb.add_argument("--json", action="store_true", help="print it as JSON")


def add_show(adder: Adder) -> None:
    verb = adder(_show, "a variant: its knobs, read-backs and manifest diff")
    verb.add_argument("variant", type=variant_name, metavar="VARIANT", help=VARIANT)
    verb.add_argument("--json", action="store_true", help="print it as JSON")


def add_doctor(adder: Adder) -> None:
    verb = adder(_doctor, "try every prerequisite and say how to get what is missing")
    verb.add_argument("--json", action="store_true", help="print it as JSON")


def _list(options: argparse.Namespace, talk: Console) -> int:
    from lab.commands import catalog

    if options.json:
        print(json.dumps(catalog.as_json(options.words), indent=1))
    else:
        catalog.print_list(Console(), options.words)
    return 0


def _show(options: argparse.Namespace, talk: Console) -> int:
    from lab.commands import catalog

    if options.json:
        print(json.dumps(catalog.show_json(options.variant), indent=1))
    else:
        catalog.print_show(Console(), options.variant)
    return 0


def _doctor(options: argparse.Namespace, talk: Console) -> int:
    from lab.commands import doctor

    return doctor.doctor(Console(), as_json=options.json)
