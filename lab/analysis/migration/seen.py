"""What committed runs and the ledger show of the differences in the migration tables, as words.

The words are a generated part of this folder's README: `just maintain readme` writes them from the runs that the tables'
columns `seen` and `claims` name, so that no number is typed by hand, and `just migrate` reads no run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

README = Path(__file__).with_name("README.md")
_ROW = re.compile(r"^\| (\S+) \| ([^|]+) \| ([^|]*) \| ([^|]*) \|$", re.MULTILINE)


def read_seen() -> Mapping[tuple[str, str], tuple[str, str]]:
    """Return what is known of each difference from measurements.

    Returns:
        (successor, key of ingress-nginx or setting of the successor) → (what committed runs show, each with its target; the
        ledger's answers to the claims about the difference). Either may be empty.

    """
    part = README.read_text(encoding="utf-8").partition("<!-- generated: seen -->")[2].partition("<!-- end -->")[0]
    rows = _ROW.findall(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", part))
    return {(system, name): (runs.strip(), ledger.strip()) for system, name, runs, ledger in rows}
