"""What sets an offer apart from a plain one, in a word or two each: for tables, alerts and watches."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from gpuwatch.domain.market.offer import (
    PLAIN_TERMS,
    Offer,
    OfferKind,
    OfferTerms,
)

X86_64: Final = "x86_64"
ARM64: Final = "arm64"
_ARCHS: Final = {"arm64": ARM64, "aarch64": ARM64, "arm": ARM64, "amd64": X86_64, "x86_64": X86_64, "x64": X86_64}
_WITH_GRACE: Final = frozenset({"GH200", "GB200", "GB300", "GB10"})  # their processor is a part of them, and is Arm
_MOST_PARTS: Final = 64  # of one GPU: more slices than that nobody cuts


def arch_of(offer: Offer) -> str | None:
    """`x86_64` or `arm64`: as told, else as the GPU implies; None: nobody says, or another word."""
    reported = (offer.cpu_arch or "").strip().casefold().replace("-", "_")
    return _ARCHS.get(reported) or (ARM64 if offer.gpu_family in _WITH_GRACE else None)


def is_slice(offer: Offer) -> bool:
    """Is it a part of a GPU, and not a GPU?"""
    return offer.terms.gpu_fraction < 1


def slice_text(fraction: float) -> str:
    """1/7 for 0.142857…; two digits where it is no such part."""
    near = Fraction(fraction).limit_denominator(_MOST_PARTS)
    return str(near) if abs(float(near) - fraction) < 1e-3 and near else f"{fraction:.2g}"


def marks(offer: Offer) -> tuple[str, ...]:
    """Short marks in a fixed order; empty: a whole GPU on x86, live, in dollars, of the provider itself.

    Whether it is spot is no mark: every face of gpuwatch shows that beside the GPU. Text of `terms` is not escaped.
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
    return found + [word for is_so, word in switches if is_so]


def _currency(terms: OfferTerms) -> str:
    if terms.usd_rate is None:
        return terms.currency
    day = f" of {terms.usd_rate_on}" if terms.usd_rate_on else ""
    return f"{terms.currency} at {terms.usd_rate:g}{day}"
