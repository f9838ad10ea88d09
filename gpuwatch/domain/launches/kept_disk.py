"""A disk that outlasts the running of its machine: what is wanted, and since when it is so. Pure."""

from __future__ import annotations

from datetime import datetime

import msgspec


class KeptDisk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A machine that is to be stopped with its disk kept or, with `is_starting`, started again.

    Attributes:
        keep_s: how long the disk is kept, from the proof that it stopped on, or from the end of its run if that is
            earlier; while it is started again: what is left.
        why: why it was stopped, as the rest of a sentence.
        stopped_at: when a list first showed it stopped; None: not yet.
        runtime_s: while it is started again: how long it may run then.
        is_late: its stop began after the end of its run, because gpuwatch was away then: it is destroyed if that fails.
    """

    keep_s: float
    why: str
    stopped_at: datetime | None = None
    is_starting: bool = False
    runtime_s: float | None = None
    is_late: bool = False
