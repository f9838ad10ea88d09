"""An offer: one rentable configuration at one provider at one moment. Pure.

- `Offer` and its parts, as every provider's answer is normalised, and what files and the history share with it;
- `marks`: short words that distinguish an offer from a plain one, for tables, alerts and watches;
- `clean` and its neighbours: text from outside, made safe to store and to show.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import date, datetime
from enum import StrEnum
from fractions import Fraction
from typing import Final

import msgspec

NO_GPU: Final = "none"  # the `gpu` of a machine without GPUs, whose `gpu_count` is 0
X86_64: Final = "x86_64"
ARM64: Final = "arm64"
_ARCHS: Final = {"arm64": ARM64, "aarch64": ARM64, "arm": ARM64, "amd64": X86_64, "x86_64": X86_64, "x64": X86_64}
_WITH_GRACE: Final = frozenset({"GH200", "GB200", "GB300", "GB10"})  # the CPU is part of them, and is Arm
_MOST_PARTS: Final = 64  # of one GPU; no product has more slices

MAX_TEXT_LENGTH = 200
_REMEMBERED_MAX = 20_000  # texts; hostile answers must not fill the memory
_SEPARATORS = ("\u2028", "\u2029")
_remembered: dict[str, str] = {}

_FORMULA = re.compile(r"'*[=+\-@|%\t\r\n]")


class Verification(StrEnum):
    """The provider's verification status of a host."""

    VERIFIED = "verified"
    UNVERIFIED = "unverified"
    DEVERIFIED = "deverified"


class OfferKind(StrEnum):
    """How certain it is that the price can be rented at."""

    LIVE = "live"  # rentable now, according to the provider
    LISTED = "listed"  # a list price; stock is unknown
    HISTORY = "history"  # a price of the past


class Place(msgspec.Struct, frozen=True, gc=False):
    """A place in which the machine of an offer may be, as the provider names it; `country` as in `Offer`."""

    region: str
    country: str | None = None


class OfferTerms(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Rare properties of an offer. One value serves many offers; `PLAIN_TERMS` is the empty one."""

    seller: str | None = None  # the owner of the hardware, if the provider resells it: "lambda", "oracle"
    instance_type: str | None = None  # the seller's name of the configuration: "p5.48xlarge"
    zone: str | None = None  # within the region, if the provider has zones: "us-east-1a"
    places: tuple[Place, ...] = ()  # where it may be, if an order need not name a place; then `region` is None
    quota: str | None = None  # the quota of the account that it counts against: "us-east-1 P on demand"
    fungible: bool = False  # stock and not one machine: several launches may use the same offer
    gpu_fraction: float = 1.0  # below 1: a slice (MIG, vGPU), which no watch accepts as a GPU
    interconnect: str | None = None  # between the GPUs, if known: "NVLink", "PCIe"
    network_gbps: float | None = None  # Gbit/s of each machine to the others of its cluster, if stated
    multi_node: bool | None = None  # part of a cluster of several machines
    machines: int = 1  # number of machines that are rented and ended together
    prepaid: bool | None = None  # paid in advance (a day, a month) or for a term
    tax_included: bool | None = None
    least_disk_gb: float = 0.0  # the smallest disk that is rented and priced
    min_billing_s: float | None = None  # the minimum that is billed; None: as in the provider's settings
    currency: str = "USD"  # of the quote as received
    usd_rate: float | None = None  # dollars for one unit of `currency`
    usd_rate_on: date | None = None  # the day of that rate
    placement_score: int | None = None  # 1 to 10: how likely the provider holds spot capacity there now
    note: str | None = None  # one remark for display: what is uncertain about this offer


PLAIN_TERMS = OfferTerms()


class Identity(msgspec.Struct, frozen=True, gc=False):
    """The facts that stay the same from poll to poll: offer ids change, machines do not.

    `machine_id` is "offer:<id>" if the provider names no machine.
    """

    provider: str
    machine_id: str
    gpu: str
    gpu_count: int
    spot: bool


class Configuration(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What every row about an offer states, in an answer, in the history and in files. None: not stated.

    A msgspec Struct and not a dataclass: a sweep creates ten thousand, and this is five times as fast.
    """

    provider: str
    gpu_count: int  # 0: a machine without GPUs
    gpu_memory_gib: float | None = None  # of one GPU
    spot: bool
    region: str | None = None


class ListedOffer(Configuration, frozen=True, kw_only=True, gc=False):
    """An offer without its price: the facts that the history records, as last seen."""

    offer_id: str  # short-lived: only for renting
    machine_id: str | None  # the history writes "offer:<id>" if the provider names no machine
    gpu: str  # canonical name, or the provider's spelling if it is unknown
    gpu_family: str
    kind: OfferKind = OfferKind.LIVE
    country: str | None = None  # ISO 3166 alpha-2
    reliability: float | None = None  # 0 to 1
    verification: Verification | None = None
    download_usd_gb: float | None = None
    upload_usd_gb: float | None = None
    vcpu: float | None = None  # this and the next are recorded of machines without GPUs alone
    ram_gib: float | None = None

    @property
    def verified(self) -> bool | None:
        """Whether the provider has verified it; None: not stated by the provider."""
        return None if self.verification is None else self.verification is Verification.VERIFIED

    @property
    def place(self) -> str | None:
        """The location as text: "Utah, US"; None: unknown."""
        return place_text(self.region, self.country)

    @property
    def identity(self) -> Identity:
        """Provider × machine × GPU model × GPU count × rental type."""
        machine = self.machine_id if self.machine_id is not None else f"offer:{self.offer_id}"
        return Identity(self.provider, machine, self.gpu, self.gpu_count, self.spot)


class Offer(ListedOffer, frozen=True, kw_only=True, gc=False):
    """One normalised offer. Text is cleaned, numbers are finite; None: not stated by the provider.

    The quote is kept as received, in US dollars an hour for the whole offer; `money.price_of` converts it to money.
    """

    gpu_wire: str  # the provider's spelling
    gpu_known: bool  # False: the spelling is in no catalogue
    quoted_usd_hour: float  # includes `quoted_disk_gb`
    quoted_disk_gb: float
    disk_usd_gb_month: float | None  # a month of 720 hours; None: the disk has no price of its own
    observed_at: datetime
    min_bid_usd_hour: float | None = None
    fee_rate: float | None = None  # the provider's own per-offer fee, for commission mode "from_offer"
    host_id: str | None = None
    datacenter: bool | None = None
    rentable: bool = True
    cpu_arch: str | None = None
    disk_free_gb: float | None = None
    disk_mb_s: float | None = None  # measured, MB/s
    download_mbps: float | None = None
    upload_mbps: float | None = None
    cuda_max: float | None = None
    driver: str | None = None
    ports: int | None = None
    static_ip: bool | None = None
    nvlink_gbps: float | None = None  # 0 and unmeasured are both None
    available_until: datetime | None = None
    dlperf: float | None = None
    terms: OfferTerms = PLAIN_TERMS

    @property
    def link(self) -> str | None:
        """The link between its GPUs, as the provider names or measures it: "NVLink", "PCIe"; None: not stated."""
        return self.terms.interconnect or ("NVLink" if self.nvlink_gbps else None)

    @property
    def nvlink(self) -> bool | None:
        """Whether NVLink joins its GPUs; SXM boards have it. None: not stated."""
        if self.nvlink_gbps:
            return True
        named = self.terms.interconnect
        return None if named is None else named.lower().startswith(("nvlink", "sxm"))


def priced_units(gpu_count: int) -> int:
    """Return by what the price of an offer is divided to compare it: its GPUs; a machine without GPUs is one unit."""
    return gpu_count or 1


def hardware_text(gpu: str, gpu_count: int) -> str:
    """Return "2× RTX 4090", or "no GPU"."""
    return f"{gpu_count}× {gpu}" if gpu_count else "no GPU"


def gpus_text(gpu: str, gpu_count: int) -> str:
    """Return "RTX 4090 × 2", or "no GPU"."""
    return f"{gpu} × {gpu_count}" if gpu_count else "no GPU"


def place_text(region: str | None, country: str | None) -> str | None:
    """Return "Utah, US"; None: unknown."""
    return ", ".join(part for part in (region, country) if part) or None


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


def clean(text: str, max_length: int = MAX_TEXT_LENGTH) -> str:
    """Replace every control, format, surrogate, private and unassigned character by "�", and cut the text to length.

    Args:
        max_length: characters; a cut text ends in "…".
    """
    if len(text) <= max_length and text.isascii() and text.isprintable():
        return text
    if len(text) > max_length:
        text = text[: max_length - 1] + "…"
    return "".join("�" if is_hostile(character) else character for character in text)


def clean_word(text: str) -> str:
    """`clean` for values that repeat from row to row (places, drivers): cached, and without surrounding spaces."""
    found = _remembered.get(text)
    if found is None:
        if len(_remembered) >= _REMEMBERED_MAX:
            _remembered.clear()
        found = clean(text).strip()
        if len(text) <= MAX_TEXT_LENGTH:
            _remembered[text] = found
    return found


def is_hostile(character: str) -> bool:
    """Whether it is a control, format, surrogate, private or unassigned character, or a line separator."""
    return character in _SEPARATORS or unicodedata.category(character).startswith("C")


def escape_formula(cell: str) -> str:
    """A CSV cell that no spreadsheet executes: a ' precedes what looks like a formula, or like an escaped one."""
    return "'" + cell if _FORMULA.match(cell) else cell


def unescape_formula(cell: str) -> str:
    """The cell as it was before `escape_formula`."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell, 1) else cell


def storable_text(text: str, length: int) -> str:
    """Return at most `length` characters that every database accepts; ordinary text is unchanged."""
    text = text[:length]
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "").encode("utf-8", "replace").decode()
