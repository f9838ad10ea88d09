"""The filters of the market: what was asked for, in words, and which offers that selects."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import msgspec

from gpuwatch import providers
from gpuwatch.app.watches.nearest import provider_title
from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.money import threshold_microusd
from gpuwatch.domain.market.offer import clean
from gpuwatch.domain.market.places import wanted_place
from gpuwatch.engine.market.browse import SORTS
from gpuwatch.language import translate as _
from gpuwatch.language import translate_plural

if TYPE_CHECKING:
    from gpuwatch.domain.watches.decide import Match
    from gpuwatch.web.page import View

SPOTS: Mapping[str, bool | None] = {"no": False, "only": True, "any": None}
GROUPINGS = ("", "provider", "region")
_COUNT = re.compile(r"(\d{1,4})(?:\s*[-–]\s*(\d{1,4}))?")
_FILTERS = ("gpu", "provider", "count", "max_price", "region", "spot", "verified")
_CHOICES: Mapping[str, tuple[Collection[str], str]] = {
    "provider": (providers.names(), ""),
    "spot": (SPOTS, "no"),
    "verified": (("yes",), ""),
    "view": (("gpu", "offers"), ""),
    "sort": (SORTS, ""),
    "group": (GROUPINGS, ""),
    "all": (("yes",), ""),
}
_Test = Callable[["Match"], bool]


class MarketFilters(msgspec.Struct, frozen=True):
    """What the address asks for: filters, and how the offers are shown."""

    asked: Mapping[str, str]

    @classmethod
    def of(cls, view: View) -> MarketFilters:
        """The filters of an address. Raises UsageError: a value that no link or form has."""
        asked = {name: view.query.get(name, "").strip()[:60] for name in _FILTERS}
        asked |= {name: view.choice(name, choices, default) for name, (choices, default) in _CHOICES.items()}
        asked["page"] = view.query.get("page", "").strip()
        if asked["sort"] or asked["group"] or asked["page"]:
            asked["view"] = "offers"
        return cls({name: text for name, text in asked.items() if text})

    def get(self, name: str) -> str:
        """A value; "": not asked for."""
        return self.asked.get(name, "")

    @property
    def spot(self) -> bool | None:
        """The rental type; None: both."""
        return SPOTS[self.get("spot")]

    @property
    def is_by_gpu(self) -> bool:
        """Whether each GPU is a row."""
        return self.get("view") != "offers"

    @property
    def page(self) -> int:
        """The page of the list of all offers."""
        text = self.get("page")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 1

    def link(self, **changes: str | int | None) -> str:
        """The address with some values changed; None removes one. Other offers begin at the first page."""
        values: dict[str, Any] = {**self.asked, **({} if "page" in changes else {"page": None}), **changes}
        shown = {name: text for name, text in values.items() if text and (name, text) != ("spot", "no")}
        return f"/market?{urlencode(shown)}" if shown else "/market"

    @property
    def set_names(self) -> tuple[str, ...]:
        """The filters that are set, in the order of the chips."""
        return tuple(name for name in _FILTERS if self.get(name) and (name, self.get(name)) != ("spot", "any"))

    def word(self, name: str) -> str:
        """What a set filter says: "On demand", "vast.ai", "at most $2.00"."""
        text = clean(self.get(name))
        if name == "provider":
            return provider_title(text)
        if name == "count":
            return translate_plural("{count} GPU", "{count} GPUs", 1 if text == "1" else 2).format(count=text)
        if name == "max_price":
            return _("at most ${price}").format(price=text)
        if name == "spot":
            return {"no": _("On demand"), "only": _("Spot")}[text]
        return _("verified") if name == "verified" else text

    def without(self, name: str) -> str:
        """The address without a filter."""
        return self.link(**{name: "any" if name == "spot" else None})

    def problems(self) -> dict[str, str]:
        """Filter → why it cannot be understood."""
        found = {}
        if (gpu := self.get("gpu")) and not _gpu_names(gpu):
            near = catalog().suggest(gpu)
            found["gpu"] = _("No GPU has this name.") + (
                " " + _("Did you mean {names}?").format(names=", ".join(near)) if near else ""
            )
        if self.get("count") and _counts(self.get("count")) is None:
            found["count"] = _("Enter a number of GPUs, or a range such as 1-8.")
        if self.get("max_price") and _price(self.get("max_price")) is None:
            found["max_price"] = _("Enter dollars per GPU-hour, such as 2.50.")
        return found

    def tests(self) -> dict[str, _Test]:
        """Filter → whether it lets an offer pass; what cannot be understood lets none."""
        every = {name: self._test(name) for name in _FILTERS}
        return {name: test for name, test in every.items() if test is not None}

    def _test(self, name: str) -> _Test | None:
        text = self.get(name)
        if not text:
            return None
        if name == "gpu":
            names = _gpu_names(text)
            return lambda match: match.offer.gpu in names
        if name == "provider":
            return lambda match: match.offer.provider == text
        if name == "count":
            low, high = _counts(text) or (1, 0)
            return lambda match: low <= match.offer.gpu_count <= high
        if name == "max_price":
            most = _price(text) or Decimal(0)
            return lambda match: match.price.price_microusd_hour <= threshold_microusd(most, match.offer.gpu_count)
        if name == "region":
            place = wanted_place(text)
            return lambda match: place.holds(match.offer.region, match.offer.country)
        if name == "verified":
            return lambda match: match.offer.verified is True
        return None if self.spot is None else lambda match: match.offer.spot is self.spot

    def selected(self, found: Iterable[Match]) -> list[Match]:
        """The offers that pass every filter."""
        tests = list(self.tests().values())
        return [match for match in found if all(test(match) for test in tests)]

    def best_to_drop(self, found: Sequence[Match]) -> tuple[str, int] | None:
        """Without which filter most offers would pass, and how many; None: none of them alone would help.

        The GPU is what a person came for: without it only if nothing else helps.
        """
        tests = self.tests()
        counts = {
            dropped: sum(all(test(match) for name, test in tests.items() if name != dropped) for match in found)
            for dropped in tests
        }
        best = max(counts, key=lambda name: (counts[name] > 0, name != "gpu", counts[name]), default="")
        return (best, counts[best]) if counts.get(best) else None


def _gpu_names(text: str) -> tuple[str, ...]:
    return catalog().wanted(text) or catalog().unlisted(text)


def _counts(text: str) -> tuple[int, int] | None:
    found = _COUNT.fullmatch(text)
    low, high = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    return (low, high) if 1 <= low <= high else None


def _price(text: str) -> Decimal | None:
    try:
        price = Decimal(text.removeprefix("$").replace(",", "."))
    except InvalidOperation:
        return None
    return price if price.is_finite() and price > 0 else None
