"""Moving the time at which the provider itself ends an instance."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from gpuwatch.domain.market.offer import Offer
from gpuwatch.errors import OrderError, ProviderError
from gpuwatch.ports import EndMover, InstanceLookup, Launcher
from gpuwatch.testing.bench import NOW
from gpuwatch.testing.lookup import LookupSuite
from gpuwatch.testing.relay import Relay
from gpuwatch.testing.suite import case


class EndMoverSuite(LookupSuite):
    """For launchers that are an `EndMover`. `LauncherSuite` includes it."""

    def test_an_end_that_can_be_moved_is_declared(self, launcher: Launcher) -> None:
        ends = self.bench.info.self_destruct
        assert isinstance(launcher, EndMover) == (ends is not None and ends.is_movable), (
            "a launcher needs move_end, if and only if SelfDestruct.is_movable"
        )

    def test_a_moved_end_is_later_than_asked_for(self, launcher: Launcher, offers: Sequence[Offer]) -> None:
        mover, until = self._require_mover(launcher), NOW + timedelta(hours=1)
        order = self.order(offers[0].offer_id, deadline=until, self_destruct_at=until)
        instance_id = launcher.create(order).instance_id
        assert isinstance(launcher, InstanceLookup), "without `get` nobody sees whether it was moved"
        for hours in (3, 3, 2):  # repeating it is harmless, and it can be moved back
            later = until + timedelta(hours=hours)
            mover.move_end(instance_id, later)
            found = launcher.get(instance_id)
            assert found is not None
            assert found.ends_at is not None
            assert later <= found.ends_at <= later + timedelta(hours=1)
        launcher.destroy(instance_id)

    def test_an_end_that_was_not_moved_is_an_error(
        self, launcher: Launcher, offers: Sequence[Offer], relay: Relay
    ) -> None:
        mover, until = self._require_mover(launcher), NOW + timedelta(hours=1)
        instance_id = launcher.create(self.order(offers[0].offer_id)).instance_id
        for status, body in ((401, b"{}"), (404, b"{}"), (500, b"{}"), (429, b"{}")):
            relay.restore()
            relay.fail("", status, body)
            with case((status, body)), pytest.raises((OrderError, ProviderError)):
                mover.move_end(instance_id, until)

    def _require_mover(self, launcher: Launcher) -> EndMover:
        if not isinstance(launcher, EndMover):
            pytest.skip(f"{self.bench.name}: its API moves no end of an instance")
        return launcher
