"""Alerts about offers: the figures of a decision, for the texts of `offer_texts`. Pure; the channels lay them out.

An alert names the best offer with its facts (price, machine, certainty and terms, the cost of a job there), lists the
next ones, one line each, and says what gpuwatch did and what the owner can do.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, tzinfo
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import msgspec

from gpuwatch.domain.alerts import offer_texts as texts
from gpuwatch.domain.history.past_lows import PriceRank
from gpuwatch.domain.launches.launch import most_microusd_hour
from gpuwatch.domain.launches.life.owner_decisions import Approval
from gpuwatch.domain.market.money import MICRO, distinct_prices, dollars, price_text, usd
from gpuwatch.domain.market.offer import ARM64, Identity, Offer, OfferKind, arch_of, marks, priced_units
from gpuwatch.domain.market.outbid_risk import OutbidRisk, RecordedBid
from gpuwatch.domain.market.resold import FoldedOffer, fold_resold
from gpuwatch.domain.plan.job_total import JobBill, JobCost
from gpuwatch.domain.setup.durations import HOUR_S, format_duration, format_moment
from gpuwatch.domain.watches.computed_limits import job_cost, outbid_risks, takes_bids
from gpuwatch.domain.watches.decide import Decision, DecisionReason, Match, waits_until
from gpuwatch.domain.watches.past_limits import DROP_BY, NEW_LOW, PERCENTILE
from gpuwatch.domain.watches.watch import Action, Watch
from gpuwatch.ports import Alert, OfferLine

_OFFERS_SHOWN = 3
RecordedBids = Callable[[Collection[Identity], int, int], Mapping[Identity, Sequence[RecordedBid]]]


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
    rank_of: Callable[[Offer, bool], PriceRank | None] = lambda offer, verified: None,
    recorded_bids: RecordedBids = lambda machines, since_s, until_s: {},
) -> Alert:
    """Return the alert of a watch that fired.

    Args:
        decision: has at least one match.
        did: what gpuwatch did about it, as a sentence.
        links: provider → URL of its console, with the placeholders `{offer_id}` and `{machine_id}`.
        approval: the pending approval of the first match, if any.
        can_do: what the owner can do about the result; empty: the advice of an alert without a launch.
        rank_of: returns the rank of an offer's price in its history (True: of verified hosts alone); None: unknown.
        recorded_bids: returns the bids of machines in a span of seconds since 1970; called if a shown offer takes bids.
    """
    # resold stock is shown once; if something is rented or needs approval, as its own offer
    folded = fold_resold(decision.matches, keep_first=watch.action is not Action.ALERT)
    decision = msgspec.structs.replace(decision, matches=tuple(one.primary for one in folded))
    best = decision.matches[0]
    by_hand = approval is None and not can_do  # gpuwatch does not rent it
    bidding = [one.primary for one in folded[:_OFFERS_SHOWN] if takes_bids(one.primary.offer)]
    risks = outbid_risks(bidding, watch, decision.decided_at, recorded_bids)
    lines = _lines(watch, folded, links if by_hand else None, risks)
    of_gpus, of_cpus = (texts.MATCH, texts.CPU_MATCH) if approval is None else (texts.APPROVAL, texts.CPU_APPROVAL)
    alert = (of_gpus if best.offer.gpu_count else of_cpus).alert(
        alert_id,
        decision.decided_at,
        watch=watch.name,
        line=lines[0],
        rank=rank_of(best.offer, bool(watch.verified)),
        **_price_values(watch, best, with_total=approval is None),
        **_end_values(watch, best),
        **_job_values(watch, best),
        **_limit_values(watch, best.offer),
        **_quote_values(approval, watch, zone),
        **_machine_values(best.offer, zone),
        **_terms_values(folded[0]),
        **_traffic_values(watch, best),
        outbid=_outbid_text(risks.get(best.offer.identity)),
        seen=format_moment(decision.decided_at, zone),
        why=decision_text(watch, decision),
        did=did or texts.NOTHING,
        **_to_rent_by_hand(best.offer, by_hand),
        can_do=(*can_do, _check_command(watch)),
    )
    approval_id = None if approval is None else approval.approval_id
    return msgspec.structs.replace(alert, offers=tuple(lines), approval_id=approval_id)


def decision_text(watch: Watch, decision: Decision, zone: tzinfo = UTC) -> str:
    """Return the reason as text, with its name as in the log."""
    until = waits_until(watch, decision)
    text = texts.REASON_TEXTS[decision.reason].format(
        fits=texts.AS_WANTED if watch.unlimited else texts.AT_THE_LIMIT,
        improve_by=f"{watch.improve_by * 100:g} %",
        repeat_every=format_duration(watch.repeat_every_s or 0),
        spot_until="" if until is None else format_moment(until, zone),
    )
    if watch.hold_for_s and decision.reason is DecisionReason.FIRST_MATCH:
        text = texts.HELD_FOR.format(text=text, span=format_duration(watch.hold_for_s))
    text = texts.REASON.format(text=text, reason=decision.reason.value)
    more = len(decision.matches) - 1
    return text if more <= 0 else f"{text} {(texts.ONE_MORE if more == 1 else texts.MORE).format(count=more)}"


def _lines(
    watch: Watch,
    folded: Sequence[FoldedOffer[Match]],
    links: Mapping[str, str] | None,
    risks: Mapping[Identity, OutbidRisk],
) -> list[OfferLine]:
    """Return the shown offers. Compared prices get enough digits that only equal ones look equal."""
    shown = [one.primary for one in folded[:_OFFERS_SHOWN]]
    prices = [one.price.gpu_price_usd_hour(one.offer.gpu_count) for one in shown]
    listed = [usd(one.price.listed_microusd_hour) / priced_units(one.offer.gpu_count) for one in shown]
    shown_prices = distinct_prices([*prices, *listed, watch.max_price_usd_gpu_hour])
    return [
        _line(one, price, its_listed, links or {}, risks.get(one.primary.offer.identity))
        for one, price, its_listed in zip(folded, shown_prices, shown_prices[len(shown) :], strict=False)
    ][: len(shown)]


def _line(
    folded: FoldedOffer[Match], price: str, listed: str, links: Mapping[str, str], risk: OutbidRisk | None
) -> OfferLine:
    """Return one offer as an alert shows it; `price` and `listed`: per GPU, as text."""
    match, offer = folded.primary, folded.primary.offer
    elsewhere = [folded.also_text] if folded.also else []
    lost = (
        [] if risk is None or risk.over_share is None else [texts.OUTBID_MARK.format(share=_percent(risk.over_share))]
    )
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
        url=_link(offer, links),
        marks=(*_price_marks(match), *marks(offer), *lost, *elsewhere),
    )


def _price_marks(match: Match) -> tuple[str, ...]:
    """What the price does not show: the cost of the job, or the traffic in it."""
    cost, traffic = match.job_microusd, match.price.traffic_microusd_hour / priced_units(match.offer.gpu_count)
    of_job = () if cost is None else (texts.JOB_MARK.format(cost=dollars(usd(cost))),)
    return of_job if not traffic else (*of_job, texts.TRAFFIC_MARK.format(hourly=price_text(traffic / MICRO)))


def _link(offer: Offer, links: Mapping[str, str]) -> str | None:
    template = links.get(offer.provider)
    if template is None:
        return None
    filled = template.replace("{offer_id}", quote(offer.offer_id, safe=""))
    return filled.replace("{machine_id}", quote(offer.machine_id or "", safe=""))


# --- the values of its facts; None: the fact is left out --------------------------------------------------------------


def _price_values(watch: Watch, match: Match, *, with_total: bool) -> dict[str, Any]:
    """Its costs. `with_total` False: another fact, such as the quote of an approval, states the total."""
    offer, price = match.offer, match.price
    among = texts.AMONG[offer.spot, bool(watch.verified)]
    certainty = "" if offer.kind is OfferKind.LIVE else f" ({offer.kind.value})"
    return {
        "marks": "".join(f", {mark}" for mark in _price_marks(match)) + certainty,
        "rank_among": among.format(what=offer.gpu),
        "commission": price.commission_rate * 100,
        "total": dollars(usd(price.price_microusd_hour)) if offer.gpu_count > 1 and with_total else None,
        "rental": texts.SPOT if offer.spot else texts.ON_DEMAND,
    }


def _end_values(watch: Watch, match: Match) -> dict[str, Any]:
    """What it costs if it is rented now and runs as long as the watch lets it."""
    runtime_s = None if watch.launch is None else watch.launch.max_runtime_s
    if runtime_s is None:
        return dict.fromkeys(("until_end", "runtime"))
    hourly = most_microusd_hour(match, watch) + match.price.traffic_microusd_hour
    cost = usd(hourly) * Decimal(str(runtime_s)) / 3600
    return {"until_end": dollars(cost), "runtime": format_duration(runtime_s)}


def _job_values(watch: Watch, match: Match) -> dict[str, Any]:
    """The value per dollar, if the watch compares it."""
    found = job_cost(watch, match.offer, match.price)
    if not isinstance(found, JobCost):
        return dict.fromkeys(("job", "job_cost", "job_parts", "job_unknown"))
    low, high = dollars(usd(found.low.microusd)), dollars(usd(found.high.microusd))
    is_span = found.low.microusd != found.high.microusd
    return {
        "job": found,
        "job_cost": texts.JOB_SPAN.format(low=low, high=high) if is_span else high,
        "job_parts": ", ".join(_parts(found.high)),
        "job_unknown": ", ".join(found.unknown) or None,
    }


def _parts(bill: JobBill) -> list[str]:
    hours = {
        "work": bill.work_h,
        "ready": bill.ready_h,
        "restarts": bill.restart_h + bill.lost_h,
        "minimum": bill.minimum_h,
    }
    costs = [(texts.JOB_PARTS[name], bill.usd_for(spent)) for name, spent in hours.items()]
    return [
        f"{name} {dollars(cost)}" for name, cost in (*costs, (texts.TRAFFIC_PART, bill.traffic_usd)) if cost >= 0.005
    ]


def _limit_values(watch: Watch, best: Offer) -> dict[str, Any]:
    """The limit, and what the price was compared with."""
    past = {} if watch.past is None else {one.clause: one for one in watch.past.limits_of(best)}
    return {
        "threshold": None if watch.unlimited else _threshold(watch),
        "new_low": past.get(NEW_LOW),
        "drop_by": past.get(DROP_BY),
        "percentile": past.get(PERCENTILE),
    }


def _threshold(watch: Watch) -> str:
    if watch.max_job_cost_usd is not None:
        return texts.OF_JOB.format(cost=dollars(watch.max_job_cost_usd))
    unit = texts.PER_MACHINE_HOUR if watch.wants_no_gpu else texts.PER_GPU_HOUR
    limit = unit.format(limit=price_text(watch.max_price_usd_gpu_hour, most=6))
    if watch.auto is None:
        return limit
    return texts.AUTO.format(limit=limit, cap=price_text(watch.auto.cap_usd_gpu_hour, most=6))


def _quote_values(approval: Approval | None, watch: Watch, zone: tzinfo) -> dict[str, Any]:
    if approval is None:
        return dict.fromkeys(("approval", "quote", "open_until", "at_most"))
    price = approval.match.price
    quoted, most = price.price_microusd_hour, most_microusd_hour(approval.match, watch) + price.traffic_microusd_hour
    return {
        "approval": approval.approval_id,
        "quote": price_text(usd(quoted)),
        "open_until": format_moment(approval.deadline, zone),
        "at_most": price_text(usd(most)) if most > quoted else None,
    }


def _machine_values(offer: Offer, zone: tzinfo) -> dict[str, Any]:
    """What the provider states about the machine."""
    until, own_id = offer.available_until, {"offer": offer.offer_id, "provider": offer.provider}
    left_h = 0.0 if until is None else max((until - offer.observed_at).total_seconds(), 0) // 3600
    return {
        "machine": _stated(texts.SIZES, offer),
        "network": _stated(texts.SPEEDS, offer),
        "cuda": offer.cuda_max,
        "verified": "" if offer.verified is None else f", {texts.VERIFIED[offer.verified]}",
        "available_until": None if until is None else format_moment(until, zone),
        "available_for": format_duration(left_h * 3600) if left_h else texts.SOON,
        "offer": texts.OFFER_ON_MACHINE.format(machine=offer.machine_id, **own_id)
        if offer.machine_id
        else texts.OFFER.format(**own_id),
    }


def _stated(parts: Mapping[str, str], offer: Offer) -> str:
    sizes = {text: getattr(offer, name) for name, text in parts.items()}
    return ", ".join(
        text.format(f"{size:.0f}" if size >= 10 else f"{size:.2g}") for text, size in sizes.items() if size
    )


def _terms_values(folded: FoldedOffer[Match]) -> dict[str, Any]:
    """Unusual properties."""
    offer, terms = folded.primary.offer, folded.primary.offer.terms
    explained = {OfferKind.LISTED.value, OfferKind.HISTORY.value, ARM64, f"via {terms.seller}"}  # by another fact
    return {
        "price_kind": texts.PRICE_KINDS.get(offer.kind),
        "seller": terms.seller if terms.seller and terms.seller != offer.provider else None,
        "elsewhere": folded.also_text if folded.also else None,
        "processor": texts.ON_ARM if arch_of(offer) == ARM64 else None,
        "terms": ", ".join(mark for mark in marks(offer) if mark not in explained),
        "note": terms.note,
    }


def _traffic_values(watch: Watch, match: Match) -> dict[str, Any]:
    """The cost of one launch's traffic at the listed rates, and whether the price contains it."""
    offer = match.offer
    wanted = {
        "download": (watch.download_gb, offer.download_usd_gb),
        "upload": (watch.upload_gb, offer.upload_usd_gb),
    }
    known = {name: (gb, rate) for name, (gb, rate) in wanted.items() if gb and rate is not None}
    cost = sum((Decimal(str(gb)) * Decimal(str(rate)) for gb, rate in known.values()), Decimal(0))
    moved = ", ".join(texts.MOVED[name].format(f"{gb:g}") for name, (gb, _) in known.items())
    hourly = match.price.traffic_microusd_hour
    share = texts.IN_PRICE.format(hourly=price_text(usd(hourly))) if hourly else texts.NOT_IN_PRICE
    unknown = [texts.MOVED[name].format(f"{gb:g}") for name, (gb, rate) in wanted.items() if gb and rate is None]
    unpriced = ", ".join(unknown) or None
    return {"traffic": dollars(cost) if known else None, "moved": moved, "share": share, "unpriced": unpriced}


def _outbid_text(risk: OutbidRisk | None) -> str | None:
    """What the first bid for an offer met at its machine; None: nobody bids for it."""
    if risk is None:
        return None
    if risk.over_share is None:
        return texts.OUTBID_UNKNOWN
    return texts.OUTBID.format(
        bid=price_text(usd(risk.bid_microusd_hour)),
        share=_percent(risk.over_share),
        rises=risk.rises,
        watched=format_duration(risk.watched_s // HOUR_S * HOUR_S),
        days=risk.days,
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 or not share else "<1 %"


def _to_rent_by_hand(offer: Offer, by_hand: bool) -> dict[str, Any]:
    is_live = offer.kind is OfferKind.LIVE
    return {
        "live": offer.offer_id if by_hand and is_live else None,
        "listed": (offer.terms.instance_type or offer.offer_id) if by_hand and not is_live else None,
    }


def _check_command(watch: Watch) -> str:
    """The command to follow it: a job looks for offers as a watch does, but `check` does not list it."""
    if (job := watch.purpose.job) is not None:
        return texts.FOLLOW_JOB.format(job=shlex.quote(job))
    return texts.CHECK_AGAIN.format(name=shlex.quote(watch.name))
