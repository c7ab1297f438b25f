"""nginx modules that the controller's image has and a stock nginx lacks: brotli, which is brought here, and those that only a controller has.

Brotli comes from Debian's packages, installed or unpacked into `.cache/nginx-modules` by `scripts/unpack`.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from lab.systems.system import PRIVATE

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "scripts" / "unpack"
BROUGHT = ROOT / ".cache" / "nginx-modules"
FOLDERS = (Path("/usr/lib/nginx/modules"), BROUGHT / "usr/lib/nginx/modules")
FILES = ("ngx_http_brotli_filter_module.so", "ngx_http_brotli_static_module.so")
"""Loaded in this order."""
PACKAGES = ("libnginx-mod-http-brotli-filter", "libnginx-mod-http-brotli-static")
BROTLI = r"brotli(_\w+)?"
CONTROLLERS = {
    "headers-more": r"more_(set|clear)(_input)?_headers",
    "geoip2": r"geoip2(_\w+)?",
    "lua": r"(lua_\w+|\w+_by_lua(_block|_file)?)",
    "opentelemetry": r"opentelemetry(_\w+)?",
    "modsecurity": r"modsecurity(_\w+)?",
}
"""Module → the names of the directives that only it has."""


def _has(text: str, names: str) -> bool:
    """Whether a directive of such a name begins somewhere."""
    return bool(re.search(rf"(?:^|[;{{}}])\s*{names}\s", text, re.MULTILINE))


def controllers(text: str) -> list[str]:
    """The modules of the controller's that a configuration or a part of one needs, and that are not brought here."""
    return [name for name, names in CONTROLLERS.items() if _has(text, names)]


def found() -> list[Path]:
    """The files of brotli on this machine, in the order in which they are loaded; empty where one is missing."""
    files = [next((folder / file for folder in FOLDERS if (folder / file).exists()), None) for file in FILES]
    return [file for file in files if file] if all(files) else []


def loading(text: str) -> str:
    """The configuration, loading what it needs and this machine has."""
    return "".join(f"load_module {file};\n" for file in (found() if _has(text, BROTLI) else ())) + text


def libraries() -> dict[str, str]:
    """The environment in which nginx finds what these modules are linked with; empty where nothing was brought."""
    folders = sorted({str(path.parent) for path in BROUGHT.glob("**/lib/*-linux-gnu/*.so.*")})
    return {"LD_LIBRARY_PATH": ":".join(folders)} if folders else {}


def hidden() -> dict[str, Path]:
    """Path → file of all that was brought, where a container has a folder of its own over it, as over a checkout in /tmp; else empty."""
    covered = any(BROUGHT.is_relative_to(prefix) for prefix in PRIVATE)
    return {str(path): path for path in BROUGHT.rglob("*") if path.is_file()} if covered else {}


def bring(text: str) -> str:
    """Have brought what a configuration needs and this machine lacks. Why that failed, in the script's words; empty = it is there."""
    if not advice(text):
        return ""
    done = subprocess.run(
        [SCRIPT, BROUGHT.name, *PACKAGES], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    return "" if done.returncode == 0 else " ".join(done.stderr.split())[-300:] or f"ended with {done.returncode}"


def advice(text: str) -> str:
    """What to do for the module that this part of a configuration needs and that is not here; empty = nothing."""
    if found() or not _has(text, BROTLI):
        return ""
    return f"the controller has brotli, this nginx not: scripts/unpack {BROUGHT.name} {' '.join(PACKAGES)}"
