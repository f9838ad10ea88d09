"""The last known balance of an account, refreshed from time to time, so that no launch waits for the provider."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from gpuwatch.domain.market.money import dollars
from gpuwatch.domain.market.pricing import MICRO, usd
from gpuwatch.errors import ProviderError
from gpuwatch.ports import Launcher

log = logging.getLogger(__name__)

REFRESH_S = 120.0
STALE_S = 600.0  # an older balance counts as unknown


class BalanceCache:
    """The balance at one provider. An unknown balance blocks nothing.

    Args:
        monotonic: seconds.
    """

    def __init__(self, launcher: Launcher, monotonic: Callable[[], float]) -> None:
        self._launcher = launcher
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._known: tuple[float, int] | None = None  # (tick, micro-dollars)

    def refresh(self) -> None:
        """Fetch the balance from the provider."""
        try:
            credit_usd = self._launcher.credit_usd()
        except ProviderError as error:
            log.info("the balance is unknown: %s", error, extra={"provider": self._launcher.name})
            return
        with self._lock:
            self._known = None if credit_usd is None else (self._monotonic(), round(credit_usd * MICRO))

    def why_unaffordable(self, price_microusd_hour: int) -> str | None:
        """Return in one line why the balance does not cover one hour at this price; None: it does, or it is unknown."""
        with self._lock:
            known = self._known
        if known is None or self._monotonic() - known[0] > STALE_S or known[1] >= price_microusd_hour:
            return None
        balance, price = usd(known[1]), usd(price_microusd_hour)
        return f"the balance of {dollars(balance)} at {self._launcher.name} is less than one hour at {dollars(price)}"
