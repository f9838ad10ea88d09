"""`gpuwatch launches costs`: from the store without a network, and with the emulator's charges over HTTP."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert

from gpuwatch.bootstrap import http_client, real_now
from gpuwatch.bootstrap.service import build_service
from gpuwatch.bootstrap.settings_loading import load_settings
from gpuwatch.daemon.tasks import periodic_tasks
from gpuwatch.domain.launches.launch import Intent, Launch, LaunchState, Promise, new_launch
from gpuwatch.domain.launches.money.charge_comparison import InvoiceRow
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.watch import Action
from gpuwatch.emulator import Delays, ManualClock, Marketplace
from gpuwatch.ports import Order
from gpuwatch.providers import build
from gpuwatch.storage.launches.invoice_rows import SqlInvoiceRepository
from gpuwatch.storage.setup.launch_rows import launch_row_of
from gpuwatch.storage.setup.tables import launch as launches
from tests.builders import a_match, a_watch, changed
from tests.cli.conftest import Shell
from tests.upgraded_store import open_upgraded

S = LaunchState
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
BEGAN = datetime(2025, 3, 10, 12, 0, tzinfo=UTC)
MONTH = "2025-03"
BUDGET = "[budget]\nmax_usd_hour = 20\nmax_usd_day = 100\nmax_usd_month = 72\n"


class Rows:
    """The launches and charges behind the command."""

    def __init__(self, folder: Path) -> None:
        self.store = open_upgraded(f"sqlite:///{folder}/gpuwatch.db")
        self.charges = SqlInvoiceRepository(self.store)
        self._made = 0

    def add(self, began: datetime = BEGAN, hours: float = 2.0, **changes: Any) -> Launch:
        """A launch that ran from its request on, at 3.00 listed and 3.60 with commission, and ended."""
        watch = a_watch(action=Action.LAUNCH, launch=LaunchSpec())
        launch_id = "abcdefghijkl"[self._made] * 12
        self._made += 1
        ran = {
            "state": S.ENDED,
            "instance_id": str(self._made),
            "running_at": began,
            "ended_at": began + hours * HOUR,
            "slot": self._made,
        }
        plain = new_launch(Intent(watch=watch, match=a_match(), launch_id=launch_id, dry_run=False), 0, began)
        launch: Launch = changed(plain, **(ran | changes))
        with self.store.write() as connection:
            connection.execute(insert(launches), launch_row_of(launch))
        return launch

    def charge(self, launch: Launch, microusd: int, day: date | None = None, kind: str = "gpu") -> None:
        day = BEGAN.date() if day is None else day
        row = InvoiceRow(
            provider=launch.provider,
            instance_id=str(launch.instance_id),
            day=day,
            kind=kind,
            microusd=microusd,
            final=True,
        )
        self.charges.save([row])


@pytest.fixture
def rows(shell: Shell) -> Iterator[Rows]:
    shell.settings(f'database_url = "sqlite:///{shell.folder}/gpuwatch.db"\n{BUDGET}')
    made = Rows(shell.folder)
    yield made
    made.store.close()


# --- from the store alone ---------------------------------------------------------------------------------------------


def test_nothing_rented_is_nothing_billed(shell: Shell, rows: Rows) -> None:
    ran = shell("costs", "--month", MONTH)
    assert (ran.code, ran.out.splitlines()[0]) == (0, "March 2025 (UTC): nothing was billed")
    assert shell("costs", "--json").json["lines"] == []


def test_what_bad_machines_took_is_listed_to_be_reclaimed(shell: Shell, rows: Rows) -> None:
    rows.add()
    assert "no bad machine was ended" in shell("costs", "--reclaim", "--month", MONTH).out
    rows.add(state=S.FAILED, end_reason="its SSH port does not answer: port 22 is closed")
    ran = shell("costs", "--reclaim", "--month", MONTH)
    assert "to reclaim: $6.00 at vastai, 1 machine ended for not passing the check" in ran.out
    assert "port 22 is closed" in ran.out
    [one] = shell("costs", "--month", MONTH, "--json").json["reclaims"]
    assert (one["provider"], one["usd"], one["why"]) == (
        "vastai", 6.0, "its SSH port does not answer: port 22 is closed"
    )  # fmt: skip
    assert "to reclaim: $6.00" in shell("costs", "--month", MONTH).out
    assert shell("costs", "--reclaim", "--by", "day").code == 2


def test_json_is_exact_and_its_components_sum_up(shell: Shell, rows: Rows) -> None:
    rows.add(promised=Promise(download_gb=100, download_usd_gb=0.01))
    found = shell("costs", "--month", MONTH, "--json").json
    [line] = found["lines"]
    assert (found["month"], found["timezone"], found["by"], line["watch"]) == (MONTH, "UTC", "watch", "h100")
    assert {name: value for name, value in line.items() if name.endswith("_usd")} == {
        "gpu_usd": 5.995556,
        "disk_usd": 0.004444,
        "listed_usd": 6.0,
        "commission_usd": 1.2,
        "effective_usd": 7.2,
        "traffic_estimate_usd": 1.0,
        "predicted_usd": 8.2,
        "charged_usd": None,
        "charged_gpu_usd": None,
        "charged_disk_usd": None,
        "charged_download_usd": None,
        "charged_upload_usd": None,
        "charged_other_usd": None,
        "compared_predicted_usd": None,
        "compared_charged_usd": None,
        "difference_usd": None,
    }
    assert (line["billed_hours"], line["difference_percent"], line["charges_final_to"]) == (2.0, None, None)


def test_what_is_not_known_is_a_dash_and_never_nought(shell: Shell, rows: Rows) -> None:
    rows.add()
    ran = shell("costs", "--month", MONTH)
    assert ran.out.splitlines()[2].split()[-3:] == ["–", "–", "–"]
    assert "charged: unknown yet" in ran.out


def test_listed_and_effective_stand_side_by_side_with_charges_and_their_difference(shell: Shell, rows: Rows) -> None:
    rows.charge(rows.add(), 6_000_000)
    rows.add(BEGAN + DAY)
    ran = shell("costs", "--month", MONTH)
    heading, line, total = ran.out.splitlines()[1:4]
    assert heading.index("listed") < heading.index("commission") < heading.index("effective")
    assert line.split()[3:] == ["$11.99", "$0.01", "$12.00", "$2.40", "$14.40", "$0.00", "$6.00", "-$1.20", "-16.7"]
    assert total.split()[1:] == line.split()[1:]
    assert "known for 1 of 2 launches, final up to 2025-03-10" in ran.out


@pytest.mark.parametrize(
    ("by", "keys"),
    [
        ("watch", [("watch", "h100"), ("watch", "other")]),
        ("provider", [("provider", "vastai")]),
        ("day", [("day", "2025-03-10"), ("day", "2025-03-11")]),
        ("launch", [("launch_id", "a" * 12), ("launch_id", "b" * 12)]),
    ],
)
def test_lines_by_watch_provider_day_and_launch(shell: Shell, rows: Rows, by: str, keys: list[tuple[str, str]]) -> None:
    rows.add(hours=13)  # past midnight
    rows.add(hours=1, watch="other")
    found = shell("costs", "--month", MONTH, "--by", by, "--json").json
    assert [(name, line[name]) for line in found["lines"] for name in list(line)[:1]] == keys
    assert found["total"]["effective_usd"] == pytest.approx(14 * 3.6)
    assert sum(round(line["effective_usd"] * 1e6) for line in found["lines"]) == 14 * 3_600_000


def test_a_launch_is_shown_with_its_watch(shell: Shell, rows: Rows) -> None:
    rows.add(watch="night")
    assert shell("costs", "--month", MONTH, "--by", "launch").out.splitlines()[2].split()[:2] == ["a" * 12, "night"]


def test_a_month_holds_its_own_days_alone(shell: Shell, rows: Rows) -> None:
    rows.add(datetime(2025, 3, 31, 23, 0, tzinfo=UTC), hours=3)
    months = [shell("costs", "--month", month, "--json").json["total"] for month in (MONTH, "2025-04")]
    assert [month["effective_usd"] for month in months] == [3.6, 7.2]


def test_dry_runs_cost_nothing_and_what_failed_costs_its_disk(shell: Shell, rows: Rows) -> None:
    rows.add(dry_run=True)
    rows.add(BEGAN + DAY, state=S.FAILED, running_at=None)
    found = shell("costs", "--month", MONTH, "--json").json["total"]
    assert (found["launches"], found["gpu_usd"], found["disk_usd"]) == (1, 0.0, 0.004444)


def test_a_month_that_is_over_has_no_forecast_and_its_own_budget(shell: Shell, rows: Rows) -> None:
    rows.add(hours=10)
    found = shell("costs", "--month", MONTH, "--json").json
    assert found["forecast"] is None
    [budget] = found["budgets"]
    assert (budget["limit"], budget["used_usd"], budget["used_percent"]) == ("max_usd_month", 36.0, 50.0)


def test_this_month_has_burn_rate_forecast_and_budgets(shell: Shell, rows: Rows) -> None:
    now = real_now()
    rows.add(now - timedelta(minutes=1), state=S.RUNNING, ended_at=None, max_runtime_s=3600.0)
    found = shell("costs", "--json").json
    assert found["burn"] == {"launches": 1, "listed_usd_hour": 3.0, "effective_usd_hour": 3.6}
    running = found["forecast"]["running"]["effective_usd"]
    assert 0 < running <= 3.6 + 1e-6
    assert found["forecast"]["mean"]["effective_usd"] is None  # its first day
    used = {(budget["watch"], budget["limit"]): budget["used_percent"] for budget in found["budgets"]}
    assert used[None, "max_usd_hour"] == 18.0
    text = shell("costs").out
    assert "1 billed, $3.60/h effective, $3.00/h listed" in text
    assert "not enough data" in text
    assert "budget, max_usd_hour: $3.60 of $20.00, 18 %" in text


def test_csv_has_plain_decimals_and_no_formula(shell: Shell, rows: Rows) -> None:
    for name in ("=cmd()", "+1", "-1", "@x", "\tx"):
        rows.add(watch=name, hours=1 / 3600, listed_microusd_hour=3_600, price_microusd_hour=3_600)
    ran = shell("costs", "--month", MONTH, "--csv")
    found = list(csv.DictReader(io.StringIO(ran.out)))
    assert sorted(line["watch"] for line in found) == sorted(["'=cmd()", "'+1", "'-1", "'@x", "'\tx"])
    assert {line["effective_usd"] for line in found} == {"0.000001"}
    assert {line["charged_usd"] for line in found} == {""}


def test_a_negative_difference_stays_a_number_in_csv(shell: Shell, rows: Rows) -> None:
    rows.charge(rows.add(), 6_000_000)
    [line] = csv.DictReader(io.StringIO(shell("costs", "--month", MONTH, "--csv").out))
    assert line["difference_usd"] == "-1.200000"


def test_text_from_outside_is_harmless_on_a_screen(shell: Shell, rows: Rows) -> None:
    rows.add(watch="\x1b[31mred")
    assert "\x1b" not in shell("costs", "--month", MONTH).out


@pytest.mark.parametrize(
    "argv",
    [
        ("--month", "2026-13"),
        ("--month", "yesterday"),
        ("--csv", "--json"),
        ("--calibrate", "--by", "day"),
        ("--calibrate", "--month", MONTH),
        ("--provider", "vastai"),
        ("--calibrate", "--provider", "nowhere"),
    ],
)
def test_what_cannot_be_meant_is_wrong_usage(shell: Shell, rows: Rows, argv: tuple[str, ...]) -> None:
    ran = shell("costs", *argv)
    assert (ran.code, ran.out) == (2, "")


def test_nothing_is_fetched_without_refresh(shell: Shell, rows: Rows, market: Marketplace) -> None:
    rows.add(real_now() - DAY)
    shell("costs")
    assert [request for request in market.requests if "charges" in request.path] == []


def test_without_a_key_it_shows_what_is_known_and_says_so(shell: Shell, rows: Rows) -> None:
    rows.add(real_now() - DAY)
    ran = shell("costs", "--refresh", "--json")
    assert ran.code == 3
    assert "vastai: no key" in ran.err
    assert ran.json["total"] is not None


def test_a_provider_whose_charges_are_all_final_needs_no_key(shell: Shell, rows: Rows) -> None:
    began = (real_now() - 3 * DAY).replace(hour=1, minute=0)
    rows.charge(rows.add(began), 6_000_000, began.date())
    assert shell("costs", "--refresh").code == 0


def test_less_than_a_cent_is_not_shown_as_nought(shell: Shell, rows: Rows) -> None:
    rows.add(state=S.FAILED, running_at=None, hours=1)
    assert shell("costs", "--month", MONTH).out.splitlines()[2].split()[3:7] == ["$0.00", "<$0.01", "<$0.01", "<$0.01"]


# --- the bill, over HTTP ----------------------------------------------------------------------------------------------


def billed_market(rows: Rows, factor: float, several: int = 4) -> Marketplace:
    """Launches of different prices and durations in the last days, and the marketplace that bills them."""
    began = (real_now() - 6 * DAY).replace(hour=3, minute=0, second=0, microsecond=0)
    clock = ManualClock(began.timestamp())
    delays = Delays(running_s=0.0)
    market = Marketplace(size=0, odd_rows=False, clock=clock, charge_factor=factor, credit_usd=1e6, delays=delays)
    with market, pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUWATCH_PROVIDERS__VASTAI__BASE_URL", market.url)
        patch.setenv("VAST_API_KEY", market.key)
        loaded = load_settings(None)
        for number in range(several):
            usd_hour, hours = 2.0 + number, 10.0 + 7 * number
            offer_id = str(market.publish(gpu="H100 SXM", count=1, usd_hour=usd_hour, storage_cost=0.5))
            since = datetime.fromtimestamp(clock(), UTC)
            with http_client(loaded) as http:
                launcher = build(loaded.providers["vastai"].revealed(), http, lambda: began, lambda: 0.0).launcher
                assert launcher is not None
                made = launcher.create(Order(offer_id=offer_id, label=f"x-{number}", image="x/y", disk_gb=72.0))
                clock.advance(hours * 3600)
                launcher.destroy(made.instance_id)
            listed = round((usd_hour + 0.05) * 1e6)
            rows.add(
                since,
                hours,
                instance_id=made.instance_id,
                listed_microusd_hour=listed,
                price_microusd_hour=round(listed * 1.2),
                disk_microusd_hour=50_000,
            )
            clock.advance(3600)
    clock.advance(max(0.0, real_now().timestamp() - clock()))
    return market


@pytest.fixture
def bill(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Open the marketplace again with its books, and point gpuwatch at it."""
    opened: list[Marketplace] = []

    def begin(factor: float, several: int = 4) -> Marketplace:
        market = billed_market(rows, factor, several).start()
        opened.append(market)
        monkeypatch.setenv("GPUWATCH_PROVIDERS__VASTAI__BASE_URL", market.url)
        monkeypatch.setenv("VAST_API_KEY", market.key)
        return market

    yield begin
    for market in opened:
        market.close()


def calibrated(shell: Shell, *argv: str) -> Any:
    ran = shell("costs", "--calibrate", "--json", *argv)
    assert ran.code == 0, ran.err
    [found] = ran.json["providers"]
    return found


def test_a_bill_that_is_the_listed_price_fits_included(shell: Shell, bill: Any) -> None:
    bill(1.0)
    found = calibrated(shell)
    assert (found["best"]["name"], found["launches"], found["billed_hours"]) == ("included", 4, 82.0)
    assert found["settings"] == '[providers.vastai]\ncommission = { rate = 0, mode = "included" }'
    assert found["best"]["median_error_percent"] < 0.1
    assert {one["name"]: round(one["median_error_percent"]) for one in found["candidates"]}["set"] == 20


def test_a_bill_of_a_fifth_more_fits_the_rate_that_is_set(shell: Shell, bill: Any) -> None:
    bill(1.2)
    found = calibrated(shell, "--provider", "vastai")
    assert (found["best"]["name"], found["best"]["rate"], found["settings"]) == ("set", 0.2, None)
    fitted = next(one for one in found["candidates"] if one["name"] == "fitted")
    assert fitted["rate"] == pytest.approx(0.2, abs=0.002)


def test_calibration_changes_nothing_and_says_what_to_write(shell: Shell, bill: Any) -> None:
    bill(1.1)
    before = (shell.folder / "gpuwatch.toml").read_bytes()
    ran = shell("costs", "--calibrate")
    assert "commission = 0.10" in ran.out
    assert "nothing was changed" in ran.out
    assert (shell.folder / "gpuwatch.toml").read_bytes() == before


def test_too_few_launches_are_not_enough_data(shell: Shell, bill: Any) -> None:
    bill(1.2, several=2)
    assert calibrated(shell)["best"] is None
    assert "not enough data: 2 launches" in shell("costs", "--calibrate").out


def test_a_refresh_fetches_charges_and_keeps_them(shell: Shell, bill: Any, rows: Rows) -> None:
    market = bill(1.0)
    assert shell("costs", "--refresh", "--by", "launch", "--json").code == 0
    kept = rows.charges.all()
    assert sum(row.microusd for row in kept) == pytest.approx(market.ledger.bill_microusd(), rel=1e-3)
    assert {row.kind for row in kept} == {"gpu", "disk"}
    asked = len([request for request in market.requests if "charges" in request.path])
    shell("costs", "--refresh")
    assert len([request for request in market.requests if "charges" in request.path]) == asked  # all of it is final


def test_a_provider_that_fails_costs_nothing_but_the_answer(shell: Shell, bill: Any) -> None:
    bill(1.0).faults.add("charges", "500", times=None)
    ran = shell("costs", "--calibrate", "--json")
    assert ran.code == 3
    assert ran.json["providers"][0]["not_enough_data"]
    assert len(ran.json["troubles"]) == 1


# --- the daemon -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "names"), [("demo-key", ["charges vastai"]), ("", [])])
def test_the_daemon_fetches_charges_where_it_may_rent(
    shell: Shell, rows: Rows, monkeypatch: pytest.MonkeyPatch, key: str, names: list[str]
) -> None:
    if key:
        monkeypatch.setenv("VAST_API_KEY", key)
    with build_service(load_settings(None), rows.store) as service:
        assert [task.name for task in periodic_tasks(service) if task.name.startswith("charges")] == names
