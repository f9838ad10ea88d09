"""Limits out of the history for one answer, as `gpuwatch check` needs them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.errors import StoreError
from gpuwatch.wiring import database, real_now
from gpuwatch.wiring.past import opened_store

if TYPE_CHECKING:
    from gpuwatch.engine.auto_price import Standing
    from gpuwatch.settings import Settings
    from gpuwatch.storage.database import Database
    from gpuwatch.watches.watch import Watch


class InForce(msgspec.Struct, frozen=True, kw_only=True):
    """The watches with the limits of this moment; of those out of the history, where they stand."""

    watches: Sequence[Watch]
    standing: dict[str, Standing]  # by the watch's name
    fault: str | None = None  # the store could not be read: the caps count


def limits_in_force(settings: Settings, watches: Sequence[Watch], keep: bool) -> InForce:
    """Opens the store only if a watch has such a limit.

    Args:
        keep: note when a watch was first looked at; False: nothing is written.
    """
    if all(watch.auto is None for watch in watches):
        return InForce(watches=watches, standing={})
    from gpuwatch.engine.auto_price import AutoPrices
    from gpuwatch.storage.auto_prices import StoredWaits
    from gpuwatch.wiring.rules import commissions_of

    now = real_now()
    try:
        with _store(settings, keep) as store:
            prices = AutoPrices(StoredWaits(store, commissions_of(settings), keep=keep))
            standing = {watch.name: prices.standing(watch, now) for watch in watches if watch.auto is not None}
            return InForce(watches=[prices.in_force(watch, now) for watch in watches], standing=standing)
    except StoreError as error:
        return InForce(watches=watches, standing={}, fault=str(error))


@contextmanager
def _store(settings: Settings, keep: bool) -> Iterator[Database]:
    with (database if keep else opened_store)(settings) as store:
        yield store
