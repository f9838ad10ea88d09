"""Facts about an offer in an alert: its price, machine, certainty and terms, and the cost of a job there. Pure."""

from __future__ import annotations

from datetime import datetime, tzinfo

from gpuwatch.domain.history.price_rank import PriceRank
from gpuwatch.domain.market.marks import ARM64, arch_of, marks
from gpuwatch.domain.market.money import dollars
from gpuwatch.domain.market.offer import Offer, OfferKind
from gpuwatch.domain.market.pricing import usd
from gpuwatch.domain.market.resold import FoldedOffer
from gpuwatch.domain.plan.job_total import JobBill, JobCost
from gpuwatch.domain.setup.durations import format_duration, format_moment
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.job_cost import job_cost
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.ports import OfferLine

_KINDS = {
    OfferKind.LISTED: "list price; stock is unknown",
    OfferKind.HISTORY: "past price",
}


def price_facts(
    match: Match, line: OfferLine, rank: PriceRank | None, with_total: bool = True
) -> list[tuple[str, str]]:
    """Return label and value of its costs.

    Args:
        rank: None: the history is too short.
        with_total: False: another fact, such as the quote of an approval, states the total.
    """
    offer, price = match.offer, match.price
    facts = [("GPU", f"{line.gpu} × {line.gpu_count}"), ("Price", f"${line.price_usd_gpu_hour} per GPU-hour")]
    if rank is not None:
        facts.append(("Rank", f"{rank.text} of {offer.gpu} {_rental(offer)} at {offer.provider}"))
    listed = f"${line.listed_usd_gpu_hour} per GPU-hour"
    facts.append(("Listed", f"{listed}, before {price.commission_rate * 100:g} % commission"))
    if offer.gpu_count > 1 and with_total:
        facts.append(("Total", f"{dollars(usd(price.price_microusd_hour))} per hour for {offer.gpu_count} GPUs"))
    facts.append(("Rental", "spot (interruptible)" if offer.spot else "on demand"))
    return facts


def machine_facts(offer: Offer, zone: tzinfo) -> list[tuple[str, str]]:
    """Return label and value of the facts that the provider states about the machine."""
    sizes = (
        (offer.gpu_memory_gib, "GiB per GPU"),
        (offer.vcpu, "vCPU"),
        (offer.ram_gib, "GiB RAM"),
        (offer.disk_free_gb, "GB disk"),
    )
    speeds = (("down", offer.download_mbps), ("up", offer.upload_mbps))
    values = {
        "Machine": ", ".join(f"{_whole(size)} {unit}" for size, unit in sizes if size),
        "Network": ", ".join(f"{_whole(mbps)} Mbit/s {way}" for way, mbps in speeds if mbps),
        "CUDA": "" if offer.cuda_max is None else f"up to {offer.cuda_max:g}",
        "Reliability": _reliability(offer),
        "Available": "" if offer.available_until is None else f"until {_until(offer.available_until, offer, zone)}",
        "Offer": f"{offer.offer_id} at {offer.provider}"
        + (f", machine {offer.machine_id}" if offer.machine_id else ""),
    }
    return [(label, value) for label, value in values.items() if value]


def rare_facts(folded: FoldedOffer[Match]) -> list[tuple[str, str]]:
    """Return label and value of unusual properties; empty for a plain offer."""
    offer, terms = folded.primary.offer, folded.primary.offer.terms
    facts = [("Kind", _KINDS[offer.kind])] if offer.kind in _KINDS else []
    if terms.seller and terms.seller != offer.provider:
        facts.append(("Sold by", f"{terms.seller}, through {offer.provider}"))
    if folded.also:
        facts.append(("Elsewhere", folded.also_text))
    if arch_of(offer) == ARM64:
        facts.append(("Processor", "Arm: x86 images do not run there"))
    if shown := _terms(offer):
        facts.append(("Terms", ", ".join(shown)))
    if terms.note:
        facts.append(("Note", terms.note))
    return facts


def line_marks(folded: FoldedOffer[Match]) -> tuple[str, ...]:
    """Return the short marks for one line, and other offers of the same stock."""
    return (*marks(folded.primary.offer), *([folded.also_text] if folded.also else []))


def _rental(offer: Offer) -> str:
    return "on spot" if offer.spot else "on demand"


def _whole(size: float) -> str:
    return f"{size:.0f}" if size >= 10 else f"{size:.2g}"


def _reliability(offer: Offer) -> str:
    known = "unknown" if offer.reliability is None else f"{offer.reliability * 100:.1f} %"
    return known + {True: ", verified", False: ", not verified", None: ""}[offer.verified]


def _until(moment: datetime, offer: Offer, zone: tzinfo) -> str:
    left_h = max((moment - offer.observed_at).total_seconds(), 0) // 3600
    return f"{format_moment(moment, zone)} ({format_duration(left_h * 3600) if left_h else 'less than an hour'})"


def _terms(offer: Offer) -> list[str]:
    """Return the marks that no other fact explains."""
    shown = {OfferKind.LISTED.value, OfferKind.HISTORY.value, ARM64, f"via {offer.terms.seller}"}
    return [mark for mark in marks(offer) if mark not in shown]


def hint(offer: Offer) -> str:
    """Return what an owner can do about an offer that gpuwatch only reports."""
    if offer.kind is OfferKind.LIVE:
        return f"Rent offer {offer.offer_id} at {offer.provider} before somebody else does"
    return f"Check whether {offer.provider} has it in stock: {offer.terms.instance_type or offer.offer_id}"


def job_facts(watch: Watch, match: Match) -> list[tuple[str, str]]:
    """Return label and value of the value per dollar; empty: the watch compares prices only."""
    found = job_cost(watch, match.offer, match.price)
    if not isinstance(found, JobCost):
        return []
    low, high = found.low, found.high
    span = "" if low.microusd == high.microusd else f"{dollars(usd(low.microusd))} to "
    facts = [("Job", f"{span}{dollars(usd(high.microusd))} in all: {', '.join(_parts(high))}")]
    facts.append(("Hours", f"{high.hours:.1f}, {found.how}"))
    if found.unknown:
        facts.append(("Excluded", f"{', '.join(found.unknown)}: unknown"))
    return facts


def job_mark(match: Match) -> tuple[str, ...]:
    """Format it for one line of an alert."""
    return () if match.job_microusd is None else (f"job {dollars(usd(match.job_microusd))}",)


def _parts(bill: JobBill) -> list[str]:
    hours = {
        "work": bill.work_h,
        "getting ready": bill.ready_h,
        "restarts": bill.restart_h + bill.lost_h,
        "least billing": bill.minimum_h,
    }
    found = [f"{name} {dollars(bill.usd_for(spent))}" for name, spent in hours.items() if bill.usd_for(spent) >= 0.005]
    return [*found, f"traffic {dollars(bill.traffic_usd)}"] if bill.traffic_usd >= 0.005 else found
