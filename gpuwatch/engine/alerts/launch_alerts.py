"""Alerts about launches, as they are stored: the facts of the launch with the texts of its event. Pure.

- `LaunchAlerts` adds the facts of a launch to a text.
- `next_steps`: what the owner can do after a watch fired, about its launches or about the reason why there is none.
- `abandoned_alerts`: launches whose watch is no longer in the settings, because it was renamed or removed.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from gpuwatch.domain.alerts import launch_texts as texts
from gpuwatch.domain.alerts.alert import AlertKind, AlertSpec, OutboxAlert, Severity
from gpuwatch.domain.launches.instance import Instance
from gpuwatch.domain.launches.instances.machines_and_places import AVOID_FOR, MACHINE_FAULTS, is_of_any_machine
from gpuwatch.domain.launches.launch import EndReason, Launch, LaunchRefusal, LaunchState, RefusalReason
from gpuwatch.domain.launches.life.launch_events import Notification
from gpuwatch.domain.launches.life.launch_record import stored_watch
from gpuwatch.domain.launches.money.launch_costs import cost_microusd
from gpuwatch.domain.market.money import distinct_prices, dollars, price_text, usd
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.ports.declarations import Adapter

NONE: Mapping[str, Adapter] = {}
NOT_READY = ("Check key, credit and instances: gpuwatch doctor",)
_PRICE_STEP = 1.03  # a price that changes by less than this factor is not reported again
_OVER = frozenset({LaunchState.ENDED, LaunchState.FAILED})
_MEND = frozenset({EndReason.NO_CREDIT, EndReason.KEY, EndReason.BAD_ORDER, EndReason.REFUSED, EndReason.NOT_RUN})


class LaunchAlerts:
    """Creates the alerts of launches."""

    def __init__(self, new_id: Callable[[], str], adapters: Mapping[str, Adapter] = NONE) -> None:
        self.new_id = new_id
        self._ends = {name: adapter.info.self_destruct for name, adapter in adapters.items()}

    def of(self, spec: AlertSpec, launch: Launch, now: datetime, **fields: Any) -> OutboxAlert:
        """Return an alert with the facts of a launch: about its end if that has begun, and urgent if it is in trouble.

        Args:
            fields: those of the text that are not the launch's own (see `launch_texts`), and what `AlertSpec.alert`
                takes.
        """
        kind = fields.pop("kind", spec.kind)
        if kind is AlertKind.RENT and launch.state in {*_OVER, LaunchState.STOPPING}:
            kind = AlertKind.END
        is_wrong = launch.state is LaunchState.FAILED or launch.condition is not None
        least = Severity.WARNING if is_wrong else Severity.INFO
        return spec.outbox(
            self.new_id(),
            now,
            kind=kind,
            severity=max(kind.rules.severity, least, key=lambda one: one.rank),
            subject=launch.launch_id,
            watch=launch.watch,
            facts=(*_facts(launch, now), *self._own_end(launch)),
            launch=launch.launch_id,
            provider=launch.provider,
            label=launch.label,
            instance=launch.instance_id or launch.label,
            state=_state_text(launch),
            **fields,
        )

    def for_notification(self, launch: Launch, notification: Notification, now: datetime) -> OutboxAlert:
        """Return the alert for a transition's notification.

        Args:
            launch: its state after the transition.
        """
        if notification.spec is texts.NOT_RENTED:
            return self.not_rented(launch, notification.fields["why"], now)
        # of a condition; if it lasts, the guard reports it again after a quarter of an hour
        step = round(math.log(max(launch.price_microusd_hour, 1), _PRICE_STEP))
        once = {"price_step": step, "ten_minutes": f"{now:%Y-%m-%dT%H:%M}"[:-1]}
        return self.of(notification.spec, launch, now, **once, **notification.fields)

    def not_rented(self, launch: Launch, reason: str, now: datetime) -> OutboxAlert:
        """Alert that nothing was created."""
        end = next((end for end in EndReason if reason.startswith(end.value)), EndReason.REFUSED)
        advice = texts.MEND_ORDER if end in _MEND else texts.FOLLOW_IT[0]
        failed = msgspec.structs.replace(launch, state=LaunchState.FAILED)
        kind = AlertKind.REFUSED if end in _MEND else AlertKind.END
        if end in {EndReason.BUDGET, EndReason.NO_CREDIT}:
            kind = AlertKind.BUDGET
        return self.of(texts.NOT_RENTED, failed, now, kind=kind, end=end, why=reason, advice=advice)

    def orphan(self, provider: str, instance: Instance, why: str, now: datetime) -> OutboxAlert:
        """Alert about an instance with our label but no launch, or a long-ended one; daily."""
        price = instance.listed_usd_hour
        return texts.ORPHAN.outbox(
            self.new_id(),
            now,
            subject=instance.instance_id,
            provider=provider,
            label=instance.label or "",
            state=instance.status or instance.state.value,
            price="" if price is None else f"${price_text(price)} per hour, listed",
            why=why,
        )

    def _own_end(self, launch: Launch) -> tuple[tuple[str, str], ...]:
        """Return when an active instance ends without gpuwatch, and what each hour costs until then."""
        watch, ends = stored_watch(launch.terms), self._ends.get(launch.provider)
        if ends is None or watch is None or watch.launch is None or not watch.launch.self_destruct:
            return ()
        if launch.state in _OVER or launch.instance_id is None:
            return ()
        return (("Self-destruct", ends.text(launch.disk_microusd_hour, launch.price_microusd_hour)),)


def _facts(launch: Launch, now: datetime) -> tuple[tuple[str, str], ...]:
    price, listed = distinct_prices([usd(launch.price_microusd_hour), usd(launch.listed_microusd_hour)])
    facts = [
        ("Launch", launch.launch_id),
        ("GPU", f"{launch.gpu} × {launch.gpu_count}" + (", interruptible (spot)" if launch.spot else "")),
        (
            "Price",
            f"${price} per hour; listed ${listed}",
        ),
        ("Provider", f"{launch.provider}, offer {launch.offer_id}, machine {launch.machine_id or 'unknown'}"),
    ]
    if launch.is_by_command:
        facts[-2:] = [("Reserved", f"{dollars(usd(launch.bound_microusd_hour))} per hour"), ("Offer", launch.offer_id)]
    if launch.instance_id is not None:
        facts.append(("Instance", launch.instance_id))
    cost, over = cost_microusd(launch, now), launch.state in _OVER
    if cost or (over and launch.instance_id is not None):
        facts.append(("Cost" if over else "Cost so far", dollars(usd(cost))))
    return tuple(facts)


def _state_text(launch: Launch) -> str:
    """Return what gpuwatch did, by the launch's state."""
    if launch.state in _OVER:
        ended = f"Launch {launch.launch_id} {'has ended' if launch.state is LaunchState.ENDED else 'failed'}."
        if launch.state is LaunchState.ENDED or launch.machine_id is None or not launch.ended_because(*MACHINE_FAULTS):
            return ended
        if is_of_any_machine(launch):
            return f"{ended} For an hour, gpuwatch tries other places and offers before {launch.machine_id}."
        hours = AVOID_FOR // timedelta(hours=1)
        avoided = f"gpuwatch does not rent machine {launch.machine_id} for {hours} hours (gpuwatch providers machines)."
        return f"{ended} {avoided}"
    if launch.state is LaunchState.STOPPING:
        return f"Launch {launch.launch_id} is stopping; gpuwatch sends an alert when its end is confirmed."
    if launch.condition is not None:
        return f"Launch {launch.launch_id} continues: state {launch.state.value}, {launch.condition.value}."
    return f"Launch {launch.launch_id} is {launch.state.value}."


def next_steps(watch: Watch, reserved: Sequence[Launch], refusal: LaunchRefusal | None) -> tuple[str, ...]:
    """Return what the owner can do after a watch fired: about the started launches, or about the reason for none."""
    if reserved and reserved[0].dry_run:
        return ("To rent for real, set dry_run = false",)
    if reserved and reserved[0].is_by_command:
        return texts.FOLLOW_IT
    if reserved:
        return (*texts.FOLLOW_IT, *(f"End it: gpuwatch launches stop {launch.launch_id}" for launch in reserved))
    return () if refusal is None else _after_refusal(shlex.quote(watch.name), refusal)


def _after_refusal(name: str, refusal: LaunchRefusal) -> tuple[str, ...]:
    if refusal.reason is RefusalReason.PAUSED:
        return (
            f"Resume renting: gpuwatch watches resume {name}"
            if refusal.of_watch
            else "Resume renting: gpuwatch watches resume",
        )
    if refusal.reason is RefusalReason.CHECKLIST:
        return (f"Tick completed items: gpuwatch watches checklist tick {name} ITEM",)
    if refusal.reason is RefusalReason.BREAKER:
        return ("See what failed: gpuwatch launches", f"Resume renting now: gpuwatch watches resume {name}")
    if refusal.reason is RefusalReason.MACHINE_FAILED:
        return ("See blocked machines and clear them: gpuwatch providers machines",)
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
    both = 'If both are intended: renamed_from = "" in the new watch' if held else ""
    for launch in abandoned:
        yield texts.ABANDONED.outbox(
            new_id(),
            now,
            watch=launch.watch,
            launch=launch.launch_id,
            provider=launch.provider,
            instance=launch.instance_id or "not known yet",
            held=",".join(held),
            did=_did(launch, held),
            both=both,
        )


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
