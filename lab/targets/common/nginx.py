"""What a running nginx tells of itself on the status page that ingress-nginx gives it, in its pod alone: requests it has begun to answer.

    server accepts handled requests
     12 12 34                             →  {"requests": 34}

The page asks for itself, so each look at it is a request, too. A reload goes on counting, a restart begins anew.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

PORT, PATH = 10246, "/nginx_status"
"""StatusPort, and where the controller's template has it (rootfs/etc/nginx/template/nginx.tmpl)."""
MODULE = "http_stub_status_module"
"""As `nginx -V` has it."""
LOADER = "nginx: cache loader process"
"""It reads what a cache has on disk and ends by itself, a minute after each start or reload: no process that a proxy must have."""

_COUNTS = re.compile(r"^ *\d+ +\d+ +(\d+) *$", re.MULTILINE)


def counted(page: str) -> Mapping[str, int]:
    """Empty for anything else than such a page."""
    found = _COUNTS.search(page)
    return {"requests": int(found[1])} if found else {}
