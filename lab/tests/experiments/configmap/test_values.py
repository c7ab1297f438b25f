"""Whatever is written for a key: taken if nginx takes the controller's line, refused if not, told where the default stays.

The lines are written here again from the controller's template, and tried in a configuration of their own: what is compared with it
goes through the file, the decoding and the whole nginx.conf.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from lab.base.errors import UsageError
from lab.base.handing import piped_command
from lab.experiments.configmap.reading import read_settings
from lab.experiments.configmap.split import split
from lab.systems.checker import find_refusal
from lab.systems.ingress_nginx.configmap import KEYS
from lab.systems.ingress_nginx.keys import UNREAD

CONFIG = "/tmp/nginx/nginx.conf"
LINES = {
    "worker-processes": "MAIN worker_processes {};",
    "worker-cpu-affinity": "MAIN worker_cpu_affinity {};",
    "http-access-log-path": "access_log {};",
    "access-log-params": "access_log /var/log/nginx/access.log combined {};",
    "log-format-upstream": "log_format x '{}';",
    "error-log-path": "error_log {} notice;",
    "gzip-types": "gzip_types {};",
    "gzip-disable": 'gzip_disable "{}";',
    "large-client-header-buffers": "large_client_header_buffers {};",
    "ssl-session-cache-size": "ssl_session_cache shared:SSL:{};",
    "upstream-keepalive-time": "upstream u {{ server 192.0.2.1; keepalive 1; keepalive_time {}; }}",
    "proxy-buffering": "proxy_buffering {};",
    "proxy-buffer-size": "proxy_buffer_size {0}; proxy_buffers 4 {0};",
    "proxy-busy-buffers-size": "proxy_buffer_size 4k; proxy_buffers 4 4k; proxy_busy_buffers_size {};",
    "proxy-cookie-path": "proxy_cookie_path {};",
    "proxy-next-upstream": "proxy_next_upstream {};",
    "main-snippet": "MAIN {}",
    "http-snippet": "{}",
    "location-snippet": "server {{ location / {{ {} }} }}",
}
"""Keys that are text or a list for the controller, some of every kind, in http unless they begin with MAIN."""
BESIDE = "use-gzip"
"""A key without which some lines are not written."""
SIZES = st.from_regex(r"[0-9]{1,4}[kKmMgGtT]?[bB]?", fullmatch=True)
TIMES = st.from_regex(r"[0-9]{1,3}(ms|[smhdwMyx])?( [0-9]{1,2}[smh])?", fullmatch=True)
LISTS = st.lists(
    st.sampled_from(["error", "timeout", "http_502", "http_999", "non_idempotent", "off", "4", "8k", "on"]), max_size=4
).map(" ".join)
QUOTES = st.text(alphabet="ab$ '\"\\{};#/:", max_size=8)
BLOCKS = st.lists(st.sampled_from(["error", "4 8k", "a/b", "$status", "{", "", "on"]), min_size=1, max_size=3).map(lambda lines: "\n".join(lines) + "\n")  # fmt: skip
WHOLE = st.sampled_from(
    ["0", "7", "010", "08", "0x3C", "0o74", "1_000", "-1", "+5", "1e2", "75s", " 5", "many", "9" * 20]
)
COMMENT = re.compile(r"(?:^|[\s;{}])#|\\\Z")
"""What begins one, or ends in a backslash, takes the end of its line with it, so that the next is read as part of the same directive:
no line of its own."""
INTEGERS = {
    "keep-alive": "keepalive_timeout {}s;",
    "keep-alive-requests": "keepalive_requests {};",
    "upstream-keepalive-requests": "upstream u {{ server 192.0.2.1; keepalive 1; keepalive_requests {}; }}",
    "gzip-level": "gzip_comp_level {};",
    "limit-req-status-code": "limit_req_status {};",
    "proxy-read-timeout": "proxy_read_timeout {}s;",
    "proxy-buffers-number": "proxy_buffer_size 4k; proxy_buffers {} 4k;",
}
REFUSED = ("nginx refuses it, and so the controller the whole file", "it needs what only your cluster can have")
GO = {"0": 0, "7": 7, "010": 8, "0x3C": 60, "0o74": 60, "1_000": 1000, "-1": -1, "+5": 5}
"""What Go's ParseInt makes of them with base 0; of the others nothing."""

SLOWLY = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


def takes(line: str) -> bool:
    """Whether nginx takes it; what would close the block and open another is none of ours to write."""
    main, http = (line.removeprefix("MAIN "), "") if line.startswith("MAIN ") else ("", line)
    served = "server { location / { proxy_pass http://127.0.0.1; } }"  # where nginx holds sizes against one another
    text = f"pid /tmp/nginx/nginx.pid;\n{main}\nevents {{}}\nhttp {{\n{http}\n{served}\n}}\n"
    return not find_refusal(("nginx", "-t", "-q", "-c", CONFIG), {CONFIG: text})


def written(key: str, value: str) -> bytes:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'kind: ConfigMap\ndata:\n  {key}: "{escaped}"\n  {BESIDE}: "true"\n'.encode()


def outcome(key: str, value: str) -> tuple[bool, str]:
    found = split("mine.yaml", read_settings("mine.yaml", written(key, value), piped_command("bench")))
    return key in found.kept, "\n".join(note for note in found.notes if note.startswith(f"{key}: "))


@pytest.mark.slow
@SLOWLY
@given(st.sampled_from(sorted(LINES)), st.one_of(SIZES, TIMES, LISTS, QUOTES, BLOCKS))
def test_a_value_is_taken_just_if_nginx_takes_its_line(key: str, value: str) -> None:
    assume(not COMMENT.search(value))
    taken, told = outcome(key, value)
    if value == KEYS[key].default:
        assert not taken and "is the default" in told
    elif takes(LINES[key].format(value)):
        assert taken or "changes no directive" in told or UNREAD in told
    else:
        assert not taken and any(said in told for said in REFUSED)


@pytest.mark.slow
@SLOWLY
@given(st.sampled_from(sorted(INTEGERS)), WHOLE)
def test_a_number_is_what_go_makes_of_it_or_the_default_stays_and_is_told(key: str, value: str) -> None:
    taken, told = outcome(key, value)
    if value not in GO:
        assert not taken and f"the controller logs that and keeps {KEYS[key].default!r}" in told
    elif str(GO[value]) == KEYS[key].default:
        assert not taken and "is the default" in told
    elif takes(INTEGERS[key].format(GO[value])):
        assert taken and (str(GO[value]) == value or f"is read as {GO[value]}" in told)
    else:
        assert not taken and any(said in told for said in REFUSED)


@pytest.mark.parametrize("value", ["10 GB", "1q"])
def test_a_size_that_the_controller_leaves_out_is_told(value: str) -> None:
    """nginx's own default is the controller's, too: nothing changes."""
    with pytest.raises(UsageError, match="leaves the directive out"):
        split("mine.yaml", read_settings("mine.yaml", f'proxy-body-size: "{value}"'.encode(), piped_command("bench")))
