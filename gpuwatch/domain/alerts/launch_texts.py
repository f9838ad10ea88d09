"""The alerts about launches: what is rented, and what became of it. Pure.

`LaunchAlerts.of` (engine) adds the facts of the launch, and fills in these fields: `launch`, `provider`, `label`,
`instance` (its id, or its label while that is unknown) and `state`, a sentence about the launch's state.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from gpuwatch.domain.alerts.alert import AlertKind, AlertSpec, Severity

FOLLOW_IT = ("Follow it: gpuwatch launches",)
DOCTOR = "See what is wrong: gpuwatch doctor"
_CHECK_LABEL = "Check your instances at {provider} for the label {label}"
_CHECK_KEY = "Check the key's permissions: gpuwatch doctor"

LAUNCH_FACTS = (  # `of` is the launch
    ("Launch", "{launch}"),
    ("GPU", "{gpus}{spot}"),
    ("Price", "${price}/h; listed ${listed}/h"),
    ("Provider", "{provider}, offer {of.offer_id}, machine {machine}"),
    ("Reserved", "{reserved}/h"),
    ("Offer", "{reserved_offer}"),
    ("Instance", "{instance}"),
    ("Log in", "{login}"),
    ("Cost", "{cost}"),
    ("Cost so far", "{cost_so_far}"),
    ("Cost at its latest end", "{cost_at_end}, {left} from now"),
    ("Self-destruct", "{own_end}"),
)
INTERRUPTIBLE = ", interruptible (spot)"
UNKNOWN_MACHINE = "unknown"

# --- the field `state`: what gpuwatch did, by the state of the launch -------------------------------------------------

HAS_ENDED = "Launch {launch} has ended."
HAS_FAILED = "Launch {launch} failed."
OTHER_PLACES_FIRST = "{text} For an hour, gpuwatch tries other places and offers before {machine}."
NOT_THAT_MACHINE = "{text} gpuwatch does not rent machine {machine} for {hours} hours (gpuwatch providers machines)."
IS_STOPPING = "Launch {launch} is stopping; gpuwatch sends an alert when its end is confirmed."
CONTINUES = "Launch {launch} continues: state {is_in}, {condition}."
IS_IN_STATE = "Launch {launch} is {is_in}."

# --- changes of its state: `state_machine` names them -----------------------------------------------------------------


def about_launch(headline: str, why: str | tuple[str, ...], **texts: Any) -> AlertSpec:
    """Declare an alert whose headline names the watch, then `headline`."""
    texts = {"kind": AlertKind.RENT, "did": "{state}", "can_do": FOLLOW_IT} | texts
    return AlertSpec(headline=f"{{watch}}: {headline}", why=why, **texts)


DOES_NOT_START = about_launch(
    "rented, but it does not start",
    "The provider created a contract that does not start. Its disk is billed, so gpuwatch destroys it.",
)
_FOUND = "The answer to the request was lost; gpuwatch found the instance by its label. Nothing was sent twice."
FOUND = about_launch("rented; found by its label", _FOUND)
FOUND_TO_END = about_launch("found by its label; ending it", _FOUND)
RUNNING = about_launch("running", "The instance started.")
BID_RAISED = about_launch(
    "its bid was raised", "It was outbid; the bid was raised to ${bid}/h, listed, without its disk."
)
ENDING = about_launch("ending: {end}", "{reason}")
OVER = about_launch("{end}", "{reason}")
NOTHING_MADE = about_launch("nothing was made", "{reason}")
_ADOPTED = "The owner assigned instance {assigned} to it."
ADOPTED = about_launch("adopted by the owner", _ADOPTED)
ADOPTED_TO_END = about_launch("adopted by the owner; ending it", _ADOPTED)
TAKEN_OVER = about_launch(
    "adopted", "You adopted it. Its earlier cost is in no launch; its longest runtime counts from now."
)
STARTED_BY_COMMAND = about_launch(
    "started by its command",
    "{cause} gpuwatch does not see what it rented, and counts the watch's limit until its longest runtime has passed.",
)
COMMAND_TIME_OVER = about_launch(
    "its longest runtime is over",
    "Its reservation is released. gpuwatch ended nothing: check that what the command rented is gone.",
)


def _flapping(headline: str, why: str) -> AlertSpec:
    """At most once in ten minutes, and a price when it differs by a few percent."""
    return about_launch(headline, why, once=f"befallen:{{launch}}:{headline}:{{price_step}}:{{ten_minutes}}")


OUTBID = _flapping(
    "outbid", "Somebody outbid it. The instance is stopped until its bid wins again; its disk is billed."
)
STOPPED = _flapping(
    "stopped at the provider",
    "It was stopped there, or the balance ran out. Its disk is billed until it is destroyed.",
)
OFFLINE = _flapping("its host is offline", "The provider lost contact with the machine, which may come back.")
RUNS_AGAIN = _flapping("running again", "The provider lists it as running.")
_PRICES = "The provider's list shows ${before} → ${after}/h, listed."
PRICE_ROSE = _flapping("its price rose", _PRICES)
PRICE_FELL = _flapping("its price fell", _PRICES)

# once an hour for each cause: a flapping offer must not flood the owner
NOT_RENTED = about_launch(
    "not rented: {end.value}",
    "{why}",
    kind=AlertKind.REFUSED,
    once="not-rented:{watch:.120}:{end.name}:{now:%Y-%m-%dT%H}",
    can_do=("{advice}",),
)
MEND_ORDER = "Check key, credit and order: gpuwatch doctor"
_RESOLVE = (
    "If it exists: gpuwatch launches resolve {launch} --adopt {candidate}",
    "If it does not: gpuwatch launches resolve {launch} --absent",
)
ASKED_TO_END = about_launch(
    "an agent asks to end it",
    "The agent says (gpuwatch mcp): {why}",
    kind=AlertKind.RENT,
    did="Nothing: you rented it, so the decision is yours.",
    once="asked-to-end:{launch}:{now:%Y-%m-%dT%H}",
    can_do=("End it: gpuwatch launches stop {launch}",),
)
HELD = about_launch(
    "held: nothing proves that no instance was created",
    (
        "The request may have succeeded; nothing proves that it did not. Its budget stays reserved.",
        "Evidence: {evidence}.",
    ),
    kind=AlertKind.HELD,
    once="held:{launch}:{now:%Y-%m-%d}",
    can_do=(_CHECK_LABEL, *_RESOLVE),
)
MAY_BE_IT = "instance {candidate} belongs to no launch and may be it"
HELD_BY_COMMAND = msgspec.structs.replace(
    HELD,
    headline="{watch}: held: its command may have rented",
    why=(
        "{cause} It may have rented, so gpuwatch does not repeat it. Its budget stays reserved.",
        "Last output: {output}",
    ),
    can_do=("Check your instances with the tool that its command calls", *_RESOLVE),
)
_STILL = "It still needs your decision. Its budget stays reserved and its slot occupied."
STILL_HELD = msgspec.structs.replace(HELD, why=_STILL)
STILL_HELD_BY_COMMAND = msgspec.structs.replace(HELD_BY_COMMAND, why=_STILL)
UNLISTED = about_launch(
    "the provider no longer lists it",
    "A missing entry is no proof: it may still run and be billed. gpuwatch does not touch it and keeps its slot.",
    kind=AlertKind.HELD,
    once="unlisted:{launch}",
    can_do=(_CHECK_LABEL, "If it is gone or you do not need it: gpuwatch launches stop {launch}"),
)
RETURNED = about_launch(
    "its instance reappeared; gpuwatch follows it again; it is billed",
    "It had ended ({end}), and {provider} lists it again.",
    kind=AlertKind.ORPHAN,
    once="returned:{launch}:{now:%Y-%m-%d}",
    can_do=("If you do not need it: gpuwatch launches stop {launch}", *FOLLOW_IT),
)
RETURNED_TO_END = msgspec.structs.replace(
    RETURNED, headline="{watch}: its instance reappeared after its end; ending it again; it is billed"
)
STILL_BACK = msgspec.structs.replace(
    RETURNED,
    headline="{watch}: its instance reappeared after its end; it is billed",
    why="The provider lists it again. It counts against budgets and limits until it ends.",
)
CONTRADICTION = about_launch(
    "{provider} gives contradictory answers about instance {instance_id}",
    "{why}",
    kind=AlertKind.BLIND,
    once="contradiction:{launch}:{now:%Y-%m-%d}",
    can_do=("Check your instances at {provider}", *FOLLOW_IT),
)
OMITTED_BY_LIST = "The list omits it, but a lookup by id finds it."
LISTED_ALONE = "The list shows it after its end, but a lookup by id finds nothing."
UNMANAGED = about_launch(
    "gpuwatch can no longer manage it",
    "{provider} is not configured, or has no key: gpuwatch can neither list nor end the instance.",
    kind=AlertKind.HELD,
    once="unwatched:{launch}:{now:%Y-%m-%d}",
    can_do=("Restore {section}", "Or end instance {instance} at {provider} manually"),
)
OTHER_ACCOUNT = about_launch(
    "gpuwatch can no longer reach it",
    "It runs under account {account}, but the key of {provider} belongs to another account.",
    kind=AlertKind.HELD,
    once="other-account:{launch}:{now:%Y-%m-%d}",
    can_do=(
        "Give gpuwatch its original key as well (previous_api_key in [providers.{provider}])",
        "If both keys belong to one account: gpuwatch providers accounts --same --provider {provider}",
        "Or end instance {instance} at {provider} manually",
    ),
)
OF_NO_KNOWN_ACCOUNT = msgspec.structs.replace(
    OTHER_ACCOUNT, why="An older gpuwatch started it, and this key has not listed it at {provider} since."
)
# once an hour, for all causes together
END_REFUSED = about_launch(
    "{provider} refuses to end it; it is still billed",
    "{error}. Reason for its end: {reason}",
    kind=AlertKind.HELD,
    once="slow-stop:{launch}:{now:%Y-%m-%dT%H}",
    can_do=("End it at {provider} manually", DOCTOR, *FOLLOW_IT),
)
END_UNCONFIRMED = msgspec.structs.replace(
    END_REFUSED, headline="{watch}: its end is not confirmed yet; it may still be billed", why="{reason}"
)
TIME_OVER, TO_BE_ENDED = "its time is over", "to be ended"  # the reason of an end that has none
ABANDONED = AlertSpec(
    kind=AlertKind.RENT,
    severity=Severity.WARNING,
    once="abandoned:{launch}:{watch:.60}:{held:.100}",
    headline='launch {launch} is active, but its watch "{watch}" is not in the settings',
    facts=(("Launch", "{launch}"), ("Provider", "{provider}"), ("Instance", "{instance}")),
    why="The watch was renamed or removed.",
    did=(
        "{followed}",
        "Until this is resolved, gpuwatch rents nothing for the new watch {new_watch}.",
        "Until this is resolved, gpuwatch rents nothing for the new watches {new_watches}.",
    ),
    can_do=(
        'If it has a new name: write the old one into that watch (renamed_from = "{watch}"), then reload the settings',
        "{both}",
        "If you do not need it: gpuwatch launches stop {launch}",
    ),
)
RULES_UNKNOWN = "Its longest runtime and budgets still end it; the other rules of its watch are unknown."
RULES_KEPT = "gpuwatch follows it by the settings it was rented with, but calls none of its hooks."
UNSERVED = AlertSpec(
    kind=AlertKind.HELD,
    once="unserved:{subject}:{by}:{now:%Y-%m-%d}",
    headline="{launches} of {whose} active, but none of its hosts runs",
    facts=(("Launches", "{ids}"),),
    why="Every owner's hosts follow and guard the launches of that owner alone.",
    did="gpuwatch ends each here five minutes after its end, if a key reaches its account, and does nothing else.",
    can_do=(
        "Take over what it stored: gpuwatch watches take-over --all --from '{subject}'",
        "Or start a host whose settings have that owner",
    ),
)
LISTS_DIFFER = AlertSpec(
    kind=AlertKind.DAEMON,
    once="lists:{host}:{other:.60}:{key}:{now:%Y-%m-%d}",
    headline="{host} and {other} have different watch lists",
    facts=(("Leads", "{host}"), ("Stands by", "{other}"), ("In one of the lists alone", "{watches}")),
    why="Both hosts share one database and one owner, and the list of the host that leads applies.",
    did="Watches that {host} lacks are not polled while it leads, and not retired. Their launches end on time.",
    can_do=(
        "Use the same settings on both hosts, then reload both",
        "If the lists are to be separate: set a different `owner` on the hosts of one of them",
    ),
)
BOTH_INTENDED = 'If both are intended: write into the new watch that it had no other name (renamed_from = "")'
ID_UNKNOWN = "not known yet"
HOOK_FAILED = about_launch(
    "its hook {event} failed",
    "Tried {tries} times.",
    severity=Severity.WARNING,
    once="hook:{launch}:{event}",
    facts=(("Launch", "{launch}"), ("Hook", "{event}"), ("Error", "{error}")),
    did="The launch continues: hooks never block a launch.",
    can_do=("Do the hook's task manually", "Fix {event} in [watch.launch]"),
)
HOOK_FAILED_ONCE = msgspec.structs.replace(HOOK_FAILED, why="It ran once; gpuwatch does not retry it.")

# --- refused ----------------------------------------------------------------------------------------------------------

DAY_LIMIT = AlertSpec(
    kind=AlertKind.REFUSED,
    once="max_per_day:{watch:.150}:{now:%Y-%m-%d}",
    headline="{watch}: no more launches today; it has rented {max_per_day}, as many as you allowed",
    facts=(("Next launch", "from 00:00 UTC on"),),
    why="It found an offer, but did not rent: {refusal}.",
    did="gpuwatch rents nothing for this watch until then. Its alerts about offers continue.",
)
# one alert per episode, however often it trips again; the watch stays paused that long unless somebody resumes it
BREAKER = AlertSpec(
    kind=AlertKind.REFUSED,
    lifetime=timedelta(days=1),
    once="breaker:{watch:.150}:{at_ms}",
    headline="{watch}: paused after failed launches",
    why="{why}. {threshold} failures in a row are not the fault of a single machine.",
    did="This watch does not rent before {until}; then gpuwatch tries one launch. If it fails as well, gpuwatch tries "
    "again an hour later; if it runs, the watch continues normally.",
    can_do=("See what failed: gpuwatch launches", "Resume now: gpuwatch watches resume {name}"),
)
PREREQUISITES_MET = AlertSpec(
    kind=AlertKind.RECOVERED,
    once="prerequisites-met:{subject}:{since_s}",
    headline="{subject}: its prerequisites are met; gpuwatch can rent there again",
    facts=(("Provider", "{subject}"), ("Was missing", "{missing}")),
    why="A check of the account found nothing missing.",
    did="Watches rent there again.",
)
PREREQUISITES_MISSING = AlertSpec(
    kind=AlertKind.REFUSED,
    once="prerequisites:{subject}:{since_s}",
    headline="gpuwatch does not rent at {subject}: {missing} missing",
    why="Every order there would be refused, or its instance could not be used.",
    did="gpuwatch rents nothing there, keeps polling its offers, and checks again every minute.",
    resolved=PREREQUISITES_MET,
)

# --- the list of instances --------------------------------------------------------------------------------------------

LIST_BACK = AlertSpec(
    kind=AlertKind.RECOVERED,
    headline="{subject} lists its instances again",
    facts=(("Provider", "{subject}"),),
    why="gpuwatch received a complete list.",
    did="gpuwatch monitors running launches there again.",
)
LIST_MISSING = AlertSpec(
    kind=AlertKind.BLIND,
    once="unseen:{subject}:{now:%Y-%m-%dT%H}",
    headline="{subject} does not list its instances: state of {launches} unknown",
    facts=(("Provider", "{subject}"), ("Last error", "{error}")),
    why="gpuwatch could not list instances for 10 minutes. Their state and price are unknown.",
    did="gpuwatch still ends instances by id at their longest runtime or their deadline. It sends no order twice.",
    can_do=(_CHECK_KEY, "Check your instances at {subject}"),
    resolved=LIST_BACK,
)
NOTHING_RENTED = AlertSpec(
    kind=AlertKind.REFUSED,
    severity=Severity.CRITICAL,
    once="nothing-rented:{subject}:{now:%Y-%m-%d}",
    headline="gpuwatch does not rent at {subject}: its instances are unknown",
    facts=(("Provider", "{subject}"), ("Last error", "{error}")),
    why="Since gpuwatch started, it could not read the account of the key or list its instances. Earlier launches may "
    "run there, and another one could exceed the limits.",
    did="gpuwatch rents nothing there, keeps polling its offers, and retries continuously.",
    can_do=(_CHECK_KEY, "Let watches rent elsewhere: `providers`"),
    resolved=LIST_BACK,
)
ORPHAN = AlertSpec(
    kind=AlertKind.ORPHAN,
    once="orphan:{provider}:{subject}:{now:%Y-%m-%d}",
    headline="{provider} bills an instance with a gpuwatch label that belongs to no running launch",
    facts=(("Instance", "{subject}"), ("Label", "{label}"), ("State", "{state}"), ("Price", "{price}")),
    why="{why}",
    did="gpuwatch rents nothing at {provider} until this is resolved. It never destroys an instance that may not be "
    "its own.",
    can_do=(
        "Take it over: gpuwatch launches adopt {subject}",
        "If you do not need it, destroy it at {provider}",
        "If another installation owns it: gpuwatch launches adopt {subject} --not-mine",
    ),
)
UNKNOWN_STATUS = AlertSpec(
    kind=AlertKind.DRIFT,
    headline="{subject}: unknown status of an instance: {newest}",
    facts=(("Provider", "{subject}"), ("Status", "{words}")),
    why="The provider's own client did not know it when this gpuwatch was written. Each word is reported once.",
    did="gpuwatch changes nothing because of it. An instance that is not running in time is ended (ready_within).",
    can_do=("See what the provider's own page says: gpuwatch launches", "Check for a newer gpuwatch"),
)

# --- the keeper: its alerts bypass the outbox -------------------------------------------------------------------------

KEEPER_ENDED = about_launch(
    "its instance outlived its end; the keeper destroyed it",
    "Its end at {end} passed, and gpuwatch had not recorded its end.",
    kind=AlertKind.END,
    severity=Severity.CRITICAL,
    facts=(("Destroyed", "{destroyed}"),),
    did="{provider} accepted the destroy request. gpuwatch checks that the instance is gone.",
    can_do=("Check the instances at {provider}", DOCTOR),
)
KEEPER_CANNOT_END = about_launch(
    "its instance outlived its end and cannot be destroyed",
    "Its end at {end} passed. It may still be billed.",
    kind=AlertKind.END,
    severity=Severity.CRITICAL,
    facts=(("Error", "{error}"),),
    did="gpuwatch retries every few seconds.",
    can_do=("Destroy {what} at {provider} manually", DOCTOR),
)
