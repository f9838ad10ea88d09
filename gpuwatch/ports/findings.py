"""A finding of `gpuwatch doctor`: ours, or of a provider or channel that declares checks of its own."""

from __future__ import annotations

import msgspec


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check.

    Attributes:
        area: what was checked: "settings", "database", a provider.
        state: "ok", "note" (works, but worth knowing) or "fault" (exit code 1).
        mend: what to do about it.
    """

    area: str
    state: str
    text: str
    mend: str | None = None
