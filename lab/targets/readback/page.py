"""Check kind `page`: a line of a page that a proxy's own interface serves on its pod's loopback, of any proxy.

    port: 8404, name: /server-info?config MaxKeepAliveRequests
        <dd><tt>&nbsp;15:&nbsp;MaxKeepAliveRequests <i>0</i></tt></dd>   →   0

`name` is the path, and after a blank the words with which the line begins; tags and a number of the line do not count. What stands after them is
compared, of several lines each once; `absent` without one. So a new proxy needs no kind of its own. Refuses to judge by an empty page.
"""

from __future__ import annotations

import html
import re

from lab.model.variants.variants import Check
from lab.systems.reading import ABSENT, Reading, UnreadableError, asked, compared, given, joined
from lab.targets.base import System

_ENDS = re.compile(r"</?(dd|dt|li|p|tr|br|div|pre)\b[^>]*>", re.IGNORECASE)
_TAG = re.compile(r"<[^>]*>")


def _page(system: System, check: Check) -> Reading:
    path, _, words = given(check, "name").partition(" ")
    found = lines(asked(system, check, int(given(check, "port")), path))
    if not found:
        raise UnreadableError(f"port {check.port}: {path} is empty")
    told = [line.removeprefix(words).strip(" :=") for line in found if re.match(rf"{re.escape(words)}(?![\w-])", line)]
    return compared(check, joined(told) if told else ABSENT)


def lines(text: str) -> list[str]:
    """The lines of a page as a person reads them, without their numbers and without empty ones."""
    plain = html.unescape(_TAG.sub("", _ENDS.sub("\n", text))).replace("\xa0", " ")
    stripped = (" ".join(re.sub(r"^\s*(\d+)?:\s+", "", line).split()) for line in plain.splitlines())
    return [line for line in stripped if line]


READERS = {"page": _page}
