"""The alerts of the guard: what happens to a running launch, what it will cost, and budgets. Pure.

`LaunchAlerts.of` (engine) adds the facts of the launch and the fields of `launch_texts`. Each is sent once: its key
names the event.
"""

from __future__ import annotations

import msgspec

from gpuwatch.domain.alerts.alert import AlertKind, AlertSpec

_NOTHING_YET = "Nothing yet."
_SAVE = "Save its results"
_END_NOW = "End it now: gpuwatch launches stop {launch}"
_STOP_BILLING = "End it and stop its billing: gpuwatch launches stop {launch}"
_RENT_ELSEWHERE = "Rent elsewhere next time: launch.relaunch = true"
_CONDITION_KEY = "{condition}:{began:%Y%m%dT%H%M%S}:{nth}:{launch}"
_CONDITION_FACTS = (("Its disk", "{disk}"), ("Bid", "{bid}"))

# a new key after an extension
RUNTIME = AlertSpec(
    kind=AlertKind.RENT,
    once="runtime:{max_runtime_s:.0f}:{launch}",
    headline="{watch}: max_runtime ends at {ends:%H:%M %Z}",
    why="Most of its max_runtime has passed; it ends at {end}.",
    did=_NOTHING_YET,
    can_do=(_SAVE, _END_NOW),
)
CLOSING = AlertSpec(
    kind=AlertKind.RENT,
    once="closing:{closes:%Y%m%dT%H%M}:{launch}",
    headline="{watch}: its active windows close soon",
    why="They close at {close}, and stop_outside = true ends it then.",
    did=_NOTHING_YET,
    can_do=(_SAVE, "Keep it running: stop_outside = false"),
)
CONTRACT = AlertSpec(
    kind=AlertKind.RENT,
    once="contract:{near}:{ends:%Y%m%dT%H}:{launch}",
    headline="{watch}: its host ends the contract {soon}",
    why="The contract ends at {end}{until}. The data on its disk is lost then.",
    did=_NOTHING_YET,
    can_do=(_SAVE, _END_NOW),
)
MAINTENANCE = AlertSpec(
    kind=AlertKind.RENT,
    once="maintenance:{begins:%Y%m%dT%H}:{launch}",
    headline="{watch}: its host announces maintenance at {begin}",
    why="The machine may be down from then on.",
    did=_NOTHING_YET,
    can_do=("Save its results before then",),
)
# the same offer with about the same saving is reported once
CHEAPER_ELSEWHERE = AlertSpec(
    kind=AlertKind.RENT,
    once="relocate:{provider_there}:{machine}:{step}:{launch}",
    headline="{watch}: moving it to {provider_there} would save {saving} ({share:.0%})",
    facts=(
        ("Offer", "{offer} at {provider_there}"),
        ("Price there", "${price} an hour"),
        ("Assumed", "{assumed}"),
    ),
    why="The remaining {hours:,.1f} h cost {stay} here and {move} there, including {setup_min:,.0f} min of set-up and "
    "minimum billing.",
    did="Nothing: gpuwatch does not move running launches, and does not rent a second one in the meantime.",
    can_do=(
        "To move, end it, and its watch rents again: gpuwatch launches stop {launch}",
        "Save its results first: the data on its disk is lost",
    ),
)
STILL_STOPPED = AlertSpec(
    kind=AlertKind.HELD,
    once=_CONDITION_KEY,
    headline="{watch}: still stopped at the provider, and billed",
    facts=_CONDITION_FACTS,
    why="A stopped instance is billed for its disk until it is destroyed. Since {since}.",
    did=_NOTHING_YET,
    can_do=("Start it at the provider", _STOP_BILLING),
)
STILL_OUTBID = AlertSpec(
    kind=AlertKind.RENT,
    once=_CONDITION_KEY,
    headline="{watch}: still outbid",
    facts=_CONDITION_FACTS,
    why="It waits until its bid wins again; its disk is billed in the meantime. Since {since}.",
    did=_NOTHING_YET,
    can_do=("Allow a higher bid: launch.bid.max", _RENT_ELSEWHERE, _STOP_BILLING),
)
STILL_OFFLINE = AlertSpec(
    kind=AlertKind.HELD,
    once=_CONDITION_KEY,
    headline="{watch}: its host is still offline",
    facts=_CONDITION_FACTS,
    why="Its GPUs are not billed in the meantime. Hosts often come back, but there is no guarantee. Since {since}.",
    did=_NOTHING_YET,
    can_do=("Wait if you need the data on its disk", _RENT_ELSEWHERE, _STOP_BILLING),
)
UNMEASURED = AlertSpec(
    kind=AlertKind.RENT,
    once="unmeasured:{launch}",
    headline="{watch}: its GPUs and its network could not be measured",
    why="Its SSH port answers, but the login failed: {error}.",
    did="gpuwatch keeps it: a failed login does not prove a faulty machine.",
    can_do=("Check launch.ssh_key, and that the provider has its public key",),
)
# once a day of the launch, and again after it recovered: a restart repeats no alert on the same day
WASTE = AlertSpec(
    kind=AlertKind.RENT,
    once="waste:{day}:{recovered}:{launch}",
    headline="{watch}: low GPU utilisation: {mean:.0f} %",
    facts=(("Useful hour", "{useful}"), ("Wasted so far", "{wasted}")),
    why="Mean of {minutes} min: {mean:.0f} %; wasteful_below = {below:g}.",
    did="Nothing: wasteful_below only alerts; idle_below ends the launch.",
    can_do=("Follow it: gpuwatch launches", "End it: gpuwatch launches stop {launch}"),
)
# the answer was given by the owner's policy; a new key once it is confirmed
PRICE_RAISED = AlertSpec(
    kind=AlertKind.RENT,
    once="increase:{increase}:{answer}:{launch}",
    headline="{watch}: its host raises the price",
    facts=(("New price", "{words}"), ("Takes effect", "{at}"), ("Additional cost", "{extra}")),
    why="The host proposes another price for the running contract: {words}, from {at} on.",
    did="{did}",
    can_do=(_END_NOW,),
)
PRICE_RAISED_UNANSWERED = msgspec.structs.replace(
    PRICE_RAISED,
    kind=AlertKind.HELD,
    can_do=(
        "Accept or reject it at {provider}",
        "Let gpuwatch reply: set launch.on_price_increase",
        "End it: gpuwatch launches stop {launch}",
    ),
)

# once in each window and for each limit
BUDGET_NEARLY = AlertSpec(
    kind=AlertKind.BUDGET,
    once="budget:nearly:{name}:{window}:{limit_microusd}:{of}",
    headline="{whose} {name} is used to 80 %",
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
    headline="{whose} {name} is reached",
)
BUDGET_WARNS = 'No launch ends (on_reached = "warn"). gpuwatch rents nothing beyond the budget.'
BUDGET_WILL_STOP = 'Nothing yet: on_reached = "stop" ends running launches when the budget is reached.'
BUDGET_STOPS_NEWEST = 'on_reached = "stop": ends the newest launches until the others fit.'
BUDGET_STOPS_ALL = 'on_reached = "stop": ends every launch under this budget.'
