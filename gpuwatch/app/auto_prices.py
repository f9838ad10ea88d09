"""Limits of watches with `max_price = "auto"`, for one answer of `gpuwatch check`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.bootstrap import open_store, open_store_read_only, real_now
from gpuwatch.errors import StoreError

if TYPE_CHECKING:
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.engine.auto_prices import AutoPriceLimit
    from gpuwatch.settings import Settings
    from gpuwatch.storage.database import Database


class LimitsInForce(msgspec.Struct, frozen=True, kw_only=True):
    """The watches with their current limits."""

    watches: Sequence[Watch]
    standing: dict[str, AutoPriceLimit]  # by watch; only automatic limits
    fault: str | None = None  # the store could not be read, and the caps apply


def limits_in_force(settings: Settings, watches: Sequence[Watch], keep: bool) -> LimitsInForce:
    """The current limits. Opens the store only if a watch has an automatic one.

    Args:
        keep: note when a watch was first looked at; False: nothing is written.
    """
    if all(watch.auto is None for watch in watches):
        return LimitsInForce(watches=watches, standing={})
    from gpuwatch.bootstrap.rules import commissions_of
    from gpuwatch.engine.auto_prices import AutoPrices
    from gpuwatch.storage.auto_prices import SqlAutoPriceWaits

    now = real_now()
    try:
        with _store(settings, keep) as store:
            prices = AutoPrices(SqlAutoPriceWaits(store, commissions_of(settings), keep=keep))
            standing = {watch.name: prices.standing(watch, now) for watch in watches if watch.auto is not None}
            return LimitsInForce(
                watches=[prices.with_current_limit(watch, now) for watch in watches], standing=standing
            )
    except StoreError as error:
        return LimitsInForce(watches=watches, standing={}, fault=str(error))


@contextmanager
def _store(settings: Settings, keep: bool) -> Iterator[Database]:
    with open_store(settings, upgrade_older=False) if keep else open_store_read_only(settings) as store:
        yield store
