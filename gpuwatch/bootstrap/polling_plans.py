"""The polling plan of each provider, from the settings and the history. Sends no request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpuwatch import providers
from gpuwatch.bootstrap.provider_access import is_polled_for
from gpuwatch.engine.market.polling_plan import PollingPlan, plan_polling
from gpuwatch.engine.market.row_budget import SWEEP_EVERY_MIN_S
from gpuwatch.engine.market.sale_prices import PricesOnSale
from gpuwatch.engine.watches.sweep import sweep_targets
from gpuwatch.errors import StoreError

if TYPE_CHECKING:
    from gpuwatch.domain.market.search_query import ExpectedRows
    from gpuwatch.settings import Settings
    from gpuwatch.storage.setup.database import Database


def polling_plan(settings: Settings, name: str, store: Database | None = None) -> PollingPlan:
    """The plan of one enabled provider, with sweeps as often as possible.

    Args:
        store: its offers decide which queries are merged; None, or unreadable: no offers are known.
    """
    provider = settings.providers[name]
    sweep_every_s = provider.sweep_every_s or max(SWEEP_EVERY_MIN_S, provider.poll_every_s)
    hunted_watches = [watch for watch in settings.watches if is_polled_for(name, watch)]
    swept_watches = [watch for watch in settings.watches if watch.providers is None or name in watch.providers]
    targets = sweep_targets(swept_watches, settings.record_gpus)
    expected_rows = _expected_rows(name, store)
    return plan_polling(provider, hunted_watches, provider.commission, len(targets), sweep_every_s, expected_rows)


def _expected_rows(name: str, store: Database | None) -> ExpectedRows | None:
    info = providers.info(name)
    if store is None or not info.joins_gpus:
        return None
    from gpuwatch.storage.history.queries.prices_on_sale import prices_on_sale

    prices = PricesOnSale(info.default_disk_gb)
    try:
        prices.begin_with(prices_on_sale(store, name))
    except StoreError:
        return None  # callers that need more from the store report the error
    return prices.expected_rows()


def polling_warnings(settings: Settings, store: Database | None = None) -> Iterator[str]:
    """One line for each provider whose watches need more searches than allowed."""
    for name in settings.providers:
        if (warning := polling_plan(settings, name, store).warning) is not None:
            yield warning
