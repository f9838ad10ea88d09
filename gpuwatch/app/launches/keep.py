"""End once what is overdue, with nothing but the keeper's file: for a timer beside the daemon, which may be dead.

It runs the daemon's own keeper. Of wrong settings it uses what can be read, with what was valid before; a database that
answers is asked for a later end, as by any keeper.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from gpuwatch.bootstrap import real_monotonic, real_now
from gpuwatch.bootstrap.keeper_building import build_keeper, obligation_file
from gpuwatch.domain.market.json_view import JsonView, Moment
from gpuwatch.storage.launches.keeper_mark import is_keeper_alive

if TYPE_CHECKING:
    from gpuwatch.domain.launches.instances.obligation import Obligation
    from gpuwatch.engine.launches.guarding.keeper import Ending, Keeper
    from gpuwatch.settings import Settings

WITHIN_S = 180.0  # three answers "gone", fifteen seconds apart, follow a destroy
_CHECK_EVERY_S = 0.2
NO_DAEMON = "no daemon of gpuwatch works here"


class EndResult(StrEnum):
    """What became of an overdue instance."""

    ENDED = "ended"
    STOPPED = "stopped"
    EXTENDED = "extended"
    ABSENT = "absent"
    FAILED = "failed"


class KeptView(JsonView, frozen=True, kw_only=True):
    """An overdue instance, and what became of it."""

    launch_id: str
    watch: str
    provider: str
    instance_id: str | None
    label: str
    should_have_ended_at: Moment
    result: Annotated[
        EndResult,
        Meta(
            description="`stopped`: its disk is kept; `absent`: the provider shows none; `extended`: its end was later."
        ),
    ]
    error: Annotated[str | None, Meta(description="Why it could not be ended.")]


class KeepView(JsonView, frozen=True, kw_only=True):
    """What `gpuwatch keep` did."""

    checked_at: Moment
    keeper_alive: Annotated[bool, Meta(description="A daemon's keeper works here, so that nothing was done.")]
    open_launches: Annotated[int, Meta(description="Launches in the keeper's file that are not over.")]
    overdue: list[KeptView]

    @property
    def is_done(self) -> bool:
        """Whether nothing overdue is left."""
        return all(one.result is not EndResult.FAILED for one in self.overdue)


def keep(settings: Settings, sleep: Callable[[float], None] = time.sleep) -> KeepView:
    """End what is overdue, and wait until the providers confirm it; beside a living keeper do nothing.

    Raises:
        StoreError: the keeper's file cannot be read.
    """
    file, now = obligation_file(settings), real_now()
    known = {one.launch_id: one for one in file.open_obligations()}
    if is_keeper_alive(file.path, now):
        return KeepView.of(checked_at=now, keeper_alive=True, open_launches=len(known), overdue=[])
    keeper = build_keeper(settings, lambda: NO_DAEMON, lambda _provider: True, is_alone=True)
    overdue: dict[str, Ending] = {}
    until_s = real_monotonic() + WITHIN_S
    while True:
        keeper.check(real_now())
        endings = keeper.endings()
        overdue |= {one.obligation.launch_id: one for one in endings}
        if _is_settled(keeper, endings) or real_monotonic() > until_s:
            break
        sleep(_CHECK_EVERY_S)
    left = {one.launch_id: one for one in file.open_obligations()}
    kept = [_kept(ending, left.get(launch_id)) for launch_id, ending in overdue.items()]
    return KeepView.of(checked_at=now, keeper_alive=False, open_launches=len(known), overdue=kept)


def _is_settled(keeper: Keeper, endings: list[Ending]) -> bool:
    """Whether waiting longer would change nothing."""
    return not keeper.is_looking and all(not one.is_busy and (one.is_lasting or one.is_absent) for one in endings)


def _kept(ending: Ending, left: Obligation | None) -> KeptView:
    one, error = ending.obligation, None
    if left is None:
        result = EndResult.ENDED
    elif left.ends_at is not None and one.ends_at is not None and left.ends_at > one.ends_at:
        result = EndResult.EXTENDED if left.keep_s == one.keep_s else EndResult.STOPPED
    elif ending.is_absent:
        result = EndResult.ABSENT
    else:
        result, error = EndResult.FAILED, ending.error or "its end is not confirmed yet"
    return KeptView.of(one, should_have_ended_at=one.ends_at, result=result, error=error)
