# ruff: noqa: E501 a table is read by its columns
"""Which offers a watch accepts, clause by clause, and in what order."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.market.offer import OfferKind, OfferTerms, Verification
from gpuwatch.domain.watches.match import accepts, clauses_of, failures, is_near, matches, price_for
from gpuwatch.domain.watches.watch import Action, CpuArch, SpotPolicy, Watch
from tests.builders import NOON, a_watch, an_offer

VAST = {"vastai": Commission("0.20")}


def refusals(watch: Watch, **offer: Any) -> list[str]:
    """Return the texts of why an offer is rejected."""
    seen = an_offer(**offer)
    price = price_for(watch, seen, VAST)
    found = failures(watch, seen, price, NOON)
    assert accepts(watch, seen, price, NOON) is (not found)
    assert bool(matches(watch, [seen], VAST, NOON)) is not bool(found)
    return [failure.text for failure in found]


def found_ids(watch: Watch, *offers: Any) -> list[str]:
    return [match.offer.offer_id for match in matches(watch, offers, VAST, NOON)]


def test_an_offer_at_the_threshold_is_accepted() -> None:
    """3.00 with 20 % is 3.60, and the threshold is 3.60."""
    assert refusals(a_watch()) == []


@pytest.mark.parametrize(
    ("listed", "most", "text"),
    [
        (3.10, "3.50", "max_price: 3.72 > 3.50"),
        (3.01, "3.60", "max_price: 3.61 > 3.60"),
        (3.000001, "3.60", "max_price: 3.600001 > 3.600000"),
        (3.001, "3.60", "max_price: 3.601 > 3.600"),
    ],
)
def test_max_price_refuses_what_is_dearer_and_says_by_how_much(listed: float, most: str, text: str) -> None:
    assert refusals(a_watch(max_price_usd_gpu_hour=Decimal(most)), quoted_usd_hour=listed) == [text]


def test_a_failed_threshold_is_off_by_its_fraction() -> None:
    offer = an_offer(quoted_usd_hour=3.3)
    failure = failures(a_watch(), offer, price_for(a_watch(), offer, VAST), NOON)[0]
    assert failure.clause == "max_price"
    assert failure.off == pytest.approx(0.1)


def test_the_threshold_is_of_one_gpu() -> None:
    eight = a_watch(gpu_count_max=8)
    assert refusals(eight, gpu_count=8, quoted_usd_hour=24.0) == []
    assert refusals(eight, gpu_count=8, quoted_usd_hour=24.08) == ["max_price: 3.61 > 3.60"]


def test_the_price_has_the_disk_of_the_watch() -> None:
    assert refusals(a_watch(disk_gb=8.0)) == []
    assert refusals(a_watch(disk_gb=80.0), disk_free_gb=500.0) == ["max_price: 3.62 > 3.60"]


def test_a_provider_without_a_commission_has_none() -> None:
    assert refusals(a_watch(), provider="lambda", quoted_usd_hour=3.60) == []


SO = Verification.VERIFIED
LISTED, PAST = OfferKind.LISTED, OfferKind.HISTORY
SEVENTH = OfferTerms(gpu_fraction=1 / 7)
NO_ARM = 'cpu_arch: it is arm64, which requires cpu_arch = "arm64" or "any"'
# clause of the watch, required value, insufficient value, text of the rejection
CLAUSES: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any], str]] = [
    ({"providers": ("vastai",)}, {}, {"provider": "runpod", "quoted_usd_hour": 3.0}, "providers: runpod is not one of vastai"),
    ({}, {"gpu": "H100 NVL"}, {"gpu": "RTX 4090"}, "gpu: RTX 4090 is not H100"),
    ({}, {}, {"terms": SEVENTH}, "gpu: it is a slice of H100 SXM (1/7)"),
    ({}, {"kind": LISTED}, {"kind": PAST}, "kind: it is a price of the past"),
    ({"listed": False}, {}, {"kind": LISTED}, "kind: it is a list price, and listed = false"),
    ({"action": Action.LAUNCH}, {}, {"kind": LISTED}, 'kind: it is a list price, and action = "launch" accepts live offers only'),
    ({"action": Action.ASK}, {}, {"kind": LISTED}, 'kind: it is a list price, and action = "ask" accepts live offers only'),
    ({"action": Action.ASK}, {}, {"kind": PAST}, "kind: it is a price of the past"),
    ({"action": Action.LAUNCH}, {"terms": OfferTerms(prepaid=False)}, {"terms": OfferTerms(prepaid=True)}, 'prepaid: it is charged for a whole term, and action = "launch" does not accept that'),
    ({"cpu_arch": CpuArch.X86_64}, {"cpu_arch": "amd64"}, {"cpu_arch": None}, "cpu_arch: unknown is not x86_64"),
    ({"cpu_arch": CpuArch.X86_64}, {"cpu_arch": "x86-64"}, {"cpu_arch": "aarch64"}, "cpu_arch: arm64 is not x86_64"),
    ({"cpu_arch": CpuArch.ARM64}, {"gpu_family": "GH200"}, {"gpu_family": "H100"}, "cpu_arch: unknown is not arm64"),
    ({"action": Action.LAUNCH}, {"cpu_arch": None}, {"cpu_arch": "arm64"}, NO_ARM),
    ({"action": Action.ASK}, {"cpu_arch": "amd64"}, {"cpu_arch": None, "gpu_family": "GB200"}, NO_ARM),
    ({}, {"rentable": True}, {"rentable": False}, "rentable: it cannot be rented now"),
    ({"spot": SpotPolicy.NO}, {"spot": False}, {"spot": True}, "spot: it is interruptible"),
    ({"spot": SpotPolicy.ONLY}, {"spot": True}, {"spot": False}, "spot: it is not a spot offer"),
    ({"min_vram_gib": 79.0}, {"gpu_memory_gib": 79.6}, {"gpu_memory_gib": 40.0}, "min_vram_gib: 40 < 79"),
    ({"min_vram_gib": 79.0}, {"gpu_memory_gib": 79.6}, {"gpu_memory_gib": None}, "min_vram_gib: unknown, 79 wanted"),
    ({"min_vram_gib": 80.0}, {"gpu_memory_gib": 79.6}, {"gpu_memory_gib": 73.2}, "min_vram_gib: 73.2 < 80"),
    ({"min_reliability": 0.98}, {"reliability": 0.98}, {"reliability": 0.9799999}, "min_reliability: 0.9799999 < 0.98"),
    ({"min_reliability": 0.98}, {"reliability": 1.0}, {"reliability": None}, "min_reliability: unknown, 0.98 wanted"),
    ({"verified": True}, {"verification": SO}, {"verification": Verification.DEVERIFIED}, "verified: the host is deverified"),
    ({"verified": True}, {"verification": SO}, {"verification": None}, "verified: the host is unknown"),
    ({"datacenter": True}, {"datacenter": True}, {"datacenter": False}, "datacenter: no"),
    ({"datacenter": True}, {"datacenter": True}, {"datacenter": None}, "datacenter: unknown"),
    ({"regions": ("DE", "Utah")}, {"region": "Utah", "country": "US"}, {"region": "Texas"}, "regions: Texas is not DE, Utah"),
    ({"regions": ("de",)}, {"region": None, "country": "DE"}, {"region": None, "country": None}, "regions: unknown is not de"),
    ({"min_cuda": 12.4}, {"cuda_max": 12.4}, {"cuda_max": 12.2}, "min_cuda: 12.2 < 12.4"),
    ({"min_cuda": 12.4}, {"cuda_max": 13.0}, {"cuda_max": None}, "min_cuda: unknown, 12.4 wanted"),
    ({"min_driver": "550.54"}, {"driver": "550.54.15"}, {"driver": "535.183.06"}, "min_driver: 535.183.06 < 550.54"),
    ({"min_driver": "550.54"}, {"driver": "1000.1"}, {"driver": None}, "min_driver: unknown < 550.54"),
    ({"min_driver": "550.54"}, {"driver": "560"}, {"driver": "newest"}, "min_driver: newest < 550.54"),
    ({"min_download_mbps": 500.0}, {"download_mbps": 500.0}, {"download_mbps": 499.0}, "min_download_mbps: 499 < 500"),
    ({"min_upload_mbps": 100.0}, {"upload_mbps": 200.0}, {"upload_mbps": None}, "min_upload_mbps: unknown, 100 wanted"),
    ({"min_disk_gb": 200.0}, {"disk_free_gb": 200.0}, {"disk_free_gb": 150.0}, "min_disk_gb: 150 < 200"),
    ({"min_disk_gb": 200.0}, {"disk_free_gb": 200.0}, {"disk_free_gb": None}, "min_disk_gb: unknown, 200 wanted"),
    ({"disk_gb": 8.0}, {"disk_free_gb": 8.0}, {"disk_free_gb": 7.0}, "disk_gb: 7 < 8"),
    ({"min_vcpu": 16.0}, {"vcpu": 16.0}, {"vcpu": 12.0}, "min_vcpu: 12 < 16"),
    ({"min_ram_gib": 64.0}, {"ram_gib": 64.0}, {"ram_gib": 63.9}, "min_ram_gib: 63.9 < 64"),
    ({"min_ports": 4}, {"ports": 4}, {"ports": 0}, "min_ports: 0 < 4"),
    ({"min_dlperf": 100.0}, {"dlperf": 100.0}, {"dlperf": None}, "min_dlperf: unknown, 100 wanted"),
    ({"max_usd_gib_hour": Decimal("0.045")}, {"gpu_memory_gib": 80.0}, {"gpu_memory_gib": 79.0}, "usd_per_gib_hour: 0.04557 > 0.045"),
    ({"max_usd_gib_hour": Decimal("0.045")}, {"gpu_memory_gib": 80.0}, {"gpu_memory_gib": None}, "usd_per_gib_hour: unknown for H100 SXM"),
    ({"when": "vcpu >= 8"}, {"vcpu": 8.0}, {"vcpu": 7.0}, "when: vcpu is 7, not >= 8"),
    ({"any_of": ("vcpu >= 8", "static_ip")}, {"vcpu": 8.0}, {"vcpu": None}, "any: vcpu is unknown, and static_ip is unknown"),
    ({"nvlink": True}, {"nvlink_gbps": 450.0}, {"nvlink_gbps": None}, "nvlink: unknown"),
    ({"nvlink": True}, {"terms": OfferTerms(interconnect="NVLink")}, {"terms": OfferTerms(interconnect="PCIe")}, "nvlink: no"),
    ({"when": "nvlink"}, {"terms": OfferTerms(interconnect="SXM5")}, {"terms": OfferTerms(interconnect="PCIe")}, "when: nvlink is false"),
    ({"static_ip": True}, {"static_ip": True}, {"static_ip": False}, "static_ip: no"),
    (
        {"available_for_s": 7200.0},
        {"available_until": NOON + timedelta(hours=2)},
        {"available_until": NOON + timedelta(hours=1)},
        "available_for: 1.0 h < 2.0 h",
    ),
    (
        {"available_for_s": 7200.0},
        {"available_until": NOON + timedelta(hours=2)},
        {"available_until": NOON - timedelta(hours=1)},
        "available_for: 0.0 h < 2.0 h",
    ),
    (
        {"available_for_s": 7200.0},
        {"available_until": NOON + timedelta(days=9)},
        {"available_until": None},
        "available_for: unknown",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("clause", "enough", "short", "text"), CLAUSES)
def test_a_clause_takes_enough_and_refuses_less_and_the_unknown(
    clause: dict[str, Any], enough: dict[str, Any], short: dict[str, Any], text: str
) -> None:
    watch = a_watch(**clause)
    assert refusals(watch, **enough) == []
    assert refusals(watch, **(enough | short)) == [text]


@pytest.mark.parametrize("clause", [{}, {"verified": False}, {"datacenter": False}, {"nvlink": False}])
def test_a_clause_that_is_not_set_or_false_asks_for_nothing(clause: dict[str, Any]) -> None:
    unknown = {"verification": None, "reliability": None, "gpu_memory_gib": None, "region": None, "country": None}
    assert refusals(a_watch(**clause), **unknown) == []


def test_a_watch_that_alerts_takes_what_is_paid_in_advance() -> None:
    assert refusals(a_watch(), terms=OfferTerms(prepaid=True)) == []


def test_what_rents_takes_arm_where_its_owner_says_so_and_what_alerts_takes_it_anyway() -> None:
    for arch in (CpuArch.ARM64, CpuArch.ANY):
        assert refusals(a_watch(action=Action.LAUNCH, cpu_arch=arch), cpu_arch="arm64") == []
    assert refusals(a_watch(), cpu_arch="arm64") == []


@pytest.mark.parametrize("spot", [False, True])
def test_spot_any_takes_both(spot: bool) -> None:
    assert refusals(a_watch(spot=SpotPolicy.ANY), spot=spot) == []


@pytest.mark.parametrize(("count", "fits"), [(1, False), (2, True), (4, True), (5, False)])
def test_the_number_of_gpus_is_a_range_with_both_ends(count: int, fits: bool) -> None:
    watch = a_watch(gpu_count_min=2, gpu_count_max=4)
    assert (not refusals(watch, gpu_count=count, quoted_usd_hour=1.0)) is fits


def test_own_disk_is_not_limited_where_a_provider_names_no_limit() -> None:
    assert refusals(a_watch(disk_gb=8.0), disk_free_gb=None) == []


def test_minimum_memory_is_meant_in_a_buyers_sense() -> None:
    """An "80 GB" card reports 79.6 GiB, a 48 GB card with ECC 45; a filter must not reject all of them."""
    assert refusals(a_watch(min_vram_gib=80.0), gpu_memory_gib=81559 / 1024) == []
    l40s = a_watch(gpu=("L40S",), gpu_names=("L40S",), min_vram_gib=48.0)
    assert refusals(l40s, gpu="L40S", gpu_memory_gib=46068 / 1024) == []


@pytest.mark.parametrize(
    ("region", "country", "wanted", "fits"),
    [
        ("Romania", "RO", "Oman", False),
        ("Indiana", "US", "India", False),
        ("Nigeria", "NG", "Niger", False),
        ("Utah", "US", "utah", True),
        ("New South Wales", "AU", "South Wales", True),
        ("us-east-1", None, "us-east", True),
        ("us-east-10", None, "us-east-1", False),
        ("California", "US", "CA", False),
        ("Ontario", "CA", "CA", True),
        ("California", "US", "us", True),
    ],
)
def test_a_region_is_a_country_code_or_whole_words_of_the_place(
    region: str, country: str | None, wanted: str, fits: bool
) -> None:
    assert (not refusals(a_watch(regions=(wanted,)), region=region, country=country)) is fits


def test_every_clause_that_fails_is_named_in_the_order_of_the_settings() -> None:
    watch = a_watch(min_reliability=0.999, verified=True, min_cuda=12.4)
    texts = refusals(watch, quoted_usd_hour=4.0, verification=None, cuda_max=None)
    assert [text.split(":")[0] for text in texts] == ["max_price", "min_reliability", "verified", "min_cuda"]


def test_matches_come_cheapest_gpu_price_first_not_cheapest_offer() -> None:
    watch = a_watch(gpu_count_max=8)
    one = an_offer(offer_id="one", machine_id="1", quoted_usd_hour=2.9)
    eight = an_offer(offer_id="eight", machine_id="2", gpu_count=8, quoted_usd_hour=16.0)
    dear = an_offer(offer_id="dear", machine_id="3", quoted_usd_hour=3.0)
    assert found_ids(watch, dear, one, eight) == ["eight", "one", "dear"]


def test_at_one_price_the_more_reliable_comes_first_then_the_identity() -> None:
    offers = [
        an_offer(offer_id="d", machine_id="9", reliability=None),
        an_offer(offer_id="c", machine_id="8", reliability=0.95),
        an_offer(offer_id="b", machine_id="7", reliability=0.99),
        an_offer(offer_id="a", machine_id="6", reliability=0.99),
        an_offer(offer_id="0", machine_id="7", reliability=0.99),
    ]
    assert found_ids(a_watch(), *offers) == ["a", "0", "b", "c", "d"]
    assert found_ids(a_watch(), *reversed(offers)) == ["a", "0", "b", "c", "d"]


def test_a_match_carries_listed_and_effective_price() -> None:
    match = matches(a_watch(), [an_offer()], VAST, NOON)[0]
    assert (match.price.listed_microusd_hour, match.price.price_microusd_hour) == (3_000_000, 3_600_000)


@pytest.mark.parametrize(("listed", "near"), [(3.0, True), (3.3, True), (3.301, False)])
def test_near_is_an_otherwise_fitting_offer_under_threshold_times_rearm(listed: float, near: bool) -> None:
    watch = a_watch(rearm=1.1)
    assert is_near(watch, [an_offer(quoted_usd_hour=listed)], VAST, NOON) is near


def test_an_offer_that_another_clause_refuses_is_not_near() -> None:
    assert not is_near(a_watch(rearm=1.1), [an_offer(rentable=False), an_offer(gpu="RTX 4090")], VAST, NOON)


def test_clauses_that_are_not_set_change_nothing() -> None:
    offers = [an_offer(gpu=gpu, reliability=known, spot=spot) for gpu in ("H100 SXM", "A100 SXM 80GB")
              for known in (None, 0.9) for spot in (False, True)]  # fmt: skip
    for changes in ({}, {"min_vcpu": 0}, {"min_reliability": 0.95, "nvlink": True}, {"when": "gpu_ram > 10"}):
        watch = a_watch(**changes)
        for offer in offers:
            price = price_for(watch, offer, {})
            assert failures(watch, offer, price, NOON, clauses_of(watch)) == failures(watch, offer, price, NOON)
