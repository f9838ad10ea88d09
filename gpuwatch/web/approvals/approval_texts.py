"""The sentences of an approval, in the words of its owner."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpuwatch.app.market.market_ranks import RANK_DAYS
from gpuwatch.app.reader_text import clock_text, percent, span, with_unit
from gpuwatch.app.watches.nearest import provider_title
from gpuwatch.domain.launches.launch import LaunchState
from gpuwatch.domain.launches.life.owner_decisions import QUIET_AFTER_DENIAL, ApprovalState
from gpuwatch.domain.market.money import dollars, hourly_text, rate_text, usd
from gpuwatch.domain.market.offer import Verification, clean
from gpuwatch.domain.setup.durations import HOUR_S
from gpuwatch.engine.launches.renting.owner_decisions import ApprovalOutcome
from gpuwatch.language import translate as _
from gpuwatch.language import translate_composed, translate_plural
from gpuwatch.web.components import machine_without_gpus

if TYPE_CHECKING:
    from gpuwatch.app.launches.approval_details import ApprovalDetails, OfferOdds, QuoteRank
    from gpuwatch.app.launches.approvals import ApprovalAnswer
    from gpuwatch.domain.launches.launch import Launch
    from gpuwatch.domain.launches.life.owner_decisions import Approval
    from gpuwatch.domain.market.offer import Offer
    from gpuwatch.domain.market.price_rank import PriceRange
    from gpuwatch.domain.watches.decide import Match

_ASKED_AGAIN = "; a new approval is "  # in the stored reason: the id of the newer one follows
_DAY_S = 24 * HOUR_S


def machine_text(offer: Offer) -> str:
    """ "1× A100 PCIe 40 GB", "no GPU, 16 vCPU, 64 GB": what is rented."""
    if not offer.gpu_count:
        return machine_without_gpus(offer)
    memory = offer.gpu_memory_gib
    named = memory is None or "GB" in offer.gpu
    return with_unit(f"{offer.gpu_count}× {offer.gpu}" + ("" if named else f" {memory:.0f} GB"))


def place_text(offer: Offer) -> str:
    """ "vast.ai · Michigan, US · on demand"."""
    rental = _("spot: it can be taken away") if offer.spot else _("on demand")
    return " · ".join(filter(None, (provider_title(offer.provider), clean(offer.place or ""), rental)))


def rate_of(quote: Match) -> str:
    """ "$0.626/h": what the whole machine costs."""
    return hourly_text(quote.price.price_microusd_hour)


def limit_text(details: ApprovalDetails) -> str:
    """ "48 % under your limit of $1.20"; empty: there is no limit for a GPU-hour."""
    distance, limit = details.distance, details.limit_microusd_gpu_hour
    if distance is None or limit is None:
        return ""
    amount = rate_text(limit, details.approval.match.price_microusd_gpu_hour)
    if not round(100 * abs(distance)):
        return _("at your limit of {limit} per GPU-hour").format(limit=amount)
    text = _("{percent} under your limit of {limit}") if distance < 0 else _("{percent} over your limit of {limit}")
    return text.format(percent=percent(abs(distance)), limit=amount)


def rank_text(rank: QuoteRank | None) -> str:
    """ "Cheapest 6 % in 30 days at all providers"."""
    if rank is None:
        return _("Too little history")
    text = _("{rank} in {days} days at all providers")
    return text.format(rank=with_unit(rank.past.text(rank.now)), days=RANK_DAYS)


def usual_text(spread: PriceRange) -> str:
    """ "usually $0.700–0.860": the middle half."""
    low, high = rate_text(spread.q1), rate_text(spread.q3)
    return _("usually {price}").format(price=low if low == high else f"{low}–{high[1:]}")


def rank_label(rank: QuoteRank) -> str:
    """The strip for a screen reader."""
    low, first, _median, third, high = map(rate_text, rank.spread)
    return _("Hourly lowest prices per GPU: from {low} to {high}, usually {first} to {third}, now {now}").format(
        low=low, high=high, first=first, third=third, now=rate_text(rank.now)
    )


# --- the facts of the decision ----------------------------------------------------------------------------------------


def most_text(details: ApprovalDetails) -> str:
    """ "$15.05 for 24 h": the most that it can cost."""
    if details.watch is None:
        return _("unknown: its watch is gone")
    if details.most_microusd is None or details.runtime_s is None:
        day = dollars(usd(details.approval.match.price.price_microusd_hour * 24))
        return _("{amount} a day, until you stop it").format(amount=day)
    return _("{amount} for {time}").format(amount=dollars(usd(details.most_microusd)), time=span(details.runtime_s))


def left_text(details: ApprovalDetails) -> str:
    """ "daily budget left $19.30"; empty: there is no budget."""
    if details.left is None:
        return ""
    amount = dollars(usd(max(0, details.left.limit - details.left.used)))
    is_daily = details.left.limit_name == "max_usd_day"
    text = _("daily budget left {amount}") if is_daily else _("monthly budget left {amount}")
    return text.format(amount=amount)


def host_text(details: ApprovalDetails) -> str:
    """ "verified, 99.8 % reliable, never used by you"."""
    offer = details.approval.match.offer
    parts = [
        {
            Verification.VERIFIED: _("verified"),
            Verification.UNVERIFIED: _("unverified"),
            Verification.DEVERIFIED: _("verification withdrawn"),
        }.get(offer.verification or Verification.UNVERIFIED, "")
        if offer.verification is not None
        else ""
    ]
    if offer.reliability is not None:
        parts.append(_("{percent} reliable").format(percent=with_unit(f"{100 * offer.reliability:.1f} %")))
    used = translate_plural("used by you once", "used by you {count} times", details.used_before)
    parts.append(used.format(count=details.used_before) if details.used_before else _("never used by you"))
    return ", ".join(filter(None, parts))


def odds_text(odds: OfferOdds | None) -> str:
    """What waiting risks."""
    if odds is None:
        return _("unknown: too few such offers are recorded")
    if odds.half_gone_s is None:
        return _("most such offers last longer than {time}").format(time=span(odds.longest_s))
    return _("half of such offers are gone after {time}").format(time=span(odds.half_gone_s))


def steps(details: ApprovalDetails) -> Iterator[str]:
    """What an approval does, in order."""
    yield _("The same machine is priced again. If it costs more than {price}, nothing is rented.").format(
        price=rate_of(details.approval.match)
    )
    yield _("It is ordered once.")
    spec = None if details.watch is None else details.watch.launch
    idle_s = None if spec is None or spec.idle_below is None else spec.idle_for_s
    if details.runtime_s is not None and idle_s is not None:
        yield _("It ends after {time}, or after {idle} of an idle GPU.").format(
            time=span(details.runtime_s), idle=span(idle_s)
        )
    elif details.runtime_s is not None:
        yield _("It ends after {time}.").format(time=span(details.runtime_s))
    elif idle_s is not None:
        yield _("It ends after {idle} of an idle GPU, or when you stop it.").format(idle=span(idle_s))
    else:
        yield _("It runs until you stop it.")


def denial_text() -> str:
    """How long a denial lasts. A watch that fires anew asks about everything again."""
    return _("A denied offer is not asked again for {time}, unless prices rise over your limit and fall again.").format(
        time=span_of_denial()
    )


def span_of_denial() -> str:
    """ "24 h"."""
    return with_unit(_("{hours} h").format(hours=round(QUIET_AFTER_DENIAL.total_seconds() / HOUR_S)))


def stop_text(quote: Match) -> str:
    """What stopping early saves."""
    step_s, least_s = quote.price.billing_step_s, quote.price.min_billing_s
    if step_s > 1 or least_s > 1:
        return _("at any time; at least {time} is billed").format(time=span(max(step_s, least_s)))
    return _("at any time; you pay by the second")


# --- answered, expired, refused ---------------------------------------------------------------------------------------


def closed_text(approval: Approval, state: ApprovalState, launch: Launch | None) -> str:
    """What became of it, in one sentence or two; empty: it is open."""
    at = clock_text(approval.answered_at or approval.deadline)
    if state is ApprovalState.EXPIRED:
        return _("Expired at {time} without an answer. Nothing was rented.").format(time=clock_text(approval.deadline))
    if state is ApprovalState.DENIED:
        why = f" “{clean(approval.words)}”." if approval.words else ""
        denied = _("Denied at {time}.").format(time=at) + why
        return denied if approval.rent is not None else f"{denied} {denial_text()}"
    if state is ApprovalState.REFUSED:
        reason = clean((approval.words or "").partition(_ASKED_AGAIN)[0])
        return _("Refused at {time}: {reason}. Nothing was rented.").format(time=at, reason=translate_composed(reason))
    if state is ApprovalState.APPROVED:
        return _("Approved at {time}.").format(time=at) + " " + _launch_text(launch)
    return ""


def _launch_text(launch: Launch | None) -> str:
    if launch is None:
        return ""
    if launch.dry_run:
        return _("Dry run: nothing was rented.")
    if launch.state is LaunchState.FAILED:
        return _("Nothing was rented: {reason}.").format(reason=translate_composed(clean(launch.end_reason or "")))
    if launch.is_over:
        return _("It was rented and has ended.")
    if launch.state is LaunchState.RUNNING:
        return _("It was rented and runs.")
    if launch.state in {LaunchState.UNKNOWN, LaunchState.HELD}:
        return _("{provider} did not answer: it may have been rented.").format(provider=provider_title(launch.provider))
    return _("It was rented and starts.")


def newer_id(approval: Approval) -> str:
    """The id of the approval that took its place; empty: none did."""
    return (approval.words or "").partition(_ASKED_AGAIN)[2].strip()


def answer_text(answer: ApprovalAnswer) -> str:
    """What an answer did, for its owner."""
    approval = answer.approval
    what = machine_text(approval.match.offer)
    if answer.conflict or not answer.reply.changed:
        return _("It was answered before; nothing changed.")
    if answer.outcome is ApprovalOutcome.RENTED:
        launch = answer.reply.launch
        rate = rate_of(approval.match) if launch is None else hourly_text(launch.price_microusd_hour)
        return _("Rented {machine} for {price}.").format(machine=what, price=rate)
    if answer.outcome is ApprovalOutcome.WOULD_RENT:
        return _("Dry run: it would have been rented now. Nothing was rented.")
    if answer.outcome is ApprovalOutcome.DENIED and approval.rent is not None:
        return _("Nothing was rented.")
    if answer.outcome is ApprovalOutcome.DENIED:
        return _("Denied. This offer is not asked again for {time}, unless prices leave your limit and return.").format(
            time=span_of_denial()
        )
    text = translate_composed(clean(answer.reply.text, 600))
    return f"{text[:1].upper()}{text[1:]}."
