"""The results of a simulated day of polling: its searches, its bargains, and the table of docs/performance.md."""

from __future__ import annotations

import itertools
import statistics
import textwrap
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec

from benchmarks.day_market import HABITS, Bargain, Habits, describe, models

SPACING_S = 6.0  # source: clients report ten searches a minute
UPLINK_S, ANSWER_S = 0.1, (0.2, 0.9)  # assumed: one way of the request, and the time to the answer
GAP_S = 3600.0  # the history's aggregates are hourly
MIDNIGHT = datetime(2026, 11, 23, tzinfo=UTC)


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """What is watched, and the limits of the marketplace."""

    title: str
    watches: int
    rows_per_day: int = 20_000  # as in the settings; 0: no quota
    granted_rows: int | None = None  # the marketplace's real quota; None: the same
    refusals_a_day: float = 24.0  # how often the marketplace is busy
    hours: float = 24.0
    start: datetime = MIDNIGHT
    gpus: int | None = None  # shared by the watches; None: each watch has its own
    recorded: int | None = None  # GPUs read for the history; None: the watched ones and two more
    habits: Habits = HABITS


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """One search as sent; times in seconds since the start."""

    sent_s: float
    answered_s: float
    task: str  # "hunt", "sweep"
    gpu: str
    status: int
    rows: int = 0
    retry_after_s: float | None = None
    quota_spent: bool = False


class Day(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a day."""

    scenario: Scenario
    watched: Sequence[str]
    recorded: Sequence[str]  # including watched ones, and every model of their names, such as an RTX 4090 of 48 GB
    searches: Sequence[Search]
    bargains: Sequence[Bargain]
    covered_s: dict[str, list[float]]  # by GPU: times of complete readings for the history, since the start
    alerts: int
    decided: Sequence[tuple[float, str, str]] = ()  # Unix seconds, watch, reason; when the reason changed
    processor_s: float


def early(searches: Sequence[Search], spacing_s: float = SPACING_S) -> int:
    """Searches that were sent before the spacing was over."""
    sent = sorted(search.sent_s for search in searches)
    return sum(after - before < spacing_s - 0.001 for before, after in itertools.pairwise(sent))


def despite_refusal(searches: Sequence[Search]) -> int:
    """Searches sent earlier than a refusal allowed; a used-up quota is counted separately."""
    held_until, found = 0.0, 0
    answers = sorted(
        (search.answered_s, search) for search in searches if search.retry_after_s and not search.quota_spent
    )
    for one in sorted(searches, key=lambda search: search.sent_s):
        while answers and answers[0][0] <= one.sent_s:
            answered_s, refused = answers.pop(0)
            held_until = max(held_until, answered_s + (refused.retry_after_s or 0.0))
        found += one.sent_s < held_until - 0.001
    return found


def after_spent_quota(searches: Sequence[Search]) -> tuple[int, float]:
    """Searches after the first answer with a used-up quota, and for how many hours that lasted."""
    spent = [search for search in searches if search.quota_spent]
    if not spent:
        return 0, 0.0
    later = [search.sent_s for search in searches if search.sent_s > spent[0].answered_s]
    return len(later), (max(later, default=spent[0].answered_s) - spent[0].answered_s) / 3600


def unread_s(day: Day, gpu: str) -> list[float]:
    """The times of a day without a reading of a GPU for the history, in seconds; their sum is the day."""
    moments = [0.0, *day.covered_s[gpu], day.scenario.hours * 3600]
    return [after - before for before, after in itertools.pairwise(moments)]


def longest_unasked_s(day: Day, gpu: str) -> float:
    """The longest time without a hunt for a watched GPU."""
    wire = models()[gpu].name
    asked = [search.sent_s for search in day.searches if search.task == "hunt" and wire in search.gpu.split(",")]
    moments = [0.0, *asked, day.scenario.hours * 3600]
    return max(after - before for before, after in itertools.pairwise(moments))


def reactions_s(day: Day) -> list[float]:
    """The delays from visible to seen of all seen bargains, ascending."""
    return sorted(bargain.seen_s - bargain.appears_s for bargain in day.bargains if bargain.seen_s is not None)


def missed(day: Day) -> list[Bargain]:
    """Bargains that were gone before a hunt saw them."""
    ends_s = day.scenario.start.timestamp() + day.scenario.hours * 3600
    return [bargain for bargain in day.bargains if bargain.seen_s is None and bargain.vanishes_s < ends_s]


def _of(day: Day, lane: str) -> int:
    return sum(search.task == lane for search in day.searches)


def _rows(day: Day, lane: str) -> int:
    return sum(search.rows for search in day.searches if search.task == lane)


def _refused(day: Day) -> tuple[int, int]:
    refused = [search.quota_spent for search in day.searches if search.status == 429]
    return len(refused) - sum(refused), sum(refused)


def _reads(day: Day) -> str:
    reads = [len(day.covered_s[gpu]) for gpu in day.recorded]
    return f"{len(reads)}; {min(reads)} · {statistics.median(reads):.0f}"


def _longest(day: Day) -> str:
    longest = [max(unread_s(day, gpu)) for gpu in day.recorded]
    return f"{_span(statistics.median(longest))} · {_span(max(longest))}"


def _gap_share(day: Day) -> float:
    gaps_s = sum(one for gpu in day.recorded for one in unread_s(day, gpu) if one > GAP_S)
    return gaps_s / (len(day.recorded) * day.scenario.hours * 3600)


def _bargains(day: Day) -> str:
    gone = missed(day)
    short = sum(bargain.vanishes_s - bargain.appears_s < 60 for bargain in gone)
    return f"{len(day.bargains)}; {len(gone)} ({short} of them there for under 1 min)"


def _reaction(day: Day) -> str:
    found = reactions_s(day)
    if len(found) < 2:
        return f"n = {len(found)}"
    p95 = statistics.quantiles(found, n=20, method="inclusive")[-1]
    return f"{_span(statistics.median(found))} · {_span(p95)} · {_span(found[-1])} (n = {len(found)})"


def _span(seconds: float) -> str:
    if seconds < 600:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 2 * 3600 else f"{seconds / 3600:.1f} h"


def _longest_unasked(day: Day) -> str:
    return _span(max(longest_unasked_s(day, gpu) for gpu in day.watched))


def overlooked(day: Day) -> list[Bargain]:
    """Return the missed bargains whose GPU was successfully hunted while they existed."""
    start_s, known = day.scenario.start.timestamp(), models()
    hunts = [search for search in day.searches if search.task == "hunt" and search.status == 200]

    def was_asked(bargain: Bargain) -> bool:
        wire, from_s, to_s = known[bargain.gpu].name, bargain.appears_s - start_s, bargain.vanishes_s - start_s
        return any(from_s <= hunt.sent_s + UPLINK_S < to_s and wire in hunt.gpu.split(",") for hunt in hunts)

    return [one for one in missed(day) if was_asked(one)]


LINES: tuple[tuple[str, Callable[[Day], str]], ...] = (
    ("searches: hunt · sweep", lambda day: " · ".join(f"{_of(day, lane):,}" for lane in ("hunt", "sweep"))),
    ("of the turns, the sweep's", lambda day: f"{_of(day, 'sweep') / max(1, len(day.searches)):.0%}"),
    ("rows: hunt · sweep", lambda day: " · ".join(f"{_rows(day, lane):,}" for lane in ("hunt", "sweep"))),
    ("refused: too frequent · quota spent", lambda day: " · ".join(f"{number:,}" for number in _refused(day))),
    (f"sent under {SPACING_S:.0f} s after another", lambda day: f"{early(day.searches):,}"),
    ("sent before a Retry-After was over", lambda day: f"{despite_refusal(day.searches):,}"),
    ("sent after the quota was spent", lambda day: "{:,} in {:.1f} h".format(*after_spent_quota(day.searches))),
    ("recorded GPUs; reads of one: least · median", _reads),
    ("longest time unread: median GPU · worst", _longest),
    ("unread for over an hour, of all GPU-hours", lambda day: f"{_gap_share(day):.0%}"),
    ("longest time between two hunts of a watch", _longest_unasked),
    ("bargains; never seen before they vanished", _bargains),
    ("missing in the answer to a hunt while they were there", lambda day: f"{len(overlooked(day))}"),
    ("visible → seen: median · p95 · max", _reaction),
    ("matches reported", lambda day: f"{day.alerts:,}"),
    ("processor time", lambda day: f"{day.processor_s:.0f} s"),
)


def report(days: Sequence[Day], seed: int) -> None:
    """Print the table as in docs/performance.md."""
    first, (low, high) = days[0].scenario, ANSWER_S
    assumed = (
        f"{first.hours:g} h from {first.start:%H:%M} UTC, seed {seed}. Assumed: {describe(first.refusals_a_day)}; "
        f"an answer takes {UPLINK_S + low:.1f} to {UPLINK_S + high:.1f} s."
    )
    print(textwrap.fill(assumed, 120), end="\n\n")
    print("| | " + " | ".join(day.scenario.title for day in days) + " |")
    print("|---|" + "---:|" * len(days))
    for title, shown in LINES:
        print(f"| {title} | " + " | ".join(shown(day) for day in days) + " |")
