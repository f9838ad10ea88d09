"""The page of an owner's settings in this process; a daemon with the page beside it, and a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from gpuwatch.emulator import Delays, Marketplace
from tests.process.daemon_child import Home, bargain, wait_for
from tests.web.chromium import started
from tests.web.served import Served, serving_settings, settings_in

if TYPE_CHECKING:
    from playwright.sync_api import Browser

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
_WEB = '[web]\nenabled = true\nlisten = "127.0.0.1:0"\n[record]\ngpu = ["H100"]\n'


@pytest.fixture(scope="module")
def market() -> Iterator[Marketplace]:
    """One marketplace for a module, with an H100 above the watch's limit."""
    with Marketplace(seed=3, key="a-secret-key-0123456789", size=10) as opened:
        opened.publish(gpu="H100 SXM", count=1, usd_hour=2.50)
        yield opened


@pytest.fixture
def web(tmp_path: Path, market: Marketplace) -> Iterator[Served]:
    """The server of an owner with a watch, whose settings file may be written."""
    settings = settings_in(tmp_path, SETTINGS.format(url=market.url))
    with serving_settings(settings, tmp_path) as found:
        yield found


class LiveDaemon(NamedTuple):
    """A running `gpuwatch run` whose watch requests approvals; an H100 is under its limit."""

    home: Home
    market: Marketplace
    url: str

    def code(self) -> str:
        """Return the newest one-time code that it printed."""
        return re.findall(r"one-time code: ([a-z0-9-]+)", self.home.log())[-1]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveDaemon]:
    """One daemon for a module."""
    with Marketplace(seed=7, key="demo-key", size=60, delays=Delays(running_s=0.2)) as market:
        for row in market.offers():
            if "H100" in str(row.get("gpu_name")):
                market.withdraw(row["id"])
        home = Home(tmp_path_factory.mktemp("live"), market.url, action="ask", extra=_WEB, max_total=0, max_active=3)
        bargain(market)
        with home.daemon():
            found = wait_for(lambda: re.search(r"web page: (http://[0-9.:]+)/", home.log()))
            yield LiveDaemon(home, market, found[1])


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser per module: while it exists, no other event loop can run in this thread."""
    with started() as found:
        yield found
