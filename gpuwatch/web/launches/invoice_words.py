"""What the invoices of providers cover, and whether they agree with the configured commission, in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gpuwatch.app.reader_text import day, with_unit
from gpuwatch.app.watches.nearest import provider_title
from gpuwatch.domain.launches.money.charge_comparison import LEAST_HOURS, LEAST_LAUNCHES
from gpuwatch.domain.launches.money.launch_costs import midnight
from gpuwatch.domain.market.figure_text import percent_text
from gpuwatch.domain.market.money import CommissionMode
from gpuwatch.language import translate as _
from gpuwatch.language import translate_plural

if TYPE_CHECKING:
    from gpuwatch.app.launches.costs import CostReport
    from gpuwatch.domain.launches.money.charge_comparison import Calibration, CommissionCandidate

_WHOLE_FROM = 0.1  # from this share on in whole percent
_ALIKE = 0.0005


def charged_sentences(report: CostReport) -> list[str]:
    """What the column "charged" covers, by provider, and why something is unknown."""
    found = []
    for line in report.providers:
        title = provider_title(line.key)
        if line.charged is None:
            found.append(_("{provider} has no invoice yet.").format(provider=title))
        elif line.final_to is None:
            found.append(_("Charged so far by {provider}; no day is final yet.").format(provider=title))
        else:
            text = _("Charged: from the invoices of {provider}, final up to {day}.")
            found.append(text.format(provider=title, day=day(midnight(line.final_to))))
    if report.total.difference is not None:
        found.append(_("The difference compares the same hours, on days that are final."))
    return found


def calibration_sentences(calibrations: Iterable[Calibration]) -> Iterator[str]:
    """Predicted against charged, one text for each provider."""
    for one in calibrations:
        title = provider_title(one.provider)
        if not one.launches:
            yield _("{provider} has no final invoice yet.").format(provider=title)
            continue
        if one.why_not is not None:
            text = _(
                "{provider}: too few invoices to judge the prediction, {machines} and {hours} h; {least} and"
                " {least_hours} h are needed."
            )
            yield text.format(
                provider=title,
                machines=_machines(one.launches),
                hours=f"{one.billed_hours:.0f}",
                least=_machines(LEAST_LAUNCHES),
                least_hours=f"{LEAST_HOURS:.0f}",
            )
            continue
        yield f"{_compared(one, title)} {_fitting(one)}"


def _compared(one: Calibration, title: str) -> str:
    share, machines = one.predicted / one.charged - 1, _machines(one.launches)
    if abs(share) < _ALIKE:
        text = _("gpuwatch predicted what {provider} charged, over {machines}.")
    elif share > 0:
        text = _("gpuwatch predicted {share} more than {provider} charged, over {machines}.")
    else:
        text = _("gpuwatch predicted {share} less than {provider} charged, over {machines}.")
    return text.format(share=_share(abs(share)), provider=title, machines=machines)


def _fitting(one: Calibration) -> str:
    best, current = one.best, one.with_current_limit
    assert best is not None
    if one.is_poor:
        return _("No commission fits these invoices well.")
    if one.advice is None:
        return _setting_fits(best)
    if current is not None and current.mode is CommissionMode.ON_TOP:
        text = _("A commission of {rate} fits the invoices better than the {current} that is set.")
        return text.format(rate=_rate(best), current=_rate(current))
    return _("A commission of {rate} fits the invoices better than the one that is set.").format(rate=_rate(best))


def _setting_fits(best: CommissionCandidate) -> str:
    if best.mode is CommissionMode.FROM_OFFER:
        return _("The commission that each offer states fits the invoices.")
    if best.mode is CommissionMode.INCLUDED:
        return _("The listed price, without a commission on top, fits the invoices.")
    return _("Your commission setting of {rate} fits the invoices.").format(rate=_rate(best))


def _rate(candidate: CommissionCandidate) -> str:
    """On top of the listed price."""
    return _share(candidate.rate if candidate.mode is CommissionMode.ON_TOP else 0.0)


def _share(share: float) -> str:
    is_whole = share >= _WHOLE_FROM or not share
    return with_unit(percent_text(share, 0 if is_whole and round(100 * share, 6).is_integer() else 1))


def _machines(count: int) -> str:
    return translate_plural("{count} machine", "{count} machines", count).format(count=count)
