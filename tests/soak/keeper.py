"""The keeper on the virtual clock: its own reader of the file, its own launcher, no thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gpuwatch.bootstrap import TimeSource, new_id
from gpuwatch.bootstrap.keeper_building import _Launchers, obligation_file
from gpuwatch.engine.launches.guarding.keeper import Keeper

if TYPE_CHECKING:
    from gpuwatch.ports import Alert
    from gpuwatch.ports.http import HttpClient
    from gpuwatch.settings import Settings


def build_keeper(
    settings: Settings, http: HttpClient, time: TimeSource, alerts: list[Alert], is_followed: Callable[[], bool]
) -> Keeper:
    """Build it like `bootstrap.keeper`."""

    def at_once(name: str, work: Callable[[], None]) -> None:
        work()

    return Keeper(
        obligation_file(settings, time.now), _Launchers(settings, lambda: http), alerts.append,
        daemon_fault=lambda: None, run=at_once, new_id=new_id, monotonic=time.monotonic,
        is_followed=lambda provider: is_followed(),
    )  # fmt: skip
