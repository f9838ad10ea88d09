"""`gpuwatch watches`: each watch with its price, limit and distance, and why it does not act; by its name in full."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuwatch.bootstrap import real_now
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.setup.database import open_database
from tests.cli.conftest import Shell
from tests.storage.stored_answers import an_answer, an_offer

SETTINGS = """
database_url = "sqlite:///gpuwatch.db"
dry_run = false
[budget]
max_usd_hour = 2.0
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
[[watch]]
name = "cheap"
gpu = ["H100"]
max_price = 3.30
[[watch]]
name = "alerts"
gpu = ["H100"]
max_price = 3.66
"""
CONTRACT = {
    "name", "state", "best_usd_gpu_hour", "limit_usd_gpu_hour", "matched", "blocked_by", "blocked_reason",
    "last_poll_at", "next_poll_at",
}  # fmt: skip


@pytest.fixture
def world(shell: Shell) -> Shell:
    """Three watches; their offer costs 3.66 $ and was polled each hour, three times under 3.30 $."""
    shell.settings(SETTINGS)
    shell.new_store()
    now, database = real_now(), open_database(f"sqlite:///{shell.folder}/gpuwatch.db")
    for hours_ago in range(60, -1, -1):
        offer = an_offer("m1", 2.70 if hours_ago in {50, 49, 30, 12} else 3.05, offer_id="1")
        answer = an_answer(offer, observed_at=now - timedelta(hours=hours_ago, seconds=30))
        for lane in ("sweep", "hunt"):
            SqlHistoryRecorder(database).record(answer, lane=lane, gpu="H100 SXM", spot=False)
    database.close()
    return shell


def test_the_json_is_the_contracts(world: Shell) -> None:
    rents, cheap, alerts = world("watches", "--json").json
    assert set(rents) >= CONTRACT
    assert (rents["state"], rents["matched"], rents["best_usd_gpu_hour"]) == ("matched", True, 3.66)
    assert rents["blocked_by"] == "max_usd_hour"
    assert "max_usd_hour" in rents["blocked_reason"]
    assert rents["nearest"] is None
    assert (cheap["state"], cheap["matched"], cheap["blocked_by"]) == ("waiting", False, None)
    assert cheap["nearest"]["above_limit"] == pytest.approx(0.109091)
    assert (alerts["matched"], alerts["distance"], alerts["blocked_by"]) == (True, 0.0, None)
    assert alerts["sentence"] == "H100 SXM at $3.66/GPU-h matches, at its limit."


def test_the_list_says_in_one_line_what_there_is_and_below_it_what_blocks(world: Shell) -> None:
    lines = world("watches").out.splitlines()
    assert lines[0] == "3 watches: 1 matched, 1 matched but blocked, 1 waiting"
    assert lines[1].split() == ["watch", "state", "price", "limit", "distance", "action", "polled"]
    assert lines[3].split()[:5] == ["cheap", "waiting", "$3.660/GPU-h", "$3.300/GPU-h", "+11"]
    (reason,) = lines[5:]
    assert reason.startswith("rents: ")
    assert "max_usd_hour" in reason


def test_a_named_watch_is_shown_in_full_with_its_past(world: Shell) -> None:
    first, *facts = world("watches", "cheap").out.splitlines()
    assert first == (
        "cheap: nearest: H100 SXM, $3.66/GPU-h at vast.ai, 11 % above your limit; under it 3 times in the last 7 days"
    )
    assert "  limit         $3.30/GPU-h" in facts
    assert any(line.startswith("  polled        ") and "next " in line for line in facts)
    assert world("watches", "cheap", "--json").json[0]["nearest"]["times_under_7d"] == 3


def test_before_the_first_poll_nothing_is_claimed_of_the_market(shell: Shell) -> None:
    shell.settings(SETTINGS)
    shell.new_store()
    shown = shell("watches", "cheap").out
    assert "nothing on sale" not in shown, "unknown is not zero"
    assert "lowest match" not in shown, "a table of dashes"
    assert shown.rstrip().endswith("Nothing is recorded of this time.")


def test_it_prompts_for_nothing_and_has_the_exit_codes_of_every_command(world: Shell) -> None:
    assert world("watches").code == 0
    assert world("watches", "absent").code == 2
    (world.folder / "gpuwatch.db").unlink()
    assert world("watches").code == 3
