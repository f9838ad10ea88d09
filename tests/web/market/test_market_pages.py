"""The market and a GPU over a recorded store, in a Chromium: filters, open offers, chart by keyboard, no script."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec
import pytest

from gpuwatch.bootstrap import real_now
from gpuwatch.domain.market.offer import Verification
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.setup.database import open_database
from tests.storage.stored_answers import an_answer, an_offer
from tests.upgraded_store import open_upgraded
from tests.web.chromium import DESKTOP, PHONE, needs_browser, overflow, page_at, serious_findings
from tests.web.served import PAGE, Served, serving_settings, settings_in

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SETTINGS = """
[providers.vastai]
api_key = "a-secret-key-0123456789"
commission = 0

[[watch]]
name = "cheap-h100"
gpu = ["H100 SXM"]
max_price = 2.00
"""
HOSTILE = '"><img src=x onerror=alert(1)>'


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Five days of three GPUs; the H100 is under the limit of its watch, and one place is hostile."""
    folder = tmp_path_factory.mktemp("market")
    url = f"sqlite:///{folder}/gpuwatch.db"
    open_upgraded(url).close()
    database, rng, now = open_database(url), random.Random(5), real_now()
    history = SqlHistoryRecorder(database)
    for hour in range(5 * 24, -1, -1):
        if 40 <= hour < 46:
            continue  # not polled
        offers = [
            an_offer(
                f"{gpu}-{number}", round(usd * (1 + number / 10) * (1 if hour < 3 else rng.choice([1, 1.1, 1.3])), 3),
                offer_id=f"{number}{len(gpu)}", gpu=gpu, gpu_family=gpu, disk_usd_gb_month=None,
                gpu_count=1 + number % 2, region=HOSTILE if (gpu, number) == ("L40S", 0) else "Oslo", country="NO",
                verification=Verification.UNVERIFIED if number == 1 else Verification.VERIFIED,
            )
            for gpu, usd in (("H100 SXM", 1.6), ("L40S", 0.5), ("RTX 4090", 0.25))
            for number in range(7)
        ]  # fmt: skip
        answer = an_answer(*offers, observed_at=now - timedelta(hours=hour, minutes=1))
        history.record(answer, lane="sweep")
        bids = an_offer("H100 SXM-1", 1.0 + hour % 3, gpu="H100 SXM", spot=True, disk_usd_gb_month=None)
        history.record(msgspec.structs.replace(answer, offers=(bids,)), lane="sweep", spot=True)
    history.roll_up(now)
    database.close()
    settings = settings_in(folder, SETTINGS, has_store=False)
    with serving_settings(settings, folder) as found:
        yield found


def text_of(market: Served, address: str) -> str:
    answer = market.client.get(address, headers=PAGE)
    assert answer.status_code == 200, answer.text
    return answer.text


def test_the_market_answers_and_orders_the_gpus_of_watches_first(market: Served) -> None:
    text = text_of(market, "/market")
    names = re.findall(r'<h3 class="g-name"><a href="[^"]*">([^<]*)</a>', text)
    assert names[0] == "H100 SXM"
    assert set(names) == {"H100 SXM", "L40S", "RTX 4090"}
    assert "cheap today" in text
    assert text.count('<svg class="strip"') == text.count('<svg class="spark"') == 3
    assert "not polled in" in text
    assert "at or under the limit of $2.00" in text


def test_what_a_host_wrote_is_text(market: Served) -> None:
    for address in ("/market", "/market?view=offers", "/market?view=offers&group=region", "/gpu/L40S"):
        text = text_of(market, address)
        assert "<img src=x" not in text
        assert "onerror=alert(1)&gt;" in text, address


def test_no_command_line_flag_reaches_a_person(market: Served) -> None:
    for address in ("/market?count=x", "/market?max_price=cheap"):
        text = text_of(market, address)
        assert 'aria-invalid="true"' in text
        assert not re.search(r"--(gpu|count|max-price)", text)


def test_what_no_offer_fits_names_the_filter_to_drop(market: Served) -> None:
    text = text_of(market, "/market?gpu=H100+SXM&max_price=0.60&verified=yes&count=2")
    assert "No offer fits these filters." in text
    (count,) = re.findall(r"Without “[^”]*”: (\d+)\.", text)
    assert int(count) > 0


def test_all_offers_are_sorted_and_grouped_by_links(market: Served) -> None:
    by_hour = text_of(market, "/market?sort=price")
    rates = [float(rate) for rate in re.findall(r'<td class="n total">.*?\$([\d.]+)</b>', by_hour)]
    assert len(rates) == 21
    assert rates == sorted(rates)
    assert 'aria-sort="ascending"' in by_hour
    grouped = text_of(market, "/market?group=provider")
    assert "Vast" in grouped or "vast" in grouped
    assert "By region" in grouped


def test_a_gpu_says_how_it_stands(market: Served) -> None:
    text = text_of(market, "/gpu/H100%20SXM?since=7d")
    assert re.search(r"of \d+ hours with offers in 30 days", text)
    assert "Cheapest" in text
    assert "fits cheap-h100" in text
    assert '"label":"cheap-h100 limit $2.00"' in text.replace("&#34;", '"')
    for since, most in (("1d", 147), ("7d", 170), ("30d", 362), ("90d", 362)):
        data = text_of(market, f"/gpu/H100%20SXM?since={since}")
        runs = re.search(r"data-chart='{\"x\":\[\d+((,\[\d+,\d+\])*)\]", data)
        assert runs is not None
        assert 1 < 1 + sum(int(times) for times in re.findall(r",(\d+)\]", runs[1])) <= min(most, 400)
        assert data.count('<tr><th scope="row">') <= 60


@needs_browser
def test_filters_open_offers_and_chart(market: Served, browser: Browser) -> None:
    for size in (DESKTOP, PHONE):
        with page_at(browser, market.url, size) as page:
            page.goto("/market")
            page.locator("#filter-gpu > summary").click()
            page.get_by_label("GPU", exact=True).fill("L40S")
            page.locator("#filter-gpu").get_by_role("button", name="Show").click()
            page.get_by_role("link", name="L40S remove this filter").wait_for()
            assert page.locator(".g-name").count() == 1
            page.locator(".g-open").click()
            page.get_by_role("link", name="All 7 offers of L40S").wait_for()
            assert overflow(page) == 0
            assert serious_findings(page) == []
            page.get_by_role("link", name="All 7 offers of L40S").click()
            page.get_by_role("heading", name="7 offers").wait_for()
            page.get_by_role("link", name="L40S remove this filter").click()
            page.get_by_role("heading", name="21 offers").wait_for()
            assert overflow(page) == 0


@needs_browser
def test_the_chart_is_read_by_keyboard(market: Served, browser: Browser) -> None:
    with page_at(browser, market.url) as page:
        page.goto("/gpu/H100%20SXM?since=7d")
        page.locator(".chart canvas").wait_for()
        page.locator(".chart").focus()
        page.keyboard.press("ArrowLeft")
        readout = page.locator("[data-readout]")
        readout.get_by_text("Lowest").wait_for()
        first = readout.inner_text()
        assert re.search(r"Lowest\s+\$\d\.\d\d", first)
        page.keyboard.press("ArrowLeft")
        page.wait_for_function("before => document.querySelector('[data-readout]').innerText !== before", arg=first)
        assert serious_findings(page) == []


@needs_browser
def test_both_pages_are_whole_without_javascript(market: Served, browser: Browser) -> None:
    with page_at(browser, market.url, (360, 780), java_script_enabled=False) as page:
        page.goto("/market")
        page.locator(".g-open").first.click()
        page.get_by_role("link", name="Watch this GPU").first.wait_for()
        _fits(page)
        page.goto("/gpu/H100%20SXM")
        assert page.locator(".chart svg.spark .p-line").count() == 1
        page.locator("#chart-figures > summary").click()
        page.get_by_role("columnheader", name="Lowest").wait_for()
        _fits(page)


def _fits(page: Page) -> None:
    """Without a script nothing can be measured in the page: every part ends within the window."""
    for one in page.locator("main section, main .head, main .kpis").all():
        box = one.bounding_box()
        assert box is None or box["x"] + box["width"] <= 360.5


def test_a_limit_stands_only_on_the_page_of_its_gpu(market: Served) -> None:
    assert "cheap-h100" in text_of(market, "/gpu/H100%20SXM")
    assert "cheap-h100" not in text_of(market, "/gpu/L40S")


def test_the_page_of_a_gpu_shows_verified_hosts_alone_if_they_are_chosen(market: Served) -> None:
    everything = text_of(market, "/gpu/H100%20SXM?since=7d")
    assert "All 7 offers" in everything
    assert re.search(r"Rented, or off the market, [0-9.]+\s% of the time\. [0-9.]+ new and [0-9.]+ gone", everything)
    assert 'href="?since=7d&amp;spot=no&amp;verified=yes"' in everything
    verified = text_of(market, "/gpu/H100%20SXM?since=7d&verified=yes")
    assert "All 6 offers" in verified
    assert "/market?view=offers&amp;gpu=H100+SXM&amp;spot=no&amp;verified=yes" in verified
    assert "uPlot" in verified
    assert "not polled in this time" not in verified.lower()


def test_a_spot_offer_says_how_often_its_bid_would_have_lost(market: Served) -> None:
    text = text_of(market, "/market?view=offers&gpu=H100+SXM&spot=only")
    assert re.search(r"outbid [0-9]+\s% of the time", text)
    assert "the lowest winning bid was over your" in text
    assert "outbid" not in text_of(market, "/market?view=offers&gpu=H100+SXM")
    (first, *_) = market.client.get("/api/v1/offers?gpu=H100+SXM&spot=only").json()["items"]
    assert first["outbid_risk"]["over_share"] >= 0
