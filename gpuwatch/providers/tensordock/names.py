"""TensorDock's names of GPUs (`geforcertx4090-pcie-24gb`) and countries, and gpuwatch's offer ids there."""

from __future__ import annotations

import base64
import re
from typing import Final
from uuid import UUID

import msgspec

from gpuwatch.domain.market.gpu_names import GpuName, catalog

ID_LENGTH: Final = 64  # the size of the store's column
PLACE: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")  # of a location, a host or a machine
GPU: Final = re.compile(r"[A-Za-z0-9._-]{2,40}")  # TensorDock's id of a model
_MEMORY: Final = re.compile(r"-(\d{1,3})gb$")
_OFFER: Final = re.compile(r"([a-z])([A-Za-z0-9_-]{1,40})/([A-Za-z0-9._-]{2,40})/(\d{1,2})/(\d{1,4})/(\d{1,5})")


def gpu_of(v0_name: str, display_name: str | None) -> tuple[GpuName, float | None]:
    """Return the GPU of an id such as `h100-sxm5-80gb`, and the memory of one in GB, if the id contains it.

    Args:
        display_name: the display name; used if the id is unknown.
    """
    found = _MEMORY.search(v0_name)
    memory_gb = float(found[1]) if found else None
    name = catalog().resolve(v0_name, memory_gb)
    if not name.known and display_name:
        by_display_name = catalog().resolve(display_name, memory_gb)
        name = by_display_name if by_display_name.known else name
    return name, memory_gb


class OfferKey(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of an offer id: all that an order needs."""

    place: str
    is_host: bool  # `place` is a host, not a location
    gpu: str  # TensorDock's id of the GPU
    count: int
    vcpu: int
    ram_gb: int

    @property
    def offer_id(self) -> str:
        """The id, such as `ljdlf8N_5SJyJArNmpqsbEA/geforcertx4090-pcie-24gb/2/16/64`; 22 characters encode a UUID."""
        prefix, place = _encode_place(self.place)
        return f"{prefix.upper() if self.is_host else prefix}{place}/{self.gpu}/{self.count}/{self.vcpu}/{self.ram_gb}"

    @property
    def machine_id(self) -> str:
        """The stable id: one GPU model at one place, whatever the other resources."""
        return f"{_encode_place(self.place)[1]}/{self.gpu}"


def parse_offer_key(offer_id: str) -> OfferKey | None:
    """Parse an offer id; None: it is not an id of TensorDock."""
    found = _OFFER.fullmatch(offer_id[:1].lower() + offer_id[1:])
    if found is None or found[1] not in _DECODERS:
        return None
    place = _DECODERS[found[1]](found[2])
    if place is None or not PLACE.fullmatch(place):
        return None
    return OfferKey(
        place=place,
        is_host=offer_id[0].isupper(),
        gpu=found[3],
        count=int(found[4]),
        vcpu=int(found[5]),
        ram_gb=int(found[6]),
    )


def _encode_place(place: str) -> tuple[str, str]:
    """Encode a UUID in 22 characters ("u"), any other id unchanged ("p")."""
    try:
        number = UUID(place)
    except ValueError:
        return "p", place
    if str(number) != place:
        return "p", place
    return "u", base64.urlsafe_b64encode(number.bytes).decode().rstrip("=")


def _decode_uuid(text: str) -> str | None:
    try:
        return str(UUID(bytes=base64.urlsafe_b64decode(f"{text}==")))
    except ValueError:
        return None


def _unchanged(text: str) -> str | None:
    return text


_DECODERS: Final = {"u": _decode_uuid, "p": _unchanged}

_COUNTRIES: Final = {
    "argentina": "AR", "australia": "AU", "austria": "AT", "belgium": "BE", "brazil": "BR", "bulgaria": "BG",
    "canada": "CA", "chile": "CL", "china": "CN", "colombia": "CO", "croatia": "HR", "cyprus": "CY", "czechia": "CZ",
    "czech republic": "CZ", "denmark": "DK", "england": "GB", "estonia": "EE", "finland": "FI", "france": "FR",
    "georgia": "GE", "germany": "DE", "great britain": "GB", "greece": "GR", "hong kong": "HK", "hungary": "HU",
    "iceland": "IS", "india": "IN", "indonesia": "ID", "ireland": "IE", "israel": "IL", "italy": "IT", "japan": "JP",
    "kazakhstan": "KZ", "korea": "KR", "latvia": "LV", "lithuania": "LT", "luxembourg": "LU", "malaysia": "MY",
    "malta": "MT", "mexico": "MX", "moldova": "MD", "netherlands": "NL", "the netherlands": "NL", "new zealand": "NZ",
    "nigeria": "NG", "norway": "NO", "pakistan": "PK", "philippines": "PH", "poland": "PL", "portugal": "PT",
    "romania": "RO", "russia": "RU", "saudi arabia": "SA", "serbia": "RS", "singapore": "SG", "slovakia": "SK",
    "slovenia": "SI", "south africa": "ZA", "south korea": "KR", "spain": "ES", "sweden": "SE", "switzerland": "CH",
    "taiwan": "TW", "thailand": "TH", "turkey": "TR", "ukraine": "UA", "united arab emirates": "AE",
    "united kingdom": "GB", "uk": "GB", "united states": "US", "united states of america": "US", "usa": "US",
    "vietnam": "VN",
}  # fmt: skip


def country_of(name: str | None) -> str | None:
    """Return the ISO 3166 alpha-2 code of an English country name; None: unknown."""
    if name is None:
        return None
    if len(name) == 2 and name.isascii() and name.isalpha():
        return name.upper()
    return _COUNTRIES.get(name.casefold())
