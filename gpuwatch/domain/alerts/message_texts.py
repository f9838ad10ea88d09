"""The words around alerts in a message of a channel: headings, several alerts in one, buttons. Pure."""

from __future__ import annotations

from gpuwatch.domain.alerts.alert import Severity

# --- one alert --------------------------------------------------------------------------------------------------------

PREFIXES = {Severity.CRITICAL: "CRITICAL: ", Severity.WARNING: "Warning: "}
WHY_NOW, DONE = "Why now", "Done"
YOU_CAN, NEXT_CHEAPEST = "You can", "Next cheapest"
FOOTER, PART_FOOTER = "gpuwatch · alert {alert_id}", "alert {alert_id}"
OFFER_LINE = "/GPU-h · {gpu} × {gpu_count}{spot} · {place} · {reliability} · {provider}{marks}, offer {offer_id}"
CPU_OFFER_LINE = "/h · no GPU{spot} · {place} · {reliability} · {provider}{marks}, offer {offer_id}"
SPOT = ", spot"
OPEN_PAGE = "Open it in gpuwatch"
OPEN_OFFER, OPEN_CONSOLE = "Open offer {offer_id} at {provider}", "Open the console of {provider}"

# --- several alerts ---------------------------------------------------------------------------------------------------

NEWEST_OF = "{count} alerts, the newest: {headline}"
SEVERAL_WATCHES = "{count} watches have offers"
SEVERAL_ALERTS = "{watch}: {count} alerts"
CHEAPEST = "{text}, from ${price}/GPU-h"
MORE_ALERTS = "{count} more; see all: gpuwatch alerts"
NOT_SENT_HERE = "Not sent here"
ONE_EARLIER, EARLIER = "1 earlier alert ({headlines})", "{count} earlier alerts ({headlines})"
AND_MORE = "{count} more and: {headlines}"

# --- buttons ----------------------------------------------------------------------------------------------------------

APPROVE, DENY = "Approve {what}", "Deny {what}"
STOP, START, EXTEND, COST = "Stop", "Start…", "Extend", "Cost"
LOG, CANCEL, RETRY = "Log", "Cancel", "Retry"
SILENCE, WHY, RENT, RENT_IT = "Silence 6 h", "Why", "Rent…", "Rent it"
FORGED = "This button does not belong to this gpuwatch. Nothing was done."
LATE = "This button has expired. Nothing was done; /help shows the available commands."
