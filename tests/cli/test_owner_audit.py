"""What an owner changes by a command leaves one audit event that names the command; a repetition leaves none.

The page, the API and the chat call the same use cases; their tests are in `tests/web/` and `tests/chat/`.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence
from typing import Any

import pytest

from gpuwatch.emulator import Marketplace
from tests.cli.conftest import Shell
from tests.cli.launches.test_adopt import FOREIGN_INSTANCE
from tests.cli.launches.test_asks import House, house
from tests.cli.launches.test_launches import BEGAN, ID, Rows, S, held, key, rent, rows

__all__ = ["house", "key", "rows"]

WATCH = """
[[watch]]
name = "h100"
gpu = ["H100"]
max_price = 3.60
action = "launch"
require = ["dry_epoch"]
require_policy = "warn"
[watch.launch]
image = "x/y"
max_runtime = "1h"
"""
JOB = '\ncommand = "python train.py"\nresources = { gpu = "H100" }\nlimit = { max_usd = 10 }\n'


def audits(shell: Shell) -> list[Any]:
    return list(shell("alerts", "list", "--kind", "audit", "--json").json)


def leaves_once(shell: Shell, argv: Sequence[str], headline: str) -> None:
    """The first run leaves one event that names who ran it; the second one leaves none."""
    before = len(audits(shell))
    shell(*argv)
    new = audits(shell)[before:]
    assert [event["headline"] for event in new] == [headline], argv
    assert new[0]["facts"] == {"By": f"command line ({pwd.getpwuid(os.getuid()).pw_name})"}
    shell(*argv)
    assert len(audits(shell)) == before + 1, argv


def test_what_decides_about_watches_and_machines(shell: Shell, rows: Rows) -> None:
    shell.settings(f'database_url = "{rows.url}"\n{WATCH}')
    for argv, headline in (
        (("watches", "pause", "--why", "budget review"), "renting paused: budget review"),
        (("watches", "resume"), "renting resumed"),
        (("watches", "pause", "h100"), "watch h100 paused"),
        (("watches", "resume", "h100"), "watch h100 resumed"),
        (("watches", "checklist", "tick", "h100", "dry_epoch", "--note", "run 17"), "ticked dry_epoch of h100"),
        (("watches", "checklist", "untick", "h100", "dry_epoch"), "unticked dry_epoch of h100"),
        (("providers", "machines", "block", "48211", "--why", "slow"), "machine 48211 at vastai blocked: slow"),
        (("providers", "machines", "allow", "48211"), "machine 48211 at vastai allowed"),
    ):
        leaves_once(shell, argv, headline)
    shell("alerts", "silence", "h100", "--for", "6h")
    assert audits(shell)[-1]["headline"] == "watch h100 silenced"
    assert ", by command line (" in shell("alerts", "list", "--kind", "audit").out.splitlines()[-1]
    leaves_once(shell, ("alerts", "silence", "--end", "h100"), "silence of watch h100 ended")


def test_what_decides_about_launches(shell: Shell, rows: Rows, market: Marketplace, key: None) -> None:
    shell.settings(f'database_url = "{rows.url}"\n{WATCH}')
    held(rows)
    leaves_once(shell, ("launches", "resolve", ID, "--absent"), f"launch {ID} resolved")
    instance = rent(market, f"gpuwatch-{FOREIGN_INSTANCE}")
    adopted = f"instance {instance} at vastai adopted as launch {FOREIGN_INSTANCE}"
    leaves_once(shell, ("launches", "adopt", instance), adopted)
    launch = rows.repository.get(FOREIGN_INSTANCE)
    assert launch is not None
    if launch.state is S.STARTING:
        rows.move(launch, S.RUNNING, running_at=BEGAN)
    shell("launches", "extend", FOREIGN_INSTANCE, "--by", "2h")
    assert audits(shell)[-1]["headline"] == f"launch {FOREIGN_INSTANCE} extended by 2h"
    leaves_once(shell, ("launches", "stop", FOREIGN_INSTANCE), f"launch {FOREIGN_INSTANCE} stopped")
    other = rent(market, "gpuwatch-bcdefghijklm-abcdefgh-ijklmnop")
    marked = f"instance {other} at vastai marked as another installation's"
    leaves_once(shell, ("launches", "adopt", other, "--not-mine"), marked)


def test_what_decides_about_jobs(shell: Shell, rows: Rows) -> None:
    (shell.folder / "train.toml").write_text(JOB)
    shell("jobs", "submit", "train.toml")
    leaves_once(shell, ("jobs", "cancel", "train"), "job train cancelled")
    leaves_once(shell, ("jobs", "retry", "train"), "job train retried")


@pytest.mark.parametrize(("verb", "done"), [("approve", "approved"), ("deny", "denied")])
def test_an_answer_to_a_quote(house: House, verb: str, done: str) -> None:
    ask_id = house.fires()
    leaves_once(house.shell, ("approvals", verb, ask_id), f"approval {ask_id} {done}")
