"""Results of gpuhunt's catalogs: list prices with their version, and no other claims."""

from __future__ import annotations

import builtins
import csv
import io
import os
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from gpuwatch.domain.market.offer import Offer, OfferKind
from gpuwatch.errors import PayloadChanged, ProviderDown
from gpuwatch.installation import install_hint
from gpuwatch.ports import Answer, Completeness, Query
from gpuwatch.providers.gpuhunt import INFO, SELLERS
from gpuwatch.providers.gpuhunt.market import read_items, resolve_gpu, unpack_csv
from gpuwatch.testing.bench import Bench
from gpuwatch.testing.suite import case
from tests.clouds.gpuhunt import COLUMNS, GpuhuntCatalogs, archive, market, row


@contextmanager
def asked(place: GpuhuntCatalogs, **options: Any) -> Iterator[Any]:
    """Return the adapter's search side for this stand-in."""
    bench = Bench(name="gpuhunt", place=GpuhuntCatalogs, gpu="H100 SXM", options=options)
    with place, bench.pointed_at(place.url) as adapter:
        yield adapter.market


def found(rows: dict[str, list[dict[str, Any]]] | None = None, spot: bool = False, **options: Any) -> Answer:
    """Return one answer of a stand-in with these rows."""
    with asked(GpuhuntCatalogs(rows), **options) as asking:
        answer: Answer = asking.search(Query(spot=spot))
        return answer


def only(*rows: dict[str, Any], version: str = "20261121-7", seller: str = "verda") -> Offer:
    """Return the one offer of these rows of one seller."""
    with asked(GpuhuntCatalogs({seller: list(rows)}, version), sellers=(seller,)) as asking:
        (offer,) = asking.search(Query()).offers
        assert isinstance(offer, Offer)
        return offer


def test_a_row_is_a_list_price_of_its_seller_with_the_catalogs_version() -> None:
    offer = only(row("1H100.80S.32V", "FIN-01", 2.19, "H100", 80.0, disk_size=100.0))
    assert (offer.kind, offer.provider, offer.terms.seller) == (OfferKind.LISTED, "gpuhunt", "verda")
    assert (offer.gpu, offer.gpu_count, offer.gpu_memory_gib) == ("H100 SXM", 1, 80.0)
    assert (offer.quoted_usd_hour, offer.quoted_disk_gb, offer.disk_usd_gb_month) == (2.19, 100.0, None)
    assert (offer.region, offer.terms.instance_type, offer.spot) == ("FIN-01", "1H100.80S.32V", False)
    assert "20261121-7" in (offer.terms.note or "")
    assert "age" in (offer.terms.note or "")
    assert offer.observed_at == datetime(2026, 11, 21, 12, tzinfo=UTC)


def test_a_catalog_that_was_collected_days_ago_is_history() -> None:
    assert only(row("a", "b", 2.0, "L40S", 48.0), version="20261118-1").kind is OfferKind.LISTED
    assert only(row("a", "b", 2.0, "L40S", 48.0), version="20261116-1").kind is OfferKind.HISTORY
    assert only(row("a", "b", 2.0, "L40S", 48.0), version="19991399").kind is OfferKind.LISTED


def test_a_socket_that_the_catalog_drops_is_taken_from_what_the_cloud_sells_or_stays_open() -> None:
    cases: list[Any] = [
        ("nebius", "gpu-h100-sxm 8gpu-128vcpu-1600gb", "H100", 80.0, "H100 SXM"),
        ("oci", "BM.GPU.H100.8", "H100", 80.0, "H100 SXM"),
        ("aws", "p4d.24xlarge", "A100", 40.0, "A100 SXM 40GB"),
        ("verda", "1A100.40S.22V", "A100", 40.0, "A100 SXM 40GB"),
        ("azure", "Standard_NC24ads_A100_v4", "A100", 80.0, "A100 PCIe 80GB"),
        ("azure", "Standard_ND96isr_H100_v5", "H100", 80.0, "H100 SXM"),
        ("cloudrift", "h100.1", "H100", 80.0, "H100"),
        ("cloudrift", "h100.pcie.1", "H100", 80.0, "H100 PCIe"),
        ("verda", "1H100-PCIe", "H100", 80.0, "H100 PCIe"),
        ("runpod", "x", "A100", 80.0, "A100 80GB"),
        ("cloudrift", "x", "H100NVL", 94.0, "H100 NVL"),
        ("verda", "x", "RTXPRO6000", 96.0, "RTX PRO 6000"),
    ]
    for seller, instance, wire, memory, name in cases:
        with case((seller, instance, wire, memory, name)):
            assert resolve_gpu(seller, instance, wire, memory).name == name


def test_an_open_socket_is_reported_with_its_candidates() -> None:
    offer = only(row("h100.1", "nc", 1.99, "H100", 80.0), seller="cloudrift")
    assert (offer.gpu, offer.gpu_family) == ("H100", "H100")
    assert (offer.terms.note or "").startswith("it may be H100 SXM or H100 PCIe; ")


def test_a_figure_that_is_known_to_be_wrong_is_put_right() -> None:
    offer = only(row("mi325x", "x", 3.0, "MI325X", 288.0, gpu_vendor="amd"))
    assert (offer.gpu, offer.gpu_memory_gib) == ("MI325X", 256.0)


def test_a_part_of_a_gpu_is_reported() -> None:
    offer = only(row("g6f.xlarge", "us-east-1", 0.24, "L4", 3.0), seller="aws")
    assert offer.terms.gpu_fraction == 1 / 8


def test_an_arm_machine_is_reported() -> None:
    offer = only(row("gh200", "x", 2.0, "GH200", 96.0, cpu_arch="arm"))
    assert (offer.cpu_arch, offer.gpu) == ("arm64", "GH200 96GB")


def test_a_bad_row_is_skipped_with_its_reason_and_the_others_stay() -> None:
    cases: list[Any] = [
        ({"price": "nan"}, "price: none that anybody would ask"),
        ({"price": "-2"}, "price: none that anybody would ask"),
        ({"price": "0"}, "price: none that anybody would ask"),
        ({"price": "inf"}, "price: none that anybody would ask"),
        ({"price": "99999"}, "price: none that anybody would ask"),
        ({"price": "two"}, "a row that gpuhunt cannot read"),
        ({"gpu_count": "-1"}, "gpu_count: out of range"),
        ({"gpu_count": "many"}, "a row that gpuhunt cannot read"),
        ({"gpu_name": ""}, "a name is missing"),
        ({"location": ""}, "a row that gpuhunt cannot read"),
        ({"gpu_name": "tpu-v5", "gpu_vendor": "google"}, "an accelerator that is no GPU"),
        ({"spot": "perhaps"}, "a row that gpuhunt cannot read"),
    ]
    for changes, reason in cases:
        with case((changes, reason)):
            good, bad = row("good", "x", 2.0, "L40S", 48.0), row("bad", "x", 2.0, "L40S", 48.0)
            answer = found({"verda": [bad | changes, good]}, sellers=("verda",))
            assert [offer.terms.instance_type for offer in answer.offers] == ["good"]
            assert answer.skipped == {reason: 1}


def test_a_machine_without_a_gpu_is_no_offer_and_no_fault() -> None:
    answer = found({"verda": [row("cpu", "x", 0.1, "", "", gpu_count=0, gpu_vendor=""), row("a", "x", 1, "L4", 24)]})
    assert [offer.gpu for offer in answer.offers] == ["L4"]
    assert not any("row" in reason or "count" in reason for reason in answer.skipped)


def test_clouds_that_gpuwatch_asks_itself_are_left_out_unless_they_are_named() -> None:
    rows = market() | {"lambdalabs": [row("gpu_1x_a10", "us-east-1", 1.29, "A10", 24.0)]}
    assert "lambda" not in {offer.terms.seller for offer in found(rows).offers}
    answer = found(rows, sellers=("lambdalabs",))
    assert [(offer.terms.seller, offer.gpu) for offer in answer.offers] == [("lambda", "A10")]


def test_a_cloud_without_a_catalog_makes_the_answer_a_part() -> None:
    rows = market()
    del rows["oci"]
    answer = found(rows)
    assert answer.completeness is Completeness.PARTIAL
    assert {offer.terms.seller for offer in answer.offers} == {"verda", "nebius", "cloudrift"}
    assert answer.skipped["oci: not understood"] == 1


def test_an_empty_catalog_is_no_data_and_never_a_market_without_offers() -> None:
    with pytest.raises(PayloadChanged, match="lists no GPU"):
        found({"verda": []}, sellers=("verda",))


def test_a_version_that_has_not_changed_is_not_fetched_again() -> None:
    place = GpuhuntCatalogs()
    with asked(place, sellers=("verda",)) as asking:
        asking.search(Query())
        asking.search(Query(spot=True))
        assert (place.count("version"), place.count("catalog.zip")) == (1, 1)
        asking._results._entries.clear()
        asking.search(Query())
        assert (place.count("version"), place.count("catalog.zip")) == (2, 1)
        place.versions["verda"] = "20261121-8"
        asking._results._entries.clear()
        assert "20261121-8" in asking.search(Query()).offers[0].terms.note
        assert place.count("catalog.zip") == 2


def test_a_catalog_with_far_fewer_rows_than_before_is_a_part() -> None:
    place = GpuhuntCatalogs({"verda": [row(f"m{n}", "x", 2.0, "L40S", 48.0) for n in range(10)]})
    with asked(place, sellers=("verda",)) as asking:
        assert asking.search(Query()).completeness is Completeness.COMPLETE
        place.rows["verda"] = place.rows["verda"][:3]
        place.versions["verda"] = "20261121-8"
        asking._results._entries.clear()
        assert asking.search(Query()).completeness is Completeness.PARTIAL


def test_an_archive_that_is_none_is_refused() -> None:
    cases: list[Any] = [b"", b"PK\x03\x04 no", b"\x00" * 100, archive("aws", [])]
    for packed in cases:
        with case(packed), pytest.raises(PayloadChanged):
            unpack_csv(packed, "verda")


def test_a_catalog_that_swells_is_not_unpacked_whole() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("verda.csv", b"\0" * 2**20)
    assert len(packed.getvalue()) < 2**12
    assert len(unpack_csv(packed.getvalue(), "verda", 2**20)) == 2**20
    with pytest.raises(PayloadChanged, match="too large"):
        unpack_csv(packed.getvalue(), "verda", 2**19)


def _table(cell: str) -> bytes:
    table = io.StringIO(newline="")
    writer = csv.DictWriter(table, COLUMNS)
    writer.writeheader()
    writer.writerow(row("a", "b", 1.0, "L4", 24.0, provider_data=cell))
    return table.getvalue().encode()


@pytest.mark.parametrize("cell", ["[" * 100_000, "x" * 200_000], ids=["nested", "long"])
def test_a_table_that_breaks_the_library_is_refused_in_one_line(cell: str) -> None:
    with pytest.raises(PayloadChanged, match=r"^gpuhunt: the catalog of verda cannot be read: \w+$"):
        read_items(_table(cell), "verda")


@pytest.mark.parametrize("cell", ["\0", "{"])
def test_a_cell_that_is_none_costs_its_row(cell: str) -> None:
    assert read_items(_table(cell), "verda") == []


def test_reading_a_catalog_leaves_the_environment_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUHUNT_CATALOG_DIR", "/mine")
    read_items(unpack_csv(archive("verda", market()["verda"]), "verda"), "verda")
    assert os.environ["GPUHUNT_CATALOG_DIR"] == "/mine"
    monkeypatch.delenv("GPUHUNT_CATALOG_DIR")
    read_items(unpack_csv(archive("verda", market()["verda"]), "verda"), "verda")
    assert "GPUHUNT_CATALOG_DIR" not in os.environ


def test_without_the_library_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.partition(".")[0] == "gpuhunt":
            raise ImportError(name)
        return real(name, *rest, **named)

    place = GpuhuntCatalogs()
    with asked(place) as asking:
        monkeypatch.setattr(builtins, "__import__", without)
        with pytest.raises(ProviderDown, match=re.escape(install_hint("gpuhunt"))):
            asking.search(Query())
    assert place.requests == []


def test_the_sellers_are_those_whose_catalogs_the_library_publishes() -> None:
    from gpuhunt._internal.catalog import CATALOG_URL, OFFLINE_PROVIDERS

    assert set(SELLERS) == set(OFFLINE_PROVIDERS)
    assert INFO.base_url == CATALOG_URL
