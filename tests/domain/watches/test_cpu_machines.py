"""A watch for machines without GPUs: what it accepts, and that its prices are per hour of the machine."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from gpuwatch.domain.market.money import Commission, per_unit_hour, threshold_microusd
from gpuwatch.domain.market.offer import NO_GPU, gpus_text, hardware_text
from gpuwatch.domain.market.search_query import Query, can_join, query_of
from gpuwatch.domain.watches.match import matches
from gpuwatch.engine.market.watch_search import queries_for
from tests.builders import a_watch, an_offer

NOW = datetime(2026, 11, 30, tzinfo=UTC)
CPU: dict[str, Any] = {"gpu": NO_GPU, "gpu_family": NO_GPU, "gpu_wire": NO_GPU, "gpu_count": 0, "gpu_memory_gib": None}
WANTED: dict[str, Any] = {"gpu": (NO_GPU,), "gpu_names": (NO_GPU,), "gpu_count_min": 0, "gpu_count_max": 0}


def test_it_accepts_machines_without_gpus_of_its_size_at_or_under_the_limit_of_the_machine() -> None:
    watch = a_watch(**WANTED, max_price_usd_gpu_hour=Decimal("0.10"), min_vcpu=8.0, min_ram_gib=32.0)
    sizes = {"small": (4.0, 64.0, 0.01), "low": (16.0, 16.0, 0.02), "good": (16.0, 64.0, 0.10)}
    sizes["dear"] = (16.0, 64.0, 0.11)
    offers = [
        an_offer(**CPU, offer_id=name, machine_id=name, vcpu=vcpu, ram_gib=ram, quoted_usd_hour=usd)
        for name, (vcpu, ram, usd) in sizes.items()
    ]
    found = matches(watch, [*offers, an_offer(vcpu=64.0, ram_gib=256.0, quoted_usd_hour=0.01)], {}, NOW)
    assert [match.offer.offer_id for match in found] == ["good"]
    assert found[0].price_microusd_gpu_hour == 100_000


def test_a_watch_for_gpus_takes_none_of_them() -> None:
    assert not matches(a_watch(), [an_offer(**CPU, quoted_usd_hour=0.01)], {}, NOW)


def test_its_query_is_about_them_alone_and_bounded_by_the_price_of_the_machine() -> None:
    (query,) = queries_for(a_watch(**WANTED, max_price_usd_gpu_hour=Decimal("0.12")), Commission("0.20"))
    assert (query.gpus, query.count_min, query.count_max, query.wants_no_gpu) == ((NO_GPU,), 0, 0, True)
    assert query.max_listed_usd_hour == pytest.approx(0.10, abs=1e-5)
    assert not can_join(query_of(NO_GPU, spot=False), query_of("H100 SXM", spot=False))
    assert query_of("H100 SXM", spot=True) == Query(gpus=("H100 SXM",), spot=True)


def test_its_prices_are_per_hour_of_the_machine() -> None:
    assert threshold_microusd(Decimal("0.10"), 0) == 100_000
    assert per_unit_hour(0.072, 0) == "$0.072/h"
    assert per_unit_hour(0.072, 2) == "$0.072/GPU-h"
    assert (hardware_text(NO_GPU, 0), gpus_text(NO_GPU, 0)) == ("no GPU", "no GPU")
    assert (hardware_text("L4", 2), gpus_text("L4", 2)) == ("2× L4", "L4 × 2")
