"""The location of an offer, and the meaning of an owner's place: a country, a group of countries, or words of a region.

countries.csv: ISO 3166-1 as tzdata's iso3166.tab has it, read 2026-11. Groups: EU, the 27 member states; EEA, the EU
with Iceland, Liechtenstein and Norway (efta.int); NA, Canada, Mexico and the United States; APAC, the M49 regions of
Eastern, South-eastern and Southern Asia (without Afghanistan and Iran) and Oceania (unstats.un.org).
places.csv: places as providers name them, with their countries: cities of tzdata's zone.tab, states, provinces, cities
with data centers, and the regions of AWS, Azure, Google Cloud, Scaleway and Vultr (32, by airport), read 2026-11.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Collection, Iterator
from functools import cache, lru_cache
from typing import Final

import msgspec

_WORD: Final = re.compile(r"[^_\W]+")
_CODE_LETTERS: Final = 2
# Prefixes of region ids: "eu-de-1", "us-central-2", "europe-west4". There is no complete list.
_ID: Final = r"([a-z]+)(?:-[a-z0-9]+)+"  # compiled only for an unknown text: start-up does not need it
_ID_HEADS: Final = frozenset(
    {"africa", "ap", "apac", "asia", "australia", "emea", "eu", "eur", "europe", "global", "me", "northamerica", "oc"}
    | {"sa", "southamerica"}
)


class WantedPlace(msgspec.Struct, frozen=True):
    """A place as the owner wrote it.

    Attributes:
        countries: the country codes; empty: it names no country.
        words: words to find in a region, as written by `words_of`; empty: the country alone decides.
        is_ambiguous: there is also a place of that name in another country, such as Georgia.
    """

    countries: frozenset[str] = frozenset()
    words: str = ""
    is_ambiguous: bool = False

    def holds(self, region: str | None, country: str | None) -> bool:
        """Is an offer with this region and country located there?"""
        country = country_of(region, country)
        if country in self.countries:
            return True
        if not self.words or self.words not in words_of(region or ""):
            return False
        return not self.countries or country is None or self.is_ambiguous


class _Gazetteer(msgspec.Struct, frozen=True):
    codes: frozenset[str]
    names: dict[str, str]  # folded name or alias → code
    groups: dict[str, frozenset[str]]  # "EU" → codes
    places: dict[str, tuple[str, ...]]  # folded place → codes
    spelled: dict[str, str]  # folded → as written


@lru_cache(maxsize=1024)
def wanted_place(text: str) -> WantedPlace:
    """The meaning of an owner's text: a group before a code, a code before a name, a name before words of a region."""
    known, written = _gazetteer(), text.strip()
    folded = _folded(written)
    group = known.groups.get(written.upper())
    if group is not None:
        return WantedPlace(group)
    if len(written) == _CODE_LETTERS:
        return WantedPlace(frozenset({known.names.get(folded, written.upper())}))
    code = known.names.get(folded)
    if code is None:
        return WantedPlace(words=words_of(written))
    is_ambiguous = any(other != code for other in known.places.get(folded, ()))
    return WantedPlace(frozenset({code}), words_of(written), is_ambiguous)


@lru_cache(maxsize=4096)
def country_of(region: str | None, country: str | None) -> str | None:
    """The ISO code that an offer states, or that its region implies; None: neither."""
    if country:
        return country.upper()
    known, folded = _gazetteer(), _folded(region or "")
    last = _folded(folded.rpartition(",")[2])
    zone_of = folded[:-2] if folded[-2:-1] == "-" else folded  # "europe-west4-a"
    named = known.names.get(folded) or known.names.get(last) if len(last) > _CODE_LETTERS else None
    found = {*known.places.get(folded, known.places.get(zone_of, ())), *([named] if named else [])}
    return found.pop() if len(found) == 1 else None


def unknown_place(text: str, recorded: Collection[str] = ()) -> str | None:
    """Why a text cannot match any place, in one line with suggestions; None: it can.

    Args:
        recorded: regions seen at providers.
    """
    known, written = _gazetteer(), text.strip()
    folded = _folded(written)
    if written.upper() in known.groups | dict.fromkeys(known.codes) or folded in known.names or folded in known.places:
        return None
    if len(written) > _CODE_LETTERS and any(words_of(written) in words_of(region) for region in recorded):
        return None
    begins = re.fullmatch(_ID, folded)
    if begins and (begins[1] in _ID_HEADS or begins[1].upper() in known.codes or begins[1] in known.names):
        return None
    near = ", ".join(_near(folded))
    hint = f"did you mean {near}?" if near else f"expected a country, one of {', '.join(known.groups)}, or a region"
    return f"no country, group or provider's region is called {written[:60]!r}; {hint}"


@lru_cache(maxsize=4096)
def unknown_country(text: str) -> str | None:
    """Why a text is neither a country nor a group of countries, one line; None: it is one."""
    if (fault := unknown_place(text)) is not None:
        return fault
    is_one = wanted_place(text).countries
    return None if is_one else f"unknown country {text[:60]!r}; expected an ISO code or name, or EU, EEA, NA or APAC"


def words_of(text: str) -> str:
    """The whole words of a place, so that "Oman" is not found in "Romania"."""
    return f" {' '.join(_WORD.findall(text.casefold()))} "


def _near(folded: str) -> Iterator[str]:
    from difflib import get_close_matches  # noqa: PLC0415 only needed for an error

    known = _gazetteer()
    spelled = known.spelled | {name.casefold(): name for name in known.groups}
    for key in get_close_matches(folded, spelled, n=3, cutoff=0.7):
        yield spelled[key]


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())


@cache
def _gazetteer() -> _Gazetteer:
    names: dict[str, str] = {}
    groups: dict[str, set[str]] = {"EU": set(), "EEA": set(), "NA": set(), "APAC": set()}
    places: dict[str, tuple[str, ...]] = {}
    codes, spelled = set(), {}
    for row in _rows("countries.csv"):
        codes.add(row["code"])
        for name in (row["name"], *filter(None, row["also"].split(";"))):
            names[_folded(name)] = row["code"]
            spelled[_folded(name)] = name
        for group in row["groups"].split():
            groups[group].add(row["code"])
    for row in _rows("places.csv"):
        key = _folded(row["place"])
        places[key] = (*places.get(key, ()), row["country"])
        spelled.setdefault(key, row["place"])
    return _Gazetteer(
        frozenset(codes), names, {name: frozenset(mine) for name, mine in groups.items()}, places, spelled
    )


def _rows(name: str) -> Iterator[dict[str, str]]:
    loader = __spec__.loader  # also reads from a zip
    lines = loader.get_data(os.path.join(os.path.dirname(__file__), name)).decode()  # type: ignore[union-attr]
    yield from csv.DictReader(lines.splitlines())
