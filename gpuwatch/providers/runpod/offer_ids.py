"""RunPod's offer ids: a GPU type, a cloud, a GPU count, and perhaps a data centre. Pure."""

from __future__ import annotations

import re
from typing import Final

import msgspec

SECURE: Final = "SECURE"
COMMUNITY: Final = "COMMUNITY"
ANYWHERE: Final = "*"
_MAX_LENGTH: Final = 64  # characters of an id in the store
_VENDOR: Final = "NVIDIA "
_SHORT_VENDOR: Final = "~"  # replaces the maker if the whole id is too long
_PLACE: Final = re.compile(r"[A-Z0-9][A-Z0-9-]{0,30}")
_GPU: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+()-]{0,79}")
_CLOUDS: Final = {SECURE: SECURE, COMMUNITY: COMMUNITY, "S": SECURE, "C": COMMUNITY}
_COUNT: Final = re.compile(r"[1-9][0-9]{0,2}")

# Known data centres; the list grows, and ids do not follow a rule ("EU-SE-1" is Sweden, "SEA-SG-1" is not).
# source: SkyPilot 0.14.1's catalogue, read 2026-11.
_COUNTRY: Final[dict[str, tuple[str, ...]]] = {
    "AU": ("OC-AU-1",),
    "CA": ("CA-MTL-1", "CA-MTL-2", "CA-MTL-3", "CA-MTL-4"),
    "CZ": ("EU-CZ-1",),
    "DK": ("EU-DK-1",),
    "FR": ("EU-FR-1",),
    "IN": ("AP-IN-1", "AP-IN-2"),
    "IS": ("EUR-IS-1", "EUR-IS-2", "EUR-IS-3", "EUR-IS-4", "EUR-IS-5"),
    "JP": ("AP-JP-1",),
    "NL": ("EU-NL-1",),
    "NO": ("EUR-NO-1", "EUR-NO-2"),
    "RO": ("EU-RO-1",),
    "SE": ("EU-SE-1", "EU-SE-2"),
    "SG": ("SEA-SG-1",),
    "US": (
        "US-CA-1", "US-CA-2", "US-CO-1", "US-DE-1", "US-GA-1", "US-GA-2", "US-IL-1", "US-KS-1", "US-KS-2", "US-KS-3",
        "US-MD-1", "US-MO-1", "US-MO-2", "US-NC-1", "US-NC-2", "US-NE-1", "US-OR-1", "US-OR-2", "US-PA-1", "US-TX-1",
        "US-TX-2", "US-TX-3", "US-TX-4", "US-TX-5", "US-TX-6", "US-WA-1",
    ),
}  # fmt: skip
_COUNTRY_OF: Final = {place: country for country, places in _COUNTRY.items() for place in places}


class PodPlacement(msgspec.Struct, frozen=True):
    """What a create needs; `place` None: any place with stock."""

    gpu_id: str
    cloud: str
    count: int
    place: str | None


def country_of(place: str | None) -> str | None:
    """Return the ISO 3166 alpha-2 country of a data centre; None: unknown."""
    return _COUNTRY_OF.get(place or "")


def is_place(text: str | None) -> bool:
    """Return whether this can be the id of a data centre."""
    return text is not None and _PLACE.fullmatch(text) is not None


def offer_id(placement: PodPlacement) -> str | None:
    """Return `NVIDIA H100 80GB HBM3/SECURE/8/EU-RO-1`, or a short form that `parse_offer_id` parses; None: too long."""
    return _shortened(placement, (str(placement.count), placement.place or ANYWHERE))


def machine_id(placement: PodPlacement) -> str | None:
    """Return the id of a price series: GPU type, cloud and place. RunPod does not name hosts."""
    return _shortened(placement, (placement.place or ANYWHERE,))


def parse_offer_id(text: str) -> PodPlacement | None:
    """Parse an offer id; None: it is not one."""
    parts = text.rsplit("/", 3)
    if len(parts) != 4:
        return None
    gpu_id, cloud, count, place = parts
    if gpu_id.startswith(_SHORT_VENDOR):
        gpu_id = _VENDOR + gpu_id.removeprefix(_SHORT_VENDOR)
    is_valid = _GPU.fullmatch(gpu_id) and cloud in _CLOUDS and _COUNT.fullmatch(count)
    if not is_valid or not (place == ANYWHERE or is_place(place)):
        return None
    return PodPlacement(gpu_id, _CLOUDS[cloud], int(count), None if place == ANYWHERE else place)


def _shortened(placement: PodPlacement, suffix: tuple[str, ...]) -> str | None:
    if not _GPU.fullmatch(placement.gpu_id):
        return None
    full_id = "/".join((placement.gpu_id, placement.cloud, *suffix))
    if len(full_id) <= _MAX_LENGTH:
        return full_id
    gpu_id = placement.gpu_id
    if gpu_id.startswith(_VENDOR):
        gpu_id = _SHORT_VENDOR + gpu_id.removeprefix(_VENDOR)
    short_id = "/".join((gpu_id, placement.cloud[0], *suffix))
    return short_id if len(short_id) <= _MAX_LENGTH else None
