"""Metrics of the market: 0 where nobody offers, absent where nobody knows, and nothing old as if it were now."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from gpuwatch.app.setup.metrics import MetricsReader, MetricValues
from gpuwatch.bootstrap import real_now
from gpuwatch.domain.market.offer import Offer
from gpuwatch.settings import Settings
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.setup.database import open_database
from gpuwatch.storage.setup.tables import poll
from tests.storage.stored_answers import an_answer, an_offer
from tests.web.served import settings_in

H100, A100 = "H100 SXM", "A100 SXM 80GB"
OFFERS, BEST = "gpuwatch_offers", "gpuwatch_best_price_usd_gpu_hour"
WATCH_BEST = "gpuwatch_watch_best_price_usd_gpu_hour"
MAX_AGE_S = 3 * 30 + 60  # three polls, and a minute
ONE = '[providers.vastai]\n[[watch]]\nname = "cheap"\ngpu = ["H100"]\nmax_price = 2.40\n'


def polled(settings: Settings, at: datetime, *offers: Offer, lane: str = "sweep", gpu: str = H100) -> None:
    store = open_database(settings.database_url)
    SqlHistoryRecorder(store).record(an_answer(*offers, observed_at=at), lane=lane, gpu=gpu, spot=False)
    store.close()


def read(settings: Settings) -> MetricValues:
    return MetricsReader().read(settings, real_now())


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_in(tmp_path, ONE)


def test_a_gpu_that_nobody_offers_is_zero_and_one_that_nobody_read_is_absent(settings: Settings) -> None:
    polled(settings, real_now())
    found = read(settings).values
    assert found[OFFERS] == {("vastai", H100): 0.0}
    assert found[BEST] == {}


def test_an_offer_that_goes_leaves_a_zero(settings: Settings) -> None:
    polled(settings, real_now() - timedelta(seconds=60), an_offer())
    assert read(settings).values[OFFERS] == {("vastai", H100): 1.0}
    polled(settings, real_now())
    assert (read(settings).values[OFFERS], read(settings).values[BEST]) == ({("vastai", H100): 0.0}, {})


@pytest.mark.parametrize(("age_s", "is_known"), [(MAX_AGE_S - 30, True), (MAX_AGE_S + 30, False), (30 * 86_400, False)])
def test_the_series_of_a_provider_that_does_not_answer_leave_after_its_max_age(
    settings: Settings, age_s: float, is_known: bool
) -> None:
    polled(settings, real_now() - timedelta(seconds=age_s), an_offer())
    found = read(settings).values
    assert [bool(found[name]) for name in (OFFERS, BEST, WATCH_BEST)] == [is_known] * 3
    assert bool(found["gpuwatch_provider_healthy"]) is is_known, "nobody polls, so nobody knows"
    assert found["gpuwatch_poll_age_seconds"]["vastai",] == pytest.approx(age_s, abs=10)


def test_a_provider_that_answers_hunts_keeps_the_offers_of_its_last_sweep(settings: Settings) -> None:
    polled(settings, real_now() - timedelta(minutes=30), an_offer())
    polled(settings, real_now(), lane="hunt")
    assert read(settings).values[OFFERS] == {("vastai", H100): 1.0}


def test_what_was_not_read_for_hours_is_unknown_though_hunts_are_answered(settings: Settings) -> None:
    """The day's rows allow no sweep: an offer that hunts do not show may be gone or dearer."""
    polled(settings, real_now() - timedelta(hours=9), an_offer())
    polled(settings, real_now(), lane="hunt")
    found = read(settings).values
    assert (found[OFFERS], found[BEST], found[WATCH_BEST]) == ({}, {}, {})
    assert found["gpuwatch_provider_healthy"] == {("vastai",): 1.0}


def test_one_provider_s_silence_takes_nothing_from_another(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, "[providers.runpod]\n" + ONE)
    polled(settings, real_now() - timedelta(hours=1), an_offer())
    store = open_database(settings.database_url)
    there = an_answer(an_offer(provider="runpod"), observed_at=real_now(), provider="runpod")
    SqlHistoryRecorder(store).record(there, lane="sweep", gpu=H100, spot=False)
    store.close()
    assert read(settings).values[OFFERS] == {("runpod", H100): 1.0}


def test_a_recorded_gpu_without_a_watch_keeps_its_series_between_two_sweeps(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, f'record = {{ gpu = ["{A100}"] }}\n[providers.vastai]\n')
    polled(settings, real_now() - timedelta(minutes=14), an_offer(gpu=A100, gpu_family="A100"), gpu=A100)
    assert read(settings).values[OFFERS] == {("vastai", A100): 1.0}


def test_a_pace_that_gpuwatch_chose_itself_hides_no_offer_between_two_polls(tmp_path: Path) -> None:
    """With 250 rows a day a matching watch is polled every two hours."""
    settings = settings_in(tmp_path, ONE.replace("[providers.vastai]", "[providers.vastai]\nrows_per_day = 250"))
    for hours in (3.5, 1.5):
        polled(settings, real_now() - timedelta(hours=hours), an_offer(usd_hour=1.0))
    assert read(settings).values[OFFERS] == {("vastai", H100): 1.0}
    assert read(settings).values["gpuwatch_provider_healthy"] == {("vastai",): 1.0}


def test_a_day_s_rows_that_are_used_are_no_illness_of_the_provider(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, ONE.replace("[providers.vastai]", "[providers.vastai]\nrows_per_day = 1"))
    polled(settings, real_now(), an_offer(usd_hour=1.0))
    with open_database(settings.database_url).write() as connection:
        connection.execute(update(poll).values(at_s=poll.c.at_s - 40_000))
    found = read(settings).values
    assert found["gpuwatch_rows_left"] == {("vastai",): 0.0}
    assert (found["gpuwatch_provider_healthy"], found[OFFERS]) == ({("vastai",): 1.0}, {})
