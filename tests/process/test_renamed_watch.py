"""A watch is renamed in the real daemon's settings while its launch is active."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.emulator import Delays, Marketplace
from tests.process.daemon_child import Home, bargain, terminate, wait_for, wait_for_searches
from tests.process.fork_server import ForkedProcess

pytestmark = pytest.mark.slow


@pytest.fixture
def market() -> Iterator[Marketplace]:
    with Marketplace(seed=5, key="demo-key", size=40, delays=Delays(running_s=0.3)) as opened:
        bargain(opened)
        yield opened


def running(home: Home) -> list[dict[str, Any]]:
    return [launch for launch in home.launches() if launch["state"] == "running"]


def rename(home: Home, below: str = "") -> None:
    """From now on the watch "cheap" is "cheap-h100"."""
    path = home.folder / "gpuwatch.toml"
    name = 'name = "cheap-h100"\n'
    text = path.read_text().replace('name = "cheap"\n', name)
    path.write_text(text.replace(name, name + below))


def reload(child: ForkedProcess, home: Home) -> None:
    before = home.log().count("reloaded the settings")
    child.send_signal(signal.SIGHUP)
    wait_for(lambda: home.log().count("reloaded the settings") > before)


def alerts(home: Home) -> str:
    return home.run("alerts", "--json").stdout


def test_a_renamed_watch_rents_no_second_instance_until_it_says_what_it_is(market: Marketplace, tmp_path: Path) -> None:
    home = Home(tmp_path, market.url)
    with home.daemon() as child:
        wait_for(lambda: running(home))
        bargain(market, 1.4)
        rename(home)
        reload(child, home)
        wait_for_searches(market, 4)
        assert len(market.ledger.creates) == 1
        found = alerts(home)
        assert 'its watch \\"cheap\\" is not in the settings' in found
        assert 'renamed_from = \\"cheap\\"' in found
        assert f"gpuwatch launches stop {home.launches()[0]['launch_id']}" in found
        assert terminate(child)[0] == 0
    with home.daemon() as child:  # a start holds it like a reload
        wait_for_searches(market, 4)
        assert len(market.ledger.creates) == 1
        rename_again = home.folder / "gpuwatch.toml"
        rename_again.write_text(rename_again.read_text().replace("gpu = [", 'renamed_from = "cheap"\ngpu = ['))
        reload(child, home)
        wait_for(lambda: [launch for launch in home.launches() if launch["watch"] == "cheap-h100"])
        wait_for_searches(market, 4)
        assert len(market.ledger.creates) == 1  # max_total = 1 counts the launches of the old name
        assert len({launch["watch_id"] for launch in home.launches()}) == 1
        assert terminate(child)[0] == 0


def test_a_watch_that_says_that_it_is_new_rents_beside_the_one_that_is_gone(
    market: Marketplace, tmp_path: Path
) -> None:
    home = Home(tmp_path, market.url)
    with home.daemon() as child:
        wait_for(lambda: running(home))
        bargain(market, 1.4)
        rename(home, 'renamed_from = ""\n')
        reload(child, home)
        wait_for(lambda: len(market.ledger.creates) == 2)
        assert "is not in the settings" in alerts(home)
        assert terminate(child)[0] == 0
    assert len({launch["watch_id"] for launch in home.launches()}) == 2


def test_a_launch_whose_watch_is_gone_keeps_the_rules_of_its_rent(market: Marketplace, tmp_path: Path) -> None:
    home = Home(tmp_path, market.url)
    path = tmp_path / "gpuwatch.toml"
    marker = tmp_path / "saved"
    path.write_text(path.read_text() + f'before_stop = "touch {marker}"\n')
    with home.daemon() as child:
        launch = wait_for(lambda: running(home))[0]
        rename(home)
        reload(child, home)
        assert home.run("stop", launch["launch_id"]).returncode == 0
        assert marker.exists()
        assert terminate(child)[0] == 0


def test_a_watch_that_is_wrong_for_a_while_is_not_gone(market: Marketplace, tmp_path: Path) -> None:
    home = Home(tmp_path, market.url)
    path = tmp_path / "gpuwatch.toml"
    right = path.read_text()
    with home.daemon() as child:
        wait_for(lambda: running(home))
        assert terminate(child)[0] == 0
    path.write_text(right.replace("max_price = 2.40", 'max_price = "cheap"'))
    with home.daemon() as child:
        wait_for(lambda: "rescue mode" in home.log())
        path.write_text(right)
        reload(child, home)
        assert terminate(child)[0] == 0
    assert "is not in the settings" not in home.run("alerts", "--json").stdout


def test_a_renamed_group_is_no_new_watch(market: Marketplace, tmp_path: Path) -> None:
    home = Home(tmp_path, market.url)
    path = tmp_path / "gpuwatch.toml"
    own = path.read_text()
    assert "max_price = 2.40\n" in own
    grouped = own.replace("max_price = 2.40\n", 'group = "night"\n')
    path.write_text(grouped + "[group.night]\nmax_price = 2.40\n")
    with home.daemon() as child:
        wait_for(lambda: running(home))
        bargain(market, 1.4)
        path.write_text(path.read_text().replace("night", "late") + '[defaults.watch]\nrepeat_every = "12h"\n')
        reload(child, home)
        wait_for_searches(market, 4)
        assert len(market.ledger.creates) == 1
        assert "is not in the settings" not in alerts(home)
        assert terminate(child)[0] == 0
    assert len({launch["watch_id"] for launch in home.launches()}) == 1
