"""The alerts about gpuwatch itself: channels, database, tasks, settings, and what its owner changed. Pure."""

from __future__ import annotations

from gpuwatch.domain.alerts.alert import AlertKind, AlertSpec, Severity
from gpuwatch.domain.alerts.launch_texts import DOCTOR

# --- channels: their subject is the channel ---------------------------------------------------------------------------

_CHANNEL = ("Channel", "{subject}")
_FIX = "Fix [notify.{subject}], then run: gpuwatch alerts test"

REFUSES = AlertSpec(
    kind=AlertKind.CHANNEL,
    once="channel:{subject}:{hour}",
    headline="{subject} does not deliver alerts",
    facts=(_CHANNEL, ("Answer", "{error}")),
    why="The channel rejected a message and will keep rejecting until you fix it.",
    did="The rejected message went to your other channels. gpuwatch retries this channel from time to time.",
    can_do=(_FIX, "See all channels: gpuwatch doctor"),
)
REFUSES_IN_PART = AlertSpec(
    kind=AlertKind.CHANNEL,
    once="in part:{subject}:{hour}",
    headline="{subject} does not reach all of its recipients",
    facts=(_CHANNEL, ("Answer", "{error}")),
    why="These recipients rejected a message.",
    did="The other recipients received it.",
    can_do=(_FIX,),
)
SILENT = AlertSpec(
    kind=AlertKind.CHANNEL,
    once="silent:{subject}:{since_s}",
    headline="{subject} does not deliver alerts",
    facts=(_CHANNEL, ("Since", "{since}"), ("Answer", "{error}")),
    why="The channel has accepted nothing since then.",
    did="Alerts that wait there for 15 minutes also go to your other channels; gpuwatch keeps trying this one.",
    can_do=(DOCTOR, "After a change of [notify.{subject}], test it: gpuwatch alerts test"),
)
LATE = AlertSpec(
    kind=AlertKind.CHANNEL,
    once="late:{subject}:{newest_ms}",
    headline="{subject} did not deliver {alerts} in time",
    why="Quiet hours held them back, or the channel accepted nothing before they expired.",
    did="They expired and are listed here for your information.",
    can_do=("See current offers: gpuwatch check",),
)
NEW_ADDRESS = AlertSpec(
    kind=AlertKind.CHANNEL,
    once="moved:{old}:{new}",
    headline="The {option} of {subject} has changed",
    facts=(("Old {option}", "{old}"), ("New {option}", "{new}")),
    why="The channel reported its new address.",
    did="gpuwatch remembers the new address and uses it from now on.",
    can_do=('Write the new address {new} into the settings ([notify.{subject}] {option} = "{new}")',),
)
TEST = AlertSpec(
    kind=AlertKind.TEST,
    headline="gpuwatch test message",
    why="You requested it with: gpuwatch alerts test",
    did="This is only a test: no offer was found, nothing was rented.",
)
# it bypasses the outbox, which is in that database
DATABASE = AlertSpec(
    kind=AlertKind.CHANNEL,
    severity=Severity.CRITICAL,
    headline="gpuwatch cannot write its database: it rents nothing",
    facts=(("Database", "{error}"),),
    why="A launch, alert or price that cannot be stored could be lost or paid for twice.",
    did="gpuwatch rents nothing, and most alerts wait. Launches still end in time. Recovery is automatic.",
    can_do=(DOCTOR,),
)

# --- tasks: their subject is the task ---------------------------------------------------------------------------------

# The consequence while a task does no work, by the first word of its name.
TASK_CONSEQUENCES = {
    "hunt": "gpuwatch sees no offers there and rents nothing.",
    "follow": "This task does not follow the launches there.",
    "guard": "Budgets, prices and idle rules of the launches there are not checked.",
    "deliver": "Alerts wait; only alerts about the daemon itself bypass the queue.",
    "hooks": "Hooks of launches do not run.",
}
OTHER_CONSEQUENCE = "The work of this task is not done."
TASK_HANGS = "It made no progress for longer than its requests may take."
TASK_FAILS = "It failed {failures} times in a row with an internal error. The traceback is in the log."
TASK_OTHERS = "The other tasks continue."
TASK_RESTARTED = "systemd restarts gpuwatch, if it supervises it."
TASK_RETRIED = "gpuwatch retries it at its next run; if that continues, systemd restarts gpuwatch, if it supervises it."

TASK_WORKS = AlertSpec(
    kind=AlertKind.RECOVERED,
    headline="task {subject} works again",
    facts=(("Task", "{subject}"), ("Reported", "{since}"), ("Works again", "{back}")),
    why="It ran without an error.",
    did="It has caught up with its work.",
)
TASK_FAULTS = {"hangs": "task {subject} hangs", "fails": "task {subject} fails"}  # by the value of `FaultKind`
TASK_FAULT = AlertSpec(
    kind=AlertKind.DAEMON,
    headline="{fault}",
    facts=(("Task", "{subject}"), ("No success since", "{since}"), ("Cause", "{error}")),
    why="{why}",
    did="{consequence} {advice}",
    can_do=(
        "See the log of the daemon: journalctl -u gpuwatch",
        "Restart it: systemctl restart gpuwatch",
        "Check your launches at their providers",
    ),
    resolved=TASK_WORKS,
)

# --- settings ---------------------------------------------------------------------------------------------------------

MORE_FAULTS = "{count} more; see: gpuwatch doctor"
_FIX_SETTINGS = "Fix the settings, then: systemctl reload gpuwatch"

RESCUE = AlertSpec(
    kind=AlertKind.DAEMON,
    severity=Severity.CRITICAL,
    once="rescue:{now:%Y-%m-%d}",
    headline="rescue mode: the settings are wrong, gpuwatch rents nothing",
    facts=(("Settings", "{error}"),),
    why="gpuwatch was started with wrong settings while launches are active.",
    did="It follows and ends the launches with the readable part of the settings. It polls no market.",
    can_do=(DOCTOR, _FIX_SETTINGS, "End everything: gpuwatch launches stop --all"),
)
RELOADED = AlertSpec(
    kind=AlertKind.RECOVERED,
    headline="the new settings are in effect",
    why="An earlier reload was refused; this one was not.",
    did="gpuwatch continues with the new settings.",
)
RELOAD_REFUSED = AlertSpec(
    kind=AlertKind.DAEMON,
    severity=Severity.WARNING,
    once="reload:{faults}:{now:%Y-%m-%dT%H}",
    headline="the new settings are rejected; the old ones stay in effect",
    facts=(("Settings", "{error}"),),
    why="gpuwatch was asked to read its settings again, and cannot apply them.",
    did="It continues with the settings that it had.",
    can_do=(DOCTOR, _FIX_SETTINGS),
    resolved=RELOADED,
)

KEEP_UNDECIDED = AlertSpec(
    kind=AlertKind.DAEMON,
    severity=Severity.INFO,
    once="keep:undecided",
    headline="the store has older rows than gpuwatch keeps by default: decide how long they stay",
    facts=(("Would be deleted", "{rows}"),),
    why="This store is older than the setting for how long prices stay, which is not set ([history] keep).",
    did="Nothing is deleted, and the store grows, until you set it.",
    can_do=(
        "To keep a copy first: gpuwatch store backup FILE, or a lake ([history] lake = FOLDER)",
        "Then set how long, for example {keep} ([history] keep = {keep})",
        "See each table and its growth: gpuwatch store stats",
    ),
)

# --- the owner --------------------------------------------------------------------------------------------------------

CHANGED_BY_OWNER = AlertSpec(kind=AlertKind.AUDIT, headline="{what}", facts=(("By", "{actor}"),), did="Done.")
