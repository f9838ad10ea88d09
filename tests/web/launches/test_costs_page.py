"""The page of costs: its figures are those of `gpuwatch costs`; months, days, hostile names, a phone."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import insert

from gpuwatch.app.launches.costs import cost_report
from gpuwatch.bootstrap import real_now
from gpuwatch.domain.launches.launch import Intent, Launch, LaunchState, new_launch
from gpuwatch.domain.launches.money.charge_comparison import InvoiceRow
from gpuwatch.domain.launches.money.launch_costs import midnight, month_of, predicted_cost
from gpuwatch.domain.market.money import dollars, usd
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.watch import Action
from gpuwatch.storage.launches.invoice_rows import SqlInvoiceRepository
from gpuwatch.storage.setup.launch_rows import launch_row_of
from gpuwatch.storage.setup.tables import launch as launches
from tests.builders import a_match, a_watch, changed
from tests.upgraded_store import open_upgraded
from tests.web.chromium import PHONE, needs_browser, overflow, page_at, serious_findings
from tests.web.served import Served, page, serving_settings, settings_in

if TYPE_CHECKING:
    from playwright.sync_api import Browser

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
_WATCH = a_watch(action=Action.LAUNCH, launch=LaunchSpec())
_HOSTILE = "<script>alert(1)</script>"
_SETTINGS = """
timezone = "Europe/Berlin"
dry_run = false
[budget]
max_usd_hour = 20
max_usd_day = 40
max_usd_month = 500
max_instances = 4
[web]
listen = "127.0.0.1:0"
[[watch]]
name = "night"
gpu = ["H100"]
max_price = 2.40
"""


class Costs:
    """A served page over launches that a test adds."""

    def __init__(self, web: Served) -> None:
        self.web = web
        self.made: list[Launch] = []

    def add(self, began: datetime, hours: float, *charged_share: float, **changes: Any) -> Launch:
        """A launch that ran so long, and what was charged for its days, as shares of the prediction."""
        number = len(self.made)
        plain = new_launch(Intent(watch=_WATCH, match=a_match(), launch_id=f"{number:a>12}", dry_run=False), 0, began)
        ran = {
            "state": LaunchState.ENDED, "instance_id": str(number), "offer_id": str(number), "slot": number,
            "requested_at": began, "running_at": began, "ended_at": began + hours * HOUR,
        }  # fmt: skip
        launch: Launch = changed(plain, **(ran | changes))
        self.made.append(launch)
        store = open_upgraded(self.web.context.settings.database_url)
        with store.write() as connection:
            connection.execute(insert(launches), launch_row_of(launch))
        rows = []
        for share in charged_share:
            cost = predicted_cost(launch, real_now(), midnight(began.date()), midnight(began.date() + DAY))
            rows.append(
                InvoiceRow(
                    provider=launch.provider, instance_id=str(number), day=began.date(), kind="gpu",
                    microusd=round(cost.effective * share), final=True,
                )
            )  # fmt: skip
        SqlInvoiceRepository(store).save(rows)
        store.close()
        return launch


@pytest.fixture
def costs(tmp_path: Path) -> Iterator[Costs]:
    with serving_settings(settings_in(tmp_path, _SETTINGS), tmp_path) as web:
        yield Costs(web)


def _tables(text: str) -> tuple[list[list[str]], list[list[str]]]:
    """The cells of the figures by day, and of what it went to."""
    found = []
    for table in re.findall(r"<table.*?</table>", text, re.DOTALL):
        rows = re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
        found.append([[_text(cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)] for row in rows])
    return found[0], found[1]


def _text(cell: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", cell)).split())


def _cents(text: str) -> int:
    return round(float(text.strip("$").replace(",", "")) * 100)


def test_the_bars_the_table_and_the_report_are_one_sum(costs: Costs) -> None:
    """With more series than colours: the rest is one. Cents are whole here, so that sums of texts are exact."""
    for number in range(7):
        changes = {"watch": f"w{number}", "price_microusd_hour": 1_000_000 * (number + 1), "disk_microusd_hour": 0}
        costs.add(datetime(2026, 3, 3 + number, 22, tzinfo=UTC), 4, **changes)
    report = cost_report(costs.web.context.settings, "watch", date(2026, 3, 1))
    text = page(costs.web, "/costs?month=2026-03")
    days, rows = _tables(text)
    whole = dollars(usd(report.total.cost.effective))
    assert f"<h1>{whole} in March</h1>" in text
    assert rows[-1][3] == whole == "$112.00"
    assert sum(_cents(row[3]) for row in rows[1:-1]) == _cents(whole)
    assert days[0][1:-1] == ["w6", "w5", "w4", "w3", "w2", "other", "Total"]
    assert sum(_cents(row[-2]) for row in days[1:]) == _cents(whole)
    for series in range(5):
        assert sum(_cents(row[1 + series]) for row in days[1:]) == _cents(rows[1 + series][3])
    for by in ("provider", "gpu"):
        assert _tables(page(costs.web, f"/costs?month=2026-03&by={by}"))[1][-1][3] == whole, by


def test_the_page_says_when_its_days_end_on_the_clocks_of_the_reader(costs: Costs) -> None:
    """Days and months are UTC, as budgets and invoices are; Berlin changes its clocks in March and October."""
    costs.add(datetime(2026, 3, 31, 23, 30, tzinfo=UTC), 1.0)  # 1 April in Berlin, and both months in UTC
    costs.add(datetime(2026, 5, 5, tzinfo=UTC), 1.0)
    assert "Days end at 02:00 (midnight UTC)." in page(costs.web, "/costs?month=2026-05")
    march = page(costs.web, "/costs?month=2026-03")
    assert "Days end at 01:00 (midnight UTC), from 30\N{NO-BREAK SPACE}Mar on at 02:00." in march
    both = [_tables(page(costs.web, f"/costs?month=2026-{month}"))[1][-1][3] for month in ("03", "04")]
    whole = predicted_cost(costs.made[0], real_now()).effective
    assert sum(map(_cents, both)) == pytest.approx(whole / 10_000, abs=1.5)


def test_months_lead_to_each_other_and_an_empty_one_says_so(costs: Costs) -> None:
    text = page(costs.web, "/costs")
    assert re.search(r"<h1>Nothing was rented in \w+\.</h1>", text)
    assert "Nothing runs now." in text
    assert "/costs?by=" in text  # the split of an empty current month
    first, today = costs.add(datetime(2026, 3, 3, tzinfo=UTC), 1.0), real_now().date()
    before = (today.replace(day=1) - DAY).replace(day=1)
    assert f"/costs?by=watch&month={before:%Y-%m}" in page(costs.web, "/costs")
    march = page(costs.web, "/costs?month=2026-03")
    assert (f"month={first.intended_at - DAY * 28:%Y-%m}" in march, "month=2026-04" in march) == (False, True)
    assert "Nothing was rented in April." in page(costs.web, "/costs?month=2026-04")
    assert costs.web.client.get("/costs?month=2026-13").status_code == 422
    assert costs.web.client.get("/costs?by=owner").status_code in {404, 422}


def test_what_is_charged_is_unknown_without_an_invoice_and_amber_if_it_is_more(costs: Costs) -> None:
    day = datetime(2026, 3, 3, tzinfo=UTC)
    costs.add(day, 10, 1.10, watch="dear")
    costs.add(day, 10, 0.9, watch="cheap")
    costs.add(day, 10, watch="unknown", provider="lambda")
    text = page(costs.web, "/costs?month=2026-03")
    rows = {row[0]: row for row in _tables(text)[1]}
    assert rows["unknown"][5:] == ["charged – no invoice yet", "–"]
    assert (rows["dear"][6], rows["cheap"][6]) == ("+$3.60", "−$3.60")
    assert text.count('class="n warn"') == 1
    assert "Lambda has no invoice yet." in text
    assert "vast.ai: too few invoices to judge the prediction, 2 machines and 20 h; 3 machines and 24 h" in text
    for _ in range(3):
        costs.add(day, 10, 1.0, watch="right")
    text = page(costs.web, "/costs?month=2026-03")
    assert "gpuwatch predicted what vast.ai charged, over 5 machines." in text
    assert "Your commission setting of 20\N{NO-BREAK SPACE}% fits the invoices." in text


def test_what_runs_is_forecast_and_budgets_say_when_they_start_again(costs: Costs) -> None:
    began = real_now() - HOUR
    costs.add(began, 0, state=LaunchState.RUNNING, ended_at=None, max_runtime_s=None, watch="job:train")
    text = page(costs.web, "/costs")
    assert re.search(r"About <b>\$[0-9,.]+</b> by the end of the month, if nothing new is rented", text)
    assert "1 machine runs for $3.60/h." in text
    assert "1 of at most 4 machines" in text
    assert re.search(r"(about \$\d+ by|starts again) \w{3}\N{NO-BREAK SPACE}0[12]:00|by 0[12]:00", text)
    assert '<a href="/jobs/train">train, job</a>' in text


def test_names_are_shown_and_never_run(costs: Costs) -> None:
    costs.add(datetime(2026, 3, 3, tzinfo=UTC), 1.0, watch=_HOSTILE, gpu=_HOSTILE, provider=_HOSTILE)
    for by in ("watch", "provider", "gpu"):
        answer = costs.web.client.get(f"/costs?month=2026-03&by={by}", headers={"Accept": "text/html"}).text
        assert "alert(1)" in answer
        assert _HOSTILE not in answer


@needs_browser
def test_a_phone_shows_it_and_steps_through_months(costs: Costs, browser: Browser) -> None:
    first, last = month_of(real_now().date())
    for day in range((last - first).days):
        if first + (day + 1) * DAY < real_now():
            costs.add(first + day * DAY, 3, 1.0, watch=f"a-watch-with-a-long-name-{day % 7}")
    costs.add(first - 2 * DAY, 3)
    for script in (True, False):
        with page_at(browser, costs.web.url, PHONE, java_script_enabled=script) as shown:
            shown.goto("/costs?by=gpu")
            assert overflow(shown) == 0
            if script:
                assert not serious_findings(shown)
            shown.get_by_role("link", name="Provider").click()
            shown.locator(".head .acts a").first.click()
            assert "by=provider" in shown.url
            assert shown.get_by_role("heading", level=1).inner_text().startswith("$")
            shown.locator("#costs-figures summary").click()
            assert shown.get_by_role("columnheader", name="To come, about").is_visible()
            assert overflow(shown) == 0
