"""Alerts about launches. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

import msgspec

from gpuwatch.domain.jobs.cluster_task import TOOL
from gpuwatch.domain.launches.instances.machines_and_places import AVOID_FOR, MACHINE_FAULTS, is_of_any_machine
from gpuwatch.domain.launches.launch import EndReason, Launch, LaunchState
from gpuwatch.domain.launches.life.launch_events import Notification, NotificationTopic
from gpuwatch.domain.launches.life.launch_record import stored_watch
from gpuwatch.domain.launches.money.launch_costs import cost_microusd
from gpuwatch.domain.market.money import distinct_prices, dollars, price_text, usd
from gpuwatch.engine.alerts.outbox_alerts import outbox_alert
from gpuwatch.ports import Alert, AlertKind, Instance, OutboxAlert, Severity, severity_of
from gpuwatch.ports.declarations import Adapter
from gpuwatch.redaction import redact

NONE: Mapping[str, Adapter] = {}
_PRICE_STEP = 1.03  # a price that changes by less than this factor is not reported again
_OVER = frozenset({LaunchState.ENDED, LaunchState.FAILED})
_MEND = frozenset({EndReason.NO_CREDIT, EndReason.KEY, EndReason.BAD_ORDER, EndReason.REFUSED, EndReason.NOT_RUN})
FOLLOW_IT = ("Follow it: gpuwatch launches",)


class LaunchAlerts:
    """Creates the alerts of launches."""

    def __init__(self, new_id: Callable[[], str], adapters: Mapping[str, Adapter] = NONE) -> None:
        self._new_id = new_id
        self._ends = {name: adapter.info.self_destruct for name, adapter in adapters.items()}

    def for_notification(self, launch: Launch, notification: Notification, now: datetime) -> OutboxAlert:
        """Return the alert for a transition's notification.

        Args:
            launch: its state after the transition.
        """
        if notification.about is NotificationTopic.NOT_RENTED:
            return self.not_rented(launch, notification.why, now)
        if notification.about is NotificationTopic.HELD:
            return self.held(launch, notification.why, now, notification.candidate)
        if notification.about is NotificationTopic.RETURNED:
            return self.returned(launch, f"{notification.headline}; it is billed", notification.why, now)
        if notification.about is NotificationTopic.UNLISTED:
            return self.unlisted(launch, notification.why, now)
        if notification.about is NotificationTopic.CONDITION_CHANGED:
            return self.condition_changed(launch, notification.headline, notification.why, now)
        return self.moved(launch, notification.headline, notification.why, now)

    def moved(
        self, launch: Launch, headline: str, why: str, now: datetime, can_do: tuple[str, ...] = ()
    ) -> OutboxAlert:
        """Alert that a launch changed state."""
        return self._launch_alert(_kind(launch), launch, headline, why, now, can_do or FOLLOW_IT)

    def condition_changed(self, launch: Launch, headline: str, why: str, now: datetime) -> OutboxAlert:
        """Report a flapping condition at most once in ten minutes, and a price when it differs by a few percent.

        If it lasts, the guard reports it again after a quarter of an hour.
        """
        price_step = round(math.log(max(launch.price_microusd_hour, 1), _PRICE_STEP))
        ten_minutes = f"{now:%Y-%m-%dT%H:%M}"[:-1]
        key = f"befallen:{launch.launch_id}:{headline}:{price_step}:{ten_minutes}"
        return self._launch_alert(_kind(launch), launch, headline, why, now, FOLLOW_IT, key)

    def not_rented(self, launch: Launch, reason: str, now: datetime) -> OutboxAlert:
        """Alert that nothing was created, once an hour for each cause: a flapping offer must not flood the owner."""
        end = next((end for end in EndReason if reason.startswith(end.value)), EndReason.REFUSED)
        can_do = ("Check key, credit and order: gpuwatch doctor",) if end in _MEND else FOLLOW_IT
        failed = msgspec.structs.replace(launch, state=LaunchState.FAILED)
        key = f"not-rented:{launch.watch[:120]}:{end.name}:{now:%Y-%m-%dT%H}"
        return self._launch_alert(_refusal_kind(end), failed, f"not rented: {end.value}", reason, now, can_do, key)

    def held(self, launch: Launch, why: str, now: datetime, candidate: str | None = None) -> OutboxAlert:
        """Alert that the owner must decide. `candidate`: an instance that may belong to the launch."""
        where, headline = (
            f"at {launch.provider} for the label {launch.label}",
            "nothing proves that no instance was created",
        )
        if launch.is_by_command:
            where, headline = "with the tool that its command calls", "its command may have rented"
        can_do = (
            f"Check your instances {where}",
            f"If it exists: gpuwatch launches resolve {launch.launch_id} --adopt {candidate or 'INSTANCE'}",
            f"If it does not: gpuwatch launches resolve {launch.launch_id} --absent",
        )
        key = f"held:{launch.launch_id}:{now:%Y-%m-%d}"
        return self._launch_alert(AlertKind.HELD, launch, f"held: {headline}", why, now, can_do, key)

    def unlisted(self, launch: Launch, why: str, now: datetime) -> OutboxAlert:
        """Alert that the list omits a rented instance, without proof that it is gone."""
        can_do = (
            f"Check your instances at {launch.provider} for the label {launch.label}",
            f"If it is gone or you do not need it: gpuwatch stop {launch.launch_id}",
        )
        headline, key = "the provider no longer lists it", f"unlisted:{launch.launch_id}"
        return self._launch_alert(AlertKind.HELD, launch, headline, why, now, can_do, key)

    def contradiction(self, launch: Launch, why: str, now: datetime) -> OutboxAlert:
        """Alert that two answers of the provider about an instance contradict each other; once a day."""
        headline = f"{launch.provider} gives contradictory answers about instance {launch.instance_id}"
        key = f"contradiction:{launch.launch_id}:{now:%Y-%m-%d}"
        can_do = (f"Check your instances at {launch.provider}", *FOLLOW_IT)
        return self._launch_alert(AlertKind.BLIND, launch, headline, why, now, can_do, key)

    def unmanaged(self, launch: Launch, now: datetime) -> OutboxAlert:
        """Alert that its provider or the provider's key was removed from the settings, so nothing can end it."""
        why = f"{launch.provider} is not configured, or has no key: gpuwatch can neither list nor end the instance."
        section = "[orchestrator]" if launch.provider == TOOL else f"[providers.{launch.provider}] and its key"
        can_do = (
            f"Restore {section}",
            f"Or end instance {launch.instance_id or launch.label} at {launch.provider} manually",
        )
        headline, key = "gpuwatch can no longer manage it", f"unwatched:{launch.launch_id}:{now:%Y-%m-%d}"
        return self._launch_alert(AlertKind.HELD, launch, headline, why, now, can_do, key)

    def other_account(self, launch: Launch, now: datetime) -> OutboxAlert:
        """Alert that the configured key belongs to another account and can neither see nor end the instance."""
        provider = launch.provider
        if launch.account_id is None:
            why = f"An older gpuwatch started it, and this key has not listed it at {provider} since."
        else:
            why = f"It runs under account {launch.account_id}, but the key of {provider} belongs to another account."
        can_do = (
            f"Set its original key as previous_api_key in [providers.{provider}]",
            f"If both keys belong to one account: gpuwatch accounts --same --provider {provider}",
            f"Or end instance {launch.instance_id or launch.label} at {provider} manually",
        )
        headline, key = "gpuwatch can no longer reach it", f"other-account:{launch.launch_id}:{now:%Y-%m-%d}"
        return self._launch_alert(AlertKind.HELD, launch, headline, why, now, can_do, key)

    def instance_list_missing(self, provider: str, alive: int, error: str, now: datetime) -> OutboxAlert:
        """Alert that the provider's instance list is unavailable."""
        what = "1 launch is" if alive == 1 else f"{alive} launches are"
        alert = Alert(
            alert_id=self._new_id(),
            kind=AlertKind.BLIND,
            subject=provider,
            created_at=now,
            headline=f"{provider} does not list its instances: state of {what} unknown",
            facts=(("Provider", provider), ("Last error", redact(error))),
            why="gpuwatch could not list instances for 10 minutes. Their state and price are unknown.",
            did="gpuwatch still ends instances by id at max_runtime or their deadline. It sends no order twice.",
            can_do=("Check the key's permissions: gpuwatch doctor", f"Check your instances at {provider}"),
        )
        return outbox_alert(alert, f"unseen:{provider}:{now:%Y-%m-%dT%H}")

    def nothing_rented(self, provider: str, error: str, now: datetime) -> OutboxAlert:
        """Alert that the provider has listed no instances, or not named the account, since the start."""
        alert = Alert(
            alert_id=self._new_id(),
            kind=AlertKind.REFUSED,
            severity=Severity.CRITICAL,
            subject=provider,
            created_at=now,
            headline=f"gpuwatch does not rent at {provider}: its instances are unknown",
            facts=(("Provider", provider), ("Last error", redact(error))),
            why="Since gpuwatch started, it could not read the account of the key or list its instances. Earlier "
            "launches may run there, and another one could exceed the limits.",
            did="gpuwatch rents nothing there, keeps polling its offers, and retries continuously.",
            can_do=("Check the key's permissions: gpuwatch doctor", "Let watches rent elsewhere: `providers`"),
        )
        return outbox_alert(alert, f"nothing-rented:{provider}:{now:%Y-%m-%d}")

    def instance_list_back(self, provider: str, now: datetime) -> OutboxAlert:
        """Alert that the provider's instance list is available again."""
        alert = Alert(
            alert_id=self._new_id(),
            kind=AlertKind.RECOVERED,
            subject=provider,
            created_at=now,
            headline=f"{provider} lists its instances again",
            facts=(("Provider", provider),),
            why="gpuwatch received a complete list.",
            did="gpuwatch monitors running launches there again.",
        )
        return outbox_alert(alert)

    def slow_end(self, launch: Launch, why: str, now: datetime) -> OutboxAlert:
        """Alert that an end has not been confirmed for a while."""
        headline = "its end is not confirmed yet; it may still be billed"
        return self._unended(launch, headline, why, now)

    def refused_end(self, launch: Launch, error: str, now: datetime) -> OutboxAlert:
        """Alert at once that the provider refuses to end it: repeating does not help."""
        why = f"{redact(error)}. Reason for its end: {launch.end_reason or 'its time is over'}"
        return self._unended(launch, f"{launch.provider} refuses to end it; it is still billed", why, now)

    def _unended(self, launch: Launch, headline: str, why: str, now: datetime) -> OutboxAlert:
        """Limit the alert to once an hour, for all causes together."""
        can_do = (f"End it at {launch.provider} manually", "See what is wrong: gpuwatch doctor", *FOLLOW_IT)
        key = f"slow-stop:{launch.launch_id}:{now:%Y-%m-%dT%H}"
        return self._launch_alert(AlertKind.HELD, launch, headline, why, now, can_do, key)

    def returned(self, launch: Launch, headline: str, why: str, now: datetime) -> OutboxAlert:
        """Alert that an ended instance is listed again; daily until it is over."""
        can_do = (f"If you do not need it: gpuwatch stop {launch.launch_id}", *FOLLOW_IT)
        key = f"returned:{launch.launch_id}:{now:%Y-%m-%d}"
        return self._launch_alert(AlertKind.ORPHAN, launch, headline, why, now, can_do, key)

    def orphan(self, provider: str, instance: Instance, why: str, now: datetime) -> OutboxAlert:
        """Alert about an instance with our label but no launch, or a long-ended one; daily."""
        alert = Alert(
            alert_id=self._new_id(),
            kind=AlertKind.ORPHAN,
            subject=instance.instance_id,
            created_at=now,
            headline=f"{provider} bills an instance with a gpuwatch label that belongs to no running launch",
            facts=(
                ("Instance", instance.instance_id),
                ("Label", instance.label or ""),
                ("State", instance.status or instance.state.value),
                *_listed_price(instance),
            ),
            why=why,
            did=f"gpuwatch rents nothing at {provider} until this is resolved. It never destroys an instance that may "
            "not be its own.",
            can_do=(
                f"Take it over: gpuwatch adopt {instance.instance_id}",
                f"If you do not need it, destroy it at {provider}",
                f"If another installation owns it: gpuwatch adopt {instance.instance_id} --not-mine",
            ),
        )
        return outbox_alert(alert, f"orphan:{provider}:{instance.instance_id}:{now:%Y-%m-%d}")

    def _launch_alert(  # noqa: PLR0913, PLR0917 each is a part of the alert
        self,
        kind: AlertKind,
        launch: Launch,
        headline: str,
        why: str,
        now: datetime,
        can_do: tuple[str, ...],
        once_key: str | None = None,
    ) -> OutboxAlert:
        alert = Alert(
            alert_id=self._new_id(),
            kind=kind,
            created_at=now,
            headline=f"{launch.watch}: {headline}",
            watch=launch.watch,
            facts=(*_facts(launch, now), *self._own_end(launch)),
            why=why,
            did=_state_text(launch),
            can_do=can_do,
            severity=_severity(kind, launch),
            subject=launch.launch_id,
        )
        return outbox_alert(alert, once_key)

    def _own_end(self, launch: Launch) -> tuple[tuple[str, str], ...]:
        """Return when an active instance ends without gpuwatch, and what each hour costs until then."""
        watch, ends = stored_watch(launch.terms), self._ends.get(launch.provider)
        if ends is None or watch is None or watch.launch is None or not watch.launch.self_destruct:
            return ()
        if launch.state in _OVER or launch.instance_id is None:
            return ()
        return (("Self-destruct", ends.text(launch.disk_microusd_hour, launch.price_microusd_hour)),)


def _kind(launch: Launch) -> AlertKind:
    return AlertKind.END if launch.state in {*_OVER, LaunchState.STOPPING} else AlertKind.RENT


def _refusal_kind(end: EndReason) -> AlertKind:
    if end in {EndReason.BUDGET, EndReason.NO_CREDIT}:
        return AlertKind.BUDGET
    return AlertKind.REFUSED if end in _MEND else AlertKind.END


def _severity(kind: AlertKind, launch: Launch) -> Severity:
    """Return the severity: higher for a failed launch and for an instance in a bad condition."""
    is_wrong = launch.state is LaunchState.FAILED or launch.condition is not None
    return max(severity_of(kind), Severity.WARNING if is_wrong else Severity.INFO, key=lambda one: one.rank)


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


def _listed_price(instance: Instance) -> tuple[tuple[str, str], ...]:
    price = instance.listed_usd_hour
    return () if price is None else (("Price", f"${price_text(price)} per hour, listed"),)


def _state_text(launch: Launch) -> str:
    """Return what gpuwatch did, by the launch's state."""
    if launch.state in _OVER:
        ended = f"Launch {launch.launch_id} {'has ended' if launch.state is LaunchState.ENDED else 'failed'}."
        if launch.state is LaunchState.ENDED or launch.machine_id is None or not launch.ended_because(*MACHINE_FAULTS):
            return ended
        if is_of_any_machine(launch):
            return f"{ended} For an hour, gpuwatch tries other places and offers before {launch.machine_id}."
        hours = AVOID_FOR // timedelta(hours=1)
        return f"{ended} gpuwatch does not rent machine {launch.machine_id} for {hours} hours (gpuwatch machines)."
    if launch.state is LaunchState.STOPPING:
        return f"Launch {launch.launch_id} is stopping; gpuwatch sends an alert when its end is confirmed."
    if launch.condition is not None:
        return f"Launch {launch.launch_id} continues: state {launch.state.value}, {launch.condition.value}."
    return f"Launch {launch.launch_id} is {launch.state.value}."
