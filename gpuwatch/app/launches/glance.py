"""What every page says at its top: what waits for the owner, what runs, at which rate, and whether renting pauses."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.bootstrap import open_store_read_only
from gpuwatch.domain.launches.life.owner_decisions import Pause
from gpuwatch.domain.launches.money.launch_costs import burn_rate
from gpuwatch.storage.alerts.pauses import SqlPauseRepository
from gpuwatch.storage.launches.approval_rows import SqlApprovalRepository
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository

if TYPE_CHECKING:
    from gpuwatch.settings import Settings


class Glance(msgspec.Struct, frozen=True, kw_only=True):
    """The figures at the top of every page.

    Attributes:
        open_ids: the open approvals, the one that expires first at the front.
        expires_at: when the first of them expires.
        running: how many machines are billed.
        rate_microusd_hour: what they cost, commission included.
        pause: why nothing is rented; None: renting is not paused.
    """

    open_ids: tuple[str, ...] = ()
    expires_at: datetime | None = None
    running: int = 0
    rate_microusd_hour: int = 0
    pause: Pause | None = None


def glance(settings: Settings, now: datetime) -> Glance:
    """Read the figures in one transaction. Raises StoreError."""
    with open_store_read_only(settings) as store:
        waiting = SqlApprovalRepository(store).open_deadlines(now)
        burn = burn_rate(SqlLaunchRepository(store).alive(), now)
        in_force = SqlPauseRepository(store).load().in_force(now)
    return Glance(
        open_ids=tuple(waiting),
        expires_at=next(iter(waiting.values()), None),
        running=burn.launches,
        rate_microusd_hour=burn.effective,
        pause=next((pause for pause in in_force if pause.watch is None), None),
    )
