"""An instance with gpuwatch's label that belongs to no known launch. It blocks renting until it is resolved."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from gpuwatch.domain.launches.launch import LaunchRefusal, RefusalReason


class UnknownInstance(msgspec.Struct, frozen=True, kw_only=True):
    """The stored record of such an instance, so that the block survives incomplete lists, restarts and other keys.

    Attributes:
        account_id: the account of the key that listed it; only that account's lists and answers can prove that it is
            gone.
        label: its label when it was first listed.
    """

    provider: str
    instance_id: str
    account_id: str | None
    label: str
    first_listed_at: datetime


def unknown_refusal(provider: str, instance_ids: Sequence[str]) -> LaunchRefusal:
    """Return why nothing is rented at a provider that listed these instances."""
    return LaunchRefusal(
        RefusalReason.STRANGERS,  # word-check: allow - a stored value
        f"{provider} lists instances with a gpuwatch label that are not in this database "
        f"({', '.join(instance_ids[:3])}); run gpuwatch adopt INSTANCE, or gpuwatch adopt INSTANCE --not-mine",
    )
