"""Alerts about offers: a decision as text. Pure; the channels lay it out and escape it.

An alert names the best offer with its facts (price, machine, certainty and terms, the cost of a job there), lists the
next ones, one line each, and says what gpuwatch did and what the owner can do.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, tzinfo
from decimal import Decimal
from urllib.parse import quote

import msgspec

from gpuwatch.domain.history.past_lows import PriceRank
from gpuwatch.domain.launches.launch import most_microusd_hour
from gpuwatch.domain.launches.life.owner_decisions import Approval
from gpuwatch.domain.market.money import distinct_prices, dollars, price_text, usd
from gpuwatch.domain.market.offer import ARM64, Offer, OfferKind, arch_of, marks
from gpuwatch.domain.market.resold import FoldedOffer, fold_resold
from gpuwatch.domain.plan.job_total import JobBill, JobCost
from gpuwatch.domain.setup.durations import format_duration, format_moment
from gpuwatch.domain.watches.computed_limits import job_cost
from gpuwatch.domain.watches.decide import REASON_TEXTS, Decision, DecisionReason, Match
from gpuwatch.domain.watches.past_limits import DROP_BY, NEW_LOW, PERCENTILE
from gpuwatch.domain.watches.watch import Action, Watch
from gpuwatch.ports import Alert, AlertKind, OfferLine

_OFFERS_SHOWN = 3

_KINDS = {
    OfferKind.LISTED: "list price; stock is unknown",
    OfferKind.HISTORY: "past price",
}

_PAST_NAMES = {NEW_LOW: "New low", DROP_BY: "Drop", PERCENTILE: "Percentile"}


def offer_alert(  # noqa: PLR0913 - the decision and everything reported with it
    watch: Watch,
    decision: Decision,
    *,
    alert_id: str,
    zone: tzinfo,
    did: str,
    links: Mapping[str, str] | None = None,
    approval: Approval | None = None,
    can_do: tuple[str, ...] = (),
    rank_of: Callable[[Offer], PriceRank | None] = lambda offer: None,
) -> Alert:
    """Return the alert of a watch that fired.

    Args:
        decision: has at least one match.
        did: what gpuwatch did about it, as a sentence.
        links: provider → URL of its console, with the placeholders `{offer_id}` and `{machine_id}`.
        approval: the pending approval of the first match, if any.
        can_do: what the owner can do about the result; empty: the advice of an alert without a launch.
        rank_of: returns the rank of an offer's price in its history; None: unknown.
    """
    folded = _shown(watch, decision)
    decision = msgspec.structs.replace(decision, matches=tuple(one.primary for one in folded))
    best = decision.matches[0]
    by_hand = approval is None and not can_do  # gpuwatch does not rent it
    lines = _lines(watch, folded, links if by_hand else None)
    facts = [
        *price_facts(best, lines[0], rank_of(best.offer), with_total=approval is None),
        *job_facts(watch, best),
        *_threshold_facts(watch, best.offer),
        *([] if approval is None else _quote_facts(approval, watch, zone)),
        ("Place", lines[0].place),
        *machine_facts(best.offer, zone),
        *rare_facts(folded[0]),
        *_traffic_facts(watch, best.offer),
        ("Seen", format_moment(decision.decided_at, zone)),
    ]
    return Alert(
        alert_id=alert_id,
        kind=AlertKind.MATCH if approval is None else AlertKind.APPROVAL,
        created_at=decision.decided_at,
        headline=_offer_headline(watch, best, lines[0]),
        watch=watch.name,
        approval_id=None if approval is None else approval.approval_id,
        facts=tuple(facts),
        offers=tuple(lines),
        why=decision_text(watch, decision),
        did=did or "Nothing: the decision is yours.",
        can_do=(*(can_do or _can_do(best.offer, approval)), _check_command(watch)),
    )


def decision_text(watch: Watch, decision: Decision) -> str:
    """Return the reason as text, with its name as in the log."""
    words = REASON_TEXTS[decision.reason].format(
        improve_by=f"{watch.improve_by * 100:g} %",
        repeat_every=format_duration(watch.repeat_every_s or 0),
    )
    if watch.unlimited:
        words = words.replace("at or under the threshold", "what the watch waits for")
    if watch.hold_for_s and decision.reason is DecisionReason.FIRST_MATCH:
        words += f", and has been for {format_duration(watch.hold_for_s)}"
    more = len(decision.matches) - 1
    beside = f" {more} more {'fits' if more == 1 else 'fit'}." if more > 0 else ""
    return f"{words} ({decision.reason.value}).{beside}"


def _shown(watch: Watch, decision: Decision) -> list[FoldedOffer[Match]]:
    """Show resold stock once. If something is rented or needs approval, its own offer is the one that is shown."""
    return fold_resold(decision.matches, keep_first=watch.action is not Action.ALERT)


def _offer_headline(watch: Watch, match: Match, line: OfferLine) -> str:
    marks = "".join(f", {mark}" for mark in job_mark(match))
    kind = match.offer.kind
    sure = "" if kind is OfferKind.LIVE else f" ({kind.value})"
    return f"{watch.name}: {line.gpu} × {line.gpu_count} at ${line.price_usd_gpu_hour} per GPU-hour{marks}{sure}"


def _lines(watch: Watch, folded: Sequence[FoldedOffer[Match]], links: Mapping[str, str] | None) -> list[OfferLine]:
    """Return the shown offers. Compared prices get enough digits that only equal ones look equal."""
    shown = [one.primary for one in folded[:_OFFERS_SHOWN]]
    prices = [one.price.gpu_price_usd_hour(one.offer.gpu_count) for one in shown]
    listed = [usd(one.price.listed_microusd_hour) / one.offer.gpu_count for one in shown]
    texts = distinct_prices([*prices, *listed, watch.max_price_usd_gpu_hour])
    return [
        offer_line(one.primary, price, its_listed, links, (*job_mark(one.primary), *line_marks(one)))
        for one, price, its_listed in zip(folded, texts, texts[len(shown) :], strict=False)
    ][: len(shown)]


def offer_line(
    match: Match, price: str, listed: str, links: Mapping[str, str] | None = None, marks: tuple[str, ...] = ()
) -> OfferLine:
    """Return one offer as an alert shows it; `price` and `listed`: per GPU, as text."""
    offer = match.offer
    return OfferLine(
        gpu=offer.gpu,
        gpu_count=offer.gpu_count,
        price_usd_gpu_hour=price,
        listed_usd_gpu_hour=listed,
        price_usd_hour=price_text(usd(match.price.price_microusd_hour), most=2),
        place=offer.place or "unknown",
        reliability="unknown" if offer.reliability is None else f"{offer.reliability * 100:.1f} %",
        provider=offer.provider,
        offer_id=offer.offer_id,
        machine_id=offer.machine_id,
        spot=offer.spot,
        verified=offer.verified,
        url=_link(offer, links or {}),
        marks=marks,
    )


def line_marks(folded: FoldedOffer[Match]) -> tuple[str, ...]:
    """Return the short marks for one line, and other offers of the same stock."""
    return (*marks(folded.primary.offer), *([folded.also_text] if folded.also else []))


def _link(offer: Offer, links: Mapping[str, str]) -> str | None:
    template = links.get(offer.provider)
    if template is None:
        return None
    filled = template.replace("{offer_id}", quote(offer.offer_id, safe=""))
    return filled.replace("{machine_id}", quote(offer.machine_id or "", safe=""))


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
        rental = "on spot" if offer.spot else "on demand"
        facts.append(("Rank", f"{rank.text} of {offer.gpu} {rental} at {offer.provider}"))
    listed = f"${line.listed_usd_gpu_hour} per GPU-hour"
    facts.append(("Listed", f"{listed}, before {price.commission_rate * 100:g} % commission"))
    if offer.gpu_count > 1 and with_total:
        facts.append(("Total", f"{dollars(usd(price.price_microusd_hour))} per hour for {offer.gpu_count} GPUs"))
    facts.append(("Rental", "spot (interruptible)" if offer.spot else "on demand"))
    return facts


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


def _threshold_facts(watch: Watch, best: Offer) -> list[tuple[str, str]]:
    """Return the limit, and what the price was compared with."""
    limit = [] if watch.unlimited else [("Threshold", _threshold(watch))]
    mine = [] if watch.past is None else watch.past.limits_of(best)
    return limit + [(_PAST_NAMES[one.clause], f"{one.how} {one.basis}") for one in mine]


def _threshold(watch: Watch) -> str:
    if watch.max_job_cost_usd is not None:
        return f"{dollars(watch.max_job_cost_usd)} for the whole job"
    limit = f"${price_text(watch.max_price_usd_gpu_hour, most=6)} per GPU-hour"
    if watch.auto is None:
        return limit
    return f"{limit} now, never above ${price_text(watch.auto.cap_usd_gpu_hour, most=6)} (auto)"


def _quote_facts(approval: Approval, watch: Watch, zone: tzinfo) -> list[tuple[str, str]]:
    quoted = approval.match.price.price_microusd_hour
    facts = [
        ("Quote", f"${price_text(usd(quoted))} per hour, or less; open until {format_moment(approval.deadline, zone)}")
    ]
    most = most_microusd_hour(approval.match, watch)
    if most > quoted:
        facts.append(("At most", f"${price_text(usd(most))} per hour, if its bid has to be raised"))
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


def _whole(size: float) -> str:
    return f"{size:.0f}" if size >= 10 else f"{size:.2g}"


def _reliability(offer: Offer) -> str:
    known = "unknown" if offer.reliability is None else f"{offer.reliability * 100:.1f} %"
    return known + {True: ", verified", False: ", not verified", None: ""}[offer.verified]


def _until(moment: datetime, offer: Offer, zone: tzinfo) -> str:
    left_h = max((moment - offer.observed_at).total_seconds(), 0) // 3600
    return f"{format_moment(moment, zone)} ({format_duration(left_h * 3600) if left_h else 'less than an hour'})"


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


def _terms(offer: Offer) -> list[str]:
    """Return the marks that no other fact explains."""
    shown = {OfferKind.LISTED.value, OfferKind.HISTORY.value, ARM64, f"via {offer.terms.seller}"}
    return [mark for mark in marks(offer) if mark not in shown]


def _traffic_facts(watch: Watch, offer: Offer) -> list[tuple[str, str]]:
    """Return the cost of one job's traffic at the listed rates; the price does not include it."""
    wanted = ((watch.download_gb, offer.download_usd_gb, "down"), (watch.upload_gb, offer.upload_usd_gb, "up"))
    known = [(gb, rate, way) for gb, rate, way in wanted if gb and rate is not None]
    if not known:
        return []
    cost = sum((Decimal(str(gb)) * Decimal(str(rate)) for gb, rate, _ in known), Decimal(0))
    moved = ", ".join(f"{gb:g} GB {way}" for gb, _, way in known)
    return [("Traffic", f"{dollars(cost)} listed for one job ({moved}), not in the price")]


def _can_do(best: Offer, approval: Approval | None) -> tuple[str, ...]:
    if approval is not None:
        return (
            f"Rent it: gpuwatch approvals approve {approval.approval_id}",
            f"Reject it: gpuwatch approvals deny {approval.approval_id}",
        )
    return (hint(best),)


def hint(offer: Offer) -> str:
    """Return what an owner can do about an offer that gpuwatch only reports."""
    if offer.kind is OfferKind.LIVE:
        return f"Rent offer {offer.offer_id} at {offer.provider} before somebody else does"
    return f"Check whether {offer.provider} has it in stock: {offer.terms.instance_type or offer.offer_id}"


def _check_command(watch: Watch) -> str:
    """The command to follow it: a job looks for offers as a watch does, but `check` does not list it."""
    if (job := watch.purpose.job) is not None:
        return f"Follow the job: gpuwatch jobs show {shlex.quote(job)}"
    return f"Check again: gpuwatch check {shlex.quote(watch.name)}"
