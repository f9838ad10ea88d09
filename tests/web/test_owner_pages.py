"""Watches, Costs, Settings and Log: their contents, and what the form of a watch may write."""

from __future__ import annotations

import html
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from sqlalchemy import insert

from gpuwatch.bootstrap import real_now
from gpuwatch.daemon.log_records import RecentLog
from gpuwatch.domain.launches.launch import COMMAND_PLACE, Intent, LaunchState, new_launch
from gpuwatch.domain.watches.watch import Action, LaunchSpec
from gpuwatch.emulator import Marketplace
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.setup.database import open_database
from gpuwatch.storage.setup.launch_rows import launch_row_of
from gpuwatch.storage.setup.tables import launch as launches
from tests.builders import a_match, a_watch, an_offer, changed
from tests.engine.uow_fakes import an_answer
from tests.web.served import PAGE, Served, serving_settings, settings_in

SETTINGS = """
# mine
dry_run = false

[web]
listen = "127.0.0.1:0"

[budget]
max_usd_hour = 5.0

[providers.vastai]
base_url = "{url}"
search_interval = "0s"
api_key = "a-secret-key-0123456789"

[[watch]]
name = "cheap"     # the name
gpu = ["H100"]
max_price = 2.40   # the limit
"""


_ON_SALE = [("H100 SXM", "H100", 2.0), ("A100 SXM 80GB", "A100", 1.0)]


@pytest.fixture(scope="module")
def market() -> Iterator[Marketplace]:
    with Marketplace(seed=3, key="a-secret-key-0123456789", size=10) as opened:
        opened.publish(gpu="H100 SXM", count=1, usd_hour=2.50)
        yield opened


@pytest.fixture
def web(tmp_path: Path, market: Marketplace) -> Iterator[Served]:
    settings = settings_in(tmp_path, SETTINGS.format(url=market.url))
    with serving_settings(settings, tmp_path) as found:
        yield found


def page(web: Served, path: str) -> str:
    answer = web.client.get(path, headers=PAGE)
    assert answer.status_code == 200, answer.text
    return html.unescape(answer.text)


def post(web: Served, path: str, token: str, **fields: str) -> httpx.Response:
    edit = page(web, "/watches/edit?name=cheap")
    version = re.search(r'name="version" value="([0-9a-f]+)"', edit)
    assert version is not None
    form = {"csrf_token": token, "name_of": "cheap", "version": version[1], **fields}
    return web.client.post(path, data=form, headers=PAGE)


def file_of(web: Served) -> str:
    return (web.folder / "gpuwatch.toml").read_text()


def test_each_watch_has_a_row_and_a_form(web: Served) -> None:
    assert 'href="/watches/edit?name=cheap"' in page(web, "/watches")
    assert "set.max_price" not in page(web, "/watches/edit?name=cheap"), "its settings are the owner's"
    web.log_in()
    edit = page(web, "/watches/edit?name=cheap")
    assert 'name="set.max_price" value="2.40"' in edit
    assert "a-secret-key" not in edit
    assert "on_running" not in edit, "what runs here is not changed from here"


def test_a_preview_asks_the_market_and_writes_nothing(web: Served) -> None:
    before = file_of(web)
    shown = html.unescape(post(web, "/watches/preview", web.log_in(), **{"set.max_price": "3.50"}).text)
    assert "+max_price = 3.50   # the limit" in shown
    assert "-max_price = 2.40   # the limit" in shown
    assert "1× H100 SXM at vastai" in shown
    assert 'name="set.max_price" value="3.50"' in shown, "what was typed stays"
    assert file_of(web) == before
    assert web.reloads == []


def test_saving_writes_the_file_with_its_comments_and_has_it_read(web: Served) -> None:
    answer = post(web, "/watches/save", web.log_in(), **{"set.max_price": "3.00"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/watches")
    assert "max_price = 3.00   # the limit" in file_of(web)
    assert "# mine" in file_of(web)
    assert web.reloads == [1]
    assert "Saved in " in page(web, "/watches")
    assert "watch cheap saved" in page(web, "/alerts?kind=audit")


def test_a_watch_that_rents_is_asked_about_before_it_is_saved(web: Served) -> None:
    fields = {"set.action": "launch", "set.launch.max_runtime": "2h"}
    token, before = web.log_in(), file_of(web)
    asked = html.unescape(post(web, "/watches/save", token, **fields).text)
    assert "It rents without approval." in asked
    assert file_of(web) == before
    assert post(web, "/watches/save", token, **fields, confirmed="yes").status_code == 303
    assert 'action = "launch"' in file_of(web)


def test_wrong_values_are_shown_beside_the_form_and_not_written(web: Served) -> None:
    token, before = web.log_in(), file_of(web)
    for path in ("/watches/preview", "/watches/backtest", "/watches/save"):
        answer = post(web, path, token, **{"set.max_price": "cheap"})
        assert answer.status_code == 200
        assert 'role="alert"' in answer.text
        assert "max_price" in answer.text
    assert file_of(web) == before


@pytest.mark.parametrize("key", ["launch.on_running", "launch.env", "launch.onstart_file", "__class__"])
def test_a_forged_field_cannot_reach_what_runs_here(web: Served, key: str) -> None:
    before = file_of(web)
    answer = post(web, "/watches/save", web.log_in(), **{f"set.{key}": "touch /tmp/owned"})
    assert "cannot be edited here" in answer.text
    assert file_of(web) == before


def test_a_file_that_changed_meanwhile_is_left_alone(web: Served) -> None:
    token = web.log_in()
    form = {"csrf_token": token, "name_of": "cheap", "version": "0" * 16, "set.max_price": "3.00"}
    answer = web.client.post("/watches/save", data=form, headers=PAGE)
    assert "has changed in the meantime" in answer.text
    assert "3.00" not in file_of(web)


def test_without_a_session_or_its_token_nothing_is_changed(web: Served) -> None:
    form = {"name_of": "cheap", "version": "0", "set.max_price": "3.00"}
    assert web.client.post("/watches/save", data=form, headers=PAGE).status_code in {401, 403}
    web.log_in()
    assert web.client.post("/watches/save", data=form, headers=PAGE).status_code == 403
    assert "3.00" not in file_of(web)


def test_a_file_that_cannot_be_written_is_offered_for_copying(web: Served) -> None:
    (web.folder / "gpuwatch.toml").rename(web.folder / "real.toml")
    locked = web.folder / "gpuwatch.toml"
    locked.symlink_to("/proc/version")  # not writable there, not even for root
    try:
        answer = web.client.get("/watches/edit?name=cheap", headers=PAGE)
        assert answer.status_code >= 400, "that file is no TOML: one line, no traceback"
        assert "Traceback" not in answer.text
    finally:
        locked.unlink()


def test_a_new_watch_is_begun_with_what_the_address_says(web: Served) -> None:
    token = web.log_in()
    assert 'name="set.gpu" value="A100"' in page(web, "/watches/edit?gpu=A100&max_price=1.2")
    version = re.search(r'name="version" value="([0-9a-f]+)"', page(web, "/watches/edit"))
    assert version is not None
    form = {
        "csrf_token": token,
        "name_of": "",
        "version": version[1],
        "set.name": "new",
        "set.gpu": "A100",
        "set.max_price": "1.2",
    }
    assert web.client.post("/watches/save", data=form, headers=PAGE).status_code == 303
    assert 'name = "new"' in file_of(web)


def test_the_backtest_says_what_the_history_allows(web: Served) -> None:
    answer = post(web, "/watches/backtest", web.log_in(), **{"set.max_price": "3.00"})
    assert "Backtest over the last 14 days" in answer.text


def test_costs_without_launches_say_so(web: Served) -> None:
    assert "No launches in that month." in page(web, "/costs")
    page(web, "/costs?by=day&month=2026-10")
    page(web, "/costs?by=&month=")


@pytest.mark.parametrize(
    "address",
    [
        "/costs?month=2026-99", "/costs?month=%00", "/costs?by=nonsense", "/alerts?since=2d", "/alerts?kind=x",
        "/alerts?severity=loud", "/log?level=deep", "/market?spot=maybe", "/market?sort=x", "/market?group=x",
        "/market?verified=1", "/market?provider=nowhere", "/gpu/H100?since=1y", "/gpu/H100?spot=1",
    ],
)  # fmt: skip
def test_a_value_that_a_page_does_not_know_is_refused_and_not_ignored(web: Served, address: str) -> None:
    answer = web.client.get(address, headers=PAGE)
    assert answer.status_code == 422
    assert "expected" in answer.text


def test_settings_are_shown_without_secrets(web: Served) -> None:
    shown = page(web, "/settings")
    assert "providers.vastai.base_url" in shown
    assert "a-secret-key" not in shown
    assert "notify.telegram.bot_token" not in shown
    assert "notify.telegram.bot_token" in page(web, "/settings?q=bot_token")


def test_start_up_commands_are_shown_to_who_may_manage(web: Served) -> None:
    file = web.folder / "gpuwatch.toml"
    file.write_text(file.read_text() + '[watch.launch]\nonstart = "run --flag its-own-business"\n')
    for path in ("/settings?q=launch", "/watches/edit?name=cheap", "/settings?all=yes"):
        assert "its-own-business" not in page(web, path)
    web.log_in()
    assert "its-own-business" in page(web, "/watches/edit?name=cheap")


def test_the_log_is_that_of_the_daemon_in_this_process(tmp_path: Path, web: Served) -> None:
    assert "journalctl -u gpuwatch" in page(web, "/log")
    kept = RecentLog(str)
    logger = logging.Logger("test.page")
    logger.addHandler(kept)
    logger.warning("watch <script>alert(1)</script>")
    logger.info("quiet")
    (tmp_path / "beside").mkdir()
    settings = settings_in(tmp_path / "beside", '[web]\nlisten = "127.0.0.1:0"\n')
    with serving_settings(settings, tmp_path / "beside", kept) as beside:
        answer = beside.client.get("/log?level=warning", headers=PAGE)
        assert "&lt;script&gt;" in answer.text
        assert "<script>alert" not in answer.text
        assert "quiet" not in answer.text
        assert "quiet" in beside.client.get("/log?q=QUI", headers=PAGE).text


def test_a_plan_becomes_a_watch(web: Served) -> None:
    """From the market in the store; the watch only alerts, and its owner confirms first."""
    store, now = open_database(web.context.settings.database_url), real_now()
    for gpu, family, usd in _ON_SALE:
        offer = an_offer(
            offer_id=gpu, machine_id=gpu, gpu=gpu, gpu_family=family, gpu_wire=gpu, quoted_usd_hour=usd,
            observed_at=now, reliability=0.999,
        )  # fmt: skip
        SqlHistoryRecorder(store).record(an_answer(offer, at=now), lane="sweep", gpu=gpu, spot=False)
    store.close()
    asked = "model=8B&method=qlora&tokens=100M&max_cost=100&within=96h"
    shown = page(web, f"/plan?{asked}")
    assert "2 can run the job" in shown
    assert re.search(r"max_job_cost += 100\n", shown)
    for wrong in ("model=nonsense-9&tokens=1M", "model=8B&tokens=much", "model=8B&tokens=1M&batch=0&max_cost=-1"):
        assert 'role="alert"' in page(web, f"/plan?{wrong}")
    token, fields = web.log_in(), dict(part.split("=") for part in asked.split("&"))
    form = {"csrf_token": token, "name": "planned", **fields}
    assert "Add watch planned?" in web.client.post("/plan/watch", data=form, headers=PAGE).text
    assert "planned" not in file_of(web)
    assert web.client.post("/plan/watch", data={**form, "confirmed": "yes"}, headers=PAGE).status_code == 303
    assert '"planned"' in file_of(web)
    assert web.reloads == [1]


def test_what_a_command_rented_has_no_button_that_could_not_end_it(web: Served) -> None:
    watch, at = a_watch(action=Action.LAUNCH, launch=LaunchSpec()), real_now()
    intent = Intent(watch=watch, match=a_match(), launch_id="a" * 12, dry_run=False)
    plain = new_launch(intent, 0, at)
    store = open_database(web.context.settings.database_url)
    with store.write() as connection:
        connection.execute(
            insert(launches), launch_row_of(changed(plain, provider=COMMAND_PLACE, state=LaunchState.RUNNING))
        )
    store.close()
    web.log_in()
    shown = page(web, f"/launches/{'a' * 12}")
    assert f"gpuwatch launches resolve {'a' * 12} --absent" in shown
    assert "/stop" not in shown
