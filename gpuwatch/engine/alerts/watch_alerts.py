"""Alerts about launches whose watch is no longer in the settings: renamed or removed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from gpuwatch.domain.launches.launch import Launch
from gpuwatch.engine.alerts.alerts import outbox_alert
from gpuwatch.ports import Alert, AlertKind, OutboxAlert, Severity


def abandoned_alerts(
    abandoned: Sequence[Launch], held: Sequence[str], new_id: Callable[[], str], now: datetime
) -> Iterator[OutboxAlert]:
    """Yield one alert for each launch; it is stored once for each set of watches that wait for it.

    Args:
        held: new renting watches of the same settings: one of them may be the old watch under a new name.
    """
    for launch in abandoned:
        alert = Alert(
            alert_id=new_id(),
            kind=AlertKind.RENT,
            severity=Severity.WARNING,
            created_at=now,
            headline=f'launch {launch.launch_id} is active, but its watch "{launch.watch}" is not in the settings',
            watch=launch.watch,
            facts=(
                ("Launch", launch.launch_id),
                ("Provider", launch.provider),
                ("Instance", launch.instance_id or "not known yet"),
            ),
            why="The watch was renamed or removed.",
            did=_did(launch, held),
            can_do=(
                f'If it has a new name: set renamed_from = "{launch.watch}" in that watch, then reload the settings',
                *(('If both are intended: renamed_from = "" in the new watch',) if held else ()),
                f"If you do not need it: gpuwatch stop {launch.launch_id}",
            ),
        )
        yield outbox_alert(alert, f"abandoned:{launch.launch_id}:{launch.watch[:60]}:{','.join(held)[:100]}")


def _did(launch: Launch, held: Sequence[str]) -> str:
    followed = (
        "max_runtime and budgets still end it; the other rules of its watch are unknown."
        if launch.terms is None
        else "gpuwatch follows it by the settings it was rented with, but calls none of its hooks."
    )
    if not held:
        return followed
    names = ", ".join(f'"{name}"' for name in held)
    return f"{followed} Until this is resolved, gpuwatch rents nothing for the new {_plural(held)} {names}."


def _plural(held: Sequence[str]) -> str:
    return "watch" if len(held) == 1 else "watches"
