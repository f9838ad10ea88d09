"""The provider's charges beside the predicted cost: one line for each launch and UTC day."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta

import msgspec

from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.launches.money.launch_costs import LaunchCost, billed_days, midnight, predicted_cost, total_cost

CHARGE_KINDS = ("gpu", "disk", "download", "upload", "other")
NO_CHARGE = "none"  # kind of a row for a day on which the provider charged nothing
FETCH_WINDOW = timedelta(days=35)  # a day that is not final is fetched again for this long
_DAY = timedelta(days=1)


class InvoiceRow(msgspec.Struct, frozen=True, kw_only=True):
    """One stored charge. `kind` is one of CHARGE_KINDS, or NO_CHARGE with 0."""

    provider: str
    instance_id: str
    day: date  # UTC
    kind: str
    microusd: int
    final: bool


class InvoicedAmounts(msgspec.Struct, frozen=True, kw_only=True):
    """Charges, in whole micro-dollars."""

    gpu: int = 0
    disk: int = 0
    download: int = 0
    upload: int = 0
    other: int = 0

    @property
    def total(self) -> int:
        """The sum of all kinds."""
        return self.gpu + self.disk + self.download + self.upload + self.other

    @property
    def without_traffic(self) -> int:
        """The charges that hourly prices explain."""
        return self.gpu + self.disk + self.other

    def __add__(self, more: InvoicedAmounts) -> InvoicedAmounts:
        return InvoicedAmounts(**{kind: getattr(self, kind) + getattr(more, kind) for kind in CHARGE_KINDS})


class InvoiceLine(msgspec.Struct, frozen=True, kw_only=True):
    """One launch on one UTC day. `charged` None means unknown, not 0."""

    launch: Launch
    day: date
    cost: LaunchCost
    charged: InvoicedAmounts | None = None
    final: bool = False  # the charge will not change any more


def invoice_lines(
    launches: Iterable[Launch],
    charges: Iterable[InvoiceRow],
    now: datetime,
    since: date | None = None,
    until: date | None = None,
) -> list[InvoiceLine]:
    """Return each day from `since` to `until` (inclusive) on which a launch was billed or charged.

    Dry runs are not included.
    """
    reported = _by_instance(charges)
    found, taken = [], set()
    for launch in sorted(launches, key=lambda one: one.intended_at):
        key = (launch.provider, launch.instance_id or "")
        mine = reported.get(key, {}) if launch.instance_id and not launch.dry_run and key not in taken else {}
        taken.add(key)
        for day in sorted({*billed_days(launch, now), *mine}):
            if (since is None or since <= day) and (until is None or day <= until):
                found.append(_cell(launch, day, mine.get(day, ()), now))
    return found


def _cell(launch: Launch, day: date, rows: Sequence[InvoiceRow], now: datetime) -> InvoiceLine:
    cost = predicted_cost(launch, now, midnight(day), midnight(day + _DAY))
    if not rows:
        return InvoiceLine(launch=launch, day=day, cost=cost)
    charged = sum(
        (InvoicedAmounts(**{row.kind: row.microusd}) for row in rows if row.kind != NO_CHARGE), InvoicedAmounts()
    )
    return InvoiceLine(launch=launch, day=day, cost=cost, charged=charged, final=all(row.final for row in rows))


def _by_instance(charges: Iterable[InvoiceRow]) -> dict[tuple[str, str], dict[date, list[InvoiceRow]]]:
    found: dict[tuple[str, str], dict[date, list[InvoiceRow]]] = {}
    for row in charges:
        found.setdefault((row.provider, row.instance_id), {}).setdefault(row.day, []).append(row)
    return found


# --- summaries -------------------------------------------------------------------------------------------------------


class InvoiceSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The sum of several lines."""

    key: str
    cost: LaunchCost
    launches: int
    charged: InvoicedAmounts | None  # None: no charge is known
    charged_launches: int  # launches with at least one known charge
    final_to: date | None  # every day up to this one is final, for launches with known charges
    compared_cost: LaunchCost  # of the final lines only
    compared_charged: InvoicedAmounts | None

    @property
    def difference(self) -> int | None:
        """Charged minus predicted, in micro-dollars, on final days; None: there are none."""
        return None if self.compared_charged is None else self.compared_charged.total - self.compared_cost.total

    @property
    def difference_percent(self) -> float | None:
        """The same in percent of the prediction; None also if nothing was predicted."""
        if self.difference is None or not self.compared_cost.total:
            return None
        return 100 * self.difference / self.compared_cost.total


def summarize(key: str, of: Sequence[InvoiceLine]) -> InvoiceSummary:
    """Return the sum of these lines."""
    known = [cell for cell in of if cell.charged is not None]
    final = [cell for cell in known if cell.final]
    return InvoiceSummary(
        key=key,
        cost=total_cost(cell.cost for cell in of),
        launches=len({cell.launch.launch_id for cell in of}),
        charged=_charged(known),
        charged_launches=len({cell.launch.launch_id for cell in known}),
        final_to=_final_to(of),
        compared_cost=total_cost(cell.cost for cell in final),
        compared_charged=_charged(final),
    )


def summarize_by(of: Iterable[InvoiceLine], key: Callable[[InvoiceLine], str]) -> list[InvoiceSummary]:
    """Return one summary for each key, in the order in which the keys first occur."""
    groups: dict[str, list[InvoiceLine]] = {}
    for cell in of:
        groups.setdefault(key(cell), []).append(cell)
    return [summarize(name, group) for name, group in groups.items()]


def _charged(known: Sequence[InvoiceLine]) -> InvoicedAmounts | None:
    return sum((cell.charged for cell in known if cell.charged is not None), InvoicedAmounts()) if known else None


def _final_to(of: Sequence[InvoiceLine]) -> date | None:
    reported = {cell.launch.launch_id for cell in of if cell.charged is not None}
    days: dict[date, bool] = {}
    for cell in of:
        if cell.launch.launch_id in reported:
            days[cell.day] = days.get(cell.day, True) and cell.final
    found = None
    for day in sorted(days):
        if not days[day]:
            break
        found = day
    return found


# --- days to fetch ----------------------------------------------------------------------------------------------------


def open_days(
    launches: Iterable[Launch], final: Collection[tuple[str, date]], now: datetime
) -> dict[date, frozenset[str]]:
    """Return the days whose charges are not final yet, each with its instances; old days are skipped.

    Args:
        launches: of one provider.
        final: (instance, day) pairs that will not change any more.
    """
    oldest = (now - FETCH_WINDOW).astimezone(UTC).date()
    found: dict[date, set[str]] = {}
    for launch in launches:
        for day in billed_days(launch, now) if launch.instance_id is not None else ():
            if day >= oldest and (launch.instance_id, day) not in final:
                found.setdefault(day, set()).add(str(launch.instance_id))
    return {day: frozenset(found[day]) for day in sorted(found)}


def unbroken_runs(days: Mapping[date, object]) -> list[tuple[date, date]]:
    """Return the days as (first, last) of each uninterrupted run, oldest first."""
    found: list[tuple[date, date]] = []
    for day in sorted(days):
        if found and found[-1][1] + _DAY == day:
            found[-1] = (found[-1][0], day)
        else:
            found.append((day, day))
    return found
