"""Alerts about the launches of a watch, and what its owner can do next. Pure.

- `next_steps`: after a watch fired, about its launches, or about the reason why there is none.
- `day_limit_alert`: the launches per day are used up.
- `abandoned_alerts`: launches whose watch is no longer in the settings, because it was renamed or removed.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from gpuwatch.domain.launches.launch import Launch, LaunchRefusal, RefusalReason
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.alerts.launch_alerts import FOLLOW_IT
from gpuwatch.engine.alerts.outbox_alerts import outbox_alert
from gpuwatch.ports import Alert, AlertKind, OutboxAlert, Severity

NOT_READY = ("Check key, credit and instances: gpuwatch doctor",)


def day_limit_alert(watch: Watch, refusal: LaunchRefusal, alert_id: str, now: datetime) -> OutboxAlert:
    """Return the alert that a watch reached its launches per day: once for each day (UTC)."""
    alert = Alert(
        alert_id=alert_id,
        kind=AlertKind.REFUSED,
        created_at=now,
        headline=f"{watch.name}: no more launches today, max_per_day = {watch.max_per_day} is reached",
        watch=watch.name,
        facts=(("Next launch", "from 00:00 UTC on"),),
        why=f"It found an offer, but did not rent: {refusal.text}.",
        did="gpuwatch rents nothing for this watch until then. Its alerts about offers continue.",
        can_do=_after_refusal(shlex.quote(watch.name), refusal),
    )
    return outbox_alert(alert, f"max_per_day:{watch.name[:150]}:{now:%Y-%m-%d}")


def next_steps(watch: Watch, reserved: Sequence[Launch], refusal: LaunchRefusal | None) -> tuple[str, ...]:
    """Return what the owner can do after a watch fired: about the started launches, or about the reason for none."""
    if reserved and reserved[0].dry_run:
        return ("To rent for real, set dry_run = false",)
    if reserved and reserved[0].is_by_command:
        return FOLLOW_IT
    if reserved:
        return (*FOLLOW_IT, *(f"End it: gpuwatch stop {launch.launch_id}" for launch in reserved))
    return () if refusal is None else _after_refusal(shlex.quote(watch.name), refusal)


def _after_refusal(name: str, refusal: LaunchRefusal) -> tuple[str, ...]:
    if refusal.reason is RefusalReason.PAUSED:
        return (f"Resume renting: gpuwatch resume {name}" if refusal.of_watch else "Resume renting: gpuwatch resume",)
    if refusal.reason is RefusalReason.CHECKLIST:
        return (f"Tick completed items: gpuwatch checklist tick {name} ITEM",)
    if refusal.reason is RefusalReason.BREAKER:
        return ("See what failed: gpuwatch launches", f"Resume renting now: gpuwatch resume {name}")
    if refusal.reason is RefusalReason.MACHINE_FAILED:
        return ("See blocked machines and clear them: gpuwatch machines",)
    if refusal.reason is RefusalReason.MAX_PER_DAY:
        return ("See today's launches: gpuwatch launches", f"Allow more: max_per_day in watch {name}")
    return ("See launches and their cost: gpuwatch launches",)


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
    watches = "watch" if len(held) == 1 else "watches"
    return f"{followed} Until this is resolved, gpuwatch rents nothing for the new {watches} {names}."
