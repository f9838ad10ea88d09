"""Short marks that distinguish an offer from a plain one, for tables, alerts and watches."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from gpuwatch.domain.market.offer import PLAIN_TERMS, Offer, OfferKind, OfferTerms

X86_64: Final = "x86_64"
ARM64: Final = "arm64"
_ARCHS: Final = {"arm64": ARM64, "aarch64": ARM64, "arm": ARM64, "amd64": X86_64, "x86_64": X86_64, "x64": X86_64}
_WITH_GRACE: Final = frozenset({"GH200", "GB200", "GB300", "GB10"})  # the CPU is part of them, and is Arm
_MOST_PARTS: Final = 64  # of one GPU; no product has more slices


def arch_of(offer: Offer) -> str | None:
    """Return `x86_64` or `arm64` as reported, else as implied by the GPU; None: unknown."""
    reported = (offer.cpu_arch or "").strip().casefold().replace("-", "_")
    return _ARCHS.get(reported) or (ARM64 if offer.gpu_family in _WITH_GRACE else None)


def is_slice(offer: Offer) -> bool:
    """Return whether the offer is a part of a GPU."""
    return offer.terms.gpu_fraction < 1


def slice_text(fraction: float) -> str:
    """Return 1/7 for 0.142857…, or two digits of what is smaller than any such part."""
    near = Fraction(fraction).limit_denominator(_MOST_PARTS)
    return str(near) if near else f"{fraction:.2g}"


def marks(offer: Offer) -> tuple[str, ...]:
    """Return short marks in a fixed order; empty: a whole GPU on x86, live, in dollars, from the provider itself.

    Spot is not a mark, because every screen shows it beside the GPU. Text from `terms` is not escaped.
    """
    found = [] if offer.kind is OfferKind.LIVE else [offer.kind.value]
    if is_slice(offer):
        found.append(f"slice {slice_text(offer.terms.gpu_fraction)}")
    if arch_of(offer) == ARM64:
        found.append(ARM64)
    if offer.terms is not PLAIN_TERMS:
        found += _of_terms(offer.terms, offer.provider)
    return tuple(found)


def _of_terms(terms: OfferTerms, provider: str) -> list[str]:
    found = [f"via {terms.seller}"] if terms.seller and terms.seller != provider else []
    if terms.currency != "USD":
        found.append(_currency(terms))
    switches = (terms.prepaid, "prepaid"), (terms.multi_node, "multi-node"), (terms.tax_included, "tax included")
    found += [word for is_so, word in switches if is_so]
    return found if terms.placement_score is None else [*found, f"placement score {terms.placement_score}/10"]


def _currency(terms: OfferTerms) -> str:
    if terms.usd_rate is None:
        return terms.currency
    day = f" of {terms.usd_rate_on}" if terms.usd_rate_on else ""
    return f"{terms.currency} at {terms.usd_rate:g}{day}"
