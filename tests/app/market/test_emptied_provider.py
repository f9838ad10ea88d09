""" "No offers" of a provider whose answers became empty is "no data" on every screen."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from gpuwatch.app.market.provider_status import provider_status_view, provider_statuses
from gpuwatch.app.setup.metrics import MetricsReader
from gpuwatch.app.watches.watch_status import watch_statuses
from gpuwatch.bootstrap import real_now
from gpuwatch.emulator import Marketplace
from gpuwatch.engine.market.empty_answers import EMPTY
from gpuwatch.ports.market import Hold
from gpuwatch.settings import Settings
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.market.provider_holds import SqlHolds
from gpuwatch.storage.setup.database import open_database
from tests.cli.conftest import Shell, market, shell  # noqa: F401 fixtures
from tests.storage.stored_answers import an_answer
from tests.upgraded_store import open_upgraded
from tests.web.served import settings_in

REASON = "its answers have no rows, but had 60 before"
TOML = 'database_url = "sqlite:///gpuwatch.db"\n[[watch]]\nname = "cheap"\ngpu = ["H100"]\nmax_price = 2.40\n'


def found_empty(url: str) -> None:
    store = open_database(url)
    now = real_now()
    hold = Hold(
        provider="vastai", kind=EMPTY, set_at=now - timedelta(minutes=5), until=now + timedelta(days=9), reason=REASON
    )
    SqlHolds(store).save(hold)
    store.close()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    found = settings_in(tmp_path, TOML.partition("\n")[2].replace("[[watch]]", "[providers.vastai]\n[[watch]]"))
    store = open_database(found.database_url)
    for lane in ("sweep", "hunt"):
        SqlHistoryRecorder(store).record(an_answer(observed_at=real_now()), lane=lane, gpu="H100 SXM", spot=False)
    store.close()
    return found


def test_a_watch_has_no_data_and_says_why(settings: Settings) -> None:
    assert watch_statuses(settings)[0].state == "waiting"
    found_empty(settings.database_url)
    (status,) = watch_statuses(settings)
    assert status.state == "no data"
    assert (
        status.why == f"There is no complete market data (no_data). vastai: {REASON}: no offers there proves nothing."
    )


def test_a_provider_is_empty_and_its_metrics_are_unknown(settings: Settings) -> None:
    read = MetricsReader().read(settings, real_now()).values
    assert (read["gpuwatch_offers"], read["gpuwatch_provider_healthy"]) == (
        {("vastai", "H100 SXM"): 0.0}, {("vastai",): 1.0},
    )  # fmt: skip
    found_empty(settings.database_url)
    read = MetricsReader().read(settings, real_now()).values
    assert (read["gpuwatch_offers"], read["gpuwatch_provider_healthy"]) == ({}, {("vastai",): 0.0})
    (status,) = provider_statuses(settings, only_enabled=True)
    assert status.status == "empty"
    assert provider_status_view(status).empty_since is not None


@pytest.mark.parametrize("command", [("check",), ("offers", "--gpu", "H100")])
def test_check_and_offers_cannot_tell(shell: Shell, market: Marketplace, command: tuple[str, ...]) -> None:  # noqa: F811
    shell.settings(TOML)
    url = f"sqlite:///{shell.folder}/gpuwatch.db"
    open_upgraded(url).close()
    ran = shell(*command)
    assert (ran.code, "no offers (every provider answered)" in ran.out) == (1 if command[0] == "check" else 0, True)
    found_empty(url)
    ran = shell(*command)
    assert ran.code == 3
    assert "cannot tell" in ran.out
    assert REASON in ran.out + ran.err
