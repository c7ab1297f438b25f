"""The names and sizes of the test pages that every backend serves, such as `1kB.bin`, and its other paths.

They have a module to themselves, because sweeps, disturbances and the base of backends need them and share nothing else.
"""

from __future__ import annotations

PAGES = {
    f"{size}{suffix}": bytes_
    for size, bytes_ in [(f"{n}kB", n * 1024) for n in (1, 2, 4, 8, 16, 64)]
    + [(f"{n}MB", n * 1024 * 1024) for n in (1, 10, 100)]
    for suffix in (".bin", ".txt")
}
"""The size of each page in bytes, by its name.

`.bin` does not compress, `.txt` does. The base of backends serves exactly these.
"""

UPLOAD_PATH, UPLOAD_ANSWER_BYTES = "upload", 3
"""The path to which a body of any size can be uploaded, and the size of the answer to a complete upload in bytes.

Only a backend with the component `answers` of manifests/fixtures has this path.
"""

OTHER_PATHS = ("", "status/404", "status/503")
"""The other paths that a backend serves: its root, and two paths that it answers with the status 404 or 503."""
