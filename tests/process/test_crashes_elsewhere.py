"""The daemon is killed during a rent at other markets than vast.ai's, and with a watch over several markets."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.benches import BENCHES
from tests.process.audit import launches
from tests.process.daemon_child import Home, terminate, wait_for

DIED = 86
SETTINGS = """
dry_run = false
database_url = "{database_url}"

[budget]
max_usd_hour = 1000.0

{sections}
[[watch]]
name = "spans"
gpu = {gpus}
max_price = 100.0
action = "launch"

[watch.launch]
onstart = "true"                # AWS wants a way in, or work that starts by itself
max_runtime = "1h"
max_active = 1
max_total = 1
"""


def section(name: str, url: str) -> str:
    bench = BENCHES[name]
    options = "".join(f"{key} = {json.dumps(value)}\n" for key, value in bench.options.items())
    return (
        f'[providers.{name}]\nenabled = true\nbase_url = "{url}"\napi_key = "{bench.key}"\npoll_every = "1s"\n'
        f'search_interval = "0.1s"\n[providers.{name}.options]\n{options}'
    )


def orders_at(name: str, place: Any) -> list[str]:
    """Return the requests that rent, without EC2's dry runs."""
    sought = {"runpod": "^POST /v2/pods "}.get(name, BENCHES[name].creates)
    lines = [f"{request.method} {request.path} {request.raw.decode()}" for request in place.requests]
    return [line for line in lines if re.search(sought, line) and "DryRun=true" not in line]


class Markets:
    """Stand-ins, and a home folder with settings for them."""

    def __init__(self, folder: Path, places: Mapping[str, Any]) -> None:
        self.places = places
        self.home = Home(folder, "")
        text = SETTINGS.format(
            database_url=self.home.database_url,
            sections="".join(section(name, place.url) for name, place in places.items())
            + ("" if "vastai" in places else "[providers.vastai]\nenabled = false\n"),
            gpus=json.dumps(sorted({BENCHES[name].gpu for name in places})),
        )
        (folder / "gpuwatch.toml").write_text(text)

    def orders(self) -> int:
        return sum(len(orders_at(name, place)) for name, place in self.places.items())

    def launch(self) -> dict[str, Any]:
        (found,) = self.home.launches()
        return found

    def known_instances(self) -> list[str]:
        """Return the instances in the database, without a command for each reading."""
        return [str(row["instance_id"]) for row in launches(self.home.database_url) if row["instance_id"]]

    def daemon(self, **env: str) -> subprocess.Popen[bytes]:
        return self.home.start(**env)


@pytest.fixture
def markets(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Markets]:
    with ExitStack() as stack:
        yield Markets(tmp_path, {name: stack.enter_context(BENCHES[name].place()) for name in request.param})


def ended(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.kill()
    child.wait()


@pytest.mark.parametrize(
    "markets",
    [
        ("runpod", "lambda"),
        pytest.param(("shadeform",), marks=pytest.mark.slow),
        pytest.param(("tensordock",), marks=pytest.mark.slow),
        pytest.param(("lambda",), marks=pytest.mark.slow),
        pytest.param(("aws",), marks=pytest.mark.slow),
    ],
    indirect=True,
    ids="+".join,
)
def test_killed_after_the_send_the_one_instance_is_taken_up_by_its_label(markets: Markets) -> None:
    child = markets.daemon(GPUWATCH_FAILPOINT="launch.after_send")
    try:
        assert child.wait(timeout=240) == DIED
    finally:
        ended(child)
    assert markets.launch()["instance_id"] is None
    child = markets.daemon()
    try:
        wait_for(markets.known_instances)
        assert markets.launch()["state"] in ("starting", "running")
        code, seconds = terminate(child)
    finally:
        ended(child)
    assert (code, markets.orders()) == (0, 1)
    assert seconds < 10


@pytest.mark.parametrize("markets", [("runpod", "lambda")], indirect=True, ids="+".join)
def test_a_lost_answer_at_one_market_is_no_reason_to_rent_at_another(markets: Markets) -> None:
    for name, place in markets.places.items():
        place.fail({"runpod": "POST /v2/pods", "lambda": "launch"}[name], None, carried_out=True)
    child = markets.daemon()
    try:
        wait_for(markets.known_instances)
    finally:
        ended(child)
    assert markets.orders() == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "markets", [("runpod", "aws", "lambda", "shadeform", "tensordock")], indirect=True, ids="+".join
)
def test_markets_that_never_answer_delay_no_other_and_no_end(markets: Markets) -> None:
    for name, place in markets.places.items():
        if name != "runpod":
            place.fail("", 200, b"{}", times=500, delay_s=60.0)
    child = markets.daemon()
    try:
        # long before the others answer
        wait_for(markets.known_instances)
        assert markets.launch()["provider"] == "runpod"
        code, seconds = terminate(child)
    finally:
        ended(child)
    assert code == 0
    assert seconds < 10
