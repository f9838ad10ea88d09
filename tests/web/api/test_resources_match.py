"""What the API says of a thing is what the command line says of it: no field is missing on one of the two."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from gpuwatch.app.watches.pauses import PauseView
from gpuwatch.settings import load
from gpuwatch.web.api.resources import RESOURCES, ListParameters, Resource, ResourceAnswer, page_json
from tests import loopback_client
from tests.builders import NOON
from tests.process.daemon_child import wait_for

if TYPE_CHECKING:
    from tests.web.conftest import LiveDaemon

JOB = 'command = "true"\nresources = { gpu = "GB200" }\nlimit = { max_usd = 1 }\n'
COMMANDS = {
    "offers": ("offers", "--spot", "any"),
    "market": ("market",),
    "watches": ("check",),
    "launches": ("launches",),
    "approvals": ("asks",),
    "alerts": ("alerts",),
    "providers": ("providers",),
    "costs": ("costs", "--by", "watch"),
    "history": ("history", "H100", "--since", "1d"),
    "jobs": ("job", "list"),
    "series": ("job", "series"),
}
ITEMS = {resource.name: resource.item for resource in RESOURCES}
LISTS_IN = {
    "market": "gpus",
    "watches": "watches",
    "costs": "lines",
    "history": "points",
}  # the key of the command's JSON that is the list


def test_every_resource_has_a_command() -> None:
    assert set(COMMANDS) == {resource.name for resource in RESOURCES}


def test_only_the_items_of_a_page_are_made(tmp_path: Path) -> None:
    """The view of an offer has forty fields: a market of thousands is not made for a page of ten."""
    made: list[PauseView] = []

    def view(number: int) -> PauseView:
        made.append(PauseView(kind="hand", watch=str(number), since=NOON, until=None, why=""))
        return made[-1]

    numbers = Resource(
        name="numbers",
        summary="",
        parameters=ListParameters,
        read=lambda _settings, _query: ResourceAnswer(range(1000), view),
        item=PauseView,
    )
    page = json.loads(page_json(load(env={}, cwd=tmp_path), numbers, ListParameters(limit=2, offset=3)))
    assert [item["watch"] for item in page["items"]] == [one.watch for one in made] == ["3", "4"]
    assert page["next"] == "/api/v1/numbers?limit=2&offset=5"


def approved(live: LiveDaemon) -> bool:
    """Approve what is asked. On a busy machine an offer may be gone by then; another one is asked for."""
    for approval in loopback_client.items(live.url, "approvals"):
        live.home.run("approve", str(approval["ask_id"]))
    return bool(loopback_client.items(live.url, "launches"))


@pytest.mark.slow
def test_every_resource_has_each_field_of_its_command(live: LiveDaemon) -> None:
    job = live.home.folder / "small.toml"
    job.write_text(JOB)
    yearly = live.home.folder / "yearly.toml"
    yearly.write_text(JOB + 'schedule = "0 0 29 2 *"\nwithin = "1h"\n')
    assert live.home.run("job", "submit", str(job), str(yearly)).returncode == 0
    wait_for(lambda: approved(live), every_s=1.0)
    live.market.publish(gpu="H100 SXM", count=1, usd_hour=9.0)  # the offer that was rented is on sale no longer
    for resource, command in COMMANDS.items():
        (first, *_) = wait_for(lambda name=resource: loopback_client.items(live.url, name))
        printed: Any = json.loads(live.home.run(*command, "--json").stdout)
        (line, *_) = printed[LISTS_IN[resource]] if resource in LISTS_IN else printed
        assert set(line) - set(first) == set(), resource
        msgspec.convert(first, ITEMS[resource])  # of the types that the document states
