"""The daemon's parts with several providers: which are polled, how long a view is valid, where gpuwatch rents."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.app.setup.doctor import _missing_extras
from gpuwatch.app.setup.doctor_account import image_findings
from gpuwatch.bootstrap import build_adapters, http_client, open_store, provider_access
from gpuwatch.bootstrap.rules import build_rules
from gpuwatch.bootstrap.service import Service, build_service
from gpuwatch.daemon.tasks import periodic_tasks
from gpuwatch.emulator import Marketplace
from gpuwatch.errors import UsageError
from gpuwatch.installation import install_hint
from gpuwatch.settings import Settings, load
from tests.outbox import new_alerts
from tests.stalls import ONE, PRICES, open_stalls

ALERTS = '[[watch]]\nname = "alerts"\ngpu = "H100"\nmax_price = 3.0\n'
RENTS = """
dry_run = false
budget = { max_usd_hour = 20 }
[notify.telegram]
chat_id = 1
[[watch]]
name = "rents"
gpu = "H100"
max_price = 3.0
action = "launch"
launch = { max_runtime = "1h" }
"""


@pytest.fixture
def market() -> Iterator[Marketplace]:
    with Marketplace(seed=1, key="demo-key", size=8, odd_rows=False) as opened:
        for row in opened.offers():
            opened.withdraw(row["id"])
        yield opened


@pytest.fixture
def settings(market: Marketplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Settings]]:
    """Settings from TOML, with vast.ai's emulator and the stalls."""

    def read(toml: str, **env: str) -> Settings:
        (tmp_path / "gpuwatch.toml").write_text(toml)
        fixed = {
            "HOME": str(tmp_path),
            "VAST_API_KEY": "demo-key",
            "GPUWATCH_NOTIFY__TELEGRAM__BOT_TOKEN": "12345678:abcdefghijklmnopqrstuvwxyz0123456789",
            "GPUWATCH_PROVIDERS__VASTAI__BASE_URL": market.url,
            "GPUWATCH_PROVIDERS__VASTAI__SEARCH_INTERVAL": "0s",
        }
        if "telegram" not in toml:
            del fixed["GPUWATCH_NOTIFY__TELEGRAM__BOT_TOKEN"]
        return load(env=fixed | env, cwd=tmp_path)

    with open_stalls(tmp_path, monkeypatch):
        yield read


def rules(settings: Settings) -> Any:
    return build_rules(settings, tuple(settings.providers))


def test_a_view_is_fresh_by_its_own_providers_pace_and_the_number_of_its_questions(settings: Any) -> None:
    found = rules(settings(ALERTS)).max_ages
    assert found["prices_stall"] == timedelta(hours=18, seconds=60)
    assert found["vastai"] == timedelta(seconds=3 * 30 + 60)
    many = "".join(ALERTS.replace("alerts", f"w{n}") + 'spot = "any"\n' for n in range(20))
    slow = rules(settings(many, GPUWATCH_PROVIDERS__VASTAI__SEARCH_INTERVAL="6s")).max_ages
    assert slow["vastai"] == timedelta(seconds=3 * 20 * 2 * 6 + 60), "a round of forty questions takes four minutes"


def test_a_watch_that_rents_does_not_wait_for_who_gives_list_prices_alone(settings: Any) -> None:
    alerting = {name for name, _ in rules(settings(ALERTS)).expected_views["alerts"]}
    renting = {name for name, _ in rules(settings(RENTS)).expected_views["rents"]}
    assert alerting - renting == {"prices_stall"}
    assert "vastai" in renting


def test_where_gpuwatch_can_rent_and_where_not_or_for_want_of_a_key(
    settings: Any,
) -> None:
    unable = rules(settings(RENTS, GPUWATCH_PROVIDERS__SHUT_STALL__ENABLED="true")).unable
    assert unable.why_not("vastai") is None
    assert unable.why_not("one_stall") == "gpuwatch cannot rent at one_stall"
    assert unable.why_not("shut_stall") == "there is no key for shut_stall"


def test_a_cheaper_offer_where_nothing_can_be_rented_never_keeps_the_daemon_from_renting(
    settings: Any, market: Marketplace
) -> None:
    ONE.sells(1.0)
    market.publish(gpu="H100 SXM", count=1, usd_hour=2.0)
    loaded = settings(RENTS)
    with open_store(loaded) as store, build_service(loaded, store) as service:
        run(service, "follow vastai", "hunt one_stall", "hunt vastai")
        service.executor.shutdown(wait=True)
        (launch,) = service.launch_repository.all()
        reported = [alert.did for alert in new_alerts(store)]
    assert launch.provider == "vastai"
    assert len(market.ledger.creates) == 1
    assert reported[0] == "Not rented: gpuwatch cannot rent at one_stall."
    assert any("A cheaper offer was skipped: gpuwatch cannot rent at one_stall." in did for did in reported)


def test_a_list_price_is_reported_by_the_daemon_and_starts_nothing(settings: Any) -> None:
    PRICES.sells(1.0)
    loaded = settings(RENTS + ALERTS)
    with open_store(loaded) as store, build_service(loaded, store) as service:
        run(service, "follow vastai", "hunt prices_stall")
        (alert,) = new_alerts(store)
        assert service.launch_repository.all() == []
    assert alert.watch == "alerts"
    assert alert.headline.endswith("(listed)")


def run(service: Service, *names: str) -> None:
    tasks = {task.name: task for task in periodic_tasks(service)}
    for name in names:
        tasks[name].run()


def test_a_provider_whose_extra_is_missing_is_left_out_and_named(
    settings: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(provider_access, "_is_installed", lambda package: False)
    provider_access.missing_extra.cache_clear()
    loaded = settings(ALERTS, GPUWATCH_PROVIDERS__NEEDY_STALL__ENABLED="true")
    with http_client(loaded) as http:
        assert "needy_stall" not in build_adapters(loaded, http)
        with pytest.raises(UsageError, match=re.escape(install_hint("postgres"))):
            build_adapters(loaded, http, ["needy_stall"])
    assert "needy_stall: a required extra is not installed" in caplog.text
    provider_access.missing_extra.cache_clear()


@pytest.mark.parametrize(
    ("providers", "reported"),
    [
        ('["one_stall", "vastai"]', "gpuwatch cannot rent at one_stall: it only reports matching offers there"),
        ('["prices_stall"]', "prices_stall offers list prices only: a watch that rents does not search there"),
        ('["machines_stall"]', "machines_stall rents out virtual machines: launch.image is ignored there"),
    ],
)
def test_a_watch_that_rents_where_it_cannot_or_not_what_it_names_is_warned_of(
    settings: Any, caplog: pytest.LogCaptureFixture, providers: str, reported: str
) -> None:
    settings(RENTS + f"providers = {providers}\n", GPUWATCH_PROVIDERS__MACHINES_STALL__ENABLED="true")
    assert reported in caplog.text


@pytest.mark.parametrize(
    ("provider", "launch", "said"),
    [
        ("shadeform", 'runtype = "args"', None),
        ("shadeform", 'runtype = "ssh"', "onstart is run by the machine"),
        ("primeintellect", 'runtype = "ssh"', "onstart is refused"),
    ],
)
def test_doctor_and_settings_agree_about_the_image_and_the_start_script(
    settings: Any, caplog: pytest.LogCaptureFixture, provider: str, launch: str, said: str | None
) -> None:
    text = RENTS.replace('max_runtime = "1h"', f'max_runtime = "1h", {launch}') + f'providers = ["{provider}"]\n'
    loaded = settings(text, **{f"GPUWATCH_PROVIDERS__{provider.upper()}__ENABLED": "true"})
    found = [finding.text for finding in image_findings(loaded, provider)]
    assert bool(found) is (said is not None)
    assert all(said in one for one in found if said)
    assert ("rents out virtual machines" in caplog.text) is (said is not None)
    assert ("launch.onstart is refused" in caplog.text) is (provider == "primeintellect")


def test_doctor_says_where_the_image_of_a_watch_is_not_used_and_which_extra_is_missing(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = settings(
        RENTS,
        GPUWATCH_PROVIDERS__MACHINES_STALL__ENABLED="true",
        GPUWATCH_PROVIDERS__NEEDY_STALL__ENABLED="true",
    )
    assert [finding.text for finding in image_findings(loaded, "vastai")] == []
    (found,) = image_findings(loaded, "machines_stall")
    assert "the image of 'rents' is ignored" in found.text
    monkeypatch.setattr(provider_access, "_is_installed", lambda package: False)
    provider_access.missing_extra.cache_clear()
    found = next(finding for finding in _missing_extras(loaded) if finding.area == "needy_stall")
    assert (found.state, found.mend) == ("fault", install_hint("postgres"))
    provider_access.missing_extra.cache_clear()
