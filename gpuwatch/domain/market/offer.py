"""An offer: one rentable configuration at one provider at one moment."""

from __future__ import annotations

from datetime import date, datetime
from enum import StrEnum

import msgspec


class Verification(StrEnum):
    """What the provider says of a host's checks."""

    VERIFIED = "verified"
    UNVERIFIED = "unverified"
    DEVERIFIED = "deverified"


class OfferKind(StrEnum):
    """What a price says of the chance to rent at it."""

    LIVE = "live"  # rentable now: the provider says that it has it
    LISTED = "listed"  # a list price; whether there is stock is not known
    HISTORY = "history"  # what was seen at some time in the past


class OfferTerms(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is rarely said of an offer. One value serves many offers; `PLAIN` says nothing at all."""

    seller: str | None = None  # whose hardware it is, where the provider resells or lists others: "lambda", "oracle"
    instance_type: str | None = None  # as the seller calls the configuration: "p5.48xlarge"
    fungible: bool = False  # one of a stock, not one machine: several launches may have the same offer
    gpu_fraction: float = 1.0  # less than 1: a slice (MIG, vGPU) and not a GPU; no watch takes it for one
    interconnect: str | None = None  # between the GPUs, as far as it is told: "NVLink", "PCIe"
    multi_node: bool | None = None  # part of a cluster of several machines
    prepaid: bool | None = None  # must be paid before it runs (a day, a month), or for a term
    tax_included: bool | None = None
    least_disk_gb: float = 0.0  # a smaller disk is neither rented nor priced
    min_billing_s: float | None = None  # the least that is billed; None: as the provider's settings say
    currency: str = "USD"  # of the quote as received
    usd_rate: float | None = None  # dollars for one unit of `currency`
    usd_rate_on: date | None = None  # the day of that rate
    note: str | None = None  # one remark for a person: what is not sure about this offer


PLAIN_TERMS = OfferTerms()


class Identity(msgspec.Struct, frozen=True, gc=False):
    """What stays the same from poll to poll: offer ids do not, machines do.

    `machine_id` is "offer:<id>" where a provider names no machine.
    """

    provider: str
    machine_id: str
    gpu: str
    gpu_count: int
    spot: bool


class Offer(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One offer, normalised. Text is cleaned, numbers are finite; None means "the provider does not say".

    The quote is kept as received, in US dollars an hour for the whole offer; `pricing` turns it into money.

    A msgspec Struct and not a dataclass: ten thousand are built per sweep, and this is five times as fast.
    """

    provider: str
    offer_id: str  # short-lived: for renting only
    machine_id: str | None
    gpu: str  # canonical name, or the provider's spelling if nobody knows it
    gpu_family: str
    gpu_wire: str  # as the provider spells it
    gpu_known: bool  # False: the spelling is in no catalogue
    gpu_count: int
    gpu_memory_gib: float | None  # of one GPU
    spot: bool
    quoted_usd_hour: float  # includes `quoted_disk_gb`
    quoted_disk_gb: float
    disk_usd_gb_month: float | None  # a month of 720 hours; None: disk is not priced apart
    observed_at: datetime
    min_bid_usd_hour: float | None = None
    fee_rate: float | None = None  # the provider's own per-offer fee, for commission mode "from_offer"
    host_id: str | None = None
    region: str | None = None
    country: str | None = None  # ISO 3166 alpha-2
    reliability: float | None = None  # 0 to 1
    verification: Verification | None = None
    datacenter: bool | None = None
    rentable: bool = True
    vcpu: float | None = None
    ram_gib: float | None = None
    cpu_arch: str | None = None
    disk_free_gb: float | None = None
    download_mbps: float | None = None
    upload_mbps: float | None = None
    download_usd_gb: float | None = None
    upload_usd_gb: float | None = None
    cuda_max: float | None = None
    driver: str | None = None
    ports: int | None = None
    static_ip: bool | None = None
    nvlink_gbps: float | None = None  # 0 and unmeasured are both None
    available_until: datetime | None = None
    dlperf: float | None = None
    kind: OfferKind = OfferKind.LIVE
    terms: OfferTerms = PLAIN_TERMS

    @property
    def verified(self) -> bool | None:
        """The contract's `verified`: None where the provider does not say."""
        return None if self.verification is None else self.verification is Verification.VERIFIED

    @property
    def place(self) -> str | None:
        """For a person: "Utah, US"; None: nobody says where it stands."""
        return ", ".join(part for part in (self.region, self.country) if part) or None

    @property
    def identity(self) -> Identity:
        """Provider × machine × GPU model × GPU count × rental type."""
        machine = self.machine_id if self.machine_id is not None else f"offer:{self.offer_id}"
        return Identity(self.provider, machine, self.gpu, self.gpu_count, self.spot)
