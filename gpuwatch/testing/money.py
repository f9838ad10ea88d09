"""A provider's reports of money: credit, charges, raised prices. Never a figure from an unreadable answer."""

from __future__ import annotations

import math
from datetime import date

from gpuwatch.errors import ProviderError
from gpuwatch.ports import Launcher
from gpuwatch.testing.relay import Relay
from gpuwatch.testing.suite import Suite, part

DAY = date(2026, 11, 20)


class MoneySuite(Suite):
    """`LauncherSuite` includes it, and its fixture `launcher`."""

    def test_reported_money_is_sound(self, launcher: Launcher) -> None:
        credit = launcher.credit_usd()
        assert credit is None or math.isfinite(credit)
        charges = launcher.charges(DAY, DAY)
        assert charges is None or all(math.isfinite(charge.usd) and charge.day == DAY for charge in charges)
        assert list(launcher.price_increases()) == []

    @part("lists")
    def test_money_that_cannot_be_read_is_an_error_or_left_out(self, launcher: Launcher, relay: Relay) -> None:
        relay.fail("", 500)
        for read in (launcher.credit_usd, lambda: launcher.charges(DAY, DAY)):
            try:
                assert read() is None
            except ProviderError:
                assert relay.requests != []
