"""What the values of a watch's form would do: on sale now, how often in two weeks, what it would have rented."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpuwatch.app.forecasts.watch_preview import past_actions, preview_watch
from gpuwatch.app.reader_text import clock_text
from gpuwatch.app.watches.watch_selection import watch_named
from gpuwatch.app.watches.why.watch_words import limit_microusd, limit_text
from gpuwatch.domain.market.money import dollars, rate_text
from gpuwatch.language import translate as _
from gpuwatch.language import translate_plural
from gpuwatch.web.watches.watch_rows import DAYS, spark_label, spark_values

if TYPE_CHECKING:
    from gpuwatch.app.forecasts.watch_preview import PastActions, PastRental, WatchPreview
    from gpuwatch.app.watches.edit_watch import WatchDraft
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.web.page import View

PAST_DAYS = 14
_RENTALS_NAMED = 3


def preview_values(view: View, draft: WatchDraft, before: Watch | None, *, with_past: bool) -> Mapping[str, Any]:
    """The values of the preview. Sends no request. Raises StoreError.

    Args:
        before: the watch as it is; None: a new one.
        with_past: also what it would have rented, which takes a second.
    """
    settings, now = draft.settings, view.now
    watch = watch_named(settings, draft.name)
    new = preview_watch(settings, watch, PAST_DAYS, now)
    old = None if before is None else preview_watch(view.settings, before, PAST_DAYS, now)
    week, limit = new.prices.last(DAYS), limit_microusd(new.status.watch)
    past = old_past = None
    if with_past:
        past = past_actions(settings, watch, PAST_DAYS, now)
        old_past = None if before is None else past_actions(view.settings, before, PAST_DAYS, now)
    return {
        "at": now, "days": PAST_DAYS, "limit": limit, "limit_text": limit_text(new.status),
        "count": len(new.status.matches), "was_count": None if old is None else len(old.status.matches),
        "nearest": new.status.nearest, "under": new.under, "was_times": _times(old),
        "spark": spark_values(week) if week.known else (), "spark_label": spark_label(week, limit),
        "past": _past_text(new, past, with_past=with_past), "was_past": _was_text(old, old_past),
    }  # fmt: skip


def _times(old: WatchPreview | None) -> int | None:
    return None if old is None or old.under is None else old.under.times


def _past_text(new: WatchPreview, past: PastActions | None, *, with_past: bool) -> str:
    if not with_past:
        return ""
    if past is None:
        return _("Its GPUs have not been polled in {days} days, so nothing is known of the past.").format(
            days=PAST_DAYS
        )
    if past.rentals:
        text = translate_plural(
            "It would have rented {count} machine, on {days}: {cost} for {hours} h.",
            "It would have rented {count} machines, on {days}: {cost} for {hours} h.",
            len(past.rentals),
        ).format(
            count=len(past.rentals), days=_days(past.rentals), cost=dollars(past.cost_usd), hours=round(past.hours)
        )
        return f"{text} {_('A budget stopped some.')}" if past.has_budget_refusals else text
    if past.alerts:
        text = translate_plural(
            "It would have alerted you once.", "It would have alerted you {count} times.", past.alerts
        )
        return text.format(count=past.alerts)
    return _("It would have done nothing.")


def _days(rentals: Sequence[PastRental]) -> str:
    days = list(dict.fromkeys(clock_text(one.at) for one in rentals))
    shown = ", ".join(days[:_RENTALS_NAMED])
    return _("{days} and more").format(days=shown) if len(days) > _RENTALS_NAMED else shown


def _was_text(old: WatchPreview | None, past: PastActions | None) -> str:
    if old is None or past is None or not past.rentals:
        return ""
    text, limit = _("With {limit} it was {cost} for {hours} h."), limit_microusd(old.status.watch)
    shown = limit_text(old.status) if limit is None else rate_text(limit)
    return text.format(limit=shown, cost=dollars(past.cost_usd), hours=round(past.hours))
