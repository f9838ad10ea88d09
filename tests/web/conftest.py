"""A daemon with the page beside it, over the embedded marketplace, and a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import pytest

from gpuwatch.emulator import Delays, Marketplace
from tests.process.daemon_child import Home, bargain, wait_for
from tests.web.chromium import started

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_WEB = '[web]\nenabled = true\nlisten = "127.0.0.1:0"\n[record]\ngpu = ["H100"]\n'


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
