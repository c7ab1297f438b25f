"""The verb `settings`: the measured effect of each setting on every target, published claims about it, and how to test it."""

from __future__ import annotations

import difflib
import json

from rich.console import Console

from lab.base.errors import UsageError
from lab.commands import Options, Verb, print_page

SYSTEM = "ingress-nginx"
"""The system whose settings the index has without --all."""
PAGES_MOST, ROWS_MOST = 3, 50
"""The maximum number of settings that are shown in full, and the maximum number of rows in the index without --all."""


def _run_settings(options: Options, talk: Console) -> None:
    from lab.studies.settings import TARGETS, read_settings

    settings, word = read_settings(), (options.word or "").lower()
    matching = [
        setting
        for setting in settings
        if any(word in text.lower() for text in (setting["name"], setting["title"], *setting["sets"]))
    ]
    if not matching:
        near = difflib.get_close_matches(word, [setting["name"] for setting in settings], n=5, cutoff=0.3)
        fault = f"no setting has '{options.word}' in its name, its key or its title"
        remedy = f"the nearest: {', '.join(near)}; `just settings --all` has all of them"
        raise UsageError("settings", fault, remedy if near else "`just settings --all` has all of them")
    matching = [setting for setting in matching if setting["name"] == word] or matching
    rows = [
        setting
        for setting in matching
        if options.all or word or (setting["effects"] and setting["system"] == SYSTEM and not setting["instrument"])
    ][: None if options.all else ROWS_MOST]
    if options.json:
        print(json.dumps(matching, indent=1))
    elif word and len(matching) <= PAGES_MOST:
        print_page("settings.txt", settings=matching, everything=options.all)
    else:
        print_page("index.txt", settings=rows, left=len(matching) - len(rows), targets=TARGETS)


SETTINGS = Verb(
    "print what is known of a setting: its effect on every target, what was published, and how to test it",
    _run_settings,
    {
        "word": {
            "nargs": "?",
            "metavar": "WORD",
            "help": "a part of a setting's name, key or title (default: an index of the settings of ingress-nginx)",
        },
        "--all": {"action": "store_true", "help": "list every setting, or every load of a setting"},
    },
    ("--json",),
    examples=("just settings", "just settings access-log", "just settings keep-alive-requests-10000"),
)
