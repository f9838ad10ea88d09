"""Names for kinds of price in the history: live prices under the provider's name, other kinds under their own names.

A list price at which nobody could rent must not lower a minimum or a median. So it has a name of its own,
"azure:listed", with its own polls; series of all providers contain live prices only. Imported prices are separate, too
("vastai:history", "gcp:listed-history"): other people's polls must not end our offers, or vice versa.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from msgspec.structs import replace

from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.ports import Answer

_SEPARATOR = ":"  # not in any provider's name
_OTHERS = (OfferKind.LISTED, OfferKind.HISTORY)
_IMPORTED = {OfferKind.LIVE: "history", OfferKind.HISTORY: "history", OfferKind.LISTED: "listed-history"}


def source_name(provider: str, kind: OfferKind) -> str:
    """Return the name under which a provider's prices of a kind are stored."""
    return provider if kind is OfferKind.LIVE else f"{provider}{_SEPARATOR}{kind.value}"


@cache  # there are few names, and a year of prices asks for them a million times
def provider_of_source(name: str) -> str:
    """Return the provider of a name in the history."""
    return name.partition(_SEPARATOR)[0]


def imported_source_name(provider: str, kind: OfferKind) -> str:
    """Return the name under which a provider's imported prices of a kind are stored."""
    return f"{provider}{_SEPARATOR}{_IMPORTED[kind]}"


@cache
def kind_of_source(name: str) -> OfferKind:
    """Return the kind of the prices under a name."""
    return OfferKind.LISTED if name.partition(_SEPARATOR)[2].startswith("listed") else OfferKind.LIVE


def is_imported_source(name: str) -> bool:
    """Whether these prices were imported."""
    return name.partition(_SEPARATOR)[2] in _IMPORTED.values()


def matches_source(name: str, selected: str | None) -> bool:
    """Whether a name in the history is selected. Imported prices belong to their kind.

    Args:
        selected: None: all live prices, including former ones; "vastai": its live prices; "gcp:listed": its list
            prices; a name in the history: only that one.
    """
    if selected is None:
        return kind_of_source(name) is OfferKind.LIVE
    provider, _, kind = selected.partition(_SEPARATOR)
    if kind in ("", "listed"):
        return provider_of_source(name) == provider and kind_of_source(name) is (
            OfferKind.LISTED if kind else OfferKind.LIVE
        )
    return name == selected


def split_by_source(answer: Answer, has_open_prices: Callable[[str], bool]) -> list[Answer]:
    """Split an answer by kind of price; the first part has the live prices, and counts the rows.

    Args:
        has_open_prices: whether prices under this name are on offer, which may have ended.
    """
    live = OfferKind.LIVE
    not_live = [offer for offer in answer.offers if offer.kind is not live]  # rare
    parts = [answer]
    if not_live:
        parts = [replace(answer, offers=[offer for offer in answer.offers if offer.kind is OfferKind.LIVE])]
    for kind in _OTHERS:
        name = source_name(answer.provider, kind)
        own = [replace(offer, provider=name) for offer in not_live if offer.kind is kind]
        if own or has_open_prices(name):
            parts.append(replace(answer, provider=name, offers=own, rows=0, skipped={}))
    return parts
