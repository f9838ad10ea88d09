"""Links of an offer: between the GPUs of a machine, and between machines. Pure.

The rates between machines are in `machine-networks.csv`, by the clouds' names of machine types, each with its source.
"""

from __future__ import annotations

import os
from csv import DictReader
from functools import cache
from typing import Final

from gpuwatch.domain.market.gpu_cards import gpu_specs
from gpuwatch.domain.market.offer import Offer

_NAMES: Final = {
    "nvlink": "NVLink",
    "sxm": "NVLink",
    "pcie": "PCIe",
    "infinity": "Infinity Fabric",
    "xgmi": "Infinity Fabric",
}


def gpu_link(offer: Offer) -> str | None:
    """Return the link between the GPUs: "NVLink", "PCIe", or as the provider names another one.

    What the provider does not state follows from the card if it has no other link. None: one GPU, or unknown.
    """
    if offer.link is not None:
        return link_name(offer.link)
    specs = gpu_specs().get(offer.gpu)
    return "PCIe" if offer.gpu_count > 1 and specs is not None and specs.has_no_link else None


def link_name(spelling: str) -> str:
    """Return the one name of a link: "NVLink" for "SXM5" and "nvlink4"; another link keeps its spelling."""
    plain = spelling.casefold()
    return next((name for start, name in _NAMES.items() if plain.startswith(start)), spelling)


def network_gbps(offer: Offer) -> float | None:
    """Return the rate between machines of this kind, Gbit/s for each machine, as the provider or its cloud states it.

    None: unknown, as for all marketplaces, whose machines have no such network.
    """
    if offer.terms.network_gbps is not None:
        return offer.terms.network_gbps
    known = None if offer.terms.instance_type is None else machine_network(offer.terms.instance_type)
    return None if known is None else known[0]


def machine_network(instance_type: str) -> tuple[float, str] | None:
    """Return the rate of a cloud's machine type to others, Gbit/s, and who states it; None: unknown."""
    return _networks().get(instance_type.casefold())


@cache
def _networks() -> dict[str, tuple[float, str]]:
    path = os.path.join(os.path.dirname(__file__), "machine-networks.csv")
    lines = __spec__.loader.get_data(path).decode().splitlines()  # type: ignore[union-attr]
    return {row["instance_type"].casefold(): (float(row["gbps"]), row["source"]) for row in DictReader(lines)}
