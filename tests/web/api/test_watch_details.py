"""All about one watch: the command and the API say the same, each rule with its figures, each hour of its past."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from gpuwatch.app.watches.why.watch_details import DAYS, MAX_DAYS, WatchDetailsView
from gpuwatch.bootstrap import open_store, real_now
from gpuwatch.cli import run
from gpuwatch.cli.watches.watch_list import list_
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from tests.storage.stored_answers import an_answer, an_offer
from tests.web.security.test_security import assert_problem
from tests.web.served import Served, served, serving_settings, settings_in

RENTS = """
dry_run = false
[budget]
max_usd_hour = 2.0
max_instances = 3
[providers.vastai]
api_key = "a-key"
[[watch]]
name = "rents"
gpu = ["H100"]
max_price = 4.00
action = "launch"
verified = false
[watch.launch]
max_runtime = "1h"
[web]
listen = "127.0.0.1:0"
"""
_OF_THE_SECOND = {"next_poll_at"}


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Served]:
    settings = settings_in(tmp_path, RENTS)
    with serving_settings(settings, tmp_path) as found:
        yield found


def asked(web: Served, name: str = "rents", query: str = "") -> dict[str, Any]:
    answer = web.client.get(f"/api/v1/watches/{name}{query}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def polled(web: Served, *hours_ago: float) -> None:
    """An offer that costs 3.66 $, at some hours."""
    with open_store(web.context.settings) as store:
        for ago in hours_ago:
            answer = an_answer(an_offer("m1", 3.05, offer_id="1"), observed_at=real_now() - timedelta(hours=ago))
            for lane in ("sweep", "hunt"):
                SqlHistoryRecorder(store).record(answer, lane=lane, gpu="H100 SXM", spot=False)


def printed(web: Served, capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    capsys.readouterr()
    assert run(["--config", str(web.folder / "gpuwatch.toml"), "watches", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_command_and_the_api_say_the_same(web: Served, capsys: pytest.CaptureFixture[str]) -> None:
    polled(web, 5, 4, 0.01)
    for days in (1, DAYS):
        before = asked(web, query=f"?days={days}")
        (line,) = printed(web, capsys, "rents", "--days", str(days))
        after = asked(web, query=f"?days={days}")  # an hour may have begun
        got = after if line["hours"] == after["hours"] else before
        msgspec.convert(got, WatchDetailsView)
        assert set(line) == set(got) == set(WatchDetailsView.__struct_fields__) - {"max_job_cost_usd"}
        same = set(got) - _OF_THE_SECOND
        assert {key: line[key] for key in same} == {key: got[key] for key in same}
        assert len(got["hours"]) == 24 * days


def test_every_rule_has_its_figures_and_the_first_that_blocks_is_named(web: Served) -> None:
    polled(web, 0.01)
    got = asked(web)
    rules = {one["rule"]: one for one in got["rules"]}
    figures = {name: (one["state"], one["unit"], one["used"], one["adds"], one["limit"]) for name, one in rules.items()}
    assert figures["no_offer"] == ("met", "usd_gpu_hour", 3.66, None, 4.0)
    assert figures["max_active"] == ("met", "count", 0, 1, 1)
    assert figures["max_instances"] == ("met", "count", 0, 1, 3)
    assert figures["max_usd_hour"] == ("blocks", "usd_hour", 0.0, 3.66, 2.0)
    assert got["first_blocking"] == got["blocked_by"] == "max_usd_hour"
    assert rules["max_usd_hour"]["label"] == "Hourly budget"
    assert rules["max_usd_hour"]["reason"] == got["blocked_reason"]
    assert [one["reason"] for one in got["rules"] if one["state"] != "blocks"] == [None] * (len(rules) - 1)


def test_each_hour_is_a_price_or_nothing_on_sale_or_unknown(web: Served) -> None:
    polled(web, 5, 4, 0.01)
    got = asked(web)
    known = [one for one in got["hours"] if one["polled"]]
    assert {one["lowest_usd_gpu_hour"] for one in known} == {3.66}
    assert {one["lowest_usd_gpu_hour"] for one in got["hours"] if not one["polled"]} == {None}
    assert all(one["at"].endswith(":00:00Z") for one in got["hours"])
    under = got["under_limit"]
    assert under["hours"] == under["known_hours"] == len(known)
    assert under["times"] == 1


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    with served(tmp_path) as web:
        assert_problem(web.client.get("/api/v1/watches/cheep"), 404)
        for days in ("0", str(MAX_DAYS + 1), "x"):
            assert_problem(web.client.get(f"/api/v1/watches/cheap?days={days}"), 422)
        got = asked(web, "cheap")
        again = web.client.get("/api/v1/watches/cheap")
        assert (got["first_blocking"], again.status_code) == ("no_data", 200)
    with served(tmp_path, 'tokens = [{ name = "t", token = "' + "a" * 16 + '", scopes = ["read"] }]') as web:
        assert_problem(web.client.get("/api/v1/watches/cheap"), 401)


def test_the_command_allows_as_many_days_as_the_api() -> None:
    (days,) = [one for one in list_.params if one.name == "days"]
    assert isinstance(days.type, click.IntRange)
    assert (days.type.min, days.type.max, days.default) == (1, MAX_DAYS, DAYS)
