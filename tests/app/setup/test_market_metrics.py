"""The best price of each watch: of the cheapest offer that its recorded facts do not exclude."""

from __future__ import annotations

import random

from gpuwatch.app.setup.market_metrics import CheapestOffers, gpu_price
from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.market.offer import Verification
from gpuwatch.domain.watches.match import failures, price_for
from gpuwatch.domain.watches.watch import SpotPolicy
from tests.builders import NOON, a_watch, an_offer

COMMISSIONS = {"vastai": Commission("0.20"), "runpod": Commission()}
FACTS = {"providers", "gpu", "kind", "gpu_count", "spot", "min_vram_gib", "verified", "regions"}


def test_it_is_the_lowest_price_of_all_offers_without_a_failing_fact() -> None:
    draw = random.Random(5)
    offers = [
        an_offer(
            provider=draw.choice(("vastai", "runpod")),
            gpu=draw.choice(("H100 SXM", "H100 PCIe", "RTX 4090")),
            gpu_count=draw.choice((1, 2, 8)),
            quoted_usd_hour=draw.uniform(1, 4),
            disk_usd_gb_month=draw.choice((0.1, 0.9)),
            spot=draw.random() < 0.3,
            country=draw.choice(("US", "NO")),
            verification=draw.choice((None, Verification.VERIFIED)),
        )
        for _ in range(60)
    ]
    cheapest = CheapestOffers(offers, COMMISSIONS)
    found = 0
    for changes in (
        {}, {"disk_gb": 500.0}, {"regions": ("NO",)}, {"verified": True}, {"spot": SpotPolicy.ONLY},
        {"providers": ("runpod",)}, {"gpu_names": ("H200 SXM",)}, {"gpu_names": ("H100 SXM",)},
        {"gpu_count_min": 2, "gpu_count_max": 8},
    ):  # fmt: skip
        watch = a_watch(**changes)
        priced = [(offer, price_for(watch, offer, COMMISSIONS)) for offer in offers]
        prices = [
            gpu_price(offer, price)
            for offer, price in priced
            if not {failure.clause for failure in failures(watch, offer, price, NOON)} & FACTS
        ]
        assert cheapest.best_of(watch, NOON) == min(prices, default=None), changes
        found += bool(prices)
    assert found == 7
