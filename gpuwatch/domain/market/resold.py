"""Resold stock: the same GPUs, offered by their owner and by resellers, are shown only once. Pure.

An aggregator states the owner of the hardware (`terms.seller`). If that seller offers the same number of the same GPU,
of the same rental type, in the same place, at the same listed price, it is the same stock. This affects only the
display, never what may be rented.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from gpuwatch.domain.market.money import OfferPrice
from gpuwatch.domain.market.offer import Offer, OfferKind

SAME_PRICE: Final = 0.01  # how far listed prices may differ: aggregators round to cents, or lag behind
_ALIASES: Final = {  # other spellings of sellers, folded → the provider's name
    "lambdalabs": "lambda",
    "lambdacloud": "lambda",
    "amazon": "aws",
    "amazonec2": "aws",
    "amazonwebservices": "aws",
    "microsoftazure": "azure",
    "google": "gcp",
    "googlecloud": "gcp",
    "googlecloudplatform": "gcp",
    "oci": "oracle",
    "oraclecloud": "oracle",
    "vast": "vastai",
    "runpodio": "runpod",
    "crusoecloud": "crusoe",
    "datacrunch": "verda",  # source: the company was renamed in 2025
}
_WORD: Final = re.compile(r"[a-z]+|[0-9]+")
_NO_PLACE: Final = frozenset({"", "any", "global", "worldwide", "unknown"})
# continents and parts of them, as aggregators state them; they do not identify a place
_WIDE: Final = frozenset({
    "africa", "asia", "asia south", "asia northeast", "asia southeast", "australia", "canada", "europe", "eu",
    "eu east", "eu north", "eu west", "eu south", "middle east", "south america", "north america", "united states",
    "us", "usa",
})  # fmt: skip

_Key = tuple[str, str, int, bool, OfferKind, float]


class PricedOffer(Protocol):
    """An offer with what it costs."""

    @property
    def offer(self) -> Offer:
        """The offer itself."""

    @property
    def price(self) -> OfferPrice:
        """Its effective price."""


P = TypeVar("P", bound=PricedOffer)


class FoldedOffer(msgspec.Struct, Generic[P]):
    """One offer, and the providers that show the same stock."""

    primary: P
    also: tuple[str, ...] = ()

    @property
    def also_text(self) -> str:
        """Return "also via shadeform", "also at lambda", or an empty text if there is no other provider."""
        owner = seller_of(self.primary.offer)
        via = [name for name in self.also if known_as(name) != owner]
        at = [name for name in self.also if known_as(name) == owner]
        parts = [f"also {word} {', '.join(names)}" for word, names in (("at", at), ("via", via)) if names]
        return ", ".join(parts)


def fold_resold(found: Sequence[P], *, keep_first: bool = False) -> list[FoldedOffer[P]]:
    """Return each stock once, in the given order: as offered by its owner, else by the first reseller.

    Args:
        keep_first: keep the first offer of a stock, whoever offers it, and fold the others into it.
    """
    kept: dict[int, FoldedOffer[P]] = {}  # position → the offer shown there
    at: dict[_Key, dict[str, list[int]]] = {}  # positions by provider: two offers of one provider are two stocks
    direct = [n for n, priced in enumerate(found) if not _is_resold(priced.offer)]
    resold = [n for n, priced in enumerate(found) if _is_resold(priced.offer)]
    order = [*direct, *resold]
    if keep_first and found:
        order = [0, *(n for n in order if n != 0)]
    for n in order:
        one = found[n]
        provider, by_provider = one.offer.provider, at.setdefault(_key(one.offer), {})
        others = (m for name, positions in by_provider.items() if name != provider for m in positions)
        same = next((m for m in others if _is_same(kept[m].primary, one)), None)
        if same is None:
            kept[n] = FoldedOffer(primary=one)
            by_provider.setdefault(provider, []).append(n)
        elif provider not in kept[same].also:
            kept[same].also = (*kept[same].also, provider)
    return [kept[n] for n in sorted(kept)]


@lru_cache(maxsize=1024)
def known_as(name: str) -> str:
    """Return one name for a seller or provider, independent of spelling: "Lambda Labs" and "lambda" are the same."""
    plain = "".join(_WORD.findall(name.casefold()))
    return _ALIASES.get(plain, plain)


def seller_of(offer: Offer) -> str:
    """Return the owner of the hardware."""
    return known_as(offer.terms.seller or offer.provider)


def _is_resold(offer: Offer) -> bool:
    return seller_of(offer) != known_as(offer.provider)


def _key(offer: Offer) -> _Key:
    return (seller_of(offer), offer.gpu, offer.gpu_count, offer.spot, offer.kind, round(offer.terms.gpu_fraction, 3))


def _is_same(primary: PricedOffer, other: PricedOffer) -> bool:
    """Whether two offers with the same key, of different providers, are the same stock."""
    a, b = primary.price.listed_microusd_hour, other.price.listed_microusd_hour
    return abs(a - b) <= SAME_PRICE * max(a, b) and _same_place(primary.offer, other.offer)


def _same_place(one: Offer, other: Offer) -> bool:
    """Compare the stated parts only; "us-east-1" equals "US East 1 (Virginia)", but not "us-east-2"."""
    if one.country and other.country and one.country.casefold() != other.country.casefold():
        return False
    mine, theirs = _place(one.region or ""), _place(other.region or "")
    return not mine or not theirs or mine <= theirs or theirs <= mine


@lru_cache(maxsize=4096)
def _place(region: str) -> frozenset[str]:
    """The words of a region; empty: none."""
    words = _WORD.findall(region.casefold())
    if " ".join(words) in _NO_PLACE | _WIDE:
        return frozenset()
    return frozenset(words)
