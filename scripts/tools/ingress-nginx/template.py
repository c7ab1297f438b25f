"""The controller's template and first nginx.conf, made fit for Debian's nginx: its modules are dynamic, and it has no Lua for `stream`.

Usage: template.py ROOT        changes ROOT/etc/nginx/template/nginx.tmpl and ROOT/etc/nginx/nginx.conf

Every change must find what it is made for, once; else nothing is written and the exit status is 1: another release looks otherwise.
"""

import re
import sys
from pathlib import Path

LOAD = "# Debian's modules are dynamic.\ninclude /etc/nginx/modules.conf;\n"
STREAM = (
    (r"    lua_package_path .*?\n    lua_shared_dict .*?\n", ""),
    (
        r"    init_by_lua_block \{.*?^    \}\n\n    init_worker_by_lua_block \{.*?^    \}\n\n    lua_add_variable .*?\n",
        "",
    ),
    (r"    upstream upstream_balancer \{.*?^    \}\n\n", ""),
    (
        r"        content_by_lua_block \{.*?^        \}\n",
        "        # The controller posts the TCP and UDP services here: read (that is all ssl_preread does) and dropped.\n"
        "        ssl_preread on;\n        return '';\n",
    ),
    (
        r"    # TCP services\n.*?(?=    # Stream Snippets)",
        "    # No TCP and UDP services: they need Lua for `stream`.\n\n",
    ),
)


def replaced(text: str, pattern: str, new: str) -> str:
    """With what the pattern finds, once. ValueError where it does not."""
    found, count = re.subn(pattern, lambda _: new, text, count=1, flags=re.DOTALL | re.MULTILINE)
    if count != 1:
        raise ValueError(f"nothing looks like {pattern!r}")
    return found


def template(text: str) -> str:
    text = replaced(text, r"^pid \{\{ \.PID \}\};\n", "pid {{ .PID }};\n\n" + LOAD)
    head, stream = text.split("\nstream {\n")
    stream, tail = stream.split("\n}\n", 1)
    for pattern, new in STREAM:
        stream = replaced(stream, pattern, new)
    if re.search(r"lua_|_lua", stream):
        raise ValueError("`stream` has more Lua than is known")
    return f"{head}\nstream {{\n{stream}\n}}\n{tail}"


def main() -> None:
    nginx = Path(sys.argv[1], "etc/nginx")
    files = {
        nginx / "template/nginx.tmpl": template,
        nginx / "nginx.conf": lambda text: replaced(text, r"^pid [^;]*;\n", "pid /tmp/nginx/nginx.pid;\n\n" + LOAD),
    }
    made = {file: change(file.read_text()) for file, change in files.items()}
    for file, text in made.items():
        file.write_text(text)


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"template.py: {error}")
