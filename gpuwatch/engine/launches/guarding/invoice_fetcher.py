"""Fetches what a provider charged for days whose charges are not final yet. Nothing waits for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from math import isfinite
from typing import TYPE_CHECKING

from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.launches.money.charge_comparison import (
    CHARGE_KINDS,
    NO_CHARGE,
    InvoiceRow,
    open_days,
    unbroken_runs,
)
from gpuwatch.domain.launches.money.launch_costs import midnight
from gpuwatch.domain.market.money import microusd
from gpuwatch.errors import ProviderError, StoreError
from gpuwatch.ports import Launcher, ProviderCharge

if TYPE_CHECKING:
    from gpuwatch.storage.launches.invoice_rows import SqlInvoiceRepository

log = logging.getLogger(__name__)

FETCH_EVERY_S = 3600.0
FIRST_AFTER_S = 60.0  # so that a daemon that keeps restarting fetches nothing
# The provider documents charges as final at midnight UTC; a longer wait includes late entries.
SETTLED_AFTER = timedelta(hours=6)
NOTHING_AFTER = timedelta(days=2)  # a day without any charge by then counts as not charged
_DAY = timedelta(days=1)
_MOST_USD = 1_000_000.0  # for one instance on one day; a larger amount is an error


class InvoiceFetcher:
    """Fetches and stores the charges of one provider."""

    def __init__(
        self,
        provider: str,
        launcher: Launcher,
        launches: Callable[[], Sequence[Launch]],
        book: SqlInvoiceRepository,
        monotonic: Callable[[], float],
    ) -> None:
        self._provider = provider
        self._launcher = launcher
        self._launches = launches
        self._repository = book
        self._monotonic = monotonic
        self._next_s = monotonic() + FIRST_AFTER_S
        self._reported_missing = False

    def run_if_due(self, now: datetime) -> bool:
        """Fetch at most once an hour; return whether it was time. Errors are logged, and retried in an hour."""
        if self._monotonic() < self._next_s:
            return False
        self._next_s = self._monotonic() + FETCH_EVERY_S
        try:
            kept = self.collect(now)
        except (ProviderError, StoreError) as error:
            log.warning("cannot fetch charges: %s", error, extra={"provider": self._provider})
            return True
        if kept is None and not self._reported_missing:
            self._reported_missing = True
            log.info("this provider does not report charges", extra={"provider": self._provider})
        return True

    def collect(self, now: datetime) -> int | None:
        """Fetch everything that is not final; return the number of stored rows. None: the provider reports no charges.

        Raises:
            ProviderError: it did not answer; earlier answers are kept.
            StoreError: storing failed.
        """
        mine = [launch for launch in self._launches() if launch.provider == self._provider and not launch.dry_run]
        days, kept = open_days(mine, self._repository.final_days(self._provider), now), 0
        ours = {launch.instance_id for launch in mine if launch.instance_id is not None}
        for since, until in unbroken_runs(days):
            charges = self._launcher.charges(since, until)
            if charges is None:
                return None
            asked = {day: instances for day, instances in days.items() if since <= day <= until}
            kept += self._repository.save(invoice_rows(self._provider, charges, asked, ours, now))
        return kept


def invoice_rows(
    provider: str,
    charges: Iterable[ProviderCharge],
    asked: Mapping[date, frozenset[str]],
    ours: Iterable[str],
    now: datetime,
) -> list[InvoiceRow]:
    """Return the charges to store: those of our instances on the requested days.

    An instance that an answer omits was not charged for a day that is at least two days past, provided that the answer
    names another instance of ours: an empty answer proves nothing.
    """
    mine, sums, final, odd = frozenset(ours), dict[tuple[str, date, str], int](), dict[tuple[str, date], bool](), set()
    for charge in charges:
        key = (charge.instance_id, charge.day)
        if charge.instance_id not in mine or charge.day not in asked:
            continue
        if not isfinite(charge.usd) or abs(charge.usd) > _MOST_USD:
            log.warning("skipped an invalid charge of instance %s", charge.instance_id, extra={"provider": provider})
            odd.add(key)
            continue
        kind = charge.kind if charge.kind in CHARGE_KINDS else "other"
        sums[*key, kind] = sums.get((*key, kind), 0) + microusd(Decimal(repr(charge.usd)))
        final[key] = final.get(key, True) and charge.final and now >= midnight(charge.day) + _DAY + SETTLED_AFTER
    rows = [
        _row(provider, instance_id, day, kind, amount, final=final[instance_id, day])
        for (instance_id, day, kind), amount in sums.items()
        if (instance_id, day) not in odd
    ]
    if rows:
        silent = {(one, day) for day, of in asked.items() if now >= midnight(day) + _DAY + NOTHING_AFTER for one in of}
        rows += [_row(provider, one, day, NO_CHARGE, 0, final=True) for one, day in sorted(silent - set(final) - odd)]
    return rows


def _row(provider: str, instance_id: str, day: date, kind: str, amount: int, *, final: bool) -> InvoiceRow:
    return InvoiceRow(provider=provider, instance_id=instance_id, day=day, kind=kind, microusd=amount, final=final)
