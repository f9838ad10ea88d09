"""`launches extend` where the provider itself ends instances: at Shadeform, whose deadline its API can move."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from sqlalchemy import insert

from gpuwatch.app.launches.launches import launcher_of
from gpuwatch.bootstrap import http_client, real_now
from gpuwatch.bootstrap.settings_loading import load_settings
from gpuwatch.cli import Exit
from gpuwatch.domain.launches.launch import Intent, LaunchState, new_launch
from gpuwatch.domain.watches.watch import Action
from gpuwatch.emulator.answers import EmulatorReply
from gpuwatch.ports import Order
from gpuwatch.storage.setup.launch_rows import launch_row_of
from gpuwatch.storage.setup.tables import launch as launches
from tests.builders import a_match, a_watch, an_offer
from tests.cli.conftest import Shell
from tests.clouds.shadeform import Shadeform
from tests.upgraded_store import open_upgraded

ID = "abcdefghijkl"
HOUR = timedelta(hours=1)
SETTINGS = """
database_url = "sqlite:///{folder}/gpuwatch.db"
{more}
[providers.vastai]
enabled = false
[providers.shadeform]
base_url = "{url}"
api_key = "demo-key"
[[watch]]
name = "h100"
gpu = "H100"
max_price = 5
action = "launch"
[watch.launch]
max_runtime = "1h"
self_destruct = {self_destruct}
"""


@pytest.fixture
def place() -> Iterator[Shadeform]:
    with Shadeform(boots_s=0.0) as place:
        yield place


class Rented:
    """An instance at Shadeform that runs for an hour, and its launch."""

    def __init__(self, shell: Shell, place: Shadeform, self_destruct: str, more: str = "") -> None:
        self.place = place
        shell.settings(SETTINGS.format(folder=shell.folder, url=place.url, self_destruct=self_destruct, more=more))
        settings, now = load_settings(str(shell.folder / "gpuwatch.toml")), real_now()
        with http_client(settings) as http:
            launcher = launcher_of(settings, http, "shadeform")
            assert launcher is not None
            offer_id = "hyperstack/H100/canada-1/240"
            order = Order(offer_id=offer_id, label="gpuwatch-a", image="", disk_gb=0, deadline=now + HOUR)
            self.instance_id = launcher.create(order).instance_id
        watch, offer = a_watch(name="h100", action=Action.LAUNCH), an_offer(provider="shadeform")
        plain = new_launch(Intent(watch=watch, match=a_match(offer), launch_id=ID, dry_run=False), 0, now)
        launch: Any = msgspec.structs.replace(
            plain, state=LaunchState.RUNNING, instance_id=self.instance_id, running_at=now, max_runtime_s=3600.0
        )
        store = open_upgraded(settings.database_url)
        with store.write() as connection:
            connection.execute(insert(launches), launch_row_of(launch))
        store.close()

    def limits(self) -> tuple[datetime, Decimal]:
        """Shadeform's own deadline, and its limit of money."""
        found = self.place.info(None, self.instance_id)["auto_delete"]  # type: ignore[arg-type]
        return datetime.fromisoformat(found["date_threshold"]), Decimal(found["spend_threshold"])


@pytest.mark.parametrize("self_destruct", ["false", "true", '"auto"'])
def test_the_providers_own_end_moves_with_it(shell: Shell, place: Shadeform, self_destruct: str) -> None:
    rented = Rented(shell, place, self_destruct)
    ran = shell("launches", "extend", ID, "--by", "9h")
    assert ran.code == Exit.DONE, ran.err
    ends_at, usd = rented.limits()
    assert timedelta(0) < ends_at - (real_now() + 10 * HOUR) < HOUR
    assert usd > Decimal("2.40") * 10, "its limit of money lets it live until then"


def test_an_extension_that_the_budget_refuses_leaves_the_end_where_it_was(shell: Shell, place: Shadeform) -> None:
    rented = Rented(shell, place, '"auto"', "[budget]\nmax_usd_month = 10")
    ran = shell("launches", "extend", ID, "--by", "90h")
    assert ran.code == Exit.USAGE
    assert "was not extended: " in ran.err
    assert rented.limits()[0] < real_now() + 2 * HOUR


def test_where_it_does_not_move_the_extension_is_refused(
    shell: Shell, place: Shadeform, monkeypatch: pytest.MonkeyPatch
) -> None:
    rented = Rented(shell, place, "false")
    monkeypatch.setattr(place, "update", lambda *_args: EmulatorReply(500, b"{}"))
    ran = shell("launches", "extend", ID, "--by", "9h")
    assert ran.code == Exit.USAGE
    assert "its contract at shadeform ends at " in ran.err
    assert rented.limits()[0] < real_now() + 2 * HOUR
