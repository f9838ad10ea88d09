"""Launches that the keeper's file names and the database lost: they block renting.

The database was restored from a backup, or a standby was promoted that lacked the last commits. A list shows only its
own account's instances, and may omit some. The file names the instance and its account.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence, Set
from datetime import datetime

import msgspec

from gpuwatch.domain.launches.instance import Instance, InstanceState
from gpuwatch.domain.launches.instances.absence import ABSENCE_WAIT_S, AGREEING_NEEDED
from gpuwatch.domain.launches.instances.obligation import Obligation
from gpuwatch.domain.launches.life.unknown_instance import UnknownInstance
from gpuwatch.domain.market.money import price_text
from gpuwatch.domain.market.pricing import usd
from gpuwatch.errors import StoreError
from gpuwatch.ports import LaunchRepository

log = logging.getLogger(__name__)


class LostOrder(msgspec.Struct):
    """An order without a known instance id. Its label finds the instance, but a list may show that late."""

    obligation: Obligation
    since_s: float
    lists: int = 0  # complete ones without its label


class LostLaunches:
    """The lost launches that a process finds at its start, and whenever the database goes back to an older state.

    Args:
        obligations: returns this installation's open obligations at this provider. Raises StoreError.
        close: closes an obligation, because its order created nothing. Raises StoreError.
        generation: grows when the database went back.
        monotonic: seconds.
    """

    def __init__(
        self,
        repository: LaunchRepository,
        provider: str,
        obligations: Callable[[], Sequence[Obligation]],
        *,
        close: Callable[[Obligation], None] = lambda obligation: None,
        generation: Callable[[], int] = lambda: 0,
        monotonic: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._repository = repository
        self._provider = provider
        self._obligations = obligations
        self._close = close
        self._generation = generation
        self._monotonic = monotonic
        self._recalled: int | None = None  # the generation whose rows were compared with the file
        self._lost: dict[str, Obligation] = {}  # by instance id
        self._orders: dict[str, LostOrder] = {}  # by launch id
        self._ended: set[str] = set()

    def recall(self, now: datetime) -> None:
        """Store them as unknown instances, once for each generation of the database. Raises StoreError."""
        generation = self._generation()
        if self._recalled == generation and not self._lost and not self._orders:
            return
        try:
            open_now = self._obligations()
        except StoreError as error:
            log.warning("cannot determine which launches the database lost: %s", error)
            return
        by_id = {one.instance_id: one for one in open_now if one.instance_id is not None}
        self._ended |= self._lost.keys() - by_id.keys()
        if self._recalled != generation:
            missing = [one for one in open_now if self._repository.get(one.launch_id) is None]
            self._lost = self._unsettled({one.instance_id: one for one in missing if one.instance_id is not None})
            self._orders = {
                one.launch_id: LostOrder(one, self._monotonic()) for one in missing if one.instance_id is None
            }
            self._store(now)
            self._recalled = generation
        else:
            self._lost = {one: lost for one, lost in self._lost.items() if one in by_id}
            ids = {one.launch_id for one in open_now}
            self._orders = {one: order for one, order in self._orders.items() if one in ids}

    def listed(self, labelled: Collection[str]) -> None:
        """Note a complete list with the labels of these launches: an order that it shows is an unknown instance.

        Raises StoreError.
        """
        for launch_id, order in list(self._orders.items()):
            if launch_id in labelled:
                del self._orders[launch_id]
                continue
            order.lists += 1
            if order.lists >= AGREEING_NEEDED and self._monotonic() - order.since_s >= ABSENCE_WAIT_S:
                log.warning("launch %s, which the database lost: no instance has its label", launch_id)
                self._close(order.obligation)
                del self._orders[launch_id]

    def reason(self) -> str | None:
        """Return why nothing can be rented because of lost launches without a known instance, or None."""
        if self._generation() and self._recalled != self._generation():
            return "the database went back to an older state, and the keeper's file could not be read since"
        for launch_id, order in self._orders.items():
            watch = order.obligation.watch
            return (
                f"launch {launch_id} of {watch!r} was ordered, but the database lost it; gpuwatch looks for its label"
            )
        return None

    def is_ended(self, instance_id: str) -> bool:
        """Whether the keeper, with a key of the instance's account, found that it is gone."""
        return instance_id in self._ended

    def to_report(self, held: Set[str]) -> Iterator[tuple[Instance, str]]:
        """Yield those that still block renting, with the reason."""
        for instance_id, lost in self._lost.items():
            if instance_id in held:
                instance = Instance(
                    instance_id=instance_id,
                    label=lost.label,
                    state=InstanceState.UNKNOWN,
                    status="not listed",
                    gpu=lost.gpu,
                    gpu_count=lost.gpu_count,
                )
                yield (
                    instance,
                    f"The keeper's file names launch {lost.launch_id} of {lost.watch!r}, rented for "
                    f"${price_text(usd(lost.price_microusd_hour))} per hour, but this database lacks it: "
                    "an older database was restored, or a standby without the last commits was promoted.",
                )

    def _unsettled(self, lost: dict[str, Obligation]) -> dict[str, Obligation]:
        if not lost:
            return {}
        settled = set(self._repository.known_foreign_instances(self._provider))
        settled |= {one.instance_id for one in self._repository.alive(self._provider) if one.instance_id is not None}
        return {i: one for i, one in lost.items() if i not in settled}

    def _store(self, now: datetime) -> None:
        stored = (
            {instance.instance_id for instance in self._repository.unknown_instances(self._provider)}
            if self._lost
            else ()
        )
        for instance_id, lost in self._lost.items():
            if instance_id not in stored:
                self._repository.add_unknown_instance(
                    UnknownInstance(
                        provider=self._provider,
                        instance_id=instance_id,
                        account_id=lost.account,
                        label=lost.label,
                        first_listed_at=now,
                    )
                )
