"""The link between an offer's GPUs."""

from __future__ import annotations

import pytest

from gpuwatch.app.market.offers import match_view
from gpuwatch.domain.market.offer import OfferTerms
from tests.builders import a_match, an_offer


@pytest.mark.parametrize(
    ("measured_gbps", "named", "nvlink", "shown"),
    [
        (450.0, None, True, "NVLink"),
        (None, "NVLink", True, "NVLink"),
        (None, "SXM5", True, "SXM5"),
        (None, "PCIe", False, "PCIe"),
        (None, None, None, None),
    ],
)
def test_nvlink_is_measured_or_named(
    measured_gbps: float | None, named: str | None, nvlink: bool | None, shown: str | None
) -> None:
    offer = an_offer(nvlink_gbps=measured_gbps, terms=OfferTerms(interconnect=named))
    assert offer.nvlink is nvlink
    assert match_view(a_match(offer)).terms.interconnect == shown
