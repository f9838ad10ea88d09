"""Invalid settings at a start while a launch is active: the real daemon follows, ends and reports it."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwatch.emulator import Marketplace
from tests.process.daemon_child import Home, bargain, notify_by, terminate, wait_for
from tests.telegram_double import TOKEN, TelegramDouble

pytestmark = pytest.mark.slow


def crashed_while_renting(home: Home, market: Marketplace) -> None:
    """One instance is active, but its daemon is not running."""
    bargain(market)
    with home.daemon() as child:
        wait_for(lambda: "watching" in home.log())
        wait_for(lambda: home.states() == ["running"])
        child.kill()


def edited(home: Home, old: str, new: str) -> None:
    file = home.folder / "gpuwatch.toml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


BREAKAGES: dict[str, Callable[[Home], None]] = {
    "not TOML": lambda home: edited(home, "max_price = 2.40", "max_price = = 2.40"),
    "a wrong value": lambda home: edited(home, "max_price = 2.40", 'max_price = "cheap"'),
    "a missing key": lambda home: edited(home, 'name = "cheap"\n', ""),
    "a wrong address": lambda home: edited(home, 'base_url = "http://127', 'base_url = "htp://127'),
    "no file": lambda home: (home.folder / "gpuwatch.toml").unlink(),
}


@pytest.mark.parametrize("broken", [*BREAKAGES])
def test_with_wrong_settings_what_is_rented_ends_in_time_and_nothing_new_is_rented(
    market: Marketplace, double: TelegramDouble, tmp_path: Path, broken: str
) -> None:
    home = Home(tmp_path, market.url, extra=notify_by(double), max_runtime="6s", max_active=2, max_total=0)
    home.env["GPUWATCH_CONFIG"] = "gpuwatch.toml"
    if broken == "no file":  # secrets are never stored: the service manager provides them
        home.env |= {"VAST_API_KEY": "demo-key", "GPUWATCH_NOTIFY__TELEGRAM__BOT_TOKEN": TOKEN}
    crashed_while_renting(home, market)
    BREAKAGES[broken](home)
    bargain(market, 1.2)  # it would rent this one
    with home.daemon(GPUWATCH_TEST_PACE="4") as child:
        wait_for(lambda: any("rescue mode" in one.text for one in double.shown))
        wait_for(lambda: market.ledger.destroys)
        assert terminate(child)[0] == 0
    assert len(market.ledger.creates) == 1
    assert sum("rescue mode" in one.text for one in double.shown) == 1
    assert "Traceback" not in home.log()


def test_it_leaves_rescue_mode_when_correct_settings_are_read(
    market: Marketplace, double: TelegramDouble, tmp_path: Path
) -> None:
    home = Home(tmp_path, market.url, extra=notify_by(double), max_active=2, max_total=0)
    crashed_while_renting(home, market)
    whole = (tmp_path / "gpuwatch.toml").read_text()
    BREAKAGES["not TOML"](home)
    with home.daemon() as child:
        wait_for(lambda: any("rescue mode" in one.text for one in double.shown))
        child.send_signal(signal.SIGHUP)
        wait_for(lambda: "these settings are rejected" in home.log())
        (tmp_path / "gpuwatch.toml").write_text(whole)
        bargain(market, 1.2)
        child.send_signal(signal.SIGHUP)
        wait_for(lambda: home.states().count("running") == 2)
        assert terminate(child)[0] == 0


@pytest.mark.parametrize("broken", ["not TOML", "a wrong value", "a missing key", "no file"])
def test_with_wrong_settings_and_nothing_alive_it_ends_with_2(market: Marketplace, tmp_path: Path, broken: str) -> None:
    home = Home(tmp_path, market.url, action="alert")
    home.env["GPUWATCH_CONFIG"] = "gpuwatch.toml"
    with home.daemon() as child:
        wait_for(lambda: "watching" in home.log())
        terminate(child)
    BREAKAGES[broken](home)
    refused = home.run("run")
    assert refused.returncode == 2
    assert "rescue" not in refused.stderr
    assert "gpuwatch.toml" in refused.stderr


def test_with_wrong_settings_and_a_broken_database_the_keeper_ends_what_its_file_names(
    market: Marketplace, double: TelegramDouble, tmp_path: Path
) -> None:
    home = Home(tmp_path, market.url, extra=notify_by(double), max_runtime="6s")
    crashed_while_renting(home, market)
    BREAKAGES["a wrong value"](home)
    for path in tmp_path.glob("gpuwatch.db*"):
        path.unlink()
    (tmp_path / "gpuwatch.db").write_bytes(b"not a database, but long enough to be read as one" * 100)
    with home.daemon(GPUWATCH_TEST_KEEPER_AFTER="1") as child:
        wait_for(lambda: market.ledger.destroys)
        assert terminate(child)[0] == 0
    assert len(market.ledger.creates) == 1


def test_with_wrong_settings_and_a_database_that_does_not_answer_it_is_started_again(
    market: Marketplace, tmp_path: Path
) -> None:
    """It is unknown whether a launch is active: exit code 2 would end systemd's attempts."""
    home = Home(tmp_path, market.url)
    (tmp_path / "gpuwatch.db").write_bytes(b"not a database, but long enough to be read as one" * 100)
    BREAKAGES["a wrong value"](home)
    refused = home.run("run")
    assert refused.returncode == 1
    assert "is not a database" in refused.stderr


def test_a_secret_file_ends_what_is_rented_although_only_the_kept_copy_names_it(
    market: Marketplace, double: TelegramDouble, tmp_path: Path
) -> None:
    """The settings file and the environment are lost; the channel, whose token was in the file, is left out."""
    home = Home(tmp_path, market.url, extra=notify_by(double), max_runtime="6s")
    (tmp_path / "key").write_text("demo-key\n")
    home.env |= {"GPUWATCH_CONFIG": "gpuwatch.toml", "VAST_API_KEY_FILE": str(tmp_path / "key")}
    crashed_while_renting(home, market)
    assert home.run("db", "backup", "backup.db").returncode == 0
    (tmp_path / "gpuwatch.toml").unlink()
    del home.env["VAST_API_KEY_FILE"]
    with home.daemon(GPUWATCH_TEST_PACE="4") as child:
        wait_for(lambda: "rescue mode" in home.log())
        wait_for(lambda: market.ledger.destroys)
        assert terminate(child)[0] == 0
    assert "[notify.telegram] is ignored" in home.log()
    assert "Traceback" not in home.log()
    (tmp_path / "key").unlink()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"backup.db", "gpuwatch.db", "last-settings.bin"} <= {path.name for path in files}
    for secret in (b"demo-key", TOKEN.encode()):
        assert not [path for path in files if secret in path.read_bytes()]


def test_a_leader_in_rescue_mode_hands_over_to_a_healthy_host(
    market: Marketplace, tmp_path: Path, store_url: str
) -> None:
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    a, b = (Home(folder, market.url, database_url=store_url, max_total=0, max_active=2) for folder in folders)
    crashed_while_renting(a, market)
    edited(a, "max_price = 2.40", 'max_price = "cheap"')
    with a.daemon() as rescued:
        wait_for(lambda: a.log().count("this host leads") == 2)  # it waits longer than a healthy one would
        assert "rescue mode" in a.log()
        bargain(market, 1.2)
        with b.daemon() as healthy:
            wait_for(lambda: b.states().count("running") == 2, within_s=300)
            assert "a healthy one that stands by will lead" in a.log()
            hosts = json.loads(b.run("hosts", "--json").stdout)
            states = {(one["state"], one["is_rescued"]) for one in hosts}  # and the one that was killed
            assert states >= {("leads", False), ("stands by", True)}
            assert [terminate(child)[0] for child in (rescued, healthy)] == [0, 0]
    assert "Traceback" not in a.log() + b.log()
