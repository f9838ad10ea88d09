"""Alerts about offers: a decision as text. Pure; the channels lay it out and escape it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import tzinfo
from decimal import Decimal
from urllib.parse import quote

import msgspec

from gpuwatch.domain.history.price_rank import PriceRank
from gpuwatch.domain.launches.launch import most_microusd_hour
from gpuwatch.domain.launches.life.approval import Approval
from gpuwatch.domain.market.money import distinct_prices, dollars, price_text
from gpuwatch.domain.market.offer import Offer, OfferKind
from gpuwatch.domain.market.pricing import usd
from gpuwatch.domain.market.resold import FoldedOffer, fold_resold
from gpuwatch.domain.setup.durations import format_duration, format_moment
from gpuwatch.domain.watches.decide import REASON_TEXTS, Decision, DecisionReason, Match
from gpuwatch.domain.watches.past_limits import DROP_BY, NEW_LOW, PERCENTILE
from gpuwatch.domain.watches.watch import Action, Watch
from gpuwatch.engine.alerts.offer_facts import (
    hint,
    job_facts,
    job_mark,
    line_marks,
    machine_facts,
    price_facts,
    rare_facts,
)
from gpuwatch.ports import Alert, AlertKind, OfferLine

_OFFERS_SHOWN = 3
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


def _check_command(watch: Watch) -> str:
    """The command to follow it: a job looks for offers as a watch does, but `check` does not list it."""
    if (job := watch.purpose.job) is not None:
        return f"Follow the job: gpuwatch job show {shlex.quote(job)}"
    return f"Check again: gpuwatch check {shlex.quote(watch.name)}"


def _offer_headline(watch: Watch, match: Match, line: OfferLine) -> str:
    marks = "".join(f", {mark}" for mark in job_mark(match))
    return (
        f"{watch.name}: {line.gpu} × {line.gpu_count} at ${line.price_usd_gpu_hour} per GPU-hour{marks}{_sure(match)}"
    )


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


def _sure(best: Match) -> str:
    return "" if best.offer.kind is OfferKind.LIVE else f" ({best.offer.kind.value})"


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


def _quote_facts(approval: Approval, watch: Watch, zone: tzinfo) -> list[tuple[str, str]]:
    quoted = approval.match.price.price_microusd_hour
    facts = [
        ("Quote", f"${price_text(usd(quoted))} per hour, or less; open until {format_moment(approval.deadline, zone)}")
    ]
    most = most_microusd_hour(approval.match, watch)
    if most > quoted:
        facts.append(("At most", f"${price_text(usd(most))} per hour, if its bid has to be raised"))
    return facts


def _can_do(best: Offer, approval: Approval | None) -> tuple[str, ...]:
    if approval is not None:
        return (f"Rent it: gpuwatch approve {approval.approval_id}", f"Reject it: gpuwatch deny {approval.approval_id}")
    return (hint(best),)


def _traffic_facts(watch: Watch, offer: Offer) -> list[tuple[str, str]]:
    """Return the cost of one job's traffic at the listed rates; the price does not include it."""
    wanted = ((watch.download_gb, offer.download_usd_gb, "down"), (watch.upload_gb, offer.upload_usd_gb, "up"))
    known = [(gb, rate, way) for gb, rate, way in wanted if gb and rate is not None]
    if not known:
        return []
    cost = sum((Decimal(str(gb)) * Decimal(str(rate)) for gb, rate, _ in known), Decimal(0))
    moved = ", ".join(f"{gb:g} GB {way}" for gb, _, way in known)
    return [("Traffic", f"{dollars(cost)} listed for one job ({moved}), not in the price")]


def _link(offer: Offer, links: Mapping[str, str]) -> str | None:
    template = links.get(offer.provider)
    if template is None:
        return None
    filled = template.replace("{offer_id}", quote(offer.offer_id, safe=""))
    return filled.replace("{machine_id}", quote(offer.machine_id or "", safe=""))
