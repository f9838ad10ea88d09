"""Several real daemons with one bot, and a Telegram that hangs or is down beside a daemon that rents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url

from gpuwatch.emulator import Delays, Marketplace
from tests.process.daemon_child import Home, bargain, terminate, wait_for, wait_for_searches
from tests.process.test_chat import OWNER, chat_by
from tests.process.test_chat_webhook import HOOK, WEB, served_at
from tests.process.test_keeper import HANGS, SOON
from tests.telegram_double import Fault, TelegramDouble, telegram

pytestmark = pytest.mark.slow
ELSEWHERE = "another gpuwatch on this database"
FOR_EVER = Fault(hangs_s=3600.0)


@pytest.fixture
def market() -> Iterator[Marketplace]:
    with Marketplace(seed=5, key="demo-key", size=0, delays=Delays(running_s=0.1)) as opened:
        yield opened


@pytest.fixture
def double() -> Iterator[TelegramDouble]:
    with telegram() as opened:
        opened.chats = {str(OWNER)}
        yield opened


def pair_of(folder: Path, market: Marketplace, store_url: str, extra: str) -> tuple[Home, Home]:
    for name in ("a", "b"):
        (folder / name).mkdir()
    a, b = (Home(folder / name, market.url, database_url=store_url, extra=extra) for name in ("a", "b"))
    return a, b


def pass_lease(store_url: str) -> None:
    """The time until a dead daemon's lease ends."""
    engine = create_engine(make_url(store_url))
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE chat_poller SET leased_until_ms = leased_until_ms - 60000")
    engine.dispose()


def all_carried_out(store_url: str) -> bool:
    """A daemon that dies between its reply and this note leaves the command to the other one, which replies again."""
    engine = create_engine(make_url(store_url))
    with engine.begin() as connection:
        left = connection.exec_driver_sql("SELECT count(*) FROM chat_update WHERE done_at_ms IS NULL").scalar_one()
    engine.dispose()
    return left == 0


def helps(double: TelegramDouble) -> int:
    return sum("gpuwatch in this chat" in one.text for one in double.shown)


def test_of_two_daemons_one_polls_and_the_other_takes_over_when_it_is_killed(
    market: Marketplace, double: TelegramDouble, tmp_path: Path, store_url: str
) -> None:
    a, b = pair_of(tmp_path, market, store_url, chat_by(double))
    with a.daemon() as first:
        double.write("/help", OWNER)
        wait_for(lambda: helps(double) == 1)
        with b.daemon() as second:
            wait_for(lambda: ELSEWHERE in b.log())
            double.write("/help", OWNER)
            wait_for(lambda: helps(double) == 2 and all_carried_out(store_url))
            first.kill()
            first.wait()
            double.write("/help", OWNER)
            pass_lease(store_url)
            wait_for(lambda: helps(double) == 3)
            terminate(second)
    assert double.conflicts == 0
    assert helps(double) == 3
    assert "Traceback" not in a.log() + b.log()


def test_an_update_that_reaches_the_other_daemon_s_server_is_carried_out_by_the_owner(
    market: Marketplace, double: TelegramDouble, tmp_path: Path, store_url: str
) -> None:
    a, b = pair_of(tmp_path, market, store_url, WEB + chat_by(double, more=HOOK))
    with a.daemon() as first:
        at_first = served_at(a)
        wait_for(lambda: double.webhook)
        with b.daemon() as second:
            double.proxy_to = served_at(b)
            wait_for(lambda: ELSEWHERE in b.log())
            double.write("/help", OWNER)
            wait_for(lambda: helps(double) == 1 and all_carried_out(store_url))
            first.kill()
            first.wait()
            double.write("/help", OWNER)
            pass_lease(store_url)
            wait_for(lambda: helps(double) == 2)
            assert at_first not in b.log()
            terminate(second)
    assert set(double.handed_over) == {200}
    assert double.methods.count("setWebhook") == 2
    assert "Traceback" not in a.log() + b.log()


@pytest.mark.parametrize("mode", ["polls", "webhook", "down"])
def test_a_telegram_that_does_not_answer_delays_neither_search_nor_launch(
    market: Marketplace, double: TelegramDouble, tmp_path: Path, mode: str
) -> None:
    """A chat that hangs when the offer appears still hangs when it is rented: nothing waited for it."""
    double.always = FOR_EVER
    extra = chat_by(double) if mode != "webhook" else WEB + chat_by(double, more=HOOK)
    if mode == "down":
        extra = extra.replace(double.base_url, "http://127.0.0.1:9")
    home = Home(tmp_path, market.url, extra=extra, max_total=0, max_active=2)
    with home.daemon() as child:
        wait_for_searches(market, 1)
        bargain(market, 0.5)
        wait_for(lambda: home.states() == ["running"])
        if mode != "down":
            wait_for(lambda: double.hanging)
        hung = set(double.hanging)
        bargain(market, 0.6)
        wait_for(lambda: len(market.ledger.creates) == 2)
        assert mode == "down" or hung & set(double.hanging)
        wait_for_searches(market)
        code, _ = terminate(child)
    assert code == 0
    assert double.shown == []


def test_a_telegram_that_hangs_does_not_keep_the_keeper_from_ending_instances(
    market: Marketplace, double: TelegramDouble, tmp_path: Path
) -> None:
    double.always = FOR_EVER
    for usd_hour in (0.5, 0.6):
        bargain(market, usd_hour)
    home = Home(
        tmp_path, market.url, max_runtime="3s", ready_within="1s", max_active=2, max_total=2, extra=chat_by(double)
    )
    with home.daemon(**SOON, **HANGS) as child:
        wait_for(lambda: len(market.ledger.creates) == 2)
        wait_for(lambda: not market.instances())
        assert double.hanging
        child.kill()
