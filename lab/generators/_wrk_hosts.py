"""Many hosts from wrk and wrk2: requests that take turns, or one process for every name in the TLS handshake or way in.

wrk calls a script's `request` for every request and sends what it returns: handing out strings that were made once costs
it nothing that could be measured (100 hosts against one: 5.8 and 6.0 µs of CPU per request). It takes SNI and address from
the URL, one for each process. Where every host needs its own name in the handshake, or several proxies share the hosts
(`Load.shards`: each process asks for those of its own), a shell starts as many, lets them go once all have set up (which takes
a hundred of them a second of CPU time together), and prints their outputs one after the other:

    LAB processes 2  →  two blocks of counts follow, from processes that began at the same time
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from lab.generators.base import destinations
from lab.model.load import Load

PER_HOST = "per-host.sh"
SCRIPT = """\
# Starts the command that its arguments are once for every line of `destinations` (URL, host), lets all go at once, and
# prints their outputs one after the other. Fails with the status of one that failed.
rm -f go ready
mkfifo go ready
exec 3<>go 4<>ready
number=0 started= status=0
while read -r url host; do
  number=$((number + 1))
  {
    exec 3>&-
    "$@" -H "Host: $host" "$url" >"$number.out" 2>"$number.err" </dev/null
    status=$?
    echo >&4 # one that failed before it was ready keeps nobody waiting
    exit "$status"
  } &
  started="$started $number:$!"
done <destinations
waiting=$number
while [ "$waiting" -gt 0 ]; do
  read -r _ <&4
  waiting=$((waiting - 1))
done
exec 3>&-
echo "LAB processes $number"
for one in $started; do
  wait "${one#*:}" || status=$?
  cat "${one%:*}.out"
  cat "${one%:*}.err" >&2
done
exit "$status"
"""
TOGETHER = """\
-- Called when all is set up but the connections: says so, and waits until nobody holds `go` open for writing.
function setup(thread)
  local ready, go = io.open("ready", "w"), io.open("go")
  ready:write("\\n")
  ready:close()
  go:read("*a")
  go:close()
end
"""
HOSTS = """\
local requests, turn = {}, 0
function init(args)
  for i, host in ipairs(@HOSTS@) do
    wrk.headers["Host"] = host
    requests[i] = wrk.format()
  end
end
function request()
  turn = turn % #requests + 1
  return requests[turn]
end
"""


def taking_turns(load: Load) -> str:
    """Lua that sends every host's request in turn; nothing for one host, as wrk then need not ask."""
    if load.shards:
        by_place = (f"[{json.dumps(urlsplit(shard.url).netloc)}] = {_table(shard.hosts)}" for shard in load.shards)
        return HOSTS.replace("@HOSTS@", f'({{{", ".join(by_place)}}})[wrk.host .. ":" .. wrk.port]')
    return HOSTS.replace("@HOSTS@", _table(load.hosts)) if len(load.hosts) > 1 else ""


def separate(load: Load) -> int:
    """How many processes it takes; 1 = wrk itself."""
    return len(load.shards) or (len(load.hosts) if load.sni_per_host else 1)


def separate_files(load: Load) -> dict[str, str]:
    """The shell, and its processes' URLs and hosts."""
    places = [(shard.url, shard.hosts[0]) for shard in load.shards] or destinations(load)
    return {PER_HOST: SCRIPT, "destinations": "".join(f"{url} {host}\n" for url, host in places)}


def _table(hosts: Sequence[str]) -> str:
    """JSON's strings are Lua's where nothing needs escaping, which host names do not."""
    return "{" + ", ".join(map(json.dumps, hosts)) + "}"


def processes(stdout: str) -> int:
    """How many processes printed this output."""
    found = re.match(r"LAB processes ([0-9]+)\n", stdout)
    return int(found[1]) if found else 1
