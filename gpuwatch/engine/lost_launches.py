"""Launches that the keeper's file names and the database lost, as after restoring a backup: they block renting.

A list shows only its own account's instances, and may omit some. The file names the instance and its account.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence, Set
from datetime import datetime

from gpuwatch.domain.launches.instance import Instance, InstanceState
from gpuwatch.domain.launches.obligation import Obligation
from gpuwatch.domain.launches.unknown_instance import UnknownInstance
from gpuwatch.domain.market.money import price_text
from gpuwatch.domain.market.pricing import usd
from gpuwatch.errors import StoreError
from gpuwatch.ports import LaunchRepository

log = logging.getLogger(__name__)


class LostLaunches:
    """The lost launches that a process finds at its start; the database has every launch that it records later.

    Orders whose instance id was never known are not included: their label finds them.

    Args:
        obligations: returns this installation's open obligations at this provider. Raises StoreError.
    """

    def __init__(
        self, repository: LaunchRepository, provider: str, obligations: Callable[[], Sequence[Obligation]]
    ) -> None:
        self._repository = repository
        self._provider = provider
        self._obligations = obligations
        self._lost: dict[str, Obligation] | None = None  # by instance id; None: not read yet
        self._ended: set[str] = set()

    def recall(self, now: datetime) -> None:
        """Store them as unknown instances, once; an unreadable file blocks nothing. Raises StoreError."""
        if self._lost is not None and not self._lost:
            return
        try:
            open_now = {
                obligation.instance_id: obligation
                for obligation in self._obligations()
                if obligation.instance_id is not None
            }
        except StoreError as error:
            log.warning("cannot determine which launches the database lost: %s", error)
            return
        if self._lost is None:
            self._lost = self._found(open_now)
            self._store(now)
        else:
            self._ended |= self._lost.keys() - open_now.keys()
            self._lost = {one: lost for one, lost in self._lost.items() if one in open_now}

    def is_ended(self, instance_id: str) -> bool:
        """Whether the keeper, with a key of the instance's account, found that it is gone."""
        return instance_id in self._ended

    def to_report(self, held: Set[str]) -> Iterator[tuple[Instance, str]]:
        """Yield those that still block renting, with the reason."""
        for instance_id, lost in (self._lost or {}).items():
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
                    "an older database was restored.",
                )

    def _found(self, open_now: dict[str, Obligation]) -> dict[str, Obligation]:
        lost = {i: one for i, one in open_now.items() if self._repository.get(one.launch_id) is None}
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
        for instance_id, lost in (self._lost or {}).items():
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
