"""The links of an offer: between its GPUs, and between machines."""

from __future__ import annotations

import pytest

from gpuwatch.domain.market.gpu_cards import gpu_specs
from gpuwatch.domain.market.links import gpu_link, network_gbps
from gpuwatch.domain.market.offer import OfferTerms
from tests.builders import an_offer


@pytest.mark.parametrize(
    ("gpu", "count", "stated", "link"),
    [
        ("H100 SXM", 8, "SXM5", "NVLink"),
        ("H100 PCIe", 2, "pcie", "PCIe"),
        ("MI300X", 8, "Infinity Fabric", "Infinity Fabric"),
        ("RTX 4090", 2, None, "PCIe"),  # it has no other link
        ("RTX 4090", 1, None, None),
        ("RTX 3090", 2, None, None),  # a bridge may join them
        ("H100 SXM", 8, None, None),
        ("unheard of", 2, None, None),
    ],
)
def test_the_link_is_as_stated_or_the_only_one_of_the_card(
    gpu: str, count: int, stated: str | None, link: str | None
) -> None:
    assert gpu_link(an_offer(gpu=gpu, gpu_count=count, terms=OfferTerms(interconnect=stated))) == link


def test_the_network_is_as_stated_or_that_of_the_machine_type() -> None:
    assert network_gbps(an_offer(terms=OfferTerms(instance_type="p5.48xlarge"))) == 3200
    assert network_gbps(an_offer(terms=OfferTerms(instance_type="bm.gpu4.8"))) == 1600
    assert network_gbps(an_offer(terms=OfferTerms(instance_type="p5.48xlarge", network_gbps=400.0))) == 400
    assert network_gbps(an_offer()) is None


def test_every_figure_of_the_catalogue_has_a_source() -> None:
    from gpuwatch.domain.market.card_sources import card_sources

    for name, specs in gpu_specs().items():
        sources = card_sources()[name]
        figures = {
            sources.sheet: (specs.fp16_tflops, specs.fp8_tflops, specs.bandwidth_gb_s, specs.power_w, specs.link_gb_s),
            sources.chip: (specs.cuda_cores, specs.boost_mhz),
            sources.ecc: (specs.ecc,),
            sources.line: (specs.datacenter_card,),
        }
        for source, values in figures.items():
            assert source or all(value is None for value in values), name
