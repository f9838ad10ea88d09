"""Extend a running launch: the keeper's file gets the new end before the row does. A daemon may run meanwhile."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_attempt

from gpuwatch import providers
from gpuwatch.app.launches.contract_end import contract_end
from gpuwatch.app.launches.launches import known_launch, open_launches
from gpuwatch.app.owner_audit import audit_event
from gpuwatch.bootstrap import real_now
from gpuwatch.domain.jobs.cluster_task import TOOL
from gpuwatch.domain.launches.instances.obligation import latest_end
from gpuwatch.domain.launches.launch import Launch, LaunchConflict, LaunchRefusal, LaunchState
from gpuwatch.domain.launches.money.launch_costs import further_microusd_hour
from gpuwatch.domain.setup.durations import format_duration
from gpuwatch.domain.watches.launch_spec import Budget
from gpuwatch.errors import ProviderStateUnknown, UsageError
from gpuwatch.settings import Settings
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository

if TYPE_CHECKING:
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.ports import OutboxAlert

_CONFLICTS_MAX = 5


class Extension(msgspec.Struct, frozen=True, kw_only=True):
    """The granted extension.

    Attributes:
        ends_at: the new time of the destroy.
        more_microusd: highest cost of the additional time, at the launch's price.
        is_contract_known: whether the provider's own end of the contract could be checked.
    """

    launch: Launch
    ends_at: datetime
    more_microusd: int
    is_contract_known: bool


def extend(settings: Settings, launch_id: str, by_s: float, *, actor: str) -> Extension:
    """Extend the launch by this many seconds; budgets are checked with the longer time.

    Raises:
        UsageError: it cannot be extended, or a budget does not allow it; the old end applies.
        StoreError: it was not written; the old end applies.
        ProviderStateUnknown: the launch keeps changing concurrently.
    """
    audit = audit_event(actor, f"launch {launch_id} extended by {format_duration(by_s)}", subject=launch_id)
    retrying = Retrying(retry=retry_if_exception_type(LaunchConflict), stop=stop_after_attempt(_CONFLICTS_MAX))
    with open_launches(settings) as repository:
        name = known_launch(repository, launch_id).watch
        watch = next((watch for watch in settings.watches if watch.name == name), None)
        try:
            return retrying(_extend, settings, repository, launch_id, by_s, watch, audit)
        except RetryError as error:
            raise ProviderStateUnknown(f"launch {launch_id} keeps changing; try again") from error


def _extend(
    settings: Settings,
    repository: SqlLaunchRepository,
    launch_id: str,
    by_s: float,
    watch: Watch | None,
    audit: OutboxAlert,
) -> Extension:
    """Extend the current row. Raises LaunchConflict: it changed in the meantime."""
    launch = known_launch(repository, launch_id)
    if watch is not None and watch.launch is not None and watch.launch.self_destruct is True:
        _require_movable(launch)
    ends_at = _extended_end(launch, by_s)
    contract = contract_end(settings, launch, until=ends_at)
    if contract.is_before(ends_at):
        raise UsageError(f"launch {launch_id} was not extended: {contract.text}")
    watch_budget = Budget() if watch is None else watch.budget
    extended = repository.extend(launch, by_s, settings.budget, watch_budget, real_now(), audit=audit)
    if isinstance(extended, LaunchRefusal):
        contract_end(settings, launch, until=latest_end(launch))
        raise UsageError(f"launch {launch_id} was not extended: {extended.said}")
    more = round(further_microusd_hour(extended) * by_s / 3600)
    return Extension(launch=extended, ends_at=ends_at, more_microusd=more, is_contract_known=contract.is_known)


def _require_movable(launch: Launch) -> None:
    """Raise UsageError: nothing but the instance itself knows when it ends itself."""
    ends = providers.info(launch.provider).self_destruct if launch.provider in providers.names() else None
    if ends is None or not ends.is_movable:
        raise UsageError(
            f"launch {launch.launch_id} ends itself on its instance (self_destruct); its end cannot be moved"
        )


def _extended_end(launch: Launch, by_s: float) -> datetime:
    """Its end after the extension. Raises UsageError: it cannot be extended."""
    if launch.provider == TOOL:
        raise UsageError(f"launch {launch.launch_id} is a run of {TOOL}, which ends it at its own max_duration")
    if launch.max_runtime_s is None:
        raise UsageError(f"launch {launch.launch_id} has no max_runtime; it runs until you stop it")
    if launch.dry_run or launch.state not in {LaunchState.STARTING, LaunchState.RUNNING}:
        raise UsageError(f"launch {launch.launch_id} is {launch.state.value}; only a running launch can be extended")
    later = latest_end(msgspec.structs.replace(launch, max_runtime_s=launch.max_runtime_s + by_s))
    assert later is not None
    return later
