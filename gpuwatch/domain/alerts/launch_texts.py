"""The alerts about launches: what is rented, and what became of it. Pure.

`LaunchAlerts.of` (engine) adds the facts of the launch, and fills in these fields: `launch`, `provider`, `label`,
`instance` (its id, or its label while that is unknown) and `state`, a sentence about the launch's state.
"""

from __future__ import annotations

from datetime import timedelta

from gpuwatch.domain.alerts.alert import AlertKind, AlertSpec, Severity

FOLLOW_IT = ("Follow it: gpuwatch launches",)
DOCTOR = "See what is wrong: gpuwatch doctor"
_CHECK_LABEL = "Check your instances at {provider} for the label {label}"
_CHECK_KEY = "Check the key's permissions: gpuwatch doctor"

# --- changes of its state ---------------------------------------------------------------------------------------------

# `headline` and `why` are those of the transition (domain/launches/life/state_machine)
CHANGED = AlertSpec(kind=AlertKind.RENT, headline="{watch}: {headline}", why="{why}", did="{state}", can_do=FOLLOW_IT)
# a flapping condition at most once in ten minutes, and a price when it differs by a few percent
CONDITION_CHANGED = AlertSpec(
    kind=AlertKind.RENT,
    once="befallen:{launch}:{headline}:{price_step}:{ten_minutes}",
    headline="{watch}: {headline}",
    why="{why}",
    did="{state}",
    can_do=FOLLOW_IT,
)
# once an hour for each cause: a flapping offer must not flood the owner
NOT_RENTED = AlertSpec(
    kind=AlertKind.REFUSED,
    once="not-rented:{watch:.120}:{end.name}:{now:%Y-%m-%dT%H}",
    headline="{watch}: not rented: {end.value}",
    why="{why}",
    did="{state}",
    can_do=("{advice}",),
)
HELD = AlertSpec(
    kind=AlertKind.HELD,
    once="held:{launch}:{now:%Y-%m-%d}",
    headline="{watch}: held: {reason}",
    why="{why}",
    did="{state}",
    can_do=(
        "Check your instances {where}",
        "If it exists: gpuwatch launches resolve {launch} --adopt {candidate}",
        "If it does not: gpuwatch launches resolve {launch} --absent",
    ),
)
UNLISTED = AlertSpec(
    kind=AlertKind.HELD,
    once="unlisted:{launch}",
    headline="{watch}: the provider no longer lists it",
    why="{why}",
    did="{state}",
    can_do=(_CHECK_LABEL, "If it is gone or you do not need it: gpuwatch stop {launch}"),
)
RETURNED = AlertSpec(
    kind=AlertKind.ORPHAN,
    once="returned:{launch}:{now:%Y-%m-%d}",
    headline="{watch}: {headline}",
    why="{why}",
    did="{state}",
    can_do=("If you do not need it: gpuwatch stop {launch}", *FOLLOW_IT),
)
CONTRADICTION = AlertSpec(
    kind=AlertKind.BLIND,
    once="contradiction:{launch}:{now:%Y-%m-%d}",
    headline="{watch}: {provider} gives contradictory answers about instance {instance_id}",
    why="{why}",
    did="{state}",
    can_do=("Check your instances at {provider}", *FOLLOW_IT),
)
UNMANAGED = AlertSpec(
    kind=AlertKind.HELD,
    once="unwatched:{launch}:{now:%Y-%m-%d}",
    headline="{watch}: gpuwatch can no longer manage it",
    why="{provider} is not configured, or has no key: gpuwatch can neither list nor end the instance.",
    did="{state}",
    can_do=("Restore {section}", "Or end instance {instance} at {provider} manually"),
)
OTHER_ACCOUNT = AlertSpec(
    kind=AlertKind.HELD,
    once="other-account:{launch}:{now:%Y-%m-%d}",
    headline="{watch}: gpuwatch can no longer reach it",
    why="{why}",
    did="{state}",
    can_do=(
        "Set its original key as previous_api_key in [providers.{provider}]",
        "If both keys belong to one account: gpuwatch accounts --same --provider {provider}",
        "Or end instance {instance} at {provider} manually",
    ),
)
# once an hour, for all causes together
NOT_ENDED = AlertSpec(
    kind=AlertKind.HELD,
    once="slow-stop:{launch}:{now:%Y-%m-%dT%H}",
    headline="{watch}: {headline}",
    why="{why}",
    did="{state}",
    can_do=("End it at {provider} manually", DOCTOR, *FOLLOW_IT),
)
ABANDONED = AlertSpec(
    kind=AlertKind.RENT,
    severity=Severity.WARNING,
    once="abandoned:{launch}:{watch:.60}:{held:.100}",
    headline='launch {launch} is active, but its watch "{watch}" is not in the settings',
    facts=(("Launch", "{launch}"), ("Provider", "{provider}"), ("Instance", "{instance}")),
    why="The watch was renamed or removed.",
    did="{did}",
    can_do=(
        'If it has a new name: set renamed_from = "{watch}" in that watch, then reload the settings',
        "{both}",
        "If you do not need it: gpuwatch stop {launch}",
    ),
)
HOOK_FAILED = AlertSpec(
    kind=AlertKind.RENT,
    severity=Severity.WARNING,
    once="hook:{launch}:{event}",
    headline="{watch}: its hook {event} failed",
    facts=(("Launch", "{launch}"), ("Hook", "{event}"), ("Error", "{error}")),
    why="{tried}",
    did="The launch continues: hooks never block a launch.",
    can_do=("Do the hook's task manually", "Fix {event} in [watch.launch]"),
)

# --- refused ----------------------------------------------------------------------------------------------------------

DAY_LIMIT = AlertSpec(
    kind=AlertKind.REFUSED,
    once="max_per_day:{watch:.150}:{now:%Y-%m-%d}",
    headline="{watch}: no more launches today, max_per_day = {max_per_day} is reached",
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
    can_do=("See what failed: gpuwatch launches", "Resume now: gpuwatch resume {name}"),
)
PREREQUISITES_MET = AlertSpec(
    kind=AlertKind.RECOVERED,
    headline="{subject}: its prerequisites are met; gpuwatch can rent there again",
    facts=(("Provider", "{subject}"), ("Was missing", "{missing}")),
    why="A check of the account found nothing missing.",
    did="Watches rent there again.",
)
PREREQUISITES_MISSING = AlertSpec(
    kind=AlertKind.REFUSED,
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
    did="gpuwatch still ends instances by id at max_runtime or their deadline. It sends no order twice.",
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
        "Take it over: gpuwatch adopt {subject}",
        "If you do not need it, destroy it at {provider}",
        "If another installation owns it: gpuwatch adopt {subject} --not-mine",
    ),
)
UNKNOWN_STATUS = AlertSpec(
    kind=AlertKind.DRIFT,
    headline="{subject}: unknown status of an instance: {newest}",
    facts=(("Provider", "{subject}"), ("Status", "{words}")),
    why="The provider's own client did not know it when this gpuwatch was written. Each word is reported once.",
    did="gpuwatch changes nothing because of it. An instance that is not running within `ready_within` is ended.",
    can_do=("See what the provider's own page says: gpuwatch launches", "Check for a newer gpuwatch"),
)

# --- the keeper: its alerts bypass the outbox -------------------------------------------------------------------------

KEEPER_ENDED = AlertSpec(
    kind=AlertKind.END,
    severity=Severity.CRITICAL,
    headline="{watch}: its instance outlived its end; the keeper destroyed it",
    facts=(("Destroyed", "{destroyed}"),),
    why="Its end at {end} passed, and gpuwatch had not recorded its end.",
    did="{provider} accepted the destroy request. gpuwatch checks that the instance is gone.",
    can_do=("Check the instances at {provider}", DOCTOR),
)
KEEPER_CANNOT_END = AlertSpec(
    kind=AlertKind.END,
    severity=Severity.CRITICAL,
    headline="{watch}: its instance outlived its end and cannot be destroyed",
    facts=(("Error", "{error}"),),
    why="Its end at {end} passed. It may still be billed.",
    did="gpuwatch retries every few seconds.",
    can_do=("Destroy {what} at {provider} manually", DOCTOR),
)
