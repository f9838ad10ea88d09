"""The keeper on the virtual clock: its own reader of the file, its own launcher, no thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gpuwatch.bootstrap import TimeSource, build_adapters, new_id
from gpuwatch.bootstrap.keeper import obligation_file
from gpuwatch.engine.keeper import Keeper
from tests.soak.cloud import NAME

if TYPE_CHECKING:
    from gpuwatch.domain.launches.obligation import Obligation
    from gpuwatch.ports import Alert, Launcher
    from gpuwatch.ports.http import HttpClient
    from gpuwatch.settings import Settings


def build_keeper(settings: Settings, http: HttpClient, time: TimeSource, alerts: list[Alert]) -> Keeper:
    """Put together as `bootstrap.keeper` does."""

    def launcher_for(obligation: Obligation) -> Launcher:
        launcher = build_adapters(settings, http, [NAME], time_source=time)[NAME].launcher
        assert launcher is not None
        return launcher

    def at_once(name: str, work: Callable[[], None]) -> None:
        work()

    return Keeper(
        obligation_file(settings, time.now), launcher_for, alerts.append,
        why_alone=lambda: None, run=at_once, new_id=new_id, monotonic=time.monotonic,
    )  # fmt: skip
