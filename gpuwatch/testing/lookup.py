"""The lookup of one instance: evidence of absence, so never "gone" unless the answer says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gpuwatch.domain.market.offer import Offer
from gpuwatch.errors import ProviderError
from gpuwatch.ports import InstanceLookup, InstanceState, Launcher, Order, Query
from gpuwatch.ports.declarations import Adapter
from gpuwatch.testing.faults import MALFORMED_LISTS
from gpuwatch.testing.relay import Relay
from gpuwatch.testing.suite import Suite, case

LABEL = "gpuwatch-abcdefgh2345"
INCONCLUSIVE_ANSWERS = (
    (401, b"{}"),
    (403, b"{}"),
    (404, b"<html>"),
    (404, b""),
    (404, b"{}"),
    (404, b"[]"),
    (404, b"null"),
    (410, b"{}"),
    (500, b"{}"),
    (503, b""),
    *((200, body) for body in MALFORMED_LISTS),
    (200, b'{"data": null}'),
    (200, b'{"data": {}}'),
    (429, b"{}"),  # last, because it delays later requests
)


class LookupSuite(Suite):
    """For launchers that are an `InstanceLookup`; others state why not. `LauncherSuite` includes it."""

    @pytest.fixture
    def launcher(self, adapter: Adapter) -> Launcher:
        """The launcher, through the relay."""
        assert adapter.launcher is not None, "INFO.launches is set, but there is no launcher"
        return adapter.launcher

    @pytest.fixture
    def offers(self, adapter: Adapter, relay: Relay) -> Sequence[Offer]:
        """Return offers on demand that can be rented now; clears the recorded requests."""
        found = adapter.market.search(Query()).offers
        relay.requests.clear()
        return found

    def order(self, offer_id: str, label: str = LABEL, **values: Any) -> Order:
        """Return an order of the bench."""
        defaults: dict[str, Any] = {"offer_id": offer_id, "label": label, "image": "x/y", "disk_gb": 20.0}
        return Order(**(defaults | dict(self.bench.order) | values))

    def wait_for_end(self, place: Any) -> None:
        """Let time pass at the stand-in until an end is complete."""
        if self.bench.later is not None:
            self.bench.later(place)

    def test_one_can_be_asked_for_or_the_provider_says_why_not(self, launcher: Launcher) -> None:
        reason = self.bench.info.no_lookup
        assert isinstance(launcher, InstanceLookup) == (not reason), (
            "a launcher needs get(instance_id), or ProviderInfo.no_lookup with the reason, not both"
        )
        assert "\n" not in reason

    def test_one_is_asked_for_by_its_id(
        self, launcher: Launcher, offers: Sequence[Offer], relay: Relay, place: Any
    ) -> None:
        lookup = self._require_lookup(launcher)
        instance_ids = [launcher.create(self.order(offers[n].offer_id, f"gpuwatch-{n}")).instance_id for n in range(2)]
        launcher.destroy(instance_ids[0])
        self.wait_for_end(place)
        found = lookup.get(instance_ids[1])
        assert found is not None
        assert (found.instance_id, found.label) == (instance_ids[1], "gpuwatch-1")
        [listed] = launcher.list_instances()
        assert (found.gpu, found.gpu_count, found.spot) == (listed.gpu, listed.gpu_count, listed.spot)
        ended = lookup.get(instance_ids[0])
        assert ended is None or ended.state is InstanceState.ENDED
        for status, body in INCONCLUSIVE_ANSWERS:
            relay.restore()
            relay.fail("", status, body)
            for instance_id in instance_ids:
                with case(f"{status} {body[:20]!r}"), pytest.raises(ProviderError):
                    lookup.get(instance_id)

    def test_an_answer_about_another_is_no_answer(
        self, launcher: Launcher, offers: Sequence[Offer], relay: Relay
    ) -> None:
        lookup = self._require_lookup(launcher)
        instance_ids = [launcher.create(self.order(offers[n].offer_id, f"gpuwatch-{n}")).instance_id for n in range(2)]
        assert lookup.get(instance_ids[1]) is not None
        other_body = relay.bodies[-1]
        relay.fail("", 200, other_body)
        with pytest.raises(ProviderError):
            lookup.get(instance_ids[0])

    def test_what_is_no_id_is_not_gone(self, launcher: Launcher) -> None:
        lookup = self._require_lookup(launcher)
        for instance_id in ("", "../../x", "a b\n", "x" * 5000, "\u202e"):
            with case(repr(instance_id[:20])), pytest.raises(ProviderError):
                lookup.get(instance_id)

    def _require_lookup(self, launcher: Launcher) -> InstanceLookup:
        if not isinstance(launcher, InstanceLookup):
            pytest.skip(f"{self.bench.name}: {self.bench.info.no_lookup}")
        return launcher
