"""The prerequisite gates of the providers: built if a watch rents for real, and the provider can be probed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from gpuwatch.bootstrap import TimeSource, new_id, pace
from gpuwatch.bootstrap.provider_access import is_polled_for
from gpuwatch.engine.launches.renting.prerequisite_gate import PrerequisiteGate
from gpuwatch.engine.launches.renting.rehearsal import credentials_of, prerequisites_of, rehearsed_offers
from gpuwatch.errors import KeyRejected
from gpuwatch.ports.prerequisites import Prerequisite, PrerequisiteProbe

if TYPE_CHECKING:
    from gpuwatch.ports import Launcher, OutboxAlert
    from gpuwatch.ports.declarations import Adapter
    from gpuwatch.ports.holds import HoldStore
    from gpuwatch.settings import Settings


def build_gates(
    settings: Settings,
    adapters: Mapping[str, Adapter],
    launchers: Mapping[str, Launcher],
    holds: HoldStore,
    enqueue: Callable[[OutboxAlert], object],
    time_source: TimeSource,
) -> dict[str, PrerequisiteGate]:
    """By provider. In dry run, in rescue mode, or without watches that rent, nothing is probed."""
    if settings.dry_run or settings.rescue:
        return {}
    renting = [watch for watch in settings.watches if watch.rents_itself]

    def probe_of(name: str) -> Callable[[], tuple[Sequence[Prerequisite], Sequence[str]]]:
        adapter, launcher = adapters[name], launchers[name]
        commission = settings.providers[name].commission
        watches = [watch for watch in renting if is_polled_for(name, watch)]

        def probe() -> tuple[Sequence[Prerequisite], Sequence[str]]:
            try:
                rehearsals = [
                    rehearsed_offers(watch, adapter.market, commission, adapter.info, time_source.now)
                    for watch in watches
                ]
            except KeyRejected:  # for the offers; if listing instances fails as well, nothing is rented there
                credentials = credentials_of(launcher, adapter.info)
                if credentials.met is not False:
                    raise
                return (credentials,), ()
            orders = [order for rehearsal in rehearsals for order in rehearsal.orders]
            return prerequisites_of(launcher, adapter.info, orders), tuple({order.offer_id for order in orders})

        return probe

    return {
        name: PrerequisiteGate(name, probe_of(name), holds, enqueue, new_id, pace())
        for name, launcher in launchers.items()
        if isinstance(launcher, PrerequisiteProbe) and any(is_polled_for(name, watch) for watch in renting)
    }
