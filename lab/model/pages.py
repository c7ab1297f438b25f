"""The pages that every backend serves. A module of its own: sweeps, disturbances and the base of backends ask it, and have nothing else in common."""

from __future__ import annotations

PAGES = {
    f"{size}{suffix}": bytes_
    for size, bytes_ in [(f"{n}kB", n * 1024) for n in (1, 2, 4, 8, 16, 64)]
    + [(f"{n}MB", n * 1024 * 1024) for n in (1, 10, 100)]
    for suffix in (".bin", ".txt")
}
"""Page → size in bytes. `.bin` does not compress, `.txt` does. The backend base serves exactly these."""

OTHERS = ("", "status/404", "status/503")
"""What it serves that is no page: its root, and answers with these statuses."""
