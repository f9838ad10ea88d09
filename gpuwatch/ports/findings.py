"""What `gpuwatch doctor` finds."""

from __future__ import annotations

import msgspec


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at. `state`: "ok", "note" (works, worth knowing) or "fault" (exit code 1)."""

    area: str
    state: str
    text: str
    mend: str | None = None
