"""A body that came in brotli, decoded by the library that nginx's module brings (libbrotlidec), as no wheel of the lab's has it."""

from __future__ import annotations

import ctypes
import ctypes.util


def decoded(body: bytes, size: int) -> bytes:
    """What it was before, of at most `size` bytes. ValueError for what is no such body, or where there is no such library."""
    name = ctypes.util.find_library("brotlidec")
    if name is None:
        raise ValueError(
            "it came in brotli, and libbrotlidec is not on this machine (Debian: apt-get install libbrotli1)"
        )
    found, length = ctypes.create_string_buffer(size), ctypes.c_size_t(size)
    if ctypes.CDLL(name).BrotliDecoderDecompress(ctypes.c_size_t(len(body)), body, ctypes.byref(length), found) != 1:
        raise ValueError("its compressed body is broken, or longer than the page")
    return found.raw[: length.value]
