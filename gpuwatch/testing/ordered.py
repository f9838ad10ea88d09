"""An order matches the priced offer, and a list that lags ends nothing. `LauncherSuite` includes it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import pytest

from gpuwatch.domain.market.offer import Offer
from gpuwatch.ports import InstanceLookup, Launcher
from gpuwatch.testing.lookup import LookupSuite
from gpuwatch.testing.relay import Relay, contains_text, request_text
from gpuwatch.testing.suite import case, part

IMAGE: Final = "ghcr.io/kit/image-7391:17"


class OrderedSuite(LookupSuite):
    """Disk and image of an order, and the list right after it."""

    @part("disk")
    def test_the_disk_that_is_priced_is_the_disk_that_is_ordered(
        self, launcher: Launcher, offers: Sequence[Offer], relay: Relay
    ) -> None:
        candidates = [offer for offer in offers if offer.disk_usd_gb_month]
        if not candidates:
            pytest.skip(f"{self.bench.name}: disk has no separate price")
        for suffix, disk_gb in (("a", self.bench.disk_gb), ("b", self.bench.disk_gb + 100)):
            relay.requests.clear()
            launcher.create(self.order(candidates[0].offer_id, f"gpuwatch-{suffix}", disk_gb=float(disk_gb)))
            request_texts = [
                request_text(request)
                for request in relay.requests
                if re.search(self.bench.creates, request_text(request), re.DOTALL)
            ]
            with case(f"{disk_gb} GB"):
                assert any(re.search(rf"(?<![\d.]){disk_gb}(?:\.0+)?(?![\d.]*\d)", text) for text in request_texts), (
                    "the create request must contain the disk that is paid for: order.disk_gb"
                )
            candidates = candidates[1:] or candidates

    @part("image")
    def test_the_image_that_is_wanted_is_ordered(
        self, launcher: Launcher, offers: Sequence[Offer], relay: Relay
    ) -> None:
        if not self.bench.info.runs_images:
            pytest.skip(f"{self.bench.name} starts machines, not images (runs_images = False)")
        launcher.create(self.order(offers[0].offer_id, image=IMAGE))
        assert any(contains_text(request, IMAGE) for request in relay.requests), (
            "the create request must contain order.image, or declare runs_images=False"
        )

    @part("lag")
    def test_a_list_that_lags_behind_is_no_proof_that_one_is_gone(
        self, launcher: Launcher, offers: Sequence[Offer], relay: Relay
    ) -> None:
        if not isinstance(launcher, InstanceLookup):
            pytest.skip(f"{self.bench.name}: {self.bench.info.no_lookup}")
        assert list(launcher.list_instances()) == []
        request_texts = [request_text(request) for request in relay.requests]
        answers = list(relay.bodies)[-len(relay.requests) :]
        created = launcher.create(self.order(offers[0].offer_id))
        for line, body in zip(request_texts, answers, strict=True):
            relay.fail(f"^{re.escape(line)}$", 200, body)
        assert list(launcher.list_instances()) == [], "the test server holds back the list"
        assert launcher.get(created.instance_id) is not None, "get() must request the single instance, not use the list"
