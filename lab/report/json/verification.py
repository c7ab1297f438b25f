"""The JSON that `migrate --verify --json` prints: how the answers of each successor differ from those of ingress-nginx."""

from __future__ import annotations

from typing import Any

from lab.analysis.verification.command import write_command
from lab.analysis.verification.compare import Difference
from lab.model.exchanges import Answer, Exchange, Received
from lab.report.json.answers import VERSION_1
from lab.report.json.shape import JsonKey, JsonShape

ANSWER = JsonShape(
    "Answer", Answer, "status version headers",
    JsonKey("body_bytes", lambda answer: len(answer.body), int),
    "trailers framing interim kept tls error",
)  # fmt: skip
EXCHANGE = JsonShape("Exchange", Exchange, "answer received", parts=[ANSWER, JsonShape("Received", Received)])
DIFFERENCE = JsonShape(
    "VerifiedDifference",
    Difference,
    "key consequence aspect before after",
    JsonKey("about", lambda item: item.left.request.about, str),
    JsonKey("command", lambda item: write_command(item.left.request), str),
    "ingress_nginx=left successor=right requests=count cases known setting",
    parts=[EXCHANGE],
)


def make_verification_shape(pair: Any) -> JsonShape:
    """Return the JSON shape of a verification, for `migrate --verify --json`.

    Args:
        pair: The class of the result for one system. It is an argument because its package, `lab.experiments`, must not be imported here.

    """
    system = JsonShape("VerifiedPair", pair, "system target requests took_s differences notes", parts=[DIFFERENCE])
    return JsonShape(
        "Verification", None, VERSION_1,
        JsonKey("requests", None, int),
        JsonKey("notes", None, tuple[str, ...]),
        JsonKey("systems", None, tuple[pair, ...]),
        parts=[system],
        title="What `migrate --verify --json` prints",
    )  # fmt: skip
