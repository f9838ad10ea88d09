"""The sentences about a launch: the answer of its page, why it ended, and its timeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import msgspec
from markupsafe import Markup

from gpuwatch.app.reader_text import clock_text, percent, reader_clock, span
from gpuwatch.app.watches.nearest import provider_title
from gpuwatch.domain.launches.instances.end_rules import RUNTIME_LEAST, RUNTIME_SHARE
from gpuwatch.domain.launches.interruption import is_taken_back
from gpuwatch.domain.launches.launch import EndReason, Launch, LaunchState
from gpuwatch.domain.market.money import hourly_text
from gpuwatch.domain.market.offer import clean
from gpuwatch.domain.watches.owner_names import plain_name
from gpuwatch.language import mark_text, translate_composed
from gpuwatch.language import translate as _
from gpuwatch.web.components import clock, dollars, filled, per_hour, until
from gpuwatch.web.launches.machine_text import provider_name

if TYPE_CHECKING:
    from gpuwatch.app.launches.running_machines import RunningMachine
    from gpuwatch.domain.launches.life.launch_record import LaunchEvent
    from gpuwatch.domain.launches.money.bids_and_relocation import Relocation
    from gpuwatch.domain.watches.launch_spec import RelocateSpec

_END_WORDS: Final[Mapping[EndReason, str]] = {
    EndReason.DRY_RUN: mark_text("dry run, nothing was rented"),
    EndReason.OFFERS_GONE: mark_text("every offer was gone"),
    EndReason.PRICE_ROSE: mark_text("the offer became dearer than your limit"),
    EndReason.NOT_CHECKED: mark_text("its price could not be checked again"),
    EndReason.BUDGET: mark_text("a budget does not allow its price"),
    EndReason.NO_CREDIT: mark_text("not enough credit"),
    EndReason.KEY: mark_text("the provider refused the key"),
    EndReason.BAD_ORDER: mark_text("the provider refused the order as wrong"),
    EndReason.REFUSED: mark_text("the provider refused the order"),
    EndReason.NOT_SENT: mark_text("the order was not sent"),
    EndReason.RATE_LIMITED: mark_text("too many orders at once"),
    EndReason.ABSENT: mark_text("nothing was made, which is proven"),
    EndReason.NO_CAPACITY: mark_text("the provider had no machine for it"),
    EndReason.RESOLVED_ABSENT: mark_text("you found that nothing was made"),
    EndReason.BID_LOST: mark_text("the bid was lost"),
    EndReason.WRONG_TYPE: mark_text("rented on demand instead of spot"),
    EndReason.DEARER: mark_text("dearer than your limit once rented"),
    EndReason.NOT_READY: mark_text("it did not run in time"),
    EndReason.BROKEN: mark_text("it did not start"),
    EndReason.MAX_RUNTIME: mark_text("its time was over"),
    EndReason.IDLE: mark_text("idle"),
    EndReason.NOT_AS_PROMISED: mark_text("not what was offered"),
    EndReason.NO_SSH: mark_text("nobody could log in"),
    EndReason.TOO_SLOW: mark_text("its network was too slow"),
    EndReason.OUTBID: mark_text("outbid"),
    EndReason.TAKEN_BACK: mark_text("taken back by its provider"),
    EndReason.OFFLINE: mark_text("its host went offline"),
    EndReason.OUTSIDE: mark_text("outside the hours of its watch"),
    EndReason.BUDGET_REACHED: mark_text("a budget was reached"),
    EndReason.PRICE_RAISED: mark_text("the host raised the price"),
    EndReason.CONTRACT_ENDS: mark_text("the host ended the contract"),
    EndReason.PAUSED: mark_text("renting was paused"),
    EndReason.KEPT: mark_text("its disk was kept for as long as was set"),
    EndReason.NOT_STOPPED: mark_text("it did not stay stopped"),
    EndReason.STOPPED: mark_text("you stopped it"),
    EndReason.GONE: mark_text("gone at the provider"),
    EndReason.FINISHED: mark_text("finished"),
    EndReason.CRASHED: mark_text("its command failed"),
    EndReason.RENTED_NOTHING: mark_text("your command rented nothing"),
    EndReason.NOT_RUN: mark_text("your command could not be started"),
}
_LONGEST_FIRST = sorted(EndReason, key=lambda end: -len(end.value))


def end_words(reason: str | None) -> str:
    """Return why it ended, in words, without the provider's own text."""
    end = next((end for end in _LONGEST_FIRST if (reason or "").startswith(end.value)), None)
    return _(_END_WORDS[end]) if end is not None else clean(reason or _("unknown"), 120)


# --- the answer -------------------------------------------------------------------------------------------------------


def launch_answer(machine: RunningMachine, now: datetime) -> Markup:
    """Return the first sentence of a launch's page: what it costs, and when it ends."""
    launch = machine.launch
    if launch.dry_run:
        return filled(_("<b>Dry run: nothing was rented.</b> It would cost {rate}."), rate=_rate(launch))
    if launch.is_over:
        return _over_answer(machine)
    so_far, most = dollars(machine.cost_microusd), dollars(machine.most_microusd)
    if launch.is_by_command:
        text = _("<b>Rented by your command.</b> gpuwatch does not see it, and counts at most {most}.")
        return filled(text, most=most)
    if launch.state is LaunchState.RUNNING:
        return _running_answer(machine, now)
    texts = {
        LaunchState.STARTING: _("<b>It starts: at most {most}.</b> {so_far} so far."),
        LaunchState.STOPPING: _("<b>It is being ended: {reason}.</b> {so_far} so far."),
        LaunchState.UNKNOWN: _(
            "<b>gpuwatch looks for it.</b> The answer to the order was lost; nothing is ordered twice. At most {most}."
        ),
        LaunchState.HELD: _(
            "<b>Needs your check.</b> Nothing proves that no machine was made, so up to {most} stays reserved."
        ),
    }
    text = texts.get(launch.state, _("<b>It is being ordered.</b> At most {most}."))
    return filled(text, most=most, so_far=so_far, reason=end_words(launch.end_reason))


def _kept_answer(machine: RunningMachine, now: datetime) -> Markup | None:
    """What it says of a launch that is stopped with its disk kept, on the way there or back; None: it is none."""
    launch, so_far = machine.launch, dollars(machine.cost_microusd)
    if launch.kept is None:
        return None
    if launch.kept.is_starting:
        return filled(_("<b>It starts again as soon as its GPUs are free.</b> {so_far} so far."), so_far=so_far)
    if not launch.is_kept or machine.ends_at is None:
        return filled(_("<b>It is being stopped, and its disk kept.</b> {so_far} so far."), so_far=so_far)
    text = _("<b>Stopped; its disk costs {day} a day.</b> {so_far} so far. It is destroyed by {clock}, in {left}.")
    left, day = span((machine.ends_at - now).total_seconds()), dollars(machine.rate_microusd_hour * 24)
    return filled(text, so_far=so_far, day=day, clock=clock(machine.ends_at), left=left)


def _running_answer(machine: RunningMachine, now: datetime) -> Markup:
    if (kept := _kept_answer(machine, now)) is not None:
        return kept
    so_far = dollars(machine.cost_microusd)
    if machine.ends_at is None or machine.most_microusd is None:
        text = _("<b>{so_far} so far, and {rate} from now on.</b> No end is set: it runs until you stop it.")
        return filled(text, so_far=so_far, rate=per_hour(machine.rate_microusd_hour))
    text = _("<b>{so_far} so far, at most {most}.</b> It ends by {clock}, in {left}.")
    left = span((machine.ends_at - now).total_seconds())
    found = filled(text, so_far=so_far, most=dollars(machine.most_microusd), clock=clock(machine.ends_at), left=left)
    if (taken := _taken_back(machine.launch, now)) is not None:
        first, second = (taken, found) if is_taken_back(machine.launch.interruption) else (found, taken)
        return Markup("{} {}").format(first, second)
    if machine.used_percent is not None:
        busy = _("The GPU is {percent} busy.").format(percent=percent(machine.used_percent / 100))
        found += Markup(" {}").format(busy)
    return found


def _taken_back(launch: Launch, now: datetime) -> Markup | None:
    """What its provider announced; None: nothing."""
    notice = launch.interruption
    if notice is None:
        return None
    if not notice.kind.is_decided:
        return filled(_("{provider} sees a higher risk that it is taken back."), provider=provider_name(launch))
    if notice.at is None or notice.at <= now:
        return filled(_("<b>{provider} takes it back soon.</b>"), provider=provider_name(launch))
    text, left = _("<b>{provider} takes it back at {clock}, in {left}.</b>"), span((notice.at - now).total_seconds())
    return filled(text, provider=provider_name(launch), clock=clock(notice.at), left=left)


def _over_answer(machine: RunningMachine) -> Markup:
    launch = machine.launch
    why, cost = end_words(launch.end_reason), dollars(machine.cost_microusd)
    if launch.running_at is None or launch.ended_at is None:
        if not machine.cost_microusd:
            return filled(_("<b>It never ran: {reason}.</b> It cost nothing."), reason=why)
        return filled(_("<b>It never ran: {reason}.</b> {cost}."), reason=why, cost=cost)
    lived = span((launch.ended_at - launch.running_at).total_seconds())
    return filled(_("<b>Ended after {time}: {reason}.</b> {cost}."), time=lived, reason=why, cost=cost)


def check_line(launch: Launch) -> str:
    """Return what the owner is asked to check about a launch that nothing proves absent."""
    if launch.is_by_command:
        return _("Check with your command's own tool whether what it rented exists.")
    if launch.instance_id is not None:
        text = _("Check at {provider} whether instance {instance} exists.")
        return text.format(provider=provider_name(launch), instance=clean(launch.instance_id))
    text = _("Check at {provider} whether an instance with the label {label} exists.")
    return text.format(provider=provider_name(launch), label=clean(launch.label))


def _rate(launch: Launch) -> Markup:
    return per_hour(launch.price_microusd_hour)


def cheaper_text(found: Relocation, wanted: RelocateSpec) -> str:
    """Return the sentences about a cheaper machine of the same kind: its price, the saving, the conclusion."""
    offer, ends_at = found.match.offer, reader_clock().now + found.work.left
    price = hourly_text(found.match.price.rent_microusd_hour)
    where = ", ".join(filter(None, (provider_title(offer.provider), clean(offer.region or offer.country or "", 60))))
    there = _("Such a machine costs {price} at {where}.").format(price=price, where=where)
    if found.saving_microusd <= 0:
        text = _("Moving now would save nothing until {time}, with {setup} of set-up. Not worth it.")
        return f"{there} {text.format(time=clock_text(ends_at), setup=span(found.work.setup.total_seconds()))}"
    text = _("Moving now would save about {amount} until {time}, after {setup} of set-up.")
    saves = text.format(
        amount=dollars(found.saving_microusd), time=clock_text(ends_at), setup=span(found.work.setup.total_seconds())
    )
    if found.share < wanted.min_saving:
        return f"{there} {saves} {_('Not worth it.')}"
    worth = _("Worth it, if its results are saved: stop it, and its watch rents again.")
    return f"{there} {saves} {worth}"


# --- the timeline -----------------------------------------------------------------------------------------------------


class TimelineEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One moment: a sentence, and a muted line below it.

    Attributes:
        at: None: now.
        tone: of its dot: "good", "warn", "bad", "live" or none.
        is_ahead: it is still to come.
    """

    text: str | Markup
    icon: str
    at: datetime | None = None
    note: str | Markup = ""
    tone: str = ""
    is_ahead: bool = False


_CAUSES: Mapping[str, tuple[str, str, str]] = {  # sentence, icon, tone
    "intent": (mark_text("Ordered once, for {whose}"), "check", ""),
    "created": (mark_text("{provider} confirmed instance {instance}"), "server", ""),
    "started, and is being verified": (mark_text("Started; it is being checked against its offer"), "st-start", "live"),
    "running": (mark_text("Running, checked against its offer"), "st-run", "good"),
    "its SSH address is known": (mark_text("You can log in"), "terminal", "live"),
    "the answer was lost": (mark_text("The answer to the order was lost; gpuwatch looks for it"), "st-nodata", "warn"),
    "its answer is not known to this process": (
        mark_text("The answer to the order was lost; gpuwatch looks for it"), "st-nodata", "warn",
    ),
    "found by its label": (mark_text("Found at {provider} by its label"), "search", ""),
    "found by its id": (mark_text("Found at {provider} by its id"), "search", ""),
    "absence could not be proven": (mark_text("Nothing proves that no machine was made"), "st-held", "bad"),
    "outbid": (mark_text("Outbid: it waits until its bid wins again"), "st-lost", "warn"),
    "stopped at the provider": (mark_text("Stopped at {provider}; its disk is billed"), "st-pause", "warn"),
    "its host is offline": (mark_text("Its host is offline"), "st-nodata", "warn"),
    "running again": (mark_text("Running again"), "st-run", "good"),
    "stopped, its disk is kept": (mark_text("Stopped; its disk is kept"), "st-pause", ""),
    "runs although it was stopped": (mark_text("It ran although it was stopped"), "warn", "warn"),
    "starting it again": (mark_text("To be started again"), "st-start", "live"),
    "could not be started again": (mark_text("It could not be started again; its disk is kept"), "st-nodata", "warn"),
    "it could not be stopped": (mark_text("It could not be stopped, and runs on"), "st-nodata", "warn"),
    "no list shows it": (mark_text("{provider} no longer lists it"), "st-nodata", "warn"),
    "adopted by the owner": (mark_text("You took it over"), "check", ""),
}  # fmt: skip
_PREFIXES: Sequence[tuple[str, tuple[str, str, str]]] = (
    ("offer ", (mark_text("Ordered the next offer"), "retry", "")),
    ("stopping it with its disk kept", (mark_text("To be stopped, its disk kept: {rest}"), "st-pause", "")),
    ("extended by ", (mark_text("Extended by {rest}"), "clock", "")),
    ("the bid was raised", (mark_text("Its bid was raised"), "up", "")),
    (
        "its provider announces an interruption: rebalance",
        (mark_text("{provider} sees a higher risk that it is taken back"), "warn", "warn"),
    ),
    ("its provider announces an interruption", (mark_text("{provider} takes it back"), "st-lost", "bad")),
    ("its price rose", (mark_text("Its price rose: {rest}"), "up", "warn")),
    ("its price fell", (mark_text("Its price fell: {rest}"), "down", "good")),
)


def launch_timeline(machine: RunningMachine, events: Sequence[LaunchEvent], now: datetime) -> list[TimelineEntry]:
    """Return what is to come, now, and what was, newest first."""
    launch = machine.launch
    ahead = sorted(_ahead(machine, now), key=lambda entry: entry.at or now, reverse=True)
    entries = [] if launch.is_over else [*ahead, TimelineEntry(text=_("Now"), icon="right")]
    return [*entries, *(_entry(launch, event) for event in reversed(events))]


def _ahead(machine: RunningMachine, now: datetime) -> Iterator[TimelineEntry]:
    launch, ends_at = machine.launch, machine.ends_at
    if launch.state is LaunchState.STOPPING:
        yield TimelineEntry(text=_("The provider confirms its end"), icon="stop", is_ahead=True)
        return
    notice = launch.interruption
    if notice is not None and notice.at is not None and notice.at > now:
        text = _("Taken back by its provider")
        yield TimelineEntry(text=text, icon="st-lost", at=notice.at, note=until(notice.at), tone="bad", is_ahead=True)
    if ends_at is not None:
        text = _("Its disk is destroyed") if launch.is_kept else _("Ends at the latest")
        yield TimelineEntry(text=text, icon="stop", at=ends_at, note=until(ends_at), is_ahead=True)
    if machine.idle_ends_at is not None:
        at = machine.idle_ends_at
        yield TimelineEntry(text=_("Ends if it stays idle"), icon="warn", at=at, note=until(at), is_ahead=True)
    if launch.running_at is not None and launch.max_runtime_s is not None and launch.kept is None:
        whole = timedelta(seconds=launch.max_runtime_s)
        at = launch.running_at + whole * RUNTIME_SHARE
        if whole >= RUNTIME_LEAST and at > now:
            note = _("at 80 % of its time")
            yield TimelineEntry(text=_("Reminder before the end"), icon="alerts", at=at, note=note, is_ahead=True)
    if launch.state is LaunchState.STARTING and launch.ready_within_s is not None and launch.running_at is None:
        at = (launch.requested_at or launch.intended_at) + timedelta(seconds=launch.ready_within_s)
        yield TimelineEntry(text=_("Must run by then, or it ends"), icon="clock", at=at, is_ahead=True)


def _entry(launch: Launch, event: LaunchEvent) -> TimelineEntry:
    text, icon, tone, rest = _said(launch, event)
    whose = plain_name(launch.purpose.job or launch.watch)
    instance = clean(launch.instance_id or "–")
    sentence = text.format(whose=whose, provider=provider_name(launch), instance=instance, rest=rest)
    runs = event.to_state is LaunchState.RUNNING and launch.condition is None
    notes: list[str | Markup] = []
    if event.provider_words and not runs:
        notes.append(translate_composed(clean(event.provider_words, 300)))
    if event.to_state is LaunchState.RUNNING and event.price_microusd_hour and icon != "st-pause":
        notes.insert(0, per_hour(event.price_microusd_hour))
    return TimelineEntry(text=sentence, icon=icon, at=event.at, note=Markup(" · ").join(notes), tone=tone)


def _said(launch: Launch, event: LaunchEvent) -> tuple[str, str, str, str]:
    """Return sentence, icon, tone, and the part of the stored cause that the sentence shows."""
    if (known := _CAUSES.get(event.cause)) is not None:
        text, icon, tone = known
        return _(text), icon, tone, ""
    if event.to_state in {LaunchState.STOPPING, LaunchState.ENDED, LaunchState.FAILED}:
        reason = end_words(event.cause)
        if event.to_state is LaunchState.STOPPING:
            return _("Being ended: {rest}"), "st-stop", "warn", reason
        if event.to_state is LaunchState.ENDED:
            return _("Ended: {rest}"), "st-end", "", reason
        return _("Failed: {rest}"), "st-fail", "bad", reason
    for prefix, (text, icon, tone) in _PREFIXES:
        if event.cause.startswith(prefix):
            return _(text), icon, tone, clean(event.cause.removeprefix(prefix).lstrip(": "), 120)
    return "{rest}", "info", "", clean(event.cause, 160)
