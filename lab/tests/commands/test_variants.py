"""`list` and `show`: what there is, and what a variant changes, as people and programs get it."""

from __future__ import annotations

import json
import re

import pytest

from lab.__main__ import main


def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str, columns: int = 160) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(words.split()) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


@pytest.mark.parametrize(
    ("words", "columns", "lines"),
    [
        (
            "list",
            250,
            [
                r"backlog +backlog-128 +somaxconn-32768 +digitalocean +accept queue raised.*",
                r"direct .*reference of every run.*",
            ],
        ),
        ("list", 60, [r".*upstream-keepalive-requests-1000.*"]),
        (
            "show keepalive",
            160,
            [
                r"keepalive: .*",
                r"  baseline +ingress-nginx",
                r"knob keep-alive-requests-10000: .*",
                r"  hypothesis +.*CPU seconds per request.*",
                r"  sweep +quick",
                r"  primary metric +cpu_per_request",
                r"  proxy: nginx -T: keepalive_requests in http/upstream = 1000",
                r"\+  keep-alive-requests: '10000'",
                r"\+  upstream-keepalive-requests: '1000'",
            ],
        ),
        ("show backlog", 40, [r"- +- net\.core\.somaxconn=128", r"\+ +- net\.core\.somaxconn=32768"]),
        ("show direct", 160, [r"  Deployment backend"]),
        (
            "show backlog-128+keep-alive-requests-10000",
            160,
            [r"  inherits +somaxconn-128", r"knob keep-alive-requests-10000: .*"],
        ),
    ],
)
def test_what_is_printed_has_these_lines_whole(
    words: str,
    columns: int,
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No colours in a pipe, and no line of a diff is wrapped, however narrow the terminal."""
    out = printed(monkeypatch, capsys, words, columns)
    for line in lines:
        assert re.search(rf"^{line}$", out, re.MULTILINE), line
    assert "\x1b[" not in out


def test_a_root_without_a_proxy_has_no_object_of_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = printed(monkeypatch, capsys, "show direct")
    assert not re.search(r"^  [A-Z][A-Za-z]+ proxy", out, re.MULTILINE)


def test_list_as_json_holds_the_same(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(printed(monkeypatch, capsys, "list --json"))
    assert "keepalive" in {item["name"] for item in told["variants"]}
    assert "somaxconn-32768" in {item["name"] for item in told["knobs"]}
