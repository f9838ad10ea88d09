"""The alerts about a marketplace: it does not answer, answers unusably, is back, or changed its format. Pure.

Their subject is the provider.
"""

from __future__ import annotations

import msgspec

from gpuwatch.domain.alerts.alert import AlertKind, AlertSpec
from gpuwatch.domain.alerts.launch_texts import DOCTOR

NO_ERROR = "no complete answer"
AND_MORE = "{shown}; and {count} more"
SHORT = "less than a minute"
_NEWER = "Check for a newer gpuwatch"
_PROVIDER = ("Provider", "{subject}")
_FEWER_ROWS = "Use fewer rows: poll the whole market less often (sweep_every), or record fewer GPUs"
_SEE_PLAN = "See the plan: gpuwatch providers"


class LaneTexts(msgspec.Struct, frozen=True):
    """What an alert calls a lane, and the consequence of its blindness: the field `lane` of the texts below."""

    searches: str
    answer: str
    intervals: str
    unknown: str
    did: str


LANE_TEXTS = {
    "hunt": LaneTexts(
        searches="the hunt: offers at the limits of your watches",
        answer="answer",
        intervals="polling intervals",
        unknown="Its current offers are unknown.",
        did="gpuwatch keeps polling and sends an alert when it answers again. It rents nothing there until then.",
    ),
    "sweep": LaneTexts(
        searches="the sweep: all offers, for the history",
        answer="sweep",
        intervals="intervals of the sweep",
        unknown="The history has a gap. The hunt may be blind as well: a search at your limits returns few rows.",
        did="gpuwatch keeps polling and sends an alert when the sweep is answered again. The hunt continues.",
    ),
}

ANSWERS_AGAIN = AlertSpec(
    kind=AlertKind.RECOVERED,
    headline="{subject} answers again, after {span}",
    facts=(_PROVIDER, ("Searches", "{lane.searches}"), ("Not answering since", "{since}"), ("Back since", "{back}")),
    why="A complete answer arrived.",
    did="gpuwatch evaluates all its watches again. The gap stays visible in the history.",
)
NOT_ANSWERING = AlertSpec(
    kind=AlertKind.BLIND,
    headline="{subject} is not answering: no complete {lane.answer} for {span}",
    facts=(
        _PROVIDER,
        ("Searches", "{lane.searches}"),
        ("Since", "{since}"),
        ("Changed", "{changed}"),
        ("Last error", "{error}"),
    ),
    why="Three {lane.intervals} passed without a complete answer. {lane.unknown}",
    did="{lane.did}",
    can_do=(DOCTOR,),
    resolved=ANSWERS_AGAIN,
)
UNDERSTOOD_AGAIN = msgspec.structs.replace(
    ANSWERS_AGAIN,
    headline="{subject} is understood again, after {span}",
    facts=(_PROVIDER, ("Searches", "{lane.searches}"), ("Not understood since", "{since}"), ("Back since", "{back}")),
)
NOT_UNDERSTOOD = msgspec.structs.replace(
    NOT_ANSWERING,
    headline="{subject} is not understood: no row of a {lane_name} answer can be used{worst}",
    why="An answer has rows, but none of them can be used: the format has changed. {lane.unknown}",
    can_do=(DOCTOR, _NEWER),
    resolved=UNDERSTOOD_AGAIN,
)
QUOTA_USED = AlertSpec(
    kind=AlertKind.BLIND,
    headline="{subject} is not polled: today's row quota is used up",
    facts=(_PROVIDER, ("Resets", "{resets}")),
    why="The provider answers no searches until its quota resets.",
    did="gpuwatch stops polling until then and sends an alert when it starts again.",
    can_do=(_SEE_PLAN, _FEWER_ROWS),
    resolved=ANSWERS_AGAIN,
)
# gpuwatch has used the rows of its own plan; the provider refused nothing
OWN_ROWS_USED = AlertSpec(
    kind=AlertKind.DAEMON,
    once="rows:{subject}:{resets_at:%Y-%m-%d}",
    headline="gpuwatch does not poll {subject} until {resets}: the day's rows are used up",
    facts=(
        _PROVIDER,
        ("Rows used today", "{rows_used} of {rows_per_day} (rows_per_day)"),
        ("Polls again", "{resets}"),
    ),
    why="Your settings limit the rows that gpuwatch requests in a UTC day (rows_per_day).",
    did="gpuwatch polls and rents nothing there until then. The provider itself has not refused anything.",
    can_do=("Allow more rows a day (rows_per_day in [providers.{subject}])", _FEWER_ROWS, _SEE_PLAN),
)
OFFERS_AGAIN = AlertSpec(
    kind=AlertKind.RECOVERED,
    headline="{subject} lists offers again, after {span}",
    facts=(_PROVIDER, ("Empty since", "{since}"), ("Back since", "{back}")),
    why="An answer with offers arrived.",
    did="gpuwatch evaluates all its watches again.",
)
ANSWERS_EMPTY = AlertSpec(
    kind=AlertKind.BLIND,
    headline="{subject} lists no offers any more: its answers are empty, and had {rows_before} before",
    facts=(_PROVIDER, ("Rows before", "{rows}"), ("Empty since", "{since}")),
    why="Every answer since then was complete and empty. So many offers hardly sell out at once.",
    did="gpuwatch keeps polling and sends an alert when there are offers again. It counts this as no data.",
    can_do=("Compare with the provider's own page", DOCTOR),
    resolved=OFFERS_AGAIN,
)
FORMAT_CHANGED = AlertSpec(
    kind=AlertKind.DRIFT,
    headline="{subject} changed its format{worst}",
    facts=(_PROVIDER, ("Changed", "{changed}")),
    why="The answer has new fields, or known fields are missing. Each change is reported once.",
    did="gpuwatch uses the rows it understands, and skips and counts the others.",
    can_do=("Compare prices with the provider's own page", _NEWER),
)
