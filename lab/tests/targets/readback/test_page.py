"""Check kind `page`, on what mod_info and mod_status of httpd 2.4.71 answered (cut)."""

from __future__ import annotations

from typing import Any

import pytest

from lab.model.variants.variants import Check
from lab.targets.readback import read_back

INFO = """<dl><dt><strong>Configuration:</strong>
<dd><tt><strong>In file: /srv/httpd/httpd.conf</strong></tt></dd>
<dd><tt>&nbsp;&nbsp;15:&nbsp;MaxKeepAliveRequests <i>0</i></tt></dd>
<dd><tt>&nbsp;&nbsp;17:&nbsp;CustomLog <i>/dev/stdout &quot;%h %l \\&quot;%r\\&quot; %&gt;s&quot;</i></tt></dd>
<dd><tt>&nbsp;&nbsp;18:&nbsp;Listen <i>80</i></tt></dd>
<dd><tt>&nbsp;&nbsp;19:&nbsp;Listen <i>127.0.0.1:8404</i></tt></dd>
<dd><tt>&nbsp;&nbsp;&nbsp;&nbsp;:&nbsp;&nbsp;&nbsp;&lt;/Location&gt;</tt></dd><dd><tt>&nbsp;&nbsp;26:&nbsp;&nbsp;SetEnv <i>proxy-nokeepalive 1</i></tt></dd>
</dl>"""
STATUS = "127.0.0.1\nServerMPM: event\nBusyWorkers: 1\nIdleWorkers: 74\n"
PAGES = {"/server-info?config": INFO, "/server-status?auto": STATUS, "/empty": ""}


class Pages:
    def ask(self, role: str, port: int, path: str) -> str:
        assert (role, port) == ("proxy", 8404)
        if path not in PAGES:
            raise ConnectionRefusedError("refused")
        return PAGES[path]


@pytest.mark.parametrize(
    ("name", "observed"),
    [
        ("/server-info?config MaxKeepAliveRequests", "0"),
        ("/server-info?config MaxKeepAlive", "absent"),
        ("/server-info?config CustomLog", r'/dev/stdout "%h %l \"%r\" %>s"'),
        ("/server-info?config Listen", "80, 127.0.0.1:8404"),
        ("/server-info?config SetEnv proxy-nokeepalive", "1"),
        ("/server-info?config LogLevel", "absent"),
        ("/server-status?auto ServerMPM", "event"),
        ("/server-status?auto IdleWorkers", "74"),
        ("/empty LogLevel", "unreadable"),
        ("/nonsense LogLevel", "unreadable"),
    ],
)
def test_a_line_of_a_page(name: str, observed: str) -> None:
    system: Any = Pages()
    (reading,) = read_back(system, [Check(kind="page", port=8404, name=name, value=observed)])
    assert (reading.observed, reading.ok) == (observed, observed != "unreadable")
    (other,) = read_back(system, [Check(kind="page", port=8404, name=name, value="something else")])
    assert not other.ok
