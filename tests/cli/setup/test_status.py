"""`gpuwatch status`: what needs you comes first, each with its command; then what runs, the watches, what is down."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from gpuwatch.bootstrap import real_now
from gpuwatch.bootstrap.settings_loading import load_settings
from gpuwatch.chat.reading import status as chat_status
from gpuwatch.chat.replies import ChatContext
from gpuwatch.domain.jobs.job import JobState
from gpuwatch.domain.launches.launch import LaunchState
from gpuwatch.domain.launches.life.circuit_breaker import CircuitBreaker
from gpuwatch.domain.launches.life.strays import UnknownInstance
from gpuwatch.emulator import Marketplace
from gpuwatch.engine.alerts.alert_buttons import ButtonSigner
from gpuwatch.ports import ProviderHealth
from gpuwatch.storage.alerts.pauses import save_breaker
from gpuwatch.storage.jobs.job_repository import SqlJobRepository
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.unit_of_work import SqlDecisionStore
from tests.cli.conftest import Shell
from tests.cli.launches.test_asks import House
from tests.cli.launches.test_launches import Rows
from tests.stored_jobs import moved

HELD, RUNS = "abcdefghijkl", "bbcdefghijkl"
JOB = 'command = "true"\nresources = { gpu = "H100" }\nlimit = { max_usd = 10 }\n'
KINDS = ["held", "unknown_instance", "approval", "breaker", "job"]


@pytest.fixture
def house(shell: Shell, market: Marketplace, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    monkeypatch.setenv("VAST_API_KEY", "demo-key")
    made = House(shell, market)
    yield made
    made.store.close()


def _everything_at_once(house: House) -> str:
    """A quote, a held launch, one that runs, an unclaimed instance, a failed job, a breaker, an outage."""
    quote, now, rows = house.fires(), real_now(), Rows(house.shell.folder)
    rows.move(rows.move(rows.reserve(HELD, offer_id="7"), LaunchState.UNKNOWN), LaunchState.HELD)
    rows.move(rows.reserve(RUNS, offer_id="8"), LaunchState.RUNNING, running_at=now, instance_id="48000099")
    rows.store.close()
    stray = UnknownInstance(
        provider="vastai", instance_id="4711", account_id=None, label="gpuwatch-x", first_listed_at=now
    )
    SqlLaunchRepository(house.store).add_unknown_instance(stray)
    (house.shell.folder / "train.toml").write_text(
        'command = "true"\nresources = { gpu = "H100" }\nlimit = { max_usd = 10 }\n'
    )
    assert house.shell("job", "submit", "train.toml").code == 0
    job = SqlJobRepository(house.store).find_job("train")
    assert job is not None
    moved(load_settings(None), job, [JobState.FAILED], now, reason="out of memory", ended_at=now)
    with house.store.write() as connection:
        save_breaker(connection, CircuitBreaker(watch="h100", at=now, until=now + timedelta(hours=1), why="3 failed"))
    with SqlDecisionStore(house.store).open() as uow:
        outage = ProviderHealth(blind_since=now - timedelta(minutes=42), last_error="HTTP 502")
        uow.save_health("vastai", "hunt", outage)
    return quote


def test_nothing_is_said_in_a_line(house: House) -> None:
    ran = house.shell("status")
    assert ran.code == 0
    assert ran.out.startswith("Nothing needs you; nothing runs ($0.00 today, $0.00 this month).\n")
    assert house.shell("status", "--json").json["needs_you"] == []


def test_alerts_that_reach_nobody_are_named(house: House) -> None:
    silent = "no channel is configured: alerts appear only in `gpuwatch alerts`"
    assert silent in house.shell("status").out
    assert house.shell("status", "--json").json["channels"] == []
    file = house.shell.folder / "gpuwatch.toml"
    file.write_text(f'{file.read_text()}\n[notify.webhook]\nurl = "http://127.0.0.1:9/"\nsecret = "0123456789abcdef"\n')
    assert silent not in house.shell("status").out
    assert house.shell("status", "--json").json["channels"] == ["webhook"]


def test_what_needs_the_owner_comes_first_with_its_command(house: House) -> None:
    quote = _everything_at_once(house)
    json = house.shell("status", "--json").json
    assert [need["kind"] for need in json["needs_you"]] == KINDS
    commands = {need["kind"]: need["command"] for need in json["needs_you"]}
    assert commands == {
        "held": f"gpuwatch launches resolve {HELD} --absent",
        "unknown_instance": "gpuwatch launches adopt 4711 --provider vastai",
        "approval": f"gpuwatch approvals approve {quote}",
        "breaker": "gpuwatch watches resume h100",
        "job": "gpuwatch jobs show train",
    }
    assert {launch["launch_id"] for launch in json["launches"]} == {HELD, RUNS}
    assert (json["burn_usd_hour"], [watch["name"] for watch in json["watches"]]) == (7.2, ["h100"])
    (down,) = json["providers_down"]
    assert (down["provider"], down["status"], down["reason"]) == ("vastai", "blind", "HTTP 502")
    lines = house.shell("status").out.splitlines()
    assert lines[0].startswith("5 things need you; 2 launches are active at $7.20/h (")
    assert lines[1] == f"  launch {HELD} is held: check at vastai whether its instance exists"
    assert lines[2] == f"    gpuwatch launches resolve {HELD} --absent"
    assert any(line.startswith("down: vastai, not answering since ") for line in lines)


def test_the_chat_says_the_same(house: House) -> None:
    _everything_at_once(house)
    context = ChatContext(
        settings=load_settings(None), signer=ButtonSigner(b"secret", "chat", lambda: "abc123"), now=real_now()
    )
    lines = ["".join(piece.text for piece in line.pieces) for line in chat_status(context, "").lines]
    assert f"Needs you: launch {HELD} is held: check at vastai whether its instance exists" in lines
    assert "Needs you: job train failed: out of memory" in lines
    assert "Approvals: 1 pending: /approve" in lines
    assert "Launches: 2 active, $7.20/h" in lines
    assert any(line.startswith("vastai: not answering since ") for line in lines)


def test_without_a_store_it_cannot_tell(shell: Shell) -> None:
    assert shell("status").code == 3
