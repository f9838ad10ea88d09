"""What an owner says of a job: how long it takes, and where; see `job` for what it costs."""

from __future__ import annotations

import msgspec


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One job."""
