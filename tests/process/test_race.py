"""One watch over three markets, by the real daemon: the cheapest of all wins, and a refusal leads to the next."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.benches import BENCHES
from tests.process.daemon_child import terminate, wait_for
from tests.process.test_crashes_elsewhere import Markets, ended, orders_at

THREE = ("aws", "lambda", "runpod")


@pytest.fixture
def markets(tmp_path: Path) -> Iterator[Markets]:
    with ExitStack() as stack:
        yield Markets(tmp_path, {name: stack.enter_context(BENCHES[name].place()) for name in THREE})


def orders(markets: Markets, name: str) -> list[str]:
    """What may rent at a provider: rehearsals left out."""
    return [line for line in orders_at(name, markets.places[name]) if "DryRun=true" not in line]


def rented(markets: Markets) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]:
    """The launch, its events, and what is skipped."""
    child = markets.daemon()
    try:
        wait_for(lambda: markets.home.launches() and markets.launch()["instance_id"], within_s=50.0)
        launch = markets.launch()
        terminate(child)
    finally:
        ended(child)
    events = json.loads(markets.home.run("launches", "show", launch["launch_id"], "--json").stdout)
    return launch, events, json.loads(markets.home.run("machines", "--scopes", "--json").stdout)


def test_the_cheapest_of_three_wins_while_one_hangs(markets: Markets) -> None:
    markets.places["lambda"].fail("", 200, b"{}", times=500, delay_s=60.0)
    launch, events, _ = rented(markets)
    assert launch["provider"] == "runpod"
    compared = events[0]["provider_words"]
    assert re.fullmatch(r"compared: runpod [0-9.]+, aws [0-9.]+ \$/GPU-h; no answer within 3 s: lambda", compared)
    assert {name: len(orders(markets, name)) for name in THREE} == {"aws": 0, "lambda": 0, "runpod": 1}


def test_a_refusal_leads_to_the_next_provider_within_one_launch(markets: Markets) -> None:
    markets.places["runpod"].fail("POST /v2/pods", 402, b"{}", times=50)
    launch, events, scopes = rented(markets)
    assert launch["provider"] in {"aws", "lambda"}
    assert len(orders(markets, "runpod")) == len(orders(markets, launch["provider"])) == 1
    assert [(one["provider"], one["scope"]) for one in scopes] == [("runpod", "account")]
    assert [one["cause"].partition(" at ")[2] for one in events if one["cause"].startswith("offer ")] == [
        launch["provider"]
    ]
