"""`python -m lab.tests.support.forbidding ARGV…` as root: ARGV as a plain user of a machine that forbids user namespaces.

In a user namespace that has all our users, in which the kernel lets nobody make another one: nothing of the machine is changed.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

NEW_USER = 0x10000000
NOBODY = 65534


def inside(begun: int, mapped: int, argv: list[str]) -> None:
    """In the child; what is written into the pipes says how far each side is."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_USER) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    os.write(begun, b"1")
    os.read(mapped, 1)
    Path("/proc/sys/user/max_user_namespaces").write_text("0")
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    os.execvp(argv[0], argv)


def main(argv: list[str]) -> int:
    begun, begin = os.pipe()
    mapped, map_ = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(begun)
        os.close(map_)
        inside(begin, mapped, argv)
    os.close(begin)  # else the read below would wait for ever for a child that has died
    os.close(mapped)
    if not os.read(begun, 1):
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    for name in ("uid_map", "gid_map"):
        Path(f"/proc/{child}/{name}").write_text("0 0 65536")
    os.write(map_, b"1")
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
