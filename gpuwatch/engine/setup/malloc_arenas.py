"""What a process that runs for months asks of the memory allocator."""

from __future__ import annotations

import ctypes

_M_ARENA_MAX = -8  # of malloc.h
_ARENAS = 2


def share_malloc_arenas() -> bool:
    """Let all threads share two arenas of glibc's malloc; False: another C library, which is left alone.

    By default each thread gets one of its own, up to eight for each core, and none of them ever uses what is free in
    another: with 25 threads that mostly wait, a daemon would keep 15 MB for nothing, and more from week to week.
    """
    try:
        return bool(ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS))
    except (AttributeError, OSError):
        return False
