"""A day of the daemon at a marketplace with vast.ai's spacing and quota, on a virtual clock: its searches and finds.

The daemon's own service and its own tasks (hunt, sweep, health, roll-up) with a SQLite file, through gpuwatch's HTTP
client to the embedded marketplace, which enforces 6 s between two searches and 20,000 rows a day. Time passes only
while all tasks wait (`virtual_time`). Ordering, alerts' delivery and hooks do not run: the watches only alert.
"""

from __future__ import annotations

import itertools
import logging
import random
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import httpx
import msgspec

from benchmarks.day_market import HABITS, Bargain, DayMarket, Habits, limit_usd, models
from benchmarks.virtual_time import VirtualTime
from gpuwatch import settings
from gpuwatch.bootstrap import open_store
from gpuwatch.bootstrap.service import Service
from gpuwatch.daemon.tasks import periodic_tasks
from gpuwatch.emulator import Marketplace
from gpuwatch.emulator.http_server import parse_request
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.providers.vastai.market import wire_names

SAMPLED_EVERY_S = 1800.0
RECORDED_BESIDES = 2  # GPUs that are recorded but not watched
TASKS = ("hunt", "sweep", "health", "roll-up", "auto price")
SPACING_S = 6.0  # source: clients report ten searches a minute
UPLINK_S, ANSWER_S = 0.1, (0.2, 0.9)  # assumed: one way of the request, and the time to the answer
MIDNIGHT = datetime(2026, 11, 23, tzinfo=UTC)


Prices = Mapping[str, Sequence[float]]  # by GPU: USD per hour of the listed offers of one GPU


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
    prices: Sequence[Prices]  # what was listed, every half hour


class Wire(httpx.BaseTransport):
    """Connects gpuwatch's HTTP client with the marketplace, in this process and on the virtual clock."""

    def __init__(self, clock: VirtualTime, marketplace: Marketplace, market: DayMarket, seed: int) -> None:
        self.searches: list[Search] = []
        self._clock, self._marketplace, self._market = clock, marketplace, market
        self._rng = random.Random(seed)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Transport a request and its answer; note what a hunt sees."""
        clock, task, sent_s = self._clock, self._clock.running.partition(" ")[0], self._clock.monotonic()
        clock.sleep(UPLINK_S)
        target = request.url.raw_path.decode()
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
        headers["Content-Type"] = reply.content_type
        return httpx.Response(reply.status, headers=headers, stream=httpx.ByteStream(reply.body))

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
    """Run the daemon through a scenario.

    Args:
        folder: an empty folder for its database and its settings.
    """
    random.seed(seed)  # tenacity draws its waits from it
    clock = VirtualTime(scenario.start, seed)
    known = list(models())
    watched = known[: scenario.gpus or scenario.watches]
    recorded = known[: scenario.recorded or len(watched) + RECORDED_BESIDES]
    marketplace = Marketplace(
        clock=clock.unix,
        size=0,
        intervals=True,
        search_every_s=SPACING_S,
        interval_shape="headers",
        rows_per_day=scenario.granted_rows or scenario.rows_per_day or None,
    )
    market = DayMarket(marketplace, recorded, clock, seed, scenario.refusals_a_day, scenario.habits)
    decided = DecisionLog(clock)
    prices: list[Prices] = []
    wire = Wire(clock, marketplace, market, seed)
    loaded = settings.load(str(_settings(scenario, watched, recorded, folder)), env={"HOME": str(folder)})
    with ExitStack() as opened, decided:
        store = opened.enter_context(open_store(loaded))
        http = PooledHttpClient(transport=wire, monotonic=clock.monotonic)
        opened.callback(http.close)
        service = Service(loaded, store, http, time_source=clock.source)
        opened.callback(service.close)
        with clock.passing():
            clock.spawn("market", market.live)
            clock.spawn("prices", lambda: _sample(marketplace, clock, prices))
            for task in periodic_tasks(service):
                if task.name.startswith(TASKS):
                    clock.repeat(task)
            clock.sleep(scenario.hours * 3600)
            service.stopping.set()
            searches = list(wire.searches)
            (worker,) = service.polling.workers.values()
            ends_s = clock.unix()
    return Day(
        scenario=scenario,
        watched=watched,
        recorded=[gpu for gpu, _ in worker.sweeper.targets if wire_names((gpu,))],  # it has no offers of others
        searches=searches,
        bargains=[bargain for bargain in market.bargains if bargain.gpu in watched and bargain.appears_s < ends_s],
        covered_s=_covered(folder / "gpuwatch.db", worker.sweeper.targets, scenario.start.timestamp()),
        alerts=_count(folder / "gpuwatch.db", "SELECT count(*) FROM alert WHERE kind = 'match'"),
        prices=prices,
        decided=decided.found,
    )


def _sample(marketplace: Marketplace, clock: VirtualTime, prices: list[Prices]) -> None:
    """Note the prices of offers of one GPU at intervals, until the day is over."""
    names = {model.name: gpu for gpu, model in models().items()}
    before_s = -1.0
    while clock.monotonic() > before_s:
        before_s = clock.monotonic()
        found: dict[str, list[float]] = {}
        for row in marketplace.offers():
            if row["num_gpus"] == 1:
                found.setdefault(names[row["gpu_name"]], []).append(row["dph_total"])
        prices.append(found)
        clock.sleep(SAMPLED_EVERY_S)


def watches_of(scenario: Scenario, watched: Sequence[str]) -> list[tuple[str, str, float]]:
    """Return each watch by name, with its GPU and limit: watches of one GPU have limits 4 % apart."""
    known, found = models(), []
    for number in range(scenario.watches):
        turn, gpu = number // len(watched), watched[number % len(watched)]
        limit = round(limit_usd(known[gpu], scenario.habits) * (1 - 0.04 * turn), 4)
        found.append((f"{gpu} {turn}" if turn else gpu, gpu, limit))
    return found


class DecisionLog(logging.Handler):
    """Collects the daemon's log lines about its watches, with the virtual time."""

    def __init__(self, clock: VirtualTime) -> None:
        super().__init__()
        self.found: list[tuple[float, str, str]] = []
        self._clock = clock
        self._logger = logging.getLogger("gpuwatch.engine.watches.decision_log")

    def emit(self, record: logging.LogRecord) -> None:
        """Parse "watch NAME: reason, best …"."""
        watch = getattr(record, "watch", None)
        if watch is not None:
            said = record.getMessage().removeprefix(f"watch {watch}: ")
            self.found.append((self._clock.unix(), watch, said.partition(",")[0]))

    def __enter__(self) -> None:
        self._logger.addHandler(self)
        self._logger.setLevel(logging.INFO)

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)


def _settings(scenario: Scenario, watched: Sequence[str], recorded: Sequence[str], folder: Path) -> Path:
    listed = "".join(
        f'[[watch]]\nname = "{name}"\ngpu = "{gpu}"\ngpu_count = 1\nmax_price = {limit}\n\n'
        for name, gpu, limit in watches_of(scenario, watched)
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
    """Return by GPU when complete sweeps read it, in seconds since the start, in order."""
    query = "SELECT gpu, at_s FROM poll WHERE lane = 'sweep' AND covers = 1 AND completeness = 'complete' ORDER BY at_s"
    found: dict[str, list[float]] = {gpu: [] for gpu, _ in targets}
    with sqlite3.connect(path) as connection:
        for gpu, at_s in connection.execute(query):
            found[gpu].append(at_s - start_s)
    return found


def _count(path: Path, query: str) -> int:
    with sqlite3.connect(path) as connection:
        return int(connection.execute(query).fetchone()[0])


def early(searches: Sequence[Search], spacing_s: float = SPACING_S) -> int:
    """Searches that were sent before the spacing was over."""
    sent = sorted(search.sent_s for search in searches)
    return sum(after - before < spacing_s - 0.001 for before, after in itertools.pairwise(sent))
