"""Which commission would have predicted the invoices best. The result is advice and changes nothing.

Compares, launch by launch and for final days, the charges that hourly prices explain (all but traffic).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from fractions import Fraction
from statistics import median

import msgspec

from gpuwatch.domain.launches.money.charge_comparison import InvoiceLine
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.pricing import Commission, CommissionMode

LEAST_LAUNCHES = 3
LEAST_HOURS = 24.0
_BETTER_BY = 0.25  # another rate is advised only if its error is this many percentage points lower
_POOR = 5.0  # percent: above it no candidate predicts the bill well
_MOST_RATE = 10.0  # the highest rate that the settings accept


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
    """The result for one provider. If `best` is None, `why_not` names the missing data."""

    provider: str
    launches: int
    left_out: int  # launches with no charge on their final days
    billed_hours: float
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
