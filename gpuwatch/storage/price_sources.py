"""Kinds of price lie apart in the history: what is rentable under its provider's name, the rest beside it.

A list price that nobody could rent at must not pull a minimum or a median down. So it is kept under a name of its own,
"azure:listed", with polls of its own; series of all providers contain live prices only. What was imported lies apart,
too ("vastai:history", "gcp:listed-history"): other people's polls must not end what ours saw, or vice versa.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.ports import Answer

_SEPARATOR = ":"  # in no provider's name
_OTHERS = (OfferKind.LISTED, OfferKind.HISTORY)
_IMPORTED = {OfferKind.LIVE: "history", OfferKind.HISTORY: "history", OfferKind.LISTED: "listed-history"}


def source_name(provider: str, kind: OfferKind) -> str:
    """The name under which a provider's prices of a kind are kept."""
    return provider if kind is OfferKind.LIVE else f"{provider}{_SEPARATOR}{kind.value}"


def provider_of_source(name: str) -> str:
    """The provider of a name in the history."""
    return name.partition(_SEPARATOR)[0]


def imported_source_name(provider: str, kind: OfferKind) -> str:
    """The name under which a provider's prices of a kind are kept that were imported."""
    return f"{provider}{_SEPARATOR}{_IMPORTED[kind]}"


def kind_of_source(name: str) -> OfferKind:
    """What the prices under a name were when they were seen."""
    return OfferKind.LISTED if name.partition(_SEPARATOR)[2].startswith("listed") else OfferKind.LIVE


def is_imported_source(name: str) -> bool:
    """Did somebody else see these prices?"""
    return name.partition(_SEPARATOR)[2] in _IMPORTED.values()


def matches_source(name: str, wanted: str | None) -> bool:
    """Is a name in the history meant? Imported prices go with what they are.

    Args:
        wanted: None: whatever is or was live; "vastai": that one's live prices; "gcp:listed": its list prices;
            a name in the history: just that.
    """
    if wanted is None:
        return kind_of_source(name) is OfferKind.LIVE
    provider, _, kind = wanted.partition(_SEPARATOR)
    if kind in ("", "listed"):
        return provider_of_source(name) == provider and kind_of_source(name) is (
            OfferKind.LISTED if kind else OfferKind.LIVE
        )
    return name == wanted


def split_by_source(answer: Answer, has_open_prices: Callable[[str], bool]) -> list[Answer]:
    """One answer for each kind of price; the first holds the live prices, and counts the rows.

    Args:
        has_open_prices: are prices under this name on offer? They may have ended.
    """
    others = [offer for offer in answer.offers if offer.kind is not OfferKind.LIVE]  # seldom any
    parts = [answer]
    if others:
        parts = [replace(answer, offers=[offer for offer in answer.offers if offer.kind is OfferKind.LIVE])]
    for kind in _OTHERS:
        name = source_name(answer.provider, kind)
        mine = [replace(offer, provider=name) for offer in others if offer.kind is kind]
        if mine or has_open_prices(name):
            parts.append(replace(answer, provider=name, offers=mine, rows=0, skipped={}))
    return parts
