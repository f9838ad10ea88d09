"""`gpuwatch launches adopt` and `gpuwatch launches stop --all`: provably own instances, and others."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from datetime import timedelta

import pytest

from gpuwatch.bootstrap import real_now
from gpuwatch.domain.launches.launch import Launch
from gpuwatch.emulator import Marketplace
from gpuwatch.ports import AlertKind
from tests.cli.conftest import Shell
from tests.cli.launches.test_launches import ID, Rows, S, key, rent, rows
from tests.outbox import new_alerts

__all__ = ["key", "rows"]
pytestmark = pytest.mark.usefixtures("key")
WATCHES = """
[notify.telegram]
bot_token = "1:abc"
chat_id = "7"
[[watch]]
name = "trains"
gpu = ["H100"]
max_price = 3.6
action = "launch"
[watch.launch]
max_runtime = "5h"
[[watch]]
name = "looks"
gpu = ["A100"]
max_price = 1.0
"""
FOREIGN_INSTANCE = "zzzzzzzzzzzz"


@pytest.fixture(autouse=True)
def _watches(shell: Shell, rows: Rows) -> None:
    shell.settings(f'database_url = "{rows.url}"\n' + WATCHES)


def adopted(rows: Rows) -> Launch:
    (launch,) = rows.repository.alive()
    return launch


# --- adopt ------------------------------------------------------------------------------------------------------------


def test_an_adopted_instance_is_a_launch_with_price_and_deadline_from_now(
    shell: Shell, rows: Rows, market: Marketplace
) -> None:
    instance_id = rent(market, f"gpuwatch-{FOREIGN_INSTANCE}")
    ran = shell("adopt", instance_id)
    assert ran.code == 0, ran.err
    launch = adopted(rows)
    assert (launch.launch_id, launch.instance_id, launch.state, launch.watch) == (
        FOREIGN_INSTANCE,
        instance_id,
        S.STARTING,
        "trains",
    )
    assert launch.price_microusd_hour == round(launch.listed_microusd_hour * 1.2) > 2_000_000
    assert launch.max_runtime_s == 5 * 3600
    assert abs(launch.intended_at - real_now()) < timedelta(minutes=1)


def test_it_is_reported(shell: Shell, rows: Rows, market: Marketplace) -> None:
    shell("adopt", rent(market, f"gpuwatch-{FOREIGN_INSTANCE}"))
    (alert,) = (one for one in new_alerts(rows.store) if one.kind is not AlertKind.AUDIT)
    assert (alert.kind, alert.headline) == (AlertKind.RENT, "trains: adopted")


def test_what_was_adopted_can_be_stopped(shell: Shell, market: Marketplace) -> None:
    shell("adopt", rent(market, f"gpuwatch-{FOREIGN_INSTANCE}"))
    assert shell("stop", FOREIGN_INSTANCE).code == 0
    assert market.ledger.alive() == ()


def test_another_watch_may_be_named_and_a_slip_is_refused(shell: Shell, rows: Rows, market: Marketplace) -> None:
    instance_id = rent(market, f"gpuwatch-{FOREIGN_INSTANCE}")
    assert shell("adopt", instance_id, "--watch", "lok").code == 2
    assert shell("adopt", instance_id, "--watch", "looks").code == 0
    assert adopted(rows).watch == "looks"


def test_without_a_watch_that_rents_it_says_so(shell: Shell, rows: Rows, market: Marketplace) -> None:
    watches = "".join(f'[[watch]]\nname = "{name}"\ngpu = "H100"\nmax_price = 1\n' for name in ("trains", "looks"))
    shell.settings(f'database_url = "{rows.url}"\n{watches}')
    ran = shell("adopt", rent(market, f"gpuwatch-{FOREIGN_INSTANCE}"))
    choose = "choose the one whose limits apply: --watch NAME; watches: trains, looks"
    assert (ran.code, ran.err) == (2, f"no watch rents; {choose}\n")


def test_a_label_whose_launch_is_over_gets_a_new_launch(shell: Shell, rows: Rows, market: Marketplace) -> None:
    ended = {"ended_at": real_now(), "end_reason": "gone at the provider"}
    rows.move(rows.move(rows.reserve(), S.STARTING, instance_id="1"), S.ENDED, **ended)
    assert shell("adopt", rent(market, f"gpuwatch-{ID}")).code == 0
    assert adopted(rows).launch_id != ID
    assert adopted(rows).label == f"gpuwatch-{ID}"


def test_an_instance_of_a_launch_or_without_our_label_is_not_adopted(
    shell: Shell, rows: Rows, market: Marketplace
) -> None:
    foreign = rent(market, "somebody-else")
    assert "no label" in shell("adopt", foreign).err
    instance_id = rent(market, f"gpuwatch-{ID}")
    launch = rows.move(rows.reserve(), S.UNKNOWN)
    assert f"resolve {ID} --adopt" in shell("adopt", instance_id).err
    rows.move(launch, S.STARTING, instance_id=instance_id)
    assert [shell("adopt", one).code for one in (foreign, instance_id, "99999")] == [2, 2, 2]
    assert len(rows.repository.all()) == 1


def test_without_a_list_nothing_is_adopted(shell: Shell, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VAST_API_KEY")
    assert shell("adopt", "1").code == 3
    assert rows.repository.all() == []


def test_what_is_not_mine_is_noted_and_left_alone(shell: Shell, rows: Rows, market: Marketplace) -> None:
    instance_id = rent(market, f"gpuwatch-{FOREIGN_INSTANCE}")
    assert shell("adopt", instance_id, "--not-mine").code == 0
    assert rows.repository.known_foreign_instances("vastai") == {instance_id}
    assert shell("adopt", "99999", "--not-mine").code == 2
    assert shell("adopt", instance_id, "--not-mine", "--watch", "trains").code == 2
    assert len(market.ledger.alive()) == 1


# --- stop --all -------------------------------------------------------------------------------------------------------


def test_stop_all_lists_what_it_ends_and_leaves_foreign_instances_alone(
    shell: Shell, rows: Rows, market: Marketplace
) -> None:
    rows.move(rows.reserve(), S.STARTING, instance_id=rent(market, f"gpuwatch-{ID}"))
    foreign_instance, foreign = rent(market, f"gpuwatch-{FOREIGN_INSTANCE}"), rent(market, "somebody-else")
    ran = shell("stop", "--all")
    assert ran.code == 0, ran.err
    assert ("3.600" in ran.out, ID in ran.out) == (True, True)
    assert f"not touched: instance {foreign_instance}" in ran.err
    assert foreign not in ran.err
    assert rows.state() is S.ENDED
    assert len(market.ledger.alive()) == 2


def test_stop_all_ends_the_rest_when_one_provider_has_no_key(shell: Shell, rows: Rows, market: Marketplace) -> None:
    rows.move(rows.reserve(), S.STARTING, instance_id=rent(market, f"gpuwatch-{ID}"))
    elsewhere = rows.reserve("b" * 12, offer_id="2", provider="runpod")
    rows.move(elsewhere, S.STARTING, instance_id="4711")
    ran = shell("stop", "--all", "--yes")
    assert (ran.code, "4711" in ran.err) == (2, True)
    assert (rows.state(), rows.state("b" * 12)) == (S.ENDED, S.STOPPING)
    assert market.ledger.alive() == ()


@pytest.mark.parametrize(("answer", "code", "state"), [("n\n", 1, S.STARTING), ("y\n", 0, S.ENDED)])
def test_on_a_terminal_it_asks_first(
    shell: Shell, rows: Rows, market: Marketplace, answer: str, code: int, state: S
) -> None:
    rows.move(rows.reserve(), S.STARTING, instance_id=rent(market, f"gpuwatch-{ID}"))
    ours, theirs = pty.openpty()
    try:
        os.write(ours, answer.encode())
        ran = subprocess.run(
            [sys.executable, "-m", "gpuwatch", "stop", "--all"],
            stdin=theirs, capture_output=True, text=True, timeout=100, check=False, cwd=shell.folder,
        )  # fmt: skip
    finally:
        os.close(ours)
        os.close(theirs)
    assert (ran.returncode, rows.state()) == (code, state), ran.stderr
    assert "End this launch?" in ran.stderr
