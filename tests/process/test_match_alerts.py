"""A hundred matches and two daemons on one PostgreSQL: a hundred messages, as their receiver counts them."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gpuwatch.emulator import Marketplace
from tests.process.daemon_child import Home, bargain, terminate, wait_for, wait_for_searches, wait_until_delivered
from tests.process.two_daemons import BOTH_LEAD, HEAD, KEY

pytestmark = pytest.mark.slow

MATCHES = 100  # of a watch each
KILLED_AFTER = 30  # messages
WATCH = """
[[watch]]
name = "w{number}"
gpu = ["H100"]
max_price = 2.40
"""


class Receiver:
    """A webhook's receiver: what came, in order, as (id, watch)."""

    def __init__(self, answers_after_s: float) -> None:
        self.matches: list[tuple[str, str]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if event["kind"] == "match":
                    receiver.matches.append((event["alert_id"], event["watch"]))
                time.sleep(answers_after_s)
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/"


@contextmanager
def receiving(answers_after_s: float = 0.0) -> Iterator[Receiver]:
    receiver = Receiver(answers_after_s)
    thread = threading.Thread(target=receiver.server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield receiver
    receiver.server.shutdown()
    thread.join()
    receiver.server.server_close()


def home_of(folder: Path, market: Marketplace, url: str, receiver: Receiver) -> Home:
    folder.mkdir()
    home = Home(folder, market.url, database_url=url)
    text = HEAD.format(url=market.url, key=KEY, database_url=url)
    text += f'[notify.webhook]\nurl = "{receiver.url}"\nsecret = "a-long-shared-secret"\n'
    text += "".join(WATCH.format(number=number) for number in range(MATCHES))
    (folder / "gpuwatch.toml").write_text(text)
    return home


def assert_once_each(receiver: Receiver) -> None:
    assert Counter(watch for _, watch in set(receiver.matches)) == {f"w{number}": 1 for number in range(MATCHES)}


def test_two_that_both_lead_send_each_message_once(tmp_path: Path, store_url: str) -> None:
    with Marketplace(seed=3, key=KEY, size=0) as market, receiving() as receiver:
        a, b = (home_of(tmp_path / name, market, store_url, receiver) for name in ("a", "b"))
        with a.daemon(**BOTH_LEAD) as first, b.daemon(**BOTH_LEAD) as second:
            wait_for(lambda: all("watching" in home.log() for home in (a, b)))
            wait_for_searches(market)
            bargain(market)
            wait_for(lambda: len(receiver.matches) >= MATCHES)
            wait_for_searches(market, 6)  # of both, which go on seeing the offer
            wait_until_delivered(store_url)
            assert [terminate(child)[0] for child in (first, second)] == [0, 0]
        assert_once_each(receiver)
        assert len(receiver.matches) == MATCHES


def test_the_messages_of_a_leader_that_is_killed_come_from_the_other(tmp_path: Path, store_url: str) -> None:
    """At least once: only the one that was being sent may come twice, and then both copies have the same id."""
    with Marketplace(seed=3, key=KEY, size=0) as market, receiving(answers_after_s=0.05) as receiver:
        a, b = (home_of(tmp_path / name, market, store_url, receiver) for name in ("a", "b"))
        with a.daemon() as first:
            wait_for(lambda: "this host leads" in a.log())
            with b.daemon() as second:
                wait_for(lambda: "this one stands by" in b.log())
                wait_for_searches(market)
                bargain(market)
                wait_for(lambda: len(receiver.matches) >= KILLED_AFTER, every_s=0.01)
                first.kill()
                assert len(set(receiver.matches)) < MATCHES
                wait_for(lambda: len(set(receiver.matches)) >= MATCHES)
                wait_for_searches(market)  # of the new leader, which sees the offer, too
                wait_until_delivered(store_url)
                assert terminate(second)[0] == 0
        assert_once_each(receiver)
        assert len(receiver.matches) <= MATCHES + 1
