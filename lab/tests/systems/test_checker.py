"""nginx's own checker on configurations that run nowhere."""

from __future__ import annotations

import pytest

from lab.base.errors import UsageError
from lab.systems.checker import refusal

CONFIG = "/tmp/nginx/nginx.conf"
CHECKER = ("nginx", "-t", "-q", "-c", CONFIG)
HEAD = "pid /tmp/nginx/nginx.pid; events {}\n"


def refused(http: str, files: dict[str, str] | None = None) -> str:
    return refusal(CHECKER, {CONFIG: f"{HEAD}http {{\n{http}\n}}\n", **(files or {})})


def test_what_nginx_takes_is_not_refused() -> None:
    """Ports below 1024 and log files are its own there."""
    assert not refused("server { listen 80; access_log /var/log/nginx/a.log; }")


def test_what_it_refuses_is_told_in_its_words_with_the_line_that_is_meant() -> None:
    assert refused("client_max_body_size 10q;") == (
        '"client_max_body_size" directive invalid value in `client_max_body_size 10q;`'
    )
    assert refused("log_format a '$nothing';") == 'unknown "nothing" variable'


def test_files_beside_it_are_there_and_a_place_that_is_no_containers_own_is_refused() -> None:
    text = "include /srv/conf/*.conf;"
    assert "keepalive_time_out" in refusal(
        CHECKER, {CONFIG: f"{HEAD}http {{ {text} }}"}, {"/srv/conf": {"a.conf": "keepalive_time_out 1;"}}
    )
    with pytest.raises(UsageError, match="not in a folder of the container's own"):
        refused("", {"/etc/nginx/x": ""})
