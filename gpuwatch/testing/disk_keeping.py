"""Stopping an instance with its disk kept, and starting it again."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gpuwatch.domain.market.offer import Offer
from gpuwatch.errors import OrderError, ProviderError
from gpuwatch.ports import DiskKeeper, InstanceState, Launcher
from gpuwatch.testing.lookup import LookupSuite
from gpuwatch.testing.relay import Relay
from gpuwatch.testing.suite import case


class DiskKeeperSuite(LookupSuite):
    """For launchers that are a `DiskKeeper`; others state why not. `LauncherSuite` includes it."""

    def test_a_disk_can_be_kept_or_the_provider_says_why_not(self, launcher: Launcher) -> None:
        reason = self.bench.info.no_kept_disk
        assert isinstance(launcher, DiskKeeper) == (not reason), (
            "a launcher needs stop_instance and start_instance, or ProviderInfo.no_kept_disk with the reason, not both"
        )
        assert "\n" not in reason

    def test_a_stopped_one_is_listed_as_stopped_and_starts_again(
        self, launcher: Launcher, offers: Sequence[Offer]
    ) -> None:
        keeper = self._require_keeper(launcher)
        instance_id = launcher.create(self.order(offers[0].offer_id)).instance_id
        launcher.list_instances()  # one that is just starting may refuse to be stopped
        for _ in range(2):  # repeating it is harmless
            keeper.stop_instance(instance_id)
            (found,) = launcher.list_instances()
            assert (found.instance_id, found.state) == (instance_id, InstanceState.STOPPED)
        for _ in range(2):
            assert keeper.start_instance(instance_id)
            (found,) = launcher.list_instances()
            assert found.state in {InstanceState.STARTING, InstanceState.RUNNING}
        launcher.destroy(instance_id)

    def test_what_was_not_accepted_is_an_error(self, launcher: Launcher, offers: Sequence[Offer], relay: Relay) -> None:
        keeper = self._require_keeper(launcher)
        instance_id = launcher.create(self.order(offers[0].offer_id)).instance_id
        for status, body in ((401, b"{}"), (404, b"{}"), (500, b"{}"), (200, b"{}"), (200, b"[]"), (429, b"{}")):
            for change in (keeper.stop_instance, keeper.start_instance):
                relay.restore()
                relay.fail("", status, body)
                with case((status, body)), pytest.raises((OrderError, ProviderError)):
                    change(instance_id)

    def _require_keeper(self, launcher: Launcher) -> DiskKeeper:
        if not isinstance(launcher, DiskKeeper):
            pytest.skip(f"{self.bench.name}: {self.bench.info.no_kept_disk}")
        return launcher
