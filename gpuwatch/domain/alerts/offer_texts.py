"""The alerts about offers: a watch fired, or a quote awaits its owner's approval. Pure.

`offer_alert` (engine) fills in the fields: `line` is the `OfferLine` of the best offer, and a value that does not apply
to it is None. The sentences about renting it are those of `did`.
"""

from __future__ import annotations

import msgspec

from gpuwatch.domain.alerts.alert import AlertKind, AlertSpec

# --- why it fired: `gpuwatch check --explain` shows the same ----------------------------------------------------------

# by the value of `DecisionReason`; `fits` is one of the next two, the other fields are figures of the watch
REASON_TEXTS = {
    "first_match": "An offer is {fits}",
    "restocked": "In stock again: earlier complete polls showed no offers",
    "cheaper": "Cheaper by at least {improve_by} than in the last alert",
    "repeat_due": "Still {fits}; reminder every {repeat_every}",
    "nothing_new": "Still {fits}",
    "in_stock": "On offer, but it was not out of stock in recent complete polls",
    "holding": "At or under the threshold, but not for long enough yet",
    "waits_for_spot": "On demand {fits}; waits for a spot offer until {spot_until}",
    "outside_window": "Outside the watch's active windows",
    "no_offer": "No offer is {fits}",
    "no_data": "There is no complete market data",
}
AGENT_RENTS = "An agent asks to rent this offer; no watch looked for it."
AGENT_ASKS = "An agent asks for it (gpuwatch mcp): {why}"
AT_THE_LIMIT = "at or under the threshold"
AS_WANTED = "what the watch waits for"
HELD_FOR = "{text}, and has been for {span}"
REASON = "{text} ({reason})."
ONE_MORE, MORE = "1 more fits.", "{count} more fit."

# --- the offer --------------------------------------------------------------------------------------------------------

MATCH = AlertSpec(
    kind=AlertKind.MATCH,
    headline="{watch}: {line.gpu} × {line.gpu_count} at ${line.price_usd_gpu_hour}/GPU-h{marks}",
    facts=(
        ("GPU", "{line.gpu} × {line.gpu_count}"),
        ("Price", "${line.price_usd_gpu_hour}/GPU-h"),
        ("Rank", "{rank.text}, {rank_among}"),
        ("Listed", "${line.listed_usd_gpu_hour}/GPU-h, before {commission:g} % commission"),
        ("Total", "{total}/h for {line.gpu_count} GPUs"),
        ("Until its end", "{until_end} at most, {runtime} after it starts"),
        ("Rental", "{rental}"),
        ("Job", "{job_cost} in all: {job_parts}"),
        ("Hours", "{job.high.hours:.1f}, {job.how}"),
        ("Excluded", "{job_unknown}: unknown"),
        ("Threshold", "{threshold}"),
        ("New low", "{new_low.how} {new_low.basis}"),
        ("Drop", "{drop_by.how} {drop_by.basis}"),
        ("Percentile", "{percentile.how} {percentile.basis}"),
        ("Quote", "${quote}/h, or less; open until {open_until}"),
        ("At most", "${at_most}/h, if its bid has to be raised"),
        ("Place", "{line.place}"),
        ("Machine", "{machine}"),
        ("Network", "{network}"),
        ("CUDA", "up to {cuda:g}"),
        ("Reliability", "{line.reliability}{verified}"),
        ("Available", "until {available_until} ({available_for})"),
        ("Offer", "{offer}"),
        ("Kind", "{price_kind}"),
        ("Sold by", "{seller}, through {line.provider}"),
        ("Elsewhere", "{elsewhere}"),
        ("Processor", "{processor}"),
        ("Terms", "{terms}"),
        ("Note", "{note}"),
        ("Traffic", "{traffic} listed for one launch ({moved}), {share}"),
        ("Traffic unknown", "{unpriced}: {line.provider} does not state its price; not in the price"),
        ("Outbid risk", "{outbid}"),
        ("Seen", "{seen}"),
    ),
    why="{why}",
    did="{did}",
    can_do=(
        "Rent offer {live} at {line.provider} before somebody else does",
        "Check whether {line.provider} has it in stock: {listed}",
    ),
)
_OF_CPU_MACHINE = {  # label → its text, for a machine without GPUs
    "GPU": "none",
    "Price": "${line.price_usd_gpu_hour}/h",
    "Listed": "${line.listed_usd_gpu_hour}/h, before {commission:g} % commission",
}
CPU_MATCH = msgspec.structs.replace(
    MATCH,
    headline="{watch}: a machine without GPUs at ${line.price_usd_gpu_hour}/h{marks}",
    facts=tuple((label, _OF_CPU_MACHINE.get(label, text)) for label, text in MATCH.facts),
)
_TO_APPROVE = {
    "kind": AlertKind.APPROVAL,
    "can_do": ("Rent it: gpuwatch approvals approve {approval}", "Reject it: gpuwatch approvals deny {approval}"),
}
APPROVAL = msgspec.structs.replace(MATCH, **_TO_APPROVE)
CPU_APPROVAL = msgspec.structs.replace(CPU_MATCH, **_TO_APPROVE)
FOLLOW_JOB = "Follow the job: gpuwatch jobs show {job}"
CHECK_AGAIN = "Check again: gpuwatch check {name}"
JOB_MARK = "job {cost}"
TRAFFIC_MARK = "traffic ${hourly} of it"
JOB_SPAN = "{low} to {high}"
SPOT, ON_DEMAND = "spot (interruptible)", "on demand"
AMONG = {  # spot, verified hosts only
    (False, False): "{what} on demand at all providers",
    (True, False): "{what} on spot at all providers",
    (False, True): "{what} on demand at verified hosts",
    (True, True): "{what} on spot at verified hosts",
}
OF_JOB = "{cost} for the whole job"
PER_GPU_HOUR, PER_MACHINE_HOUR = "${limit}/GPU-h", "${limit}/h"
AUTO = "{limit} now, never above ${cap} (auto)"
JOB_PARTS = {"work": "work", "ready": "getting ready", "restarts": "restarts", "minimum": "least billing"}
TRAFFIC_PART = "traffic"
# what a provider states about the machine, by the field of the offer
SIZES = {
    "gpu_memory_gib": "{} GiB per GPU",
    "vcpu": "{} vCPU",
    "ram_gib": "{} GiB RAM",
    "disk_free_gb": "{} GB disk",
}
SPEEDS = {"download_mbps": "{} Mbit/s down", "upload_mbps": "{} Mbit/s up"}
MOVED = {"download": "{} GB down", "upload": "{} GB up"}
IN_PRICE, NOT_IN_PRICE = "${hourly}/h of the price", "not in the price"
OUTBID = (
    "the lowest winning bid was over ${bid}/h {share} of the time, and rose over it {rises}× "
    "(known for {watched} of {days} days)"
)
OUTBID_UNKNOWN = "unknown: this machine's bids are known for less than a day"
OUTBID_MARK = "outbid {share} of the time"
VERIFIED = {True: "verified", False: "not verified"}
OFFER, OFFER_ON_MACHINE = "{offer} at {provider}", "{offer} at {provider}, machine {machine}"
SOON = "less than an hour"
PRICE_KINDS = {"listed": "list price; stock is unknown", "history": "past price"}  # by the value of `OfferKind`
ON_ARM = "Arm: x86 images do not run there"

# --- what gpuwatch did about it ---------------------------------------------------------------------------------------

NOTHING = "Nothing: the decision is yours."
ONLY_ALERTS = 'This watch only sends alerts and does not rent (action = "alert").'
NOT_RENTED = "Not rented: {why}."
NOT_ASKED = "Not asked: {why}."
BID_OVER_LIMIT = "No approval requested: the minimum bid is over the limit."
AWAITS_APPROVAL = "It awaits your approval until {deadline}. gpuwatch rents nothing without your approval."
APPROVAL_IN_DRY_RUN = "{text} An approval rents nothing and reports what it would rent (dry_run = true)."
DRY_RUN = "Dry run: gpuwatch would rent it now (dry_run = true)."
RENTING = "Renting it now: launch {ids}."
RENTING_SEVERAL = "Renting {count} now: launches {ids}."
CHEAPER_SKIPPED = "{text} A cheaper offer was skipped: {why}."
ITS_COMMAND = " Its command: {command}"
NOT_TICKED = " Not ticked in the checklist: {items}."

# --- what its owner can do --------------------------------------------------------------------------------------------

NOT_READY = ("Check key, credit and instances: gpuwatch doctor",)
TO_RENT = "To rent for real, end the dry run (dry_run = false)"
END_IT = "End it: gpuwatch launches stop {launch}"
# by the value of `RefusalReason`
AFTER_REFUSAL = {
    "checklist": ("Tick completed items: gpuwatch watches checklist tick {name} ITEM",),
    "breaker": ("See what failed: gpuwatch launches", "Resume renting now: gpuwatch watches resume {name}"),
    "machine_failed": ("See blocked machines and clear them: gpuwatch providers machines",),
    "max_per_day": ("See today's launches: gpuwatch launches", "Allow more a day in watch {name} (max_per_day)"),
}
RESUME, RESUME_WATCH = "Resume renting: gpuwatch watches resume", "Resume renting: gpuwatch watches resume {name}"
AFTER_ANY_REFUSAL = ("See launches and their cost: gpuwatch launches",)
