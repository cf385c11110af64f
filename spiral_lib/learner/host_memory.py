"""Memory that a learner step on a CPU keeps from one micro-batch to the next.

glibc gives large blocks back to the system when they are freed. A pass over a micro-batch would then get its largest
tensors anew, page by page, each page cleared by the kernel: a tenth of our pass, and half of a pass that holds all
logits. Inside ``kept`` freed blocks stay with the process.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator
from typing import Any, Final

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
_NEVER: Final = -1
_AFTER: Final = {_MMAP_MAX: 65_536, _MMAP_THRESHOLD: 32 << 20, _TRIM_THRESHOLD: 64 << 20}
"""Settings of mallopt(3) after a step: the default, and the thresholds that glibc itself reaches when large blocks are
freed."""
_OWN_SETTINGS: Final = (
    "GLIBC_TUNABLES", "LD_PRELOAD", "MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_",
)  # fmt: skip


@contextlib.contextmanager
def kept(device: Any) -> Iterator[None]:
    """Keep freed memory for the next use within the block, then return it to the system.

    Does nothing on another device, with another C library or allocator, and where the environment sets glibc's malloc.
    """
    libc = _glibc() if device.type == "cpu" else None
    if libc is None:
        yield
        return
    libc.mallopt(_MMAP_MAX, 0)
    libc.mallopt(_TRIM_THRESHOLD, _NEVER)
    try:
        yield
    finally:
        for name, value in _AFTER.items():
            libc.mallopt(name, value)
        libc.malloc_trim(0)


def _glibc() -> Any | None:
    if sys.platform != "linux" or any(os.environ.get(name) for name in _OWN_SETTINGS):
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "mallopt") and hasattr(libc, "gnu_get_libc_version") else None
