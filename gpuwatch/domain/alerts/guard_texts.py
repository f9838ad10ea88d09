"""The alerts of the guard: what happens to a running launch, what it will cost, and budgets. Pure.

`LaunchAlerts.of` (engine) adds the facts of the launch and the fields of `launch_texts`. Each is sent once: its key
names the event.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gpuwatch.domain.alerts.alert import AlertKind, AlertSpec, Severity
from gpuwatch.domain.alerts.launch_texts import about_launch

_SAVE = "Save its results"
_END_NOW = "End it now: gpuwatch launches stop {launch}"
_STOP_BILLING = "End it and stop its billing: gpuwatch launches stop {launch}"
_RENT_ELSEWHERE = "Let its watch rent elsewhere next time (launch.relaunch = true)"


def _event(once: str, headline: str, why: str, *can_do: str, **texts: Any) -> AlertSpec:
    return about_launch(headline, why, **{"once": once, "did": "Nothing yet.", "can_do": can_do} | texts)


def _still(headline: str, why: str, *can_do: str, kind: AlertKind) -> AlertSpec:
    facts = (("Its disk", "{disk}"), ("Bid", "{bid}"))
    return _event("{condition}:{began:%Y%m%dT%H%M%S}:{nth}:{launch}", headline, why, *can_do, kind=kind, facts=facts)


# a new key after an extension
RUNTIME = _event(
    "runtime:{max_runtime_s:.0f}:{launch}",
    "its longest runtime ends at {ends:%H:%M %Z}",
    "Most of its longest runtime has passed; it ends at {end}.",
    _SAVE,
    _END_NOW,
)
CLOSING = _event(
    "closing:{closes:%Y%m%dT%H%M}:{launch}",
    "its active windows close soon",
    "They close at {close}, and it ends then (stop_outside = true).",
    _SAVE,
    "Let it run outside its hours (stop_outside = false)",
)
CONTRACT = _event(
    "contract:{near}:{ends:%Y%m%dT%H}:{launch}",
    "its host ends the contract {soon}",
    "The contract ends at {end}{until}. The data on its disk is lost then.",
    _SAVE,
    _END_NOW,
)
IN_LESS_THAN_AN_HOUR, AT = "in less than an hour", "at {end}"
RUNTIME_IS_LONGER = "; its longest runtime extends to {end}"
MAINTENANCE = _event(
    "maintenance:{begins:%Y%m%dT%H}:{launch}",
    "its host announces maintenance at {begin}",
    "The machine may be down from then on.",
    "Save its results before then",
)
# the same offer with about the same saving is reported once
CHEAPER_ELSEWHERE = _event(
    "relocate:{provider_there}:{machine}:{step}:{launch}",
    "moving it to {provider_there} would save {saving} ({share:.0%})",
    "The remaining {hours:,.1f} h cost {stay} here and {move} there, including {setup_min:,.0f} min of set-up and "
    "minimum billing.",
    "To move, end it, and its watch rents again: gpuwatch launches stop {launch}",
    "Save its results first: the data on its disk is lost",
    facts=(
        ("Offer", "{offer} at {provider_there}, machine {machine}"),
        ("Price there", "${price}/h"),
        ("Assumed", "{assumed}"),
    ),
    did="Nothing: gpuwatch does not move running launches, and does not rent a second one in the meantime.",
)
# once for each bid: a raised one is another risk
UNDERBID = _event(
    "underbid:{bid}:{launch}",
    "somebody bids more for its machine",
    "It runs at {bid}/h, listed; ${least}/h would keep it. It may be stopped at any moment, without another notice.",
    "Allow a higher bid (launch.bid.max)",
    _SAVE,
    severity=Severity.WARNING,
    did="{next}",
)
NEXT_BID = "Nothing yet. When it is outbid, gpuwatch raises its bid within launch.bid.max."
NEXT_JOB = "Nothing yet. When it is outbid, the job continues on another machine, from its newest checkpoint."
NEXT_ELSEWHERE = "Nothing yet. When it stays outbid, it ends, and its watch rents elsewhere (launch.relaunch = true)."
NEXT_WAITS = "Nothing yet. When it is outbid, it waits until its bid wins again; its disk is billed in the meantime."
STILL_STOPPED = _still(
    "still stopped at the provider, and billed",
    "A stopped instance is billed for its disk until it is destroyed. Since {since}.",
    "Start it at the provider",
    _STOP_BILLING,
    kind=AlertKind.HELD,
)
STILL_OUTBID = _still(
    "still outbid",
    "It waits until its bid wins again; its disk is billed in the meantime. Since {since}.",
    "Allow a higher bid (launch.bid.max)",
    _RENT_ELSEWHERE,
    _STOP_BILLING,
    kind=AlertKind.RENT,
)
STILL_OFFLINE = _still(
    "its host is still offline",
    "Its GPUs are not billed in the meantime. Hosts often come back, but there is no guarantee. Since {since}.",
    "Wait if you need the data on its disk",
    _RENT_ELSEWHERE,
    _STOP_BILLING,
    kind=AlertKind.HELD,
)
DISK_PRICE, DISK_PRICE_UNKNOWN = "{usd_day} a day", "its price is unknown"
BID, BID_UNKNOWN = "{bid}/h, listed; ${least}/h would run", "unknown"
UNMEASURED = _event(
    "unmeasured:{launch}",
    "its GPUs and its network could not be measured",
    "Its SSH port answers, but the login failed: {error}.",
    "Check the SSH key of its watch (launch.ssh_key), and that the provider has its public key",
    did="gpuwatch keeps it: a failed login does not prove a faulty machine.",
)
# once a day of the launch, and again after it recovered: a restart repeats no alert on the same day
WASTE = _event(
    "waste:{day}:{recovered}:{launch}",
    "low GPU utilisation: {mean:.0f} %",
    "Mean of {minutes} min: {mean:.0f} %; less than the {below:g} % that you expect (wasteful_below).",
    "Follow it: gpuwatch launches",
    "End it: gpuwatch launches stop {launch}",
    facts=(("Useful hour", "{useful}"), ("Wasted so far", "{wasted}")),
    did="Nothing: this limit only alerts; another one ends idle machines (idle_below).",
)
# the answer was given by the owner's policy; a new key once it is confirmed
PRICE_RAISED = _event(
    "increase:{increase}:{answer}:{launch}",
    "its host raises the price",
    "The host proposes another price for the running contract: {words}, from {at} on.",
    _END_NOW,
    facts=(("New price", "{words}"), ("Takes effect", "{at}"), ("Additional cost", "{extra}")),
    did="{did}",
)
PRICE_RAISED_UNANSWERED = msgspec.structs.replace(
    PRICE_RAISED,
    kind=AlertKind.HELD,
    can_do=(
        "Accept or reject it at {provider}",
        "Let gpuwatch answer such proposals (launch.on_price_increase)",
        "End it: gpuwatch launches stop {launch}",
    ),
)
NOT_ANSWERED = "Nothing was sent: the decision is yours."
ACCEPTED = "Accepted: the new price is at or under the limit, and the budget allows it."
REJECTED = "Rejected; the instance ends before the new price applies."
ACCEPTING = "Accepting it; the provider has not confirmed yet. gpuwatch retries every minute."
NOT_CONFIRMED = "The provider did not confirm the rejection; the instance ends before the new price applies."
EXTRA_PER_DAY, EXTRA_IN_ALL = "{extra} per day", "{extra} until its longest runtime ends"
UNKNOWN_TIME, UNKNOWN_AMOUNT = "an unknown time", "the provider does not state the amount"

BUDGET_NAMES = {"max_usd_hour": "hourly budget", "max_usd_day": "daily budget", "max_usd_month": "monthly budget"}
OWN_BUDGET = "{watch}: its {budget}"
# once in each window and for each limit
BUDGET_NEARLY = AlertSpec(
    kind=AlertKind.BUDGET,
    once="budget:nearly:{name}:{window}:{limit_microusd}:{of}",
    headline="{budget} is used to 80 %",
    facts=(
        ("Limit", "{limit}"),
        ("Billed", "{billed}"),
        ("Spent", "{spent}"),
        ("If all launches continue", "{by_end}"),
    ),
    why="Running launches count against it: {words}.",
    did="{did}",
    can_do=("See what was spent: gpuwatch launches costs", "End a launch: gpuwatch launches stop ID"),
)
BUDGET_REACHED = msgspec.structs.replace(
    BUDGET_NEARLY,
    once="budget:full:{name}:{window}:{limit_microusd}:{of}",
    headline="{budget} is reached",
)
BUDGET_WARNS = 'No launch ends (on_reached = "warn"). gpuwatch rents nothing beyond the budget.'
BUDGET_WILL_STOP = 'Nothing yet: running launches end when the budget is reached (on_reached = "stop").'
BUDGET_STOPS_NEWEST = 'Ends the newest launches until the others fit (on_reached = "stop").'
BUDGET_STOPS_ALL = 'Ends every launch under this budget (on_reached = "stop").'
