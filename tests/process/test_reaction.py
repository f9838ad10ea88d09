"""`gpuwatch_reaction_seconds` matches its help text: from the decision until the provider accepted the order."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.emulator import Delays, Marketplace
from tests import loopback_client
from tests.process.audit import rows
from tests.process.daemon_child import Home, bargain, terminate, wait_for

pytestmark = pytest.mark.slow
ORDER_S = 0.8
WEB = '[web]\nenabled = true\nlisten = "127.0.0.1:0"\n'


class Slow(Marketplace):
    """Delays orders, and records when it answered which."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.shown_at: list[float] = []  # an answer with an offer is about to leave
        self.ordered_at: list[float] = []
        self.accepted_at: list[float] = []

    def answer(self, request: Any) -> Any:
        is_order = request.method == "PUT" and request.path.startswith("/api/v0/asks/")
        if is_order:
            self.ordered_at.append(time.time())
            time.sleep(ORDER_S)
        answer = super().answer(request)
        if is_order:
            self.accepted_at.append(time.time())
        elif request.path.startswith("/api/v0/bundles") and b"H100" in answer.body:
            self.shown_at.append(time.time())
        return answer


def reaction(url: str) -> tuple[float, float]:
    """Return their number and sum."""
    text = loopback_client.get(f"{url}/metrics").text
    found = [re.search(rf"^gpuwatch_reaction_seconds_{name} (\S+)$", text, re.MULTILINE) for name in ("count", "sum")]
    assert all(found)
    count, total = (float(one[1]) for one in found if one)
    return count, total


def url_of(home: Home) -> str:
    return str(wait_for(lambda: re.search(r"web page: (http://[0-9.:]+)/", home.log()))[1])


@pytest.mark.parametrize("action", ["launch", "ask"])
def test_a_reaction_begins_when_the_offer_was_seen_and_ends_with_the_acceptance(tmp_path: Path, action: str) -> None:
    with Slow(seed=5, key="demo-key", size=0, delays=Delays(running_s=0.1)) as market:
        home = Home(tmp_path, market.url, action=action, extra=WEB)
        with home.daemon() as child:
            url = url_of(home)
            bargain(market, 0.5)
            approved_at = 0.0
            if action == "ask":
                asked = wait_for(lambda: loopback_client.items(url, "approvals"))
                time.sleep(1.0)  # a person thinks; that is not part of gpuwatch's reaction time
                approved_at = time.time()
                assert home.run("approve", asked[0]["ask_id"]).returncode == 0
            count, total = wait_for(lambda: (got := reaction(url))[0] and got)
            (launch,) = rows(home.database_url, "SELECT * FROM launch")
            terminate(child)
    decided_at = launch["intended_at_ms"] / 1000
    assert count == 1
    assert total >= ORDER_S
    assert max(min(market.shown_at), approved_at) - 0.001 <= decided_at <= market.ordered_at[0]
    assert total >= market.accepted_at[0] - decided_at - 0.002
