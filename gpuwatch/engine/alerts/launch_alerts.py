"""Alerts about launches and jobs, as they are stored: their facts with the texts of the event. Pure.

- `LaunchAlerts` adds the facts of a launch to a text.
- `next_steps`: what the owner can do after a watch fired, about its launches or about the reason why there is none.
- `job_alert` does the same for a job.
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
from gpuwatch.domain.alerts import offer_texts
from gpuwatch.domain.alerts.alert import Alert, AlertKind, AlertSpec, OutboxAlert, Severity, filled_facts
from gpuwatch.domain.alerts.job_texts import GOES_ON
from gpuwatch.domain.alerts.kept_texts import DISK_KEPT
from gpuwatch.domain.jobs.job import Job
from gpuwatch.domain.launches.instance import Instance
from gpuwatch.domain.launches.instances.machines_and_places import AVOID_FOR, MACHINE_FAULTS, is_of_any_machine
from gpuwatch.domain.launches.launch import EndReason, Launch, LaunchRefusal, LaunchState, RefusalReason
from gpuwatch.domain.launches.life.kept_disks import kept_fields
from gpuwatch.domain.launches.life.launch_events import Notification
from gpuwatch.domain.launches.life.launch_record import disk_kept, stored_watch
from gpuwatch.domain.launches.logins import login_of
from gpuwatch.domain.launches.money.launch_costs import cost_microusd, remaining_cost
from gpuwatch.domain.market.money import distinct_prices, dollars, price_text, usd
from gpuwatch.domain.market.offer import clean, gpus_text
from gpuwatch.domain.setup.durations import format_duration
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.ports.declarations import Adapter
from gpuwatch.redaction import redact

NONE: Mapping[str, Adapter] = {}
_PRICE_STEP = 1.03  # a price that changes by less than this factor is not reported again
_LOG_LINES = 8  # of a job's command
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
        is_wrong = launch.state is LaunchState.FAILED or (launch.condition is not None and launch.kept is None)
        least = Severity.WARNING if is_wrong else Severity.INFO
        return spec.outbox(
            self.new_id(),
            now,
            kind=kind,
            severity=max(spec.severity or kind.rules.severity, least, key=lambda one: one.rank),
            subject=launch.launch_id,
            watch=launch.watch,
            facts=filled_facts(texts.LAUNCH_FACTS, self._figures(launch, now)),
            launch=launch.launch_id,
            provider=launch.provider,
            label=launch.label,
            instance=launch.instance_id or launch.label,
            state=_state_text(launch),
            **kept_fields(launch),
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

    def _figures(self, launch: Launch, now: datetime) -> dict[str, Any]:
        """Return the values of `LAUNCH_FACTS`."""
        price, listed = distinct_prices([usd(launch.price_microusd_hour), usd(launch.listed_microusd_hour)])
        by_command, is_over = launch.is_by_command, launch.state in _OVER
        cost = cost_microusd(launch, now)
        has_cost = cost or (is_over and launch.instance_id is not None)
        return {
            "launch": launch.launch_id,
            "of": launch,
            "gpus": gpus_text(launch.gpu, launch.gpu_count),
            "spot": texts.INTERRUPTIBLE if launch.spot else "",
            "price": None if by_command else price,
            "listed": listed,
            "provider": None if by_command else launch.provider,
            "machine": launch.machine_id or texts.UNKNOWN_MACHINE,
            "reserved": dollars(usd(launch.bound_microusd_hour)) if by_command else None,
            "reserved_offer": launch.offer_id if by_command else None,
            "instance": launch.instance_id,
            "login": None if (address := login_of(launch)) is None else address.command,
            "cost": dollars(usd(cost)) if has_cost and is_over else None,
            "cost_so_far": dollars(usd(cost)) if has_cost and not is_over else None,
            **_latest_end(launch, now),
            "own_end": self._own_end(launch),
        }

    def _own_end(self, launch: Launch) -> str | None:
        """Return when an active instance ends without gpuwatch, and what each hour costs until then."""
        watch, ends = stored_watch(launch.terms), self._ends.get(launch.provider)
        if ends is None or watch is None or watch.launch is None or not watch.launch.ends_itself(ends.is_movable):
            return None
        if launch.state in _OVER or launch.instance_id is None:
            return None
        return ends.text(launch.disk_microusd_hour, launch.price_microusd_hour)


def _latest_end(launch: Launch, now: datetime) -> dict[str, str | None]:
    """What a running launch costs in all if it runs to its latest end."""
    if launch.state is not LaunchState.RUNNING or launch.max_runtime_s is None or launch.running_at is None:
        return {"cost_at_end": None, "left": None}
    ends_at = launch.running_at + timedelta(seconds=launch.max_runtime_s)
    _, further = remaining_cost(launch, now, ends_at)
    left_s = max(0.0, (ends_at - now).total_seconds())
    return {
        "cost_at_end": dollars(usd(cost_microusd(launch, now) + further)),
        "left": format_duration(left_s // 60 * 60),
    }


def _state_text(launch: Launch) -> str:
    """Return what gpuwatch did, by the launch's state."""
    fields = {"launch": launch.launch_id, "machine": launch.machine_id, "is_in": launch.state.value}
    if launch.state in _OVER:
        text = (texts.HAS_ENDED if launch.state is LaunchState.ENDED else texts.HAS_FAILED).format(**fields)
        if launch.state is LaunchState.ENDED or launch.machine_id is None or not launch.ended_because(*MACHINE_FAULTS):
            return text
        avoids = texts.OTHER_PLACES_FIRST if is_of_any_machine(launch) else texts.NOT_THAT_MACHINE
        return avoids.format(text=text, hours=AVOID_FOR // timedelta(hours=1), **fields)
    if launch.state is LaunchState.STOPPING:
        return texts.IS_STOPPING.format(**fields)
    if (kept := disk_kept(launch)) is not None:
        return DISK_KEPT[kept].format(**fields)
    if launch.condition is not None:
        return texts.CONTINUES.format(condition=launch.condition.value, **fields)
    return texts.IS_IN_STATE.format(**fields)


def next_steps(watch: Watch, reserved: Sequence[Launch], refusal: LaunchRefusal | None) -> tuple[str, ...]:
    """Return what the owner can do after a watch fired: about the started launches, or about the reason for none."""
    if reserved and reserved[0].dry_run:
        return (offer_texts.TO_RENT,)
    if reserved and reserved[0].is_by_command:
        return texts.FOLLOW_IT
    if reserved:
        return (*texts.FOLLOW_IT, *(offer_texts.END_IT.format(launch=launch.launch_id) for launch in reserved))
    if refusal is None:
        return ()
    lines = offer_texts.AFTER_REFUSAL.get(refusal.reason, offer_texts.AFTER_ANY_REFUSAL)
    if refusal.reason is RefusalReason.PAUSED:
        lines = (offer_texts.RESUME_WATCH if refusal.of_watch else offer_texts.RESUME,)
    return tuple(line.format(name=shlex.quote(watch.name)) for line in lines)


def abandoned_alerts(
    abandoned: Sequence[Launch], held: Sequence[str], new_id: Callable[[], str], now: datetime
) -> Iterator[OutboxAlert]:
    """Yield one alert for each launch; it is stored once for each set of watches that wait for it.

    Args:
        held: new renting watches of the same settings: one of them may be the old watch under a new name.
    """
    names = ", ".join(f'"{name}"' for name in held)
    for launch in abandoned:
        yield texts.ABANDONED.outbox(
            new_id(),
            now,
            watch=launch.watch,
            launch=launch.launch_id,
            provider=launch.provider,
            instance=launch.instance_id or texts.ID_UNKNOWN,
            held=",".join(held),
            followed=texts.RULES_UNKNOWN if launch.terms is None else texts.RULES_KEPT,
            new_watch=names if len(held) == 1 else None,
            new_watches=names if len(held) > 1 else None,
            both=texts.BOTH_INTENDED if held else "",
        )


def job_alert(job: Job, spec: AlertSpec, now: datetime, *, log: Sequence[str] = (), **fields: Any) -> OutboxAlert:
    """Return an alert about a job; at most one of each spec per run.

    Args:
        log: the last lines of the command's output.
        fields: those of the texts, and what `AlertSpec.alert` takes.
    """
    launch = (("Launch", job.launch_id),) if job.launch_id else ()
    lines = [("Log", clean(redact(line))) for line in log[-_LOG_LINES:] if line.strip()]
    return spec.outbox(
        None,
        now,
        watch=job.watch_name,
        facts=(("Job", job.job_id), ("Run", str(job.run_number)), *launch),
        **{"more_facts": lines, **fields},
        job=job.name,
        job_id=job.job_id,
        run=job.run_number,
    )


def goes_on(alert: Alert) -> bool:
    """Whether the job continues by itself after this alert."""
    return alert.headline.endswith(tuple(spec.headline.removeprefix("job {job}") for spec in GOES_ON))
