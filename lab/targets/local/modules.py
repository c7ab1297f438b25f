"""nginx modules that the controller's image has and a stock nginx lacks: which a configuration needs, and where they lie here.

From Debian's packages, installed or unpacked into `.cache/nginx-modules` by `scripts/unpack`.
"""

from __future__ import annotations

import functools
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from lab.targets.local.containers import PRIVATE

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "scripts" / "unpack"
BROUGHT = ROOT / ".cache" / "nginx-modules"
FOLDERS = (Path("/usr/lib/nginx/modules"), BROUGHT / "usr/lib/nginx/modules")
LUA = BROUGHT / "usr/share/lua/5.1"


@dataclass(frozen=True, slots=True)
class Module:
    """`directive`: the names that only this module has. `files` are loaded in this order."""

    directive: re.Pattern[str]
    files: tuple[str, ...]
    packages: tuple[str, ...]
    built: str = ""
    """What `nginx -V` says where nginx has it without a file."""


def _directive(name: str) -> re.Pattern[str]:
    """Where a directive may begin."""
    return re.compile(rf"(?:^|[;{{}}])\s*{name}\s", re.MULTILINE)


MODULES = {
    "headers-more": Module(
        _directive(r"more_(set|clear)(_input)?_headers"),
        ("ngx_http_headers_more_filter_module.so",),
        ("libnginx-mod-http-headers-more-filter",),
    ),
    "brotli": Module(
        _directive(r"brotli(_\w+)?"),
        ("ngx_http_brotli_filter_module.so", "ngx_http_brotli_static_module.so"),
        ("libnginx-mod-http-brotli-filter", "libnginx-mod-http-brotli-static"),
    ),
    "geoip2": Module(
        _directive(r"geoip2(_\w+)?"),
        ("ngx_http_geoip2_module.so",),
        ("libnginx-mod-http-geoip2",),
    ),
    "lua": Module(
        _directive(r"(lua_\w+|\w+_by_lua(_block|_file)?)"),
        ("ndk_http_module.so", "ngx_http_lua_module.so"),
        ("libnginx-mod-http-lua",),
    ),
    "stream": Module(
        _directive(r"stream"),
        ("ngx_stream_module.so",),
        ("libnginx-mod-stream",),
        "--with-stream",
    ),
}


def needed(text: str) -> list[str]:
    """The modules whose directives stand in a configuration or a part of one."""
    return [name for name, module in MODULES.items() if module.directive.search(text)]


def found(name: str) -> list[Path]:
    """A module's files on this machine, in the order in which they are loaded; empty where one is missing."""
    files = [
        next((folder / file for folder in FOLDERS if (folder / file).exists()), None) for file in MODULES[name].files
    ]
    return [file for file in files if file] if all(files) else []


def lacking(names: Iterable[str]) -> list[str]:
    """Of these, the ones that are not here."""
    return [name for name in names if not found(name) and not (MODULES[name].built and MODULES[name].built in _built())]


@functools.cache
def _built() -> frozenset[str]:
    """The options that the nginx on PATH was built with."""
    told = subprocess.run(["nginx", "-V"], capture_output=True, text=True, check=False).stderr
    return frozenset(told.split())


def loading(text: str) -> str:
    """The configuration, loading what it needs and this machine has."""
    names = needed(text)
    lines = [f"load_module {file};\n" for name in names for file in found(name)]
    if "lua" in names and LUA.is_dir() and "lua_package_path" not in text:
        text = text.replace("http {\n", f'http {{\n    lua_package_path "{LUA}/?.lua;;";\n', 1)
    return "".join(lines) + text


def libraries() -> dict[str, str]:
    """The environment in which nginx finds what these modules are linked with; empty where nothing was brought."""
    folders = sorted({str(path.parent) for path in BROUGHT.glob("**/lib/*-linux-gnu/*.so.*")})
    return {"LD_LIBRARY_PATH": ":".join(folders)} if folders else {}


def hidden() -> dict[str, Path]:
    """Path → file of all that was brought, where a container has a folder of its own over it, as over a checkout in /tmp; else empty."""
    covered = any(BROUGHT.is_relative_to(prefix) for prefix in PRIVATE)
    return {str(path): path for path in BROUGHT.rglob("*") if path.is_file()} if covered else {}


def bring(names: Iterable[str]) -> str:
    """Have those brought that are missing. Why that failed, in the script's words; empty = they are there."""
    missing = lacking(names)
    if not missing:
        return ""
    done = subprocess.run(
        [SCRIPT, BROUGHT.name, *_packages(missing)],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return "" if done.returncode == 0 else " ".join(done.stderr.split())[-300:] or f"ended with {done.returncode}"


def advice(text: str) -> str:
    """What to do for the modules that this part of a configuration needs and that are not here; empty = nothing."""
    missing = lacking(needed(text))
    if not missing:
        return ""
    return f"the controller has {', '.join(missing)}, this nginx not: scripts/unpack {BROUGHT.name} {' '.join(_packages(missing))}"


def _packages(names: Iterable[str]) -> list[str]:
    return [package for name in names for package in MODULES[name].packages]
