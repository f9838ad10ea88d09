"""Alerts about offers: a decision as text. Pure; channels lay it out and escape it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import tzinfo
from decimal import Decimal
from urllib.parse import quote

import msgspec

from gpuwatch.domain.launches.approval import Approval
from gpuwatch.domain.launches.launch import most_microusd_hour
from gpuwatch.domain.market.money import dollars, price_text
from gpuwatch.domain.market.offer import Offer, OfferKind
from gpuwatch.domain.market.pricing import usd
from gpuwatch.domain.market.resold import FoldedOffer, fold_resold
from gpuwatch.domain.watches.decide import REASON_TEXTS, Decision, DecisionReason, Match
from gpuwatch.domain.watches.durations import format_duration
from gpuwatch.domain.watches.watch import Action, Watch
from gpuwatch.engine.alerts import format_moment
from gpuwatch.engine.offer_facts import hint, job_facts, job_mark, line_marks, rare_facts
from gpuwatch.ports import Alert, AlertKind, OfferLine

_OFFERS_SHOWN = 3


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
) -> Alert:
    """A watch fired.

    Args:
        decision: with at least one match.
        did: what gpuwatch did about it, a sentence.
        links: provider → URL of its console; `{offer_id}` and `{machine_id}` in it are filled in.
        approval: the request for approval of the first match that goes with it.
        can_do: what to do about the result; empty: the advice of an alert without a launch.
    """
    folded = _shown(watch, decision)
    decision = msgspec.structs.replace(decision, matches=tuple(one.shown for one in folded))
    best = decision.matches[0]
    lines = [offer_line(one.shown, links, (*job_mark(one.shown), *line_marks(one))) for one in folded[:_OFFERS_SHOWN]]
    facts = _offer_facts(watch, folded[0], lines[0])
    if approval is not None:
        facts += _quote_facts(approval, watch, zone)
    facts.append(("Seen", format_moment(decision.decided_at, zone)))
    return Alert(
        alert_id=alert_id,
        kind=AlertKind.MATCH if approval is None else AlertKind.APPROVAL,
        created_at=decision.decided_at,
        headline=_offer_headline(watch, best, lines[0]),
        watch=watch.name,
        facts=tuple(facts),
        offers=tuple(lines),
        why=decision_text(watch, decision),
        did=did or "Nothing: the decision is yours.",
        can_do=(*(can_do or _can_do(best.offer, approval)), f"Check again: gpuwatch check {shlex.quote(watch.name)}"),
    )


def _offer_headline(watch: Watch, match: Match, line: OfferLine) -> str:
    marks = "".join(f", {mark}" for mark in job_mark(match))
    return (
        f"{watch.name}: {line.gpu} × {line.gpu_count} at ${line.price_usd_gpu_hour} per GPU-hour{marks}{_sure(match)}"
    )


def _offer_facts(watch: Watch, folded: FoldedOffer[Match], line: OfferLine) -> list[tuple[str, str]]:
    match = folded.shown
    facts = [
        ("GPU", f"{line.gpu} × {line.gpu_count}" + (", interruptible (spot)" if line.spot else "")),
        ("Price", f"${line.price_usd_gpu_hour} per GPU-hour with commission; listed ${line.listed_usd_gpu_hour}"),
        ("Total", f"${line.price_usd_hour} per hour for {_gpus(line.gpu_count)}"),
        *job_facts(watch, match),
        ("Threshold", _threshold(watch)),
        ("Place", line.place),
        ("Reliability", line.reliability + _VERIFIED[line.verified]),
    ]
    facts += rare_facts(folded)
    if traffic := _traffic(watch, match.offer):
        facts.append(("Traffic", traffic))
    return facts


def _threshold(watch: Watch) -> str:
    if watch.max_job_cost_usd is not None:
        return f"{dollars(watch.max_job_cost_usd)} for the whole job"
    limit = f"${price_text(watch.max_price_usd_gpu_hour, most=6)} per GPU-hour"
    if watch.auto is None:
        return limit
    return f"{limit} now, never above ${price_text(watch.auto.cap_usd_gpu_hour, most=6)} (auto)"


def decision_text(watch: Watch, decision: Decision) -> str:
    """Return the reason as text, with its name in the log."""
    words = REASON_TEXTS[decision.reason].format(
        improve_by=f"{watch.improve_by * 100:g} %",
        repeat_every=format_duration(watch.repeat_every_s or 0),
    )
    if watch.hold_for_s and decision.reason is DecisionReason.FIRST_MATCH:
        words += f", and has been for {format_duration(watch.hold_for_s)}"
    more = len(decision.matches) - 1
    beside = f" {more} more {'fits' if more == 1 else 'fit'}." if more > 0 else ""
    return f"{words} ({decision.reason.value}).{beside}"


def _shown(watch: Watch, decision: Decision) -> list[FoldedOffer[Match]]:
    """Show resold stock once. If something is rented or needs approval, its own offer stays the one shown."""
    return fold_resold(decision.matches, keep_first=watch.action is not Action.ALERT)


def _sure(best: Match) -> str:
    return "" if best.offer.kind is OfferKind.LIVE else f" ({best.offer.kind.value})"


def offer_line(match: Match, links: Mapping[str, str] | None = None, marks: tuple[str, ...] = ()) -> OfferLine:
    """Return one offer with its prices as text."""
    offer, price = match.offer, match.price
    return OfferLine(
        gpu=offer.gpu,
        gpu_count=offer.gpu_count,
        price_usd_gpu_hour=price_text(price.gpu_price_usd_hour(offer.gpu_count)),
        listed_usd_gpu_hour=price_text(usd(price.listed_microusd_hour) / offer.gpu_count),
        price_usd_hour=price_text(usd(price.price_microusd_hour)),
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


_VERIFIED = {True: ", verified", False: ", not verified", None: ""}


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
        return (f"Rent it: gpuwatch approve {approval.ask_id}", f"Reject it: gpuwatch deny {approval.ask_id}")
    return (hint(best),)


def _traffic(watch: Watch, offer: Offer) -> str | None:
    """The cost of one job's traffic at the listed rates; it is not in the price."""
    wanted = ((watch.download_gb, offer.download_usd_gb, "down"), (watch.upload_gb, offer.upload_usd_gb, "up"))
    known = [(gb, rate, way) for gb, rate, way in wanted if gb and rate is not None]
    if not known:
        return None
    cost = sum((Decimal(str(gb)) * Decimal(str(rate)) for gb, rate, _ in known), Decimal(0))
    moved = ", ".join(f"{gb:g} GB {way}" for gb, _, way in known)
    return f"{dollars(cost)} listed for one job ({moved}), not in the price"


def _link(offer: Offer, links: Mapping[str, str]) -> str | None:
    template = links.get(offer.provider)
    if template is None:
        return None
    filled = template.replace("{offer_id}", quote(offer.offer_id, safe=""))
    return filled.replace("{machine_id}", quote(offer.machine_id or "", safe=""))


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"
