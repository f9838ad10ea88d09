"""What an alert says about an offer besides its price: its certainty and terms, and the cost of a job there. Pure."""

from __future__ import annotations

from gpuwatch.domain.market.marks import ARM64, arch_of, marks
from gpuwatch.domain.market.money import dollars
from gpuwatch.domain.market.offer import Offer, OfferKind
from gpuwatch.domain.market.pricing import usd
from gpuwatch.domain.market.resold import FoldedOffer
from gpuwatch.domain.planning.job import JobBill, JobCost
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.job_cost import job_cost
from gpuwatch.domain.watches.watch import Watch

_KINDS = {
    OfferKind.LISTED: "listed: a list price; stock is unknown",
    OfferKind.HISTORY: "history: a price of the past",
}


def rare_facts(folded: FoldedOffer[Match]) -> list[tuple[str, str]]:
    """Return label and value of what most offers do not have; empty for a plain one."""
    offer, terms = folded.shown.offer, folded.shown.offer.terms
    facts = [("Kind", _KINDS[offer.kind])] if offer.kind in _KINDS else []
    if terms.seller and terms.seller != offer.provider:
        facts.append(("Sold by", f"{terms.seller}, through {offer.provider}"))
    if folded.also:
        facts.append(("Elsewhere", folded.also_text))
    if arch_of(offer) == ARM64:
        facts.append(("Processor", "Arm: images for x86 do not run there"))
    if shown := _terms(offer):
        facts.append(("Terms", ", ".join(shown)))
    if terms.note:
        facts.append(("Note", terms.note))
    return facts


def line_marks(folded: FoldedOffer[Match]) -> tuple[str, ...]:
    """Return the short marks of one line, and where else the same stock is offered."""
    return (*marks(folded.shown.offer), *([folded.also_text] if folded.also else []))


def _terms(offer: Offer) -> list[str]:
    """The marks that no other fact explains."""
    shown = {OfferKind.LISTED.value, OfferKind.HISTORY.value, ARM64, f"via {offer.terms.seller}"}
    return [mark for mark in marks(offer) if mark not in shown]


def hint(offer: Offer) -> str:
    """Return what an owner can do about an offer that gpuwatch only reports."""
    if offer.kind is OfferKind.LIVE:
        return f"Rent offer {offer.offer_id} at {offer.provider} before somebody else does"
    return f"Check whether {offer.provider} has it: {offer.terms.instance_type or offer.offer_id}"


def job_facts(watch: Watch, match: Match) -> list[tuple[str, str]]:
    """Label and value; empty: the watch goes by price."""
    found = job_cost(watch, match.offer, match.price)
    if not isinstance(found, JobCost):
        return []
    low, high = found.low, found.high
    span = "" if low.microusd == high.microusd else f"{dollars(usd(low.microusd))} to "
    facts = [("Job", f"{span}{dollars(usd(high.microusd))} in all: {', '.join(_parts(high))}")]
    facts.append(("Hours", f"{high.hours:.1f}, {found.how}"))
    if found.unknown:
        facts.append(("Not in it", f"{', '.join(found.unknown)}: not known"))
    return facts


def job_mark(match: Match) -> tuple[str, ...]:
    """For one line of an alert."""
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
