"""How each declaration interprets its source: units, currencies, parts of GPUs, stock."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from functools import cache
from typing import Any

import msgspec
import pytest

from gpuwatch.domain.market.offer import Offer, OfferKind
from gpuwatch.errors import PayloadChanged
from gpuwatch.providers.pricelist.declaration import PriceSource, built_in_sources
from gpuwatch.providers.pricelist.source_reader import SourceReader
from gpuwatch.providers.toolkit.currency import ExchangeRate
from gpuwatch.providers.toolkit.post_processing import ParseResult
from gpuwatch.testing.suite import case
from tests.checkout import TESTS

RECORDED = TESTS / "recorded" / "pricelist"
NOW = datetime(2026, 11, 21, tzinfo=UTC)
RATES = {"USD": ExchangeRate("USD", 1.0), "EUR": ExchangeRate("EUR", 1.15, date(2026, 11, 20), "a rate of then")}


def recorded(name: str) -> Any:
    return json.loads((RECORDED / f"{name}_reconstructed.json").read_bytes())


def read(source: PriceSource, value: Any, place: str = "") -> ParseResult:
    reader = SourceReader(source, RATES.get, NOW)
    reader.add_page(value, place)
    return reader.finish()


@cache
def offers(name: str) -> dict[str, Offer]:
    source = built_in_sources()[name]
    found = read(source, recorded(name), source.places[1] if source.places else "").offers
    return {offer.offer_id.removeprefix(f"{name}/"): offer for offer in found}


def test_oracle_sells_whole_machines_at_a_price_for_each_gpu() -> None:
    h100 = offers("oracle")["BM.GPU.H100.8/8"]
    assert (h100.gpu, h100.gpu_count, h100.quoted_usd_hour) == ("H100 SXM", 8, 80.0)
    assert offers("oracle")["BM.GPU.L40S.4/4"].quoted_usd_hour == pytest.approx(14.0)
    assert len(offers("oracle")) == 7  # no licences, no other metrics, no unknown part numbers


def test_scaleway_is_computed_from_euros_and_tells_the_rate() -> None:
    offer = offers("scaleway")["H100-2-80G/fr-par-2/2"]
    assert (offer.gpu, offer.gpu_count, offer.region) == ("H100 PCIe", 2, "fr-par-2")
    assert offer.quoted_usd_hour == pytest.approx(5.46 * 1.15)
    assert (offer.terms.currency, offer.terms.usd_rate, offer.terms.usd_rate_on) == ("EUR", 1.15, date(2026, 11, 20))
    assert "a rate of then" in (offer.terms.note or "")
    assert offers("scaleway")["H100-SXM-8-80G/fr-par-2/8"].gpu == "H100 SXM"


def test_ovh_counts_hundred_millionths_of_a_euro_without_tax_and_minutes() -> None:
    found = offers("ovh")
    assert found["h100-380.consumption/1"].quoted_usd_hour == pytest.approx(2.8 * 1.15)
    minute = found["ai-training.h100-1-gpu.minute.consumption/1"]
    assert minute.quoted_usd_hour == pytest.approx(0.05166667 * 60 * 1.15)
    assert minute.terms.tax_included is False
    assert not [name for name in found if "monthly" in name]


def test_a_vultr_plan_with_less_memory_than_a_card_is_a_part_of_one() -> None:
    found = offers("vultr")
    part = found["vcg-a100-1c-6g-4vram/ewr/1"]
    assert (part.gpu_count, part.gpu_memory_gib) == (1, 4.0)
    assert part.terms.gpu_fraction == pytest.approx(0.05)
    whole = found["vcg-l40s-64c-750g-192vram/lax/4"]
    assert (whole.gpu, whole.gpu_count, whole.terms.gpu_fraction) == ("L40S", 4, 1.0)
    assert found["vcg-a16-12c-128g-32vram/sea/2"].gpu_memory_gib == 16


def test_a_vultr_plan_is_an_offer_in_every_place_and_none_where_it_is_sold_out() -> None:
    found = offers("vultr")
    assert {name.split("/")[1] for name in found if name.startswith("vcg-a100-12c")} == {"ewr", "fra"}
    assert not [name for name in found if name.startswith(("vcg-h100", "vcg-a40", "vc2", "vcg-a100-96c"))]
    assert {offer.kind for offer in found.values()} == {OfferKind.LISTED}


def test_a_socket_that_is_not_reported_is_not_guessed() -> None:
    offer = offers("vultr-metal")["vbm-112c-2048gb-8-h100-gpu/sea/8"]
    assert offer.gpu_family == "H100"
    assert offer.gpu not in {"H100 SXM", "H100 PCIe"}
    assert "it may be" in (offer.terms.note or "")
    assert offer.terms.seller == "vultr"


def test_a_new_machine_with_a_gpu_is_reported_by_name() -> None:
    seen = read(built_in_sources()["vultr-metal"], recorded("vultr-metal"))
    assert "vultr-metal: a machine that is not declared: vbm-256c-4096gb-8-x9000-gpu" in seen.drift
    assert seen.skipped == {"a machine that is not declared": 1}


def test_verdas_prices_are_texts_or_numbers_and_spot_has_two_names() -> None:
    found = offers("verda")
    assert found["1H100.80S.30V/1"].quoted_usd_hour == 2.29
    assert found["1H100.80S.30V/1/spot"].quoted_usd_hour == 0.8015
    assert found["8H200.141S.176V/8/spot"].spot
    assert found["1A100.40S.22V/1"].gpu == "A100 SXM 40GB"
    assert "2H100.80S/2" not in found  # two of it by its field, four by its text
    assert found["1A6000.10V/1"].terms.currency == "EUR"


def test_lium_is_live_whole_or_in_parts() -> None:
    found = offers("lium")
    assert found["n-h100/CA/8"].kind is OfferKind.LIVE
    assert {name: round(found[name].quoted_usd_hour, 2) for name in found if name.startswith("n-4090")} == {
        "n-4090/1": 0.32,
        "n-4090/2": 0.64,
        "n-4090/3": 0.96,
    }
    assert [name for name in found if name.startswith("n-part")] == ["n-part/2", "n-part/4", "n-part/6"]
    assert not [name for name in found if name.startswith(("n-b200", "n-nomin", "n-null", "n-noprice"))]
    assert found["n-spot/2/spot"].spot
    assert found["n-h100/CA/8"].country == "US"


def test_a_live_source_that_does_not_tell_what_is_free_lists_only() -> None:
    assert offers("lium")["n-nofree/8"].kind is OfferKind.LISTED
    assert offers("cloudrift")["odd.1/us-3/1"].kind is OfferKind.LISTED


def test_cloudrift_counts_cents_and_bytes_and_is_live_where_nodes_are_free() -> None:
    offer = offers("cloudrift")["rtx49-8c-nr.2/us-east-nc-nr-1/2"]
    assert (offer.quoted_usd_hour, offer.gpu, offer.gpu_count) == (pytest.approx(0.78), "RTX 4090", 2)
    assert (offer.gpu_memory_gib, offer.ram_gib, offer.kind) == (24, 48, OfferKind.LIVE)
    assert not [name for name in offers("cloudrift") if "us-west-1" in name]


def test_akash_lists_the_median_and_says_that_it_is_no_offer() -> None:
    offer = offers("akash")["nvidia h100 80Gi SXM5/1"]
    assert (offer.gpu, offer.quoted_usd_hour, offer.kind) == ("H100 SXM", 1.49, OfferKind.LISTED)
    assert "not an offer" in (offer.terms.note or "")
    assert "nvidia t4 16Gi PCIe/1" not in offers("akash")  # none is free
    assert offers("akash")["nvidia rtx4090 48Gi PCIe/1"].gpu == "RTX 4090 48GB"
    assert not offers("akash")["nvidia new9000 96Gi PCIe/1"].gpu_known


def test_a_price_of_zero_is_no_price() -> None:
    assert set(offers("linode")) == {"g1-gpu-rtx6000-1/1", "g2-gpu-rtx4000a2-s/2"}
    assert offers("linode")["g1-gpu-rtx6000-1/1"].gpu == "Quadro RTX 6000"


def test_a_price_without_a_rate_is_skipped() -> None:
    source = msgspec.structs.replace(built_in_sources()["ovh"], currency="XXX", least_rows=0)
    seen = read(source, recorded("ovh"))
    assert seen.offers == []
    assert seen.skipped == {"a price in a currency without a rate": 9}


def test_a_renamed_price_or_list_is_a_changed_format_and_never_no_offers() -> None:
    for name in sorted(built_in_sources()):
        with case(name):
            source = msgspec.structs.replace(
                built_in_sources()[name], least_rows=max(built_in_sources()[name].least_rows, 1)
            )
            body = json.dumps(recorded(name))
            for path in (source.fields.price, source.rows):
                word = (path if isinstance(path, str) else path[0]).replace("../", "").split(".")[0]
                if word in {"*", "price"}:
                    continue
                renamed = json.loads(body.replace(f'"{word}":', f'"{word}_":'))
                with pytest.raises(PayloadChanged):
                    read(source, renamed)


def test_a_placeholder_is_skipped_and_counted() -> None:
    cases: list[Any] = [0, 0.00001, 99999, -1, "NaN", "1e999", None, True, [], {}, "free"]
    for price in cases:
        with case(price):
            value = recorded("lium") | {"nodes": [{**recorded("lium")["nodes"][0], "price_per_gpu_hour": price}]}
            source = msgspec.structs.replace(built_in_sources()["lium"], least_rows=0)
            seen = read(source, value)
            assert seen.offers == []
            assert sum(seen.skipped.values()) == 1


def test_a_spot_price_that_cannot_be_read_is_counted_and_one_that_is_missing_is_not() -> None:
    cases: list[Any] = [("NaN", 1), ("0,80", 1), (1e300, 1), (-0.8, 1), (0, 0), ("", 0), (None, 0)]
    for price, skipped in cases:
        with case((price, skipped)):
            row = {key: value for key, value in recorded("verda")[0].items() if not key.startswith("spot_price")}
            source = msgspec.structs.replace(built_in_sources()["verda"], least_rows=0)
            seen = read(source, [row | {"spot_price": price}])
            assert ([offer.spot for offer in seen.offers], sum(seen.skipped.values())) == ([False], skipped)


def test_spot_prices_under_another_name_are_reported() -> None:
    rows = json.loads(json.dumps(recorded("verda")).replace('"spot_price', '"preemptible_price'))
    assert "verda: field gone: spot_price" in read(built_in_sources()["verda"], rows).drift


def test_a_listed_price_far_under_the_median_of_its_type_is_a_placeholder() -> None:
    value = recorded("vultr")
    plan = next(plan for plan in value["plans"] if plan["id"] == "vcg-l40s-16c-180g-48vram")
    value["plans"] = [{**plan, "locations": ["a", "b", "c"]}, {**plan, "locations": ["d"], "hourly_cost": 0.2}]
    seen = read(built_in_sources()["vultr"], value)
    assert [offer.region for offer in seen.offers] == ["a", "b", "c"]
    assert seen.skipped == {"a placeholder: far under the median of its type over the regions": 1}


def test_a_long_name_keeps_a_stable_id_that_fits_the_store() -> None:
    [offer] = [offer for name, offer in offers("lium").items() if name.startswith("nnn")]
    assert len(offer.offer_id) == 64
    assert len(offer.machine_id or "") == 64
    assert offer.offer_id == read(built_in_sources()["lium"], recorded("lium")).offers[-1].offer_id


def test_a_field_that_no_row_has_any_more_is_reported() -> None:
    cases: list[Any] = [
        ("lium", "available_gpu_count", "free"),
        ("lium", "min_rentable_gpu_count", "least_count"),
        ("verda", "size_in_gigabytes", "memory"),
        ("scaleway", "gpu", "count"),
    ]
    for name, word, field in cases:
        with case((name, word, field)):
            body = json.dumps(recorded(name))
            assert not [
                line for line in read(built_in_sources()[name], json.loads(body), "here").drift if "field gone" in line
            ]
            seen = read(built_in_sources()[name], json.loads(body.replace(f'"{word}":', f'"{word}_":')), "here")
            assert f"{name}: field gone: {field}" in seen.drift
            assert not [
                offer for offer in seen.offers if word == "available_gpu_count" and offer.kind is OfferKind.LIVE
            ]
