"""An instance with gpuwatch's label that belongs to no launch here: nothing is rented beside it until it is settled."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from gpuwatch.domain.launches.launch import LaunchRefusal, RefusalReason


class UnknownInstance(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of it, so that neither a list that omits it, nor a restart, nor another key ends its hold.

    Attributes:
        account_id: of the key whose list showed it; only that account's lists and answers say that it is gone.
        label: as it was first listed.
    """

    provider: str
    instance_id: str
    account_id: str | None
    label: str
    first_listed_at: datetime


def unknown_refusal(provider: str, instance_ids: Sequence[str]) -> LaunchRefusal:
    """Why nothing is rented at a provider that listed these instances."""
    return LaunchRefusal(
        RefusalReason.STRANGERS,  # word-check: allow - a stored value
        f"{provider} lists instances with a gpuwatch label that are not in this database "
        f"({', '.join(instance_ids[:3])}); run gpuwatch adopt INSTANCE, or gpuwatch adopt INSTANCE --not-mine",
    )
