"""The daemon for systemd and its owner: a child process, signals, a notify socket."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.emulator import Delays, Marketplace
from tests.process.daemon_child import Home, bargain, notify_by, terminate, wait_for
from tests.telegram_double import TOKEN, telegram

pytestmark = pytest.mark.slow


@pytest.fixture
def market() -> Iterator[Marketplace]:
    with Marketplace(seed=5, key="demo-key", size=40, delays=Delays(running_s=0.5)) as opened:
        yield opened


def test_sigterm_ends_it_cleanly_within_ten_seconds(market: Marketplace, tmp_path: Path) -> None:
    home = Home(tmp_path, market.url, has_store=False)
    with home.daemon() as child:
        wait_for(lambda: "watching" in home.log())
        code, took_s = terminate(child)
    assert code == 0
    assert took_s < 10
    assert "Traceback" not in home.log()


def test_sigterm_does_not_wait_for_a_provider_that_hangs(market: Marketplace, tmp_path: Path) -> None:
    market.faults.add("search", "never", times=None)
    home = Home(tmp_path, market.url)
    with home.daemon() as child:
        wait_for(lambda: market.requests)
        code, took_s = terminate(child)
    assert code == 0
    assert took_s < 10


def test_systemd_is_reported_ready_status_watchdog_and_stopping(market: Marketplace, tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(path)
        listener.settimeout(60)
        home = Home(tmp_path, market.url)
        with home.daemon(NOTIFY_SOCKET=path, WATCHDOG_USEC="1000000") as child:
            heard = _hear_until(listener, "STATUS=")  # it is sent by a thread of its own
            heard += _hear_until(listener, "WATCHDOG=1")
            terminate(child)
            heard += _hear_until(listener, "STOPPING=1")
    text = "\n".join(heard)
    assert "READY=1" in text
    assert "STATUS=" in text


def test_sighup_takes_up_new_settings_and_keeps_the_old_if_they_are_wrong(market: Marketplace, tmp_path: Path) -> None:
    home = Home(tmp_path, market.url, action="alert")
    with home.daemon() as child:
        wait_for(lambda: "watching" in home.log())
        (tmp_path / "gpuwatch.toml").write_text("max_prise = 1\n")
        child.send_signal(signal.SIGHUP)
        wait_for(lambda: "the old ones stay in effect" in home.log())
        assert child.poll() is None
        home.write(url=market.url, action="launch")
        child.send_signal(signal.SIGHUP)
        wait_for(lambda: "reloaded the settings" in home.log())
        bargain(market)
        wait_for(lambda: market.ledger.creates)
        assert terminate(child)[0] == 0


def test_settings_that_would_leave_a_running_instance_alone_are_not_taken_up(
    market: Marketplace, tmp_path: Path
) -> None:
    """L32: its provider, or the key, was removed from the settings."""
    bargain(market)
    home = Home(tmp_path, market.url)
    with home.daemon() as child:
        wait_for(lambda: home.states() == ["running"])
        text = (tmp_path / "gpuwatch.toml").read_text()
        (tmp_path / "gpuwatch.toml").write_text(text.replace('api_key = "demo-key"', ""))
        child.send_signal(signal.SIGHUP)
        wait_for(lambda: "the old ones stay in effect" in home.log())
        assert "is active at vastai, which is no longer configured, or has no key" in home.log()
        assert terminate(child)[0] == 0
    with home.daemon() as child:
        wait_for(lambda: "vastai is not configured or has no key" in home.log())
        assert terminate(child)[0] == 0


def test_a_second_daemon_on_the_same_database_stops_with_a_clear_line(market: Marketplace, tmp_path: Path) -> None:
    home = Home(tmp_path, market.url)
    with home.daemon() as first:
        wait_for(lambda: "watching" in home.log())
        second = home.run("run")
        assert second.returncode == 1
        assert "a daemon" in second.stderr
        assert f"process {first.pid}" in second.stderr
        terminate(first)


def test_wrong_settings_stop_the_start_with_code_2(market: Marketplace, tmp_path: Path) -> None:
    home = Home(tmp_path, market.url)
    (tmp_path / "gpuwatch.toml").write_text("nonsense = 1\n")
    stopped = home.run("run")
    assert stopped.returncode == 2
    assert "nonsense" in stopped.stderr
    assert "Traceback" not in stopped.stderr


def test_a_dry_run_rents_nothing_and_says_what_it_would_have(market: Marketplace, tmp_path: Path) -> None:
    bargain(market)
    home = Home(tmp_path, market.url, dry_run="true")
    with home.daemon() as child:
        wait_for(home.launches)
        terminate(child)
    assert not market.ledger.creates
    for launch in home.launches():
        assert (launch["dry_run"], launch["state"]) == (True, "ended")
        assert "would have rented" in launch["end_reason"]


def test_blindness_is_reported_once_and_its_end_too(market: Marketplace, tmp_path: Path) -> None:
    with telegram() as double:
        home = Home(tmp_path, market.url, action="alert", extra='timeout = "1s"\n' + notify_by(double))
        market.faults.add("search", "502", times=None)
        with home.daemon() as child:
            wait_for(lambda: any("vastai is not answering" in shown.text for shown in double.shown))
            market.faults.clear()
            wait_for(lambda: any("answers again" in shown.text for shown in double.shown))
            terminate(child)
    assert sum("vastai is not answering" in shown.text for shown in double.shown) == 1


def test_a_launch_lives_from_the_bargain_to_the_confirmed_stop(market: Marketplace, tmp_path: Path) -> None:
    home = Home(tmp_path, market.url, has_store=False)
    with home.daemon() as child:
        wait_for(lambda: "watching" in home.log())
        bargain(market)
        launch = wait_for(lambda: [one for one in home.launches() if one["state"] == "running"])[0]
        own = (launch["launch_id"], launch["install_id"], launch["watch_id"])
        assert launch["label"] == "gpuwatch-" + "-".join(own)
        assert list(market.ledger.creates_by_label()) == [launch["label"]]
        stopped = home.run("stop", launch["launch_id"])
        assert stopped.returncode == 0, stopped.stderr
        assert not market.ledger.alive()
        (ended,) = home.launches()
        assert ended["state"] == "ended"
        assert ended["cost_usd"] > 0
        terminate(child)


def test_no_secret_is_in_any_byte_that_it_wrote(market: Marketplace, tmp_path: Path) -> None:
    with telegram() as double:
        home = Home(tmp_path, market.url, has_store=False, extra=notify_by(double))
        market.faults.add("search", "401", times=3)
        bargain(market)
        with home.daemon() as child:
            wait_for(lambda: double.shown)
            terminate(child)
        shown = home.run("config", "show").stdout + home.run("config", "show", "--json").stdout
    written = b"".join(
        path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != "gpuwatch.toml"
    )
    for secret in (b"demo-key", TOKEN.encode()):
        assert secret not in written + shown.encode()


def test_the_demo_rents_once_and_touches_nothing_of_the_users(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    played = subprocess.run(
        [sys.executable, "-m", "gpuwatch", "demo"],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert played.returncode == 0, played.stdout + played.stderr
    assert "rented once and running" in played.stdout
    assert "ended" in played.stdout
    assert [line for line in played.stdout.splitlines() if len(line) > 80] == []
    assert list(tmp_path.iterdir()) == []


def test_launches_as_json_have_the_keys_of_the_contract(market: Marketplace, tmp_path: Path) -> None:
    bargain(market)
    home = Home(tmp_path, market.url)
    with home.daemon() as child:
        (launch, *_) = wait_for(home.launches)
        terminate(child)
    keys = (
        "launch_id watch provider offer_id instance_id state dry_run label price_usd_hour requested_at running_at"
        " ended_at end_reason cost_usd"
    )
    assert set(keys.split()) <= set(launch)
    assert launch["requested_at"].endswith("Z")
    assert json.loads(json.dumps(launch)) == launch


def _hear_until(listener: socket.socket, word: str) -> list[str]:
    heard: list[str] = []
    while not any(word in line for line in heard):
        heard.append(listener.recv(4096).decode())
    return heard
