"""Launches: list them, show one, resolve one that is held, adopt an instance. A daemon may run at the same time."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from gpuwatch.app.launches.most_cost import most_cost_microusd
from gpuwatch.app.launches.running_machines import RunningMachine, running_machines
from gpuwatch.app.owner_audit import audit_event
from gpuwatch.app.watches.watch_selection import watch_named
from gpuwatch.bootstrap import build_adapters, http_client, new_id, open_store, open_store_read_only, real_now
from gpuwatch.bootstrap.keeper_building import obligation_file
from gpuwatch.bootstrap.provider_access import has_credentials, identified_account, orchestrator, resolve_provider
from gpuwatch.domain.alerts.alert import view_fields
from gpuwatch.domain.alerts.launch_texts import TAKEN_OVER
from gpuwatch.domain.launches.instance import LABEL_PREFIX, label_ids, launch_id_in
from gpuwatch.domain.launches.instances.instance_checks import UtilisationSample
from gpuwatch.domain.launches.instances.obligation import latest_end
from gpuwatch.domain.launches.launch import EndReason, Launch, LaunchState
from gpuwatch.domain.launches.life.command_life import (
    CommandEvent,
    OwnerFoundNothingRented,
    OwnerFoundRented,
    command_transition,
)
from gpuwatch.domain.launches.life.launch_events import ClockReading, LifecycleEvent, OwnerAdopted, OwnerFoundNothing
from gpuwatch.domain.launches.life.launch_record import LaunchEvent, LaunchView, governing_watch, launch_fields
from gpuwatch.domain.launches.life.state_machine import transition
from gpuwatch.domain.launches.life.strays import adopted_launch, has_stopped_running
from gpuwatch.domain.market.json_view import JsonView, Moment, usd_number
from gpuwatch.domain.market.offer import clean
from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts
from gpuwatch.engine.launches.following.transition_executor import TransitionExecutor
from gpuwatch.errors import ProviderError, ProviderStateUnknown, ResourceNotFound, UsageError
from gpuwatch.storage.alerts.alert_rows import relocation_alerts
from gpuwatch.storage.launches.invoice_rows import SqlUtilisationRepository
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository

if TYPE_CHECKING:
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.ports import Alert, Instance, Launcher
    from gpuwatch.ports.http import HttpClient
    from gpuwatch.settings import Settings
    from gpuwatch.storage.setup.database import Database

log = logging.getLogger(__name__)

_SHOWN = 400  # number of samples; of a longer series, every nth


@contextmanager
def open_launches(settings: Settings) -> Iterator[SqlLaunchRepository]:
    """The launch repository, for a command that writes."""
    with open_store(settings) as store:
        yield SqlLaunchRepository(store, obligation_file(settings))


def all_launches(settings: Settings) -> list[Launch]:
    """All launches, newest first. Raises StoreError."""
    with open_store_read_only(settings) as store:
        return SqlLaunchRepository(store).all()


def relocation_findings(settings: Settings, launches: Sequence[Launch]) -> dict[str, Alert]:
    """Launch id → the last reported finding that moving the running launch would pay. Raises StoreError."""
    running = [launch.launch_id for launch in launches if launch.state is LaunchState.RUNNING]
    if not running:
        return {}
    with open_store_read_only(settings) as store:
        return relocation_alerts(store, running)


class RelocationView(JsonView, frozen=True, kw_only=True):
    """A finding that moving a running launch would pay."""

    at: Moment
    headline: str
    why: str
    facts: dict[str, str]


class ListedLaunchView(LaunchView, frozen=True, kw_only=True):
    """One launch of `gpuwatch launches`."""

    relocation: RelocationView | None
    ends_at: Annotated[Moment | None, Meta(description="The latest end; null: it is over, or has none.")]
    most_usd: Annotated[float | None, Meta(description="The most it can cost in all; null: it has no latest end.")]


def launch_views(settings: Settings, now: datetime) -> list[ListedLaunchView]:
    """Each launch, newest first, with a finding that moving it would pay, if any. Raises StoreError."""
    launches = all_launches(settings)
    findings = relocation_findings(settings, launches)
    return [_listed(launch, findings.get(launch.launch_id), now) for launch in launches]


def _listed(launch: Launch, finding: Alert | None, now: datetime) -> ListedLaunchView:
    return ListedLaunchView.of(
        launch,
        **launch_fields(launch, now),
        relocation=None if finding is None else RelocationView.of(finding, **view_fields(finding)),
        ends_at=None if launch.is_over else latest_end(launch),
        most_usd=usd_number(most_cost_microusd(launch, now)),
    )


class LaunchDetails(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about one launch.

    Attributes:
        watch: whose rules end it, as it is in the settings or was when it rented; None: unknown.
        utilisation: at most 400 samples of its GPU use, oldest first.
        mean_percent: of all samples; None: none is known.
        cheaper: the last reported finding that moving it would pay.
    """

    machine: RunningMachine
    watch: Watch | None
    events: Sequence[LaunchEvent]
    utilisation: Sequence[UtilisationSample]
    mean_percent: float | None
    cheaper: Alert | None

    @property
    def launch(self) -> Launch:
        """The launch itself."""
        return self.machine.launch

    @property
    def useful_microusd_hour(self) -> int | None:
        """What a fully used hour of the machine costs: its price ÷ its mean use; None: unknown."""
        if not self.mean_percent:
            return None
        return round(self.launch.price_microusd_hour * 100 / self.mean_percent)


def launch_details(settings: Settings, launch_id: str, now: datetime) -> LaunchDetails:
    """Collect the facts. Raises UsageError (no such launch), StoreError."""
    with open_store_read_only(settings) as store:
        repository, uses = SqlLaunchRepository(store), SqlUtilisationRepository(store)
        launch = known_launch(repository, launch_id)
        samples = uses.samples_since(launch_id, launch.intended_at)
        found = relocation_alerts(store, [launch_id]) if launch.state is LaunchState.RUNNING else {}
        return LaunchDetails(
            machine=running_machines(settings, store, [launch], now)[0],
            watch=governing_watch(launch, {watch.name: watch for watch in settings.watches}),
            events=repository.events(launch_id),
            utilisation=samples[:: -(-len(samples) // _SHOWN) or 1],
            mean_percent=uses.mean(launch_id),
            cheaper=found.get(launch_id),
        )


def launch_events(settings: Settings, launch_id: str) -> list[LaunchEvent]:
    """The events of one launch, oldest first. Raises UsageError (no such launch), StoreError."""
    with open_store_read_only(settings) as store:
        repository = SqlLaunchRepository(store)
        return repository.events(known_launch(repository, launch_id).launch_id)


class LaunchEventView(JsonView, frozen=True, kw_only=True):
    """One event of `gpuwatch launches show`."""

    at: Moment
    from_state: LaunchState | None
    to_state: LaunchState
    cause: str
    provider_words: str | None
    listed_usd_hour: float | None
    price_usd_hour: float | None


# --- held launches: what the owner found ------------------------------------------------------------------------------


def resolve_absent(settings: Settings, launch_id: str, *, actor: str) -> Launch:
    """Close a held launch, or one that no key reaches any more, after the owner has checked that there is no instance.

    Raises:
        UsageError: it is neither held nor unknown nor of another account than the key, or the provider lists an
            instance with its label.
    """
    with open_store(settings) as store, http_client(settings) as http:
        repository = SqlLaunchRepository(store, obligation_file(settings))
        launch = known_launch(repository, launch_id)
        if launch.is_by_command:
            unresolved = launch if launch.state is LaunchState.RUNNING else _unresolved_launch(repository, launch_id)
            return _decided(repository, unresolved, OwnerFoundNothingRented(), actor)
        if launch.instance_id is not None and _is_elsewhere(settings, store, http, launch):
            gone = OwnerFoundNothing(EndReason.GONE, "resolved by the owner, as its account is unreachable")
            return _decided(repository, launch, gone, actor)
        launch = _unresolved_launch(repository, launch_id)
        instances = list_instances_of(settings, http, launch.provider) or ()
        instance_ids = [instance.instance_id for instance in instances if launch_id_in(instance.label) == launch_id]
        if instance_ids:
            raise UsageError(f"instance {instance_ids[0]} has the label {launch.label}; use --adopt {instance_ids[0]}")
        return _decided(repository, launch, OwnerFoundNothing(EndReason.RESOLVED_ABSENT), actor)


def resolve_adopted(settings: Settings, launch_id: str, instance_id: str, *, actor: str) -> Launch:
    """Continue a held launch after the owner has checked that this instance belongs to it.

    Raises:
        UsageError: it is neither held nor unknown, or the instance is not listed, or belongs to another launch.
        ProviderStateUnknown: the provider does not list its instances.
    """
    with open_launches(settings) as repository, http_client(settings) as http:
        launch = _unresolved_launch(repository, launch_id)
        if launch.is_by_command:
            return _decided(repository, launch, OwnerFoundRented(clean(instance_id)), actor)
        instance = _instance_for(repository, launch, list_instances_of(settings, http, launch.provider), instance_id)
        return _decided(repository, launch, OwnerAdopted(instance_id, has_stopped_running(instance)), actor)


def _decided(
    repository: SqlLaunchRepository, launch: Launch, event: LifecycleEvent | CommandEvent, actor: str
) -> Launch:
    """Apply the owner's decision, with everything that such a change does. Raises LaunchConflict, StoreError."""
    now, rules = real_now(), command_transition if launch.is_by_command else transition
    audit = audit_event(actor, f"launch {launch.launch_id} resolved", subject=launch.launch_id, watch=launch.watch)
    transitions = TransitionExecutor(repository, LaunchAlerts(new_id), rules, audit)
    return transitions.apply(launch, event, ClockReading(now, now))[0]


def _instance_for(
    repository: SqlLaunchRepository, launch: Launch, instances: Sequence[Instance] | None, instance_id: str
) -> Instance:
    """The listed instance, if it can belong to this launch."""
    if instances is None:
        raise ProviderStateUnknown(f"{launch.provider} does not list its instances now; try again")
    instance = next((instance for instance in instances if instance.instance_id == instance_id), None)
    if instance is None:
        raise UsageError(f"{launch.provider} lists no instance {instance_id}")
    recorded = [other.launch_id for other in repository.alive(launch.provider) if other.instance_id == instance_id]
    for owner in (launch_id_in(instance.label), *recorded[:1]):
        if owner is not None and owner != launch.launch_id:
            raise UsageError(f"instance {instance_id} belongs to launch {owner}")
    return instance


def _is_elsewhere(settings: Settings, store: Database, http: HttpClient, launch: Launch) -> bool:
    """Whether the key in the settings is known to belong to another account."""
    launcher = None if launch.is_over else launcher_of(settings, http, launch.provider)
    return launcher is not None and identified_account(settings, store, launcher, real_now()).is_elsewhere(launch)


def _unresolved_launch(repository: SqlLaunchRepository, launch_id: str) -> Launch:
    """A launch with an unknown instance: it can be resolved, even while it is stopping."""
    launch = known_launch(repository, launch_id)
    stops_unknown = launch.state is LaunchState.STOPPING and launch.instance_id is None
    if launch.state not in {LaunchState.HELD, LaunchState.UNKNOWN} and not stops_unknown:
        raise UsageError(f"launch {launch_id} is {launch.state.value}; only a held or unknown one can be resolved")
    return launch


# --- what other use cases ask -----------------------------------------------------------------------------------------


def known_launch(repository: SqlLaunchRepository, launch_id: str) -> Launch:
    """A launch by its id. Raises UsageError: no such launch."""
    launch = repository.get(launch_id)
    if launch is None:
        raise ResourceNotFound(f"there is no launch {launch_id!r}; see: gpuwatch launches")
    return launch


def unknown_instances(instances: Sequence[Instance], alive: Sequence[Launch], provider: str) -> list[Instance]:
    """Instances with gpuwatch's label that belong to no active launch."""
    provider_launches = [launch for launch in alive if launch.provider == provider]
    ids = {launch.instance_id for launch in provider_launches}
    awaited = {launch.label for launch in provider_launches if launch.instance_id is None}
    labelled = [instance for instance in instances if (instance.label or "").startswith(LABEL_PREFIX)]
    return [instance for instance in labelled if instance.instance_id not in ids and instance.label not in awaited]


def launcher_of(settings: Settings, http: HttpClient, provider: str) -> Launcher | None:
    """The provider context for renting; None: it is no longer in the settings, or has no key."""
    options = settings.providers.get(provider)
    if options is None or not has_credentials(options):
        return orchestrator(settings, provider)
    return build_adapters(settings, http, [provider])[provider].launcher


def list_instances_of(settings: Settings, http: HttpClient, provider: str) -> Sequence[Instance] | None:
    """The instances of a provider; None: the list is unavailable."""
    launcher = launcher_of(settings, http, provider)
    try:
        return None if launcher is None else launcher.list_instances()
    except ProviderError as error:
        log.warning("%s", error)
        return None


# --- labelled instances without a launch: adopt one, or mark it as foreign --------------------------------------------


def adopt(settings: Settings, instance_id: str, provider: str | None, watch: str | None, *, actor: str) -> Launch:
    """Record a launch for the instance, so that gpuwatch manages it as if it had just rented it.

    Args:
        provider: None: the only enabled one.
        watch: the watch whose rules apply; None: the only watch that rents.

    Raises:
        UsageError: it is not listed or not labelled, or it has a launch already; or the watch must be named.
        ProviderStateUnknown: the provider returns no list, or does not state the price.
    """
    name = resolve_provider(settings, provider)
    rules = _watch(settings, watch)
    with open_launches(settings) as repository, http_client(settings) as http:
        instance = _labelled(settings, http, name, instance_id)
        launch_id = _free_id(repository, name, instance)
        now = real_now()
        launches = [launch for launch in repository.alive() if launch.watch == rules.name]
        commission = settings.providers[name].commission
        try:
            launch = adopted_launch(
                instance,
                launch_id=launch_id,
                watch=rules,
                alive=launches,
                provider=name,
                commission=commission,
                now=now,
            )
        except ValueError as fault:
            raise ProviderStateUnknown(f"cannot adopt instance {instance_id}: {fault}") from fault
        launch_alerts = LaunchAlerts(new_id)
        action = f"instance {instance_id} at {name} adopted as launch {launch_id}"
        audit = audit_event(actor, action, subject=launch_id, watch=rules.name)
        if not repository.adopt(launch, now, launch_alerts.of(TAKEN_OVER, launch, now), audit):
            raise UsageError(f"another launch has just taken over instance {instance_id}")
        return launch


def mark_foreign(settings: Settings, instance_id: str, provider: str | None, *, actor: str) -> bool:
    """Record that the instance belongs to another installation; False: it was recorded before.

    If its label names that installation, all instances of the installation are recorded.

    Raises:
        UsageError: it does not block renting, and is not listed or not labelled; or it has a launch.
        ProviderStateUnknown: it does not block renting, and the provider returns no list.
    """
    name = resolve_provider(settings, provider)
    with open_launches(settings) as repository, http_client(settings) as http:
        labels = [
            instance.label for instance in repository.unknown_instances(name) if instance.instance_id == instance_id
        ]
        ids = label_ids(labels[0] if labels else _labelled(settings, http, name, instance_id).label)
        _refuse_if_ours(repository, name, instance_id)
        action = f"instance {instance_id} at {name} marked as another installation's"
        audit = audit_event(actor, action, subject=instance_id)
        return repository.mark_foreign(name, instance_id, real_now(), None if ids is None else ids.install_id, audit)


def _watch(settings: Settings, name: str | None) -> Watch:
    if name is not None:
        return watch_named(settings, name)
    renting = [watch for watch in settings.watches if watch.launch is not None]
    if len(renting) == 1:
        return renting[0]
    names = ", ".join(watch.name for watch in renting or settings.watches) or "none"
    which = "several watches rent" if renting else "no watch rents"
    raise UsageError(f"{which}; choose the one whose limits apply: --watch NAME; watches: {names}")


def _labelled(settings: Settings, http: HttpClient, provider: str, instance_id: str) -> Instance:
    instances = list_instances_of(settings, http, provider)
    if instances is None:
        raise ProviderStateUnknown(f"{provider} does not list its instances now; try again")
    for instance in instances:
        if instance.instance_id == instance_id:
            if (instance.label or "").startswith(LABEL_PREFIX):
                return instance
            raise UsageError(f"instance {instance_id} has no label {LABEL_PREFIX}…: gpuwatch does not touch it")
    raise UsageError(f"{provider} lists no instance {instance_id}")


def _free_id(repository: SqlLaunchRepository, provider: str, instance: Instance) -> str:
    """The launch id in its label if it is free, otherwise a new one."""
    _refuse_if_ours(repository, provider, instance.instance_id)
    labelled = launch_id_in(instance.label)
    launch = None if labelled is None else repository.get(labelled)
    if launch is not None and not launch.is_over and launch.instance_id is None:
        raise UsageError(f"launch {labelled} is waiting for it: gpuwatch launches resolve {labelled} --adopt INSTANCE")
    return new_id() if labelled is None or launch is not None else labelled


def _refuse_if_ours(repository: SqlLaunchRepository, provider: str, instance_id: str) -> None:
    owner = [launch.launch_id for launch in repository.alive(provider) if launch.instance_id == instance_id]
    if owner:
        raise UsageError(f"instance {instance_id} already belongs to launch {owner[0]}")
