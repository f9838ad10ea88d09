"""The provider's charges beside the predicted cost, and the commission that would have predicted them best. Pure.

- One line for each launch and UTC day, sums of lines, and the days whose charges are still to be fetched.
- `calibrate` compares, launch by launch and for final days, the charges that hourly prices explain (all but traffic).
  The result is advice and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from statistics import median

import msgspec

from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.launches.money.launch_costs import LaunchCost, billed_days, midnight, predicted_cost, total_cost
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.money import Commission, CommissionMode

CHARGE_KINDS = ("gpu", "disk", "download", "upload", "other")
NO_CHARGE = "none"  # kind of a row for a day on which the provider charged nothing
FETCH_WINDOW = timedelta(days=35)  # a day that is not final is fetched again for this long
_DAY = timedelta(days=1)

LEAST_LAUNCHES = 3
LEAST_HOURS = 24.0
_BETTER_BY = 0.25  # another rate is advised only if its error is this many percentage points lower
_POOR = 5.0  # percent: above it no candidate predicts the bill well
_MOST_RATE = 10.0  # the highest rate that the settings accept


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


class BilledLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """One launch on its final days, in micro-dollars: our listed cost and the provider's charge."""

    launch_id: str
    listed: int
    effective: int  # with the commission in force at that time
    charged: int
    billed_hours: float

    def predicted_bill(self, mode: CommissionMode, rate: float) -> float:
        """Return what the bill would be with that commission."""
        if mode is CommissionMode.FROM_OFFER:
            return float(self.effective)
        return self.listed * (1.0 if mode is CommissionMode.INCLUDED else 1.0 + rate)


class CommissionCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A commission that may fit. `error_percent` is the median of |predicted − charged| ÷ charged over the launches."""

    name: str  # "set", "on_top", "included", "fitted"
    mode: CommissionMode
    rate: float
    error_percent: float

    @property
    def text(self) -> str:
        """The rate as written in the settings."""
        if self.mode is not CommissionMode.ON_TOP:
            return f'{{ rate = {self.rate:g}, mode = "{self.mode.value}" }}'
        return f"{self.rate:.4f}".rstrip("0").ljust(4, "0") if self.rate else "0"


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one provider. If `best` is None, `why_not` names the missing data.

    Attributes:
        predicted: what gpuwatch computed for these launches on these days, in micro-dollars, without traffic.
        charged: what the provider charged for the same.
    """

    provider: str
    launches: int
    left_out: int  # launches with no charge on their final days
    billed_hours: float
    predicted: int
    charged: int
    first_day: date | None
    last_day: date | None
    candidates: tuple[CommissionCandidate, ...] = ()
    best: CommissionCandidate | None = None
    with_current_limit: CommissionCandidate | None = None
    why_not: str | None = None

    @property
    def is_poor(self) -> bool:
        """Return whether even the best candidate predicts the bill poorly."""
        return self.best is not None and self.best.error_percent > _POOR

    @property
    def advice(self) -> str | None:
        """The settings to change if another commission fits better than the current one; None: keep the current one."""
        if self.best is None or self.best == self.with_current_limit:
            return None
        return f"[providers.{self.provider}]\ncommission = {self.best.text}"


def calibrate(provider: str, cells: Iterable[InvoiceLine], commission: Commission) -> Calibration:
    """Compare the final days of a provider's launches with its charges.

    Args:
        commission: the current setting.
    """
    final = [cell for cell in cells if cell.final and cell.charged is not None and cell.launch.provider == provider]
    everything = _pairs(final)
    pairs = [pair for pair in everything if pair.listed > 0 and pair.charged > 0]
    days = sorted(cell.day for cell in final)
    found = Calibration(
        provider=provider,
        launches=len(pairs),
        left_out=len(everything) - len(pairs),
        billed_hours=sum(pair.billed_hours for pair in pairs),
        predicted=sum(pair.effective for pair in pairs),
        charged=sum(pair.charged for pair in pairs),
        first_day=days[0] if days else None,
        last_day=days[-1] if days else None,
    )
    if found.launches < LEAST_LAUNCHES or found.billed_hours < LEAST_HOURS:
        return msgspec.structs.replace(found, why_not=_missing(found))
    return _judged(found, pairs, commission)


def fitted_factor(pairs: Sequence[BilledLaunch]) -> Fraction:
    """Return the bill ÷ the listed price: least squares through the origin, weighted by each launch's listed cost."""
    above = sum(pair.listed**2 * pair.charged for pair in pairs)
    return Fraction(above, sum(pair.listed**3 for pair in pairs))


def _judged(found: Calibration, pairs: Sequence[BilledLaunch], commission: Commission) -> Calibration:
    fitted_rate = round(float(fitted_factor(pairs)) - 1, 3)
    with_current_limit = _candidate("set", commission.mode, float(commission.rate), pairs)
    candidates = [with_current_limit]
    if commission.mode is not CommissionMode.INCLUDED:
        candidates.append(_candidate("included", CommissionMode.INCLUDED, 0.0, pairs))
    elif commission.rate:
        candidates.append(_candidate("on_top", CommissionMode.ON_TOP, float(commission.rate), pairs))
    best = min(candidates, key=lambda candidate: candidate.error_percent)
    fitted = _candidate("fitted", CommissionMode.ON_TOP, fitted_rate, pairs)
    if 0 <= fitted_rate <= _MOST_RATE and fitted.error_percent < best.error_percent - _BETTER_BY:
        best = fitted
    everything = (*candidates, fitted)
    return msgspec.structs.replace(found, candidates=everything, best=best, with_current_limit=with_current_limit)


def _candidate(name: str, mode: CommissionMode, rate: float, pairs: Sequence[BilledLaunch]) -> CommissionCandidate:
    errors = [abs(pair.predicted_bill(mode, rate) - pair.charged) / pair.charged * 100 for pair in pairs]
    return CommissionCandidate(name=name, mode=mode, rate=rate, error_percent=median(errors))


def _pairs(final: Sequence[InvoiceLine]) -> list[BilledLaunch]:
    groups: dict[str, list[InvoiceLine]] = {}
    for cell in final:
        groups.setdefault(cell.launch.launch_id, []).append(cell)
    return [
        BilledLaunch(
            launch_id=launch_id,
            listed=sum(cell.cost.listed for cell in group),
            effective=sum(cell.cost.effective for cell in group),
            charged=sum(cell.charged.without_traffic for cell in group if cell.charged is not None),
            billed_hours=sum(cell.cost.billed_hours for cell in group),
        )
        for launch_id, group in groups.items()
    ]


def _missing(found: Calibration) -> str:
    return (
        f"not enough data: {count_text(found.launches, 'launch', 'launches')} and {found.billed_hours:.1f} "
        "billed hours in final days;"
        f" {LEAST_LAUNCHES} launches and {LEAST_HOURS:g} hours are required"
    )
