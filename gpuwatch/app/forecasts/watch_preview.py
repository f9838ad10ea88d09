"""Preview of a changed watch before its settings are saved: its matches now, and what it would have done.

Apart from the report of a backtest: settings are changed with tomlkit, which only the page loads.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from zoneinfo import ZoneInfo

import msgspec

from gpuwatch.app.forecasts.backtest import BacktestRequest, run_backtest
from gpuwatch.app.forecasts.backtest_report import summary_lines
from gpuwatch.app.watches.check import check_markets
from gpuwatch.app.watches.current_limits import current_limits
from gpuwatch.app.watches.edit_watch import WatchDraft
from gpuwatch.app.watches.watch_selection import watch_named
from gpuwatch.bootstrap import real_now
from gpuwatch.domain.watches.decide import Match
from gpuwatch.engine.watches.one_poll import ProviderCheck
from gpuwatch.errors import StoreError


class MarketPreview(msgspec.Struct, frozen=True, kw_only=True):
    """The matches of the watch now, cheapest first, and the answer of each provider."""

    matches: Sequence[Match]
    providers: Sequence[ProviderCheck]


def preview_market(draft: WatchDraft) -> MarketPreview:
    """Poll the providers of the watch once. Raises UsageError: none of them is enabled."""
    limits = current_limits(draft.settings, [watch_named(draft.settings, draft.name)], keep=False)
    checked = check_markets(draft.settings, limits.watches, ())
    return MarketPreview(matches=checked.matches[draft.name], providers=checked.providers)


def preview_backtest(draft: WatchDraft, days: int) -> tuple[str, ...]:
    """What the watch would have done with the prices of the last days, as text."""
    settings, now = draft.settings, real_now()
    watch = watch_named(settings, draft.name)
    request = BacktestRequest(
        names=(), gpu=(), max_price=None, count=None, spot=None, action=None, max_runtime_s=None, thresholds=(),
        since=now - timedelta(days=days), until=now, data=None, provider=None, job_s=None, deadline_s=None,
        strict=False,
    )  # fmt: skip
    try:
        backtest = run_backtest(settings, [watch], request, lambda what, done, of: None)
    except StoreError as error:
        return (str(error),)
    ((_, result),) = backtest.results
    if result is None:
        return (f"its GPUs have not been polled in the last {days} days",)
    return tuple(summary_lines(watch, result, backtest, ZoneInfo(settings.timezone)))
