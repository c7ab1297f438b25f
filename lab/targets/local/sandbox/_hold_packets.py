"""A program that delays packets by a fixed time: `python -IS _hold_packets.py SECONDS NAME` makes the tap device NAME.

The program reads each packet that the kernel sends to the device, and writes the packet back after SECONDS, unchanged
and in the same order. It prints `ready` once the device exists. The device disappears when the program ends. Only the
standard library is imported, so that the program starts quickly and disturbs a load little.

A packet may be a large send of up to 64 KiB (GSO). The kernel then puts a header before it (IFF_VNET_HDR,
<linux/virtio_net.h>). This header is written back, too, so that the packets of the load keep their sizes.
"""

import fcntl
import os
import select
import struct
import sys
import time
from collections import deque
from contextlib import suppress

TUNSETIFF, TUNSETOFFLOAD = 0x400454CA, 0x400454D0
"""The requests of ioctl(2) that make a tap device, and that set which large sends the device accepts (<linux/if_tun.h>)."""
IFF_TAP, IFF_NO_PI, IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
"""The flags of a tap device: Ethernet frames, without packet information, with the header of large sends."""
CHECKSUM_TSO4_TSO6 = 0x01 | 0x02 | 0x04
"""The offloads of a tap device: checksums are left out, and large sends of TCP are not split."""
MAX_PACKET_BYTES = 128 * 1024
AT_ONCE = 64
"""The maximum number of packets that are read before the due packets are written back."""


def open_tap(name: str) -> int:
    """Make a tap device in this network namespace, and return its file descriptor (non-blocking).

    Raises:
        OSError: The kernel has no tap devices, or the device cannot be made.

    """
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI | IFF_VNET_HDR))
    fcntl.ioctl(tap, TUNSETOFFLOAD, CHECKSUM_TSO4_TSO6)
    return tap


def hold(tap: int, delay_s: float) -> None:
    """Read packets from a tap device, and write each one back into it after a fixed time; this never returns."""
    held = deque[tuple[float, bytes]]()
    while True:
        wait_s = max(0.0, held[0][0] - time.monotonic()) if held else None
        select.select([tap], (), (), wait_s)
        with suppress(BlockingIOError):
            for _ in range(AT_ONCE):
                packet = os.read(tap, MAX_PACKET_BYTES)
                held.append((time.monotonic() + delay_s, packet))
        while held and held[0][0] <= time.monotonic():
            os.write(tap, held.popleft()[1])


if __name__ == "__main__":
    device = open_tap(sys.argv[2])
    # This process runs before the load on its CPU. Without the right to that, a busy CPU adds to the delay.
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    hold(device, float(sys.argv[1]))
