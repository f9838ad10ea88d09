"""The streamed series of a watch is the one of the whole history, also where what is over is kept between readings."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from gpuwatch.domain.forecasts.backtest.replayed_candidates import fitting_series
from gpuwatch.domain.forecasts.price_forecasts import scope_of
from gpuwatch.domain.history.price_series import PriceSeries, known_until
from gpuwatch.domain.market.money import REFERENCE_DISK_GB, Commission
from gpuwatch.domain.market.offer import Offer, Verification
from gpuwatch.domain.setup.durations import HOUR_S
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.watch import SpotPolicy, Watch
from gpuwatch.ports import Completeness
from gpuwatch.storage.forecasts.fitting_prices import SqlFittingPrices
from gpuwatch.storage.forecasts.forecast_rows import SqlAutoPriceWaits
from gpuwatch.storage.history.imports.price_export import write_rows
from gpuwatch.storage.history.imports.price_import import import_file
from gpuwatch.storage.history.prune import prune
from gpuwatch.storage.history.queries.stored_prices import read_market_history
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.setup.database import Database
from tests.builders import a_price_row, a_watch
from tests.storage.stored_answers import NOON, an_answer, an_offer

COMMISSIONS = {"vastai": Commission("0.20"), "runpod": Commission()}
DAYS = timedelta(days=4)  # so that hours leave the span
WATCHES: tuple[Watch, ...] = tuple(
    a_watch(name=f"w{number}", **changes)
    for number, changes in enumerate(
        (
            {},
            {"gpu_names": ("H100 SXM",), "spot": SpotPolicy.ANY, "gpu_count_max": 8, "disk_gb": 100.0},
            {"regions": ("NO",)},
            {"verified": True, "min_reliability": 0.95},
            {"when": 'country == "US" and reliability > 0.9'},
            {"any_of": ('country == "NO"', "gpu_ram >= 80")},
            {"min_vram_gib": 90.0},
            {"providers": ("runpod",), "gpu_names": ("H100 SXM", "RTX 4090")},
            {"download_gb": 50.0, "launch": LaunchSpec(image="train", max_runtime_s=36_000.0)},
        )
    )
)


def whole(database: Database, watch: Watch, since: datetime, now: datetime, providers: Any = None) -> PriceSeries:
    """The series of the history, read as a whole."""
    history = read_market_history(database, scope_of(watch), since, now + timedelta(seconds=1))
    return known_until(fitting_series(watch, history, COMMISSIONS, REFERENCE_DISK_GB, providers), now)


class RandomHistory:
    """What can happen to a history, drawn at random: its time goes on with each step."""

    def __init__(self, database: Database, folder: Path, seed: int) -> None:
        self.database, self.folder, self.draw = database, folder, random.Random(seed)
        self.recorder = SqlHistoryRecorder(database)
        self.now = NOON
        self.machines = [self._machine(number) for number in range(9)]

    def _machine(self, number: int) -> dict[str, Any]:
        draw = self.draw
        gpu = draw.choice(("H100 SXM", "H100 SXM", "H100 PCIe", "RTX 4090"))
        facts = {"gpu": gpu, "gpu_family": gpu.split()[0] if gpu[0] == "H" else gpu, "gpu_wire": gpu}
        facts |= {"gpu_count": draw.choice((1, 1, 2)), "gpu_memory_gib": draw.choice((80.0, None, 94.0))}
        return facts | {"machine_id": f"m{number}", "provider": draw.choice(("vastai", "runpod", "lambda"))}

    def _offer(self, machine: dict[str, Any], spot: bool) -> Offer:
        draw = self.draw
        region, country = draw.choice((("Texas", "US"), ("Texas", "US"), ("Oslo", "NO"), (None, None)))
        facts = {"region": region, "country": country, "reliability": draw.choice((0.99, 0.9, None))}
        verification = draw.choice((Verification.VERIFIED, Verification.VERIFIED, None))
        return an_offer(
            usd_hour=draw.choice((2.0, 2.2, 2.5, 3.0)),
            spot=spot,
            verification=verification,
            download_usd_gb=draw.choice((None, 0.0, 0.05, 0.05, 0.05)),
            **machine,
            **facts,
        )

    def step(self) -> None:
        """One event, a while after the one before."""
        self.now += timedelta(seconds=self.draw.choice((40, 600, 1800, 3600, 5000, 5000, 20_000)))
        event: Callable[[], None] = self.draw.choices(
            (self.poll, self.late, self.fail, self.bring, self.prune, self.roll_up), (60, 6, 6, 3, 1, 10)
        )[0]
        event()

    def poll(self, at: datetime | None = None) -> None:
        draw, spot = self.draw, self.draw.random() < 0.3
        provider, gpu = draw.choice(("vastai", "runpod", "lambda")), draw.choice(("", "H100 SXM", "H100 PCIe"))
        own = [one for one in self.machines if one["provider"] == provider and (not gpu or one["gpu"] == gpu)]
        offers = [self._offer(one, spot) for one in draw.sample(own, draw.randint(0, len(own)))]
        completeness = draw.choice([Completeness.COMPLETE] * 4 + [Completeness.TRUNCATED])
        bound = 2.4 if completeness is Completeness.TRUNCATED and draw.random() < 0.7 else None
        answer = an_answer(
            *offers,
            provider=provider,
            observed_at=at or self.now,
            completeness=completeness,
            complete_to_usd_hour=bound,
        )
        self.recorder.record(answer, lane=draw.choice(("sweep", "sweep", "hunt")), gpu=gpu, spot=spot)

    def late(self) -> None:
        self.poll(self.now - timedelta(seconds=self.draw.choice((90, 4000, 40_000))))

    def fail(self) -> None:
        self.recorder.record_failure("vastai", lane="sweep", gpu="H100 SXM", at=self.now, error="timeout")

    def roll_up(self) -> None:
        self.recorder.roll_up(self.now)

    def bring(self) -> None:
        start = int(self.now.timestamp()) - self.draw.randint(1, 200) * HOUR_S
        rows = [
            a_price_row(start + number * 2000, self.draw.choice("abc"), listed_microusd_hour=1_900_000)
            for number in range(self.draw.randint(1, 6))
        ]
        path = self.folder / "rows.csv"
        path.unlink(missing_ok=True)
        write_rows(path, rows)
        import_file(self.database, path, (None, {}), int(self.now.timestamp()))

    def prune(self) -> None:
        prune(self.database, timedelta(hours=self.draw.choice((30, 100, 2000))), self.now)


def followed(database: Database, folder: Path, seed: int, steps: int) -> None:
    """Compare at every few steps: a reader that goes on, one that began now, and a span with any beginning."""
    history = RandomHistory(database, folder, seed)
    waits = SqlAutoPriceWaits(database, COMMISSIONS, history=DAYS)
    for number in range(steps):
        history.step()
        if history.draw.random() < 0.6:
            continue
        watch, now = (
            WATCHES[(number + seed) % len(WATCHES)],
            history.now + timedelta(seconds=history.draw.randint(0, 9999)),
        )
        first_hour = int((now - DAYS).timestamp()) // HOUR_S
        since = datetime.fromtimestamp(first_hour * HOUR_S, now.tzinfo)
        expected = whole(database, watch, since, now, COMMISSIONS)
        assert waits.series(watch, now) == expected, (seed, number, watch.name)
        assert SqlAutoPriceWaits(database, COMMISSIONS, history=DAYS).series(watch, now) == expected, (
            seed,
            number,
            watch.name,
        )
        since = now - timedelta(seconds=history.draw.randint(1, 400_000))
        assert SqlFittingPrices(database, COMMISSIONS).series(watch, since, now) == whole(database, watch, since, now)


def test_on_random_histories_it_is_the_series_of_the_whole_history(sqlite_database: Database, tmp_path: Path) -> None:
    followed(sqlite_database, tmp_path, seed=9, steps=150)


def test_it_is_so_on_every_engine(database: Database, tmp_path: Path) -> None:
    followed(database, tmp_path, seed=6, steps=60)


def test_an_answer_that_comes_late_counts_in_the_hours_that_were_over(sqlite_database: Database) -> None:
    """One provider's answer is stored hours after those of another, whose hours are aggregated and kept."""
    recorder, waits = SqlHistoryRecorder(sqlite_database), SqlAutoPriceWaits(sqlite_database, COMMISSIONS, history=DAYS)
    watch = WATCHES[0]
    dear = an_offer(usd_hour=3.0, provider="runpod")
    recorder.record(an_answer(dear, provider="runpod"), lane="sweep")
    for hour in range(12):
        recorder.record(an_answer(an_offer(usd_hour=3.0), after_s=hour * HOUR_S), lane="sweep")
    now = NOON + timedelta(hours=12)
    assert min(low for low in waits.series(watch, now).lows if low) == 3_000_000
    cheap = an_offer(usd_hour=2.0, provider="runpod")
    recorder.record(an_answer(cheap, provider="runpod", after_s=4 * HOUR_S), lane="sweep")
    recorder.record(an_answer(provider="runpod", after_s=5 * HOUR_S), lane="sweep")
    recorder.roll_up(now)
    found = waits.series(watch, now)
    assert [low for low in found.lows if low == 2_000_000] == [2_000_000] * 1
    assert found == SqlAutoPriceWaits(sqlite_database, COMMISSIONS, history=DAYS).series(watch, now)
