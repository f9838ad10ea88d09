"""A day of the daemon at a marketplace with vast.ai's spacing and quota, on a virtual clock: what it asks and sees.

    python -m benchmarks.polling_day [--hours 24] [--seed 1] [SCENARIO]...

The daemon's own service and its own tasks (hunt, sweep, health, roll-up) with a SQLite file, through gpuwatch's HTTP
client to the embedded marketplace, which enforces 6 s between two searches and 20,000 rows a day. Time passes only
while all tasks wait (`virtual_time`). Ordering, alerts' delivery and hooks do not run: the watches only alert.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import random
import sqlite3
import statistics
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import httpx
import msgspec

from benchmarks.day_market import Bargain, DayMarket, describe, limit_usd, models
from benchmarks.virtual_time import VirtualTime
from gpuwatch import settings
from gpuwatch.bootstrap import open_store
from gpuwatch.bootstrap.service import Service
from gpuwatch.daemon.tasks import periodic_tasks
from gpuwatch.emulator import Marketplace
from gpuwatch.emulator.http_server import parse_request
from gpuwatch.providers.toolkit.http.client import HttpxClient
from gpuwatch.providers.vastai.query import wire_names

SPACING_S = 6.0  # source: clients report ten searches a minute
UPLINK_S, ANSWER_S = 0.1, (0.2, 0.9)  # assumed: the request's way, and until the answer is there
RECORDED_BESIDES = 2  # GPUs that are recorded and not watched
GAP_S = 3600.0  # the history's sums are by the hour
TASKS = ("hunt", "sweep", "health", "roll-up", "auto price")
MIDNIGHT = datetime(2026, 11, 23, tzinfo=UTC)


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """What is watched, and what the marketplace grants."""

    title: str
    watches: int
    rows_per_day: int = 20_000  # as the settings say; 0: no quota
    granted_rows: int | None = None  # what the marketplace really grants; None: the same
    refusals_a_day: float = 24.0  # times that the marketplace is busy
    hours: float = 24.0
    start: datetime = MIDNIGHT


SCENARIOS = {
    "1": Scenario(title="1 watch", watches=1),
    "5": Scenario(title="5 watches", watches=5),
    "20": Scenario(title="20 watches", watches=20),
    "shared": Scenario(title="5 watches, half of the quota used elsewhere", watches=5, granted_rows=10_000),
}


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """One search as it went over the wire; times in seconds since the start."""

    sent_s: float
    answered_s: float
    task: str  # "hunt", "sweep"
    gpu: str
    status: int
    rows: int = 0
    retry_after_s: float | None = None
    quota_spent: bool = False


class Day(msgspec.Struct, frozen=True, kw_only=True):
    """What a day brought."""

    scenario: Scenario
    watched: Sequence[str]
    recorded: Sequence[str]  # watched ones included, and every model of their names, such as an RTX 4090 of 48 GB
    searches: Sequence[Search]
    bargains: Sequence[Bargain]
    covered_s: dict[str, list[float]]  # by GPU: when it was read completely for the history, since the start
    alerts: int
    processor_s: float


class Wire(httpx.BaseTransport):
    """The network between gpuwatch's HTTP client and the marketplace, in this process and on the virtual clock."""

    def __init__(self, clock: VirtualTime, answer: Marketplace, market: DayMarket, seed: int) -> None:
        self.searches: list[Search] = []
        self._clock, self._marketplace, self._market = clock, answer, market
        self._rng = random.Random(seed)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Carry a request there, and its answer back; note what a hunt gets to see."""
        clock, task, sent_s = self._clock, self._clock.running.partition(" ")[0], self._clock.monotonic()
        clock.sleep(UPLINK_S)
        target = request.url.raw_path.decode("ascii")
        asked = parse_request(request.method, target, dict(request.headers), request.read())
        asked.address = "127.0.0.1"
        reply = self._marketplace.answer(asked)
        shown = self._bargains_in(reply.body) if task == "hunt" and reply.status == 200 else []
        clock.sleep(self._rng.uniform(*ANSWER_S))
        for one in shown:
            one.seen_s = clock.unix() if one.seen_s is None else one.seen_s
        headers = dict(reply.headers)
        self.searches.append(
            Search(
                sent_s=sent_s,
                answered_s=clock.monotonic(),
                task=task,
                gpu=",".join(asked.param("q", {}).get("gpu_name", {}).get("in", [])),
                status=reply.status,
                rows=reply.rows,
                retry_after_s=float(headers["Retry-After"]) if "Retry-After" in headers else None,
                quota_spent=reply.status == 429 and b"quota" in reply.body,
            )
        )
        return httpx.Response(reply.status, headers={**headers, "Content-Type": reply.content_type}, content=reply.body)

    def _bargains_in(self, body: bytes) -> list[Bargain]:
        found = (self._market.shown(row.id) for row in _ROWS.decode(body).offers)
        return [one for one in found if one is not None]


class _Row(msgspec.Struct):
    id: int


class _Rows(msgspec.Struct):
    offers: list[_Row]


_ROWS = msgspec.json.Decoder(_Rows)


# --- a day ------------------------------------------------------------------------------------------------------------


def simulate(scenario: Scenario, seed: int, folder: Path) -> Day:
    """Let the daemon live through a scenario.

    Args:
        folder: for its database and its settings; empty.
    """
    began = time.process_time()
    random.seed(seed)  # tenacity draws its waits there
    clock = VirtualTime(scenario.start, seed)
    known = list(models())
    watched, recorded = known[: scenario.watches], known[: scenario.watches + RECORDED_BESIDES]
    marketplace = Marketplace(
        clock=clock.unix,
        size=0,
        intervals=True,
        search_every_s=SPACING_S,
        interval_shape="headers",
        rows_per_day=scenario.granted_rows or scenario.rows_per_day or None,
    )
    market = DayMarket(marketplace, recorded, clock, seed, scenario.refusals_a_day)
    wire = Wire(clock, marketplace, market, seed)
    loaded = settings.load(str(_settings(scenario, watched, recorded, folder)), env={"HOME": str(folder)})
    with ExitStack() as opened:
        store = opened.enter_context(open_store(loaded))
        http = HttpxClient(transport=wire, monotonic=clock.monotonic)
        opened.callback(http.close)
        service = Service(loaded, store, http, time_source=clock.source)
        opened.callback(service.close)
        with clock.passing():
            clock.spawn("market", market.live)
            for task in periodic_tasks(service):
                if task.name.startswith(TASKS):
                    clock.repeat(task)
            clock.sleep(scenario.hours * 3600)
            service.stopping.set()
            searches = list(wire.searches)
            (worker,) = service.workers.values()
            ends_s = clock.unix()
    return Day(
        scenario=scenario,
        watched=watched,
        recorded=[gpu for gpu, _ in worker.sweeper.targets if wire_names((gpu,))],  # of others it has no offers
        searches=searches,
        bargains=[one for one in market.bargains if one.gpu in watched and one.appears_s < ends_s],
        covered_s=_covered(folder / "gpuwatch.db", worker.sweeper.targets, scenario.start.timestamp()),
        alerts=_count(folder / "gpuwatch.db", "SELECT count(*) FROM alert WHERE kind = 'match'"),
        processor_s=time.process_time() - began,
    )


def _settings(scenario: Scenario, watched: Sequence[str], recorded: Sequence[str], folder: Path) -> Path:
    known = models()
    listed = "".join(
        f'[[watch]]\nname = "{gpu}"\ngpu = "{gpu}"\ngpu_count = 1\nmax_price = {limit_usd(known[gpu])}\n\n'
        for gpu in watched
    )
    names = msgspec.json.encode(list(recorded)).decode()
    path = folder / "gpuwatch.toml"
    path.write_text(
        f'database_url = "sqlite:///{folder}/gpuwatch.db"\nrecord = {{ gpu = {names} }}\n\n'
        f'[providers.vastai]\nbase_url = "http://127.0.0.1:9"\ncommission = 0\n'
        f'search_interval = "{SPACING_S:.0f}s"\nrows_per_day = {scenario.rows_per_day}\n\n{listed}'
    )
    return path


def _covered(path: Path, targets: Iterable[tuple[str, bool]], start_s: float) -> dict[str, list[float]]:
    """By GPU: when a complete sweep read it, in seconds since the start, in order."""
    query = "SELECT gpu, at_s FROM poll WHERE lane = 'sweep' AND covers = 1 AND completeness = 'complete' ORDER BY at_s"
    found: dict[str, list[float]] = {gpu: [] for gpu, _ in targets}
    with sqlite3.connect(path) as connection:
        for gpu, at_s in connection.execute(query):
            found[gpu].append(at_s - start_s)
    return found


def _count(path: Path, query: str) -> int:
    with sqlite3.connect(path) as connection:
        return int(connection.execute(query).fetchone()[0])


# --- what it says -----------------------------------------------------------------------------------------------------


def early(searches: Sequence[Search], spacing_s: float = SPACING_S) -> int:
    """Searches that were sent before the spacing was over."""
    sent = sorted(one.sent_s for one in searches)
    return sum(after - before < spacing_s - 0.001 for before, after in itertools.pairwise(sent))


def despite_refusal(searches: Sequence[Search]) -> int:
    """Searches that were sent before the time was over that a refusal had asked for; a spent quota is counted apart."""
    held_until, found = 0.0, 0
    answers = sorted((one.answered_s, one) for one in searches if one.retry_after_s and not one.quota_spent)
    for one in sorted(searches, key=lambda search: search.sent_s):
        while answers and answers[0][0] <= one.sent_s:
            answered_s, refused = answers.pop(0)
            held_until = max(held_until, answered_s + (refused.retry_after_s or 0.0))
        found += one.sent_s < held_until - 0.001
    return found


def after_spent_quota(searches: Sequence[Search]) -> tuple[int, float]:
    """Searches after the first answer that the quota is spent, and for how many hours that lasted."""
    spent = [one for one in searches if one.quota_spent]
    if not spent:
        return 0, 0.0
    later = [one.sent_s for one in searches if one.sent_s > spent[0].answered_s]
    return len(later), (max(later, default=spent[0].answered_s) - spent[0].answered_s) / 3600


def unread_s(day: Day, gpu: str) -> list[float]:
    """The stretches of a day in which a GPU was not read for the history, in seconds; their sum is the day."""
    moments = [0.0, *day.covered_s[gpu], day.scenario.hours * 3600]
    return [after - before for before, after in itertools.pairwise(moments)]


def longest_unasked_s(day: Day, gpu: str) -> float:
    """The longest time in which no hunt asked for a watched GPU."""
    wire = models()[gpu].name
    asked = [one.sent_s for one in day.searches if one.task == "hunt" and wire in one.gpu.split(",")]
    moments = [0.0, *asked, day.scenario.hours * 3600]
    return max(after - before for before, after in itertools.pairwise(moments))


def reactions_s(day: Day) -> list[float]:
    """From visible to seen, for every bargain that was seen; in order of length."""
    return sorted(one.seen_s - one.appears_s for one in day.bargains if one.seen_s is not None)


def missed(day: Day) -> list[Bargain]:
    """Bargains that were gone before a hunt saw them."""
    ends_s = day.scenario.start.timestamp() + day.scenario.hours * 3600
    return [one for one in day.bargains if one.seen_s is None and one.vanishes_s < ends_s]


def _of(day: Day, lane: str) -> int:
    return sum(one.task == lane for one in day.searches)


def _rows(day: Day, lane: str) -> int:
    return sum(one.rows for one in day.searches if one.task == lane)


def _refused(day: Day) -> tuple[int, int]:
    refused = [one.quota_spent for one in day.searches if one.status == 429]
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
    short = sum(one.vanishes_s - one.appears_s < 60 for one in gone)
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
    ("visible → seen: median · p95 · max", _reaction),
    ("matches reported", lambda day: f"{day.alerts:,}"),
    ("processor time", lambda day: f"{day.processor_s:.0f} s"),
)


def report(days: Sequence[Day], seed: int) -> None:
    """Print the table, as it stands in docs/performance.md."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="SCENARIO", help=f"of {', '.join(SCENARIOS)}; none: all")
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if unknown := set(args.names) - set(SCENARIOS):
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}")
    logging.disable()
    days = []
    for name in args.names or SCENARIOS:
        with tempfile.TemporaryDirectory() as folder:
            scenario = msgspec.structs.replace(SCENARIOS[name], hours=args.hours)
            days.append(simulate(scenario, args.seed, Path(folder)))
    report(days, args.seed)


if __name__ == "__main__":
    main()
