"""The account of a key and its money: whose it is, credit, charges, raised prices. Never from an unreadable answer."""

from __future__ import annotations

import math
from datetime import date

import pytest

from gpuwatch.errors import ProviderError
from gpuwatch.ports import AccountLookup, Launcher
from gpuwatch.ports.declarations import Adapter
from gpuwatch.testing.faults import MALFORMED_LISTS
from gpuwatch.testing.relay import Relay
from gpuwatch.testing.suite import Suite, case, part

DAY = date(2026, 11, 20)


class AccountSuite(Suite):
    """For launchers that are an `AccountLookup`; skipped for others. `LauncherSuite` includes it."""

    @pytest.fixture
    def lookup(self, adapter: Adapter) -> AccountLookup:
        """The launcher, if it can report the account."""
        if not isinstance(adapter.launcher, AccountLookup):
            pytest.skip(f"{self.bench.name} does not report an account")
        return adapter.launcher

    def test_the_account_is_the_same_each_time(self, lookup: AccountLookup) -> None:
        account_id = lookup.account_id()
        assert account_id is not None
        assert 0 < len(account_id) <= 200
        assert lookup.account_id() == account_id

    def test_without_a_readable_answer_no_account_is_named(self, lookup: AccountLookup, relay: Relay) -> None:
        for status, body in (
            (500, b"{}"),
            (429, b"{}"),
            *((200, body) for body in (*MALFORMED_LISTS, b'{"id": null}')),
        ):
            relay.restore()
            relay.fail("", status, body)
            with case((status, body[:20])), pytest.raises(ProviderError):
                lookup.account_id()

    def test_a_key_that_is_refused_everywhere_names_none(self, lookup: AccountLookup, relay: Relay) -> None:
        relay.fail("", 401, b"{}")
        with pytest.raises(ProviderError):
            lookup.account_id()


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
