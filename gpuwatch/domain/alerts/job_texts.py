"""The alerts about jobs: finished, failed, interrupted, awaiting a decision. Pure.

`job_alert` (engine) adds the facts of job, run and launch, and fills in the fields `job` (its name), `job_id` and
`run`. At most one of each is stored for a run.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gpuwatch.domain.alerts.alert import AlertKind, AlertSpec, Severity

NOT_STORED_REASON = "its results are not at their store yet"  # also the reason of a job: a stored value
DESTROYING = "The instance is being destroyed."
_SHOW = "gpuwatch jobs show {job}"
_LOGS = "gpuwatch jobs logs {job}"
_RETRY = "gpuwatch jobs retry {job}"
_CANCEL = "gpuwatch jobs cancel {job}"


def _job(what: str, **texts: Any) -> AlertSpec:
    """Declare an alert whose headline names the job, then `what`."""
    texts = {"kind": AlertKind.RENT, "severity": Severity.WARNING} | texts
    return AlertSpec(once=f"job:{{job_id}}:{{run}}:{what}", headline=f"job {{job}}: {what}", **texts)


FINISHED = _job(
    "finished",
    kind=AlertKind.END,
    severity=Severity.INFO,
    facts=(("Results", "{results}"),),
    did="Results were fetched and verified. {instance}",
)
PREPARED = _job(
    "its data is prepared",
    severity=Severity.INFO,
    facts=(("Prepared", "{results}"),),
    did="The data was fetched and verified, and the instance that prepared it was destroyed. "
    "The job now waits for its own machine, within its limits.",
    can_do=(_SHOW, _CANCEL),
)
INSTANCE_ENDED = "The instance was destroyed, and its end is confirmed."
INSTANCE_GIVEN = "Another job continues on the instance."
CANNOT_START = _job("it cannot start", why="{why}", did=DESTROYING, can_do=(_LOGS, _RETRY))
FAILED = _job("failed", why="{why}", can_do=(_LOGS, _RETRY))
FAILED_IN_QUEUE = _job("failed", why="{why}", can_do=(_SHOW, _RETRY))
COMMAND_FAILED = _job("its command failed, {how}", did=("{kept}", "{unfetched}"), can_do=(_LOGS, _RETRY))
EXIT_CODE, WAS_ENDED = "exit code {code}", "it was ended"
KEPT = "The instance is kept until {until}, then destroyed."
UNFETCHED = "Results are fetched only after exit code 0."
RESULTS_LOST = _job(
    "failed, its results were not fetched",
    severity=Severity.CRITICAL,
    facts=(("Error", "{error}"), ("Fetched", "{fetched}")),
    why="The command succeeded. gpuwatch does not run it again by itself.",
    can_do=("gpuwatch jobs retry {job}, to compute it again",),
)
STOPPED_AFTER_PILOT = _job(
    "stopped after its pilot",
    why="At its measured speed, {why}.",
    did="Its newest checkpoint was fetched, and the instance is being destroyed.",
    can_do=("Raise the limit in the job file, then: gpuwatch jobs retry {job}",),
)
PILOT_UNFIT = msgspec.structs.replace(
    STOPPED_AFTER_PILOT,
    why="Its pilot did not meet its requirements; {why}.",
    can_do=("To run it anyway: gpuwatch watches checklist tick {watch} ITEM; gpuwatch jobs retry {job}",),
)
MOVES_AFTER_PILOT = _job(
    "moves after its pilot",
    why="At its measured speed, {why}.",
    did="It continues on {gpu}, an estimate from data sheets. Its limits do not change.",
    can_do=(_CANCEL,),
)
_MOVE: dict[str, Any] = {
    "facts": (("Price now", "{here}"), ("Price there", "{there}"), ("Assumed", "{rests_on}")),
    "why": "The remaining work costs at least {stay} here and {move} there, with all that a move costs: "
    "{saving} ({share:.0%}) less.",
}
MOVES = _job(
    "moves to a cheaper machine",
    severity=Severity.INFO,
    did="Its checkpoint was fetched, and its instance is being destroyed. Once that end is confirmed, it rents again "
    "within its limits; if this offer is gone by then, the cheapest other one.",
    can_do=(_SHOW, _CANCEL),
    **_MOVE,
)
CHEAPER_MACHINE = msgspec.structs.replace(
    _job(
        "a cheaper machine is on offer",
        severity=Severity.INFO,
        did="Nothing: it continues where it is.",
        can_do=("To let it move by itself: gpuwatch docs relocation", _SHOW),
        **_MOVE,
    ),
    once="job:{job_id}:{run}:cheaper:{provider_there}:{machine}:{step}",
)

_CLUSTER: dict[str, Any] = {
    "did": "dstack ended its machines, and the end of the run is confirmed.",
    "can_do": (_SHOW,),
}
CLUSTER_FINISHED = _job("finished", kind=AlertKind.END, severity=Severity.INFO, **_CLUSTER)
CLUSTER_FAILED = _job("failed", **_CLUSTER)

# --- the job continues by itself --------------------------------------------------------------------------------------

INTERRUPTED = _job(
    "interrupted",
    why="{why}",
    did="It continues elsewhere once this end is confirmed, {where}. Retries left: {retries}.",
)
FROM_CHECKPOINT, FROM_BEGINNING = "from its checkpoint {name}", "from the beginning: no checkpoint was fetched"
NOT_FETCHED = _job(
    "its results cannot be fetched",
    severity=Severity.CRITICAL,
    facts=(("Error", "{error}"), ("Instance is kept until", "{until}")),
    why="The command succeeded. Results not fetched by then are lost with the instance.",
    did="gpuwatch keeps trying; the instance is billed in the meantime.",
    can_do=("Log in and copy the results", "gpuwatch jobs show, for the machine's address"),
)
LEFT_OUT = _job(
    "not all of its results are files",
    why="{count} of what the patterns of its results match is left out.",
    did="All files that they match were fetched and verified; the instance is being destroyed.",
)
OVER_FORECAST = _job(
    "costs more than its forecast",
    why="{spent} are spent; a forecast or its estimate said at most {promised}.",
    did="It continues within its limits.",
    can_do=(_SHOW, _CANCEL),
)
UNMEASURED = _job(
    "its pilot measures nothing",
    why="The pilot's time is over, and the command has reported no progress.",
    did="It continues; its cost and end are unknown. The pilot ends with the first progress report.",
    can_do=('Let it print lines such as "step 10/1000", or write metrics.jsonl', _CANCEL),
)
_STORE: dict[str, Any] = {
    "facts": (("Error", "{error}"),),
    "can_do": ("Check the store, and the rclone settings of gpuwatch's user",),
}
NOT_STORED = _job(
    NOT_STORED_REASON,
    did="The complete results are on this machine: {folder} gpuwatch retries every minute.",
    **_STORE,
)
NOT_COPIED = _job(
    "its checkpoints do not reach their store",
    did="The job continues; its checkpoints are stored on this machine. gpuwatch retries every minute.",
    **_STORE,
)
GOES_ON = (
    *(INTERRUPTED, NOT_FETCHED, LEFT_OUT, OVER_FORECAST, NOT_STORED, NOT_COPIED, UNMEASURED),
    *(MOVES, CHEAPER_MACHINE, PREPARED),
)
