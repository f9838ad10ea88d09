"""Short marks for the special properties of an offer."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from gpuwatch.domain.market.offer import OfferKind, OfferTerms, arch_of, marks, slice_text
from tests.builders import an_offer


def test_a_plain_live_offer_has_no_mark() -> None:
    assert marks(an_offer()) == ()
    assert marks(an_offer(spot=True, cpu_arch="amd64", terms=OfferTerms(seller="vastai", min_billing_s=60.0))) == ()


@pytest.mark.parametrize(
    ("fields", "reported"),
    [
        ({"kind": OfferKind.LISTED}, "listed"),
        ({"kind": OfferKind.HISTORY}, "history"),
        ({"cpu_arch": "aarch64"}, "arm64"),
        ({"gpu_family": "GH200"}, "arm64"),
        ({"terms": OfferTerms(seller="lambda")}, "via lambda"),
        ({"terms": OfferTerms(gpu_fraction=1 / 7)}, "slice 1/7"),
        (
            {"terms": OfferTerms(currency="EUR", usd_rate=1.16, usd_rate_on=date(2026, 11, 20))},
            "EUR at 1.16 of 2026-11-20",
        ),
        ({"terms": OfferTerms(currency="EUR")}, "EUR"),
        ({"terms": OfferTerms(prepaid=True)}, "prepaid"),
        ({"terms": OfferTerms(multi_node=True)}, "multi-node"),
        ({"terms": OfferTerms(tax_included=True)}, "tax included"),
    ],
)
def test_what_is_rare_is_marked(fields: dict[str, Any], reported: str) -> None:
    assert marks(an_offer(**fields)) == (reported,)


def test_several_marks_stand_in_a_fixed_order() -> None:
    terms = OfferTerms(seller="oracle", gpu_fraction=0.5, prepaid=True, tax_included=False)
    assert marks(an_offer(kind=OfferKind.LISTED, terms=terms)) == ("listed", "slice 1/2", "via oracle", "prepaid")


@pytest.mark.parametrize(("fraction", "text"), [(1 / 7, "1/7"), (0.25, "1/4"), (3 / 8, "3/8"), (0.001, "0.001")])
def test_a_fraction_is_reported_as_people_write_it(fraction: float, text: str) -> None:
    assert slice_text(fraction) == text


@pytest.mark.parametrize(("reported", "arch"), [("AMD64", "x86_64"), ("arm64", "arm64"), ("riscv", None), (None, None)])
def test_an_architecture_has_one_name(reported: str | None, arch: str | None) -> None:
    assert arch_of(an_offer(cpu_arch=reported)) == arch
