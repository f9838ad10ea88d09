"""A finding of `gpuwatch doctor`, from its own checks or from those of a provider or channel."""

from __future__ import annotations

import msgspec


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check.

    Attributes:
        area: what was checked, such as "settings", "database" or a provider.
        state: "ok", "note" (works, but worth knowing) or "fault" (exit code 1).
        mend: how to fix it.
    """

    area: str
    state: str
    text: str
    mend: str | None = None
