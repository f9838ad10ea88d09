"""Instances with gpuwatch's label but without a launch: adopt one, or mark it as foreign."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuwatch.app.launches.launches import list_instances_of, open_launches
from gpuwatch.app.watches.watch_selection import watch_named
from gpuwatch.bootstrap import http_client, new_id, real_now
from gpuwatch.bootstrap.provider_access import resolve_provider
from gpuwatch.domain.launches.labels import LABEL_PREFIX, label_ids, launch_id_in
from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.launches.life.strays import adopted_launch
from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts
from gpuwatch.errors import ProviderStateUnknown, UsageError

if TYPE_CHECKING:
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.ports import Instance
    from gpuwatch.ports.http import HttpClient
    from gpuwatch.settings import Settings
    from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository


def adopt(settings: Settings, instance_id: str, provider: str | None, watch: str | None) -> Launch:
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
        reason = "You adopted it. Its earlier cost is in no launch; its max_runtime counts from now."
        launch_alerts = LaunchAlerts(new_id)
        if not repository.adopt(launch, now, launch_alerts.moved(launch, "adopted", reason, now)):
            raise UsageError(f"another launch has just taken over instance {instance_id}")
        return launch


def mark_foreign(settings: Settings, instance_id: str, provider: str | None) -> bool:
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
        return repository.mark_foreign(name, instance_id, real_now(), None if ids is None else ids.install_id)


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
