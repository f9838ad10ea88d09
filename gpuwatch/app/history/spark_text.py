"""What a sparkline shows, in words: for screen readers and for those who do not see its colours."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from gpuwatch.domain.market.money import rate_text
from gpuwatch.language import translate as _
from gpuwatch.language import translate_plural


def week_label(values: Sequence[float | None], limit: float | None) -> str:
    """From, to and lowest price of hours in micro-dollars, how many were at or under a limit, and not polled.

    Args:
        values: as `svg_small.sparkline`.
    """
    known = [value for value in values if value is not None and isfinite(value)]
    unpolled = sum(value is None for value in values)
    if not known:
        parts = [_("No price in {hours} hours").format(hours=len(values))]
    else:
        text = _("Lowest price of {hours} hours: from {first} to {last}, at least {low}")
        first, last, low = (rate_text(one) for one in (known[0], known[-1], min(known)))
        parts = [text.format(hours=len(values), first=first, last=last, low=low)]
        if limit is not None:
            under = sum(value <= limit for value in known)
            said = translate_plural(
                "at or under the limit of {limit} in {count} hour",
                "at or under the limit of {limit} in {count} hours",
                under,
            )
            parts.append(said.format(limit=rate_text(limit), count=under))
    if unpolled:
        parts.append(
            translate_plural("not polled in {count} hour", "not polled in {count} hours", unpolled).format(
                count=unpolled
            )
        )
    return "; ".join(parts)
