"""`gpuwatch launches`, `launches resolve` and `stop`, against the embedded marketplace, without a daemon."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import gpuwatch
from gpuwatch.bootstrap import http_client, real_now
from gpuwatch.bootstrap.settings_loading import load_settings
from gpuwatch.domain.launches.instances.end_rules import late_start, overdue
from gpuwatch.domain.launches.launch import InstanceCondition, Intent, Launch, LaunchState
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.watch import Action
from gpuwatch.emulator import Marketplace
from gpuwatch.ports import Order
from gpuwatch.providers import build
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.setup.database import Database
from tests.builders import a_match, a_watch, an_offer
from tests.cli.conftest import Shell
from tests.reserving import launch_or_refusal
from tests.upgraded_store import open_upgraded

S = LaunchState
FIELDS = {
    "launch_id", "watch", "provider", "offer_id", "instance_id", "state", "dry_run", "label", "price_usd_hour",
    "requested_at", "running_at", "ended_at", "end_reason", "cost_usd",
}  # fmt: skip
BEGAN = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
ID = "abcdefghijkl"


class Rows:
    """The launches behind the commands."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder}/gpuwatch.db"
        self.store: Database = open_upgraded(self.url)
        self.repository = SqlLaunchRepository(self.store)

    def reserve(
        self,
        launch_id: str = ID,
        dry_run: bool = False,
        action: Action = Action.LAUNCH,
        command: tuple[str, ...] = (),
        **offer: Any,
    ) -> Launch:
        watch = a_watch(action=action, command=command, launch=LaunchSpec(max_active=5, max_total=0))
        intent = Intent(watch=watch, match=a_match(an_offer(**offer)), launch_id=launch_id, dry_run=dry_run)
        with self.store.write() as connection:
            launch = launch_or_refusal(connection, intent, Budget(), BEGAN)
        assert isinstance(launch, Launch)
        return launch

    def move(self, launch: Launch, state: LaunchState, **changes: Any) -> Launch:
        return self.repository.transition(launch, state, "a test", BEGAN, **changes)

    def state(self, launch_id: str = ID) -> LaunchState:
        found = self.repository.get(launch_id)
        assert found is not None
        return found.state


@pytest.fixture
def rows(shell: Shell) -> Any:
    shell.settings(f'database_url = "sqlite:///{shell.folder}/gpuwatch.db"\n')
    made = Rows(shell.folder)
    yield made
    made.store.close()


@pytest.fixture
def key(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set after the shell has cleared the environment."""
    monkeypatch.setenv("VAST_API_KEY", "demo-key")


def rent(market: Marketplace, label: str) -> str:
    """Create an instance at the marketplace, without gpuwatch."""
    offer_id = str(market.publish(gpu="H100 SXM", count=1, usd_hour=2.0))
    loaded = load_settings(None)
    with http_client(loaded) as http:
        adapter = build(loaded.providers["vastai"].revealed(), http, lambda: BEGAN, lambda: 0.0)
        assert adapter.launcher is not None
        return adapter.launcher.create(Order(offer_id=offer_id, label=label, image="x/y", disk_gb=8)).instance_id


# --- launches ---------------------------------------------------------------------------------------------------------


def test_json_has_every_field_of_the_contract_and_utc_times(shell: Shell, rows: Rows) -> None:
    rows.reserve()
    ran = shell("launches", "--json")
    assert ran.code == 0
    (shown,) = ran.json
    assert set(shown) >= FIELDS
    assert (shown["state"], shown["label"].startswith(f"gpuwatch-{ID}-")) == ("requested", True)
    assert shown["requested_at"] == "2026-11-20T12:00:00Z"
    assert shown["price_usd_hour"] == 3.6


def test_the_options_of_the_group_hold_for_its_subcommands(shell: Shell, rows: Rows) -> None:
    rows.reserve()
    (shell.folder / "gpuwatch.toml").rename(shell.folder / "other.toml")
    assert shell("launches", "--config", "other.toml", "--json", "show", ID).json[-1]["to_state"] == "requested"
    assert shell("launches", "show", ID).code == 3  # another database, which does not exist


def test_a_screen_shows_the_zone_of_the_settings_and_what_befell_an_instance(shell: Shell, rows: Rows) -> None:
    shell.settings(f'database_url = "{rows.url}"\ntimezone = "Europe/Berlin"\n')
    launch = rows.move(rows.reserve(), S.STARTING, instance_id="1")
    launch = rows.move(launch, S.RUNNING, running_at=BEGAN)
    rows.move(launch, S.RUNNING, condition=InstanceCondition.OUTBID, condition_since=BEGAN)
    shown = shell("launches").out
    assert "2026-11-20 13:00:00 CET" in shown
    assert "running (outbid)" in shown
    assert "2026-11-20 13:00:00 CET" in shell("launches", "show", ID).out
    (shown,) = shell("launches", "--json").json
    assert (shown["state"], shown["condition"], shown["running_at"]) == (
        "running",
        "outbid",
        "2026-11-20T12:00:00Z",
    )


def test_nothing_rented_is_an_empty_list(shell: Shell, rows: Rows) -> None:
    assert shell("launches", "--json").json == []
    assert "no launches" in shell("launches").out


def test_a_dry_run_is_ended_and_costs_nothing(shell: Shell, rows: Rows) -> None:
    rows.reserve(dry_run=True)
    (shown,) = shell("launches", "--json").json
    assert (shown["state"], shown["dry_run"], shown["cost_usd"], shown["requested_at"]) == ("ended", True, 0, None)


def test_cost_is_price_times_time_since_it_runs(shell: Shell, rows: Rows) -> None:
    launch = rows.move(rows.reserve(), S.STARTING, instance_id="1")
    launch = rows.move(launch, S.RUNNING, running_at=BEGAN)
    launch = rows.move(launch, S.STOPPING, end_reason="idle")
    rows.move(launch, S.ENDED, ended_at=BEGAN.replace(hour=14), end_reason="idle")
    (shown,) = shell("launches", "--json").json
    assert shown["cost_usd"] == pytest.approx(7.2)
    assert shown["listed_cost_usd"] == pytest.approx(6.0)


# --- stop -------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("key")
def test_stop_destroys_and_waits_until_the_list_confirms_it(shell: Shell, rows: Rows, market: Marketplace) -> None:
    launch = rows.reserve()
    instance_id = rent(market, launch.label)
    rows.move(launch, S.STARTING, instance_id=instance_id)
    ran = shell("stop", ID)
    assert (ran.code, market.ledger.alive()) == (0, ())
    assert rows.state() is S.ENDED
    assert "ended" in ran.out


@pytest.mark.usefixtures("key")
def test_stop_of_what_is_being_asked_for_ends_it_when_it_is_found(
    shell: Shell, rows: Rows, market: Marketplace
) -> None:
    rent(market, rows.reserve().label)
    assert shell("stop", ID).code == 0
    assert market.ledger.alive() == ()


@pytest.mark.usefixtures("key")
def test_stop_all_ends_every_launch(shell: Shell, rows: Rows, market: Marketplace) -> None:
    rows.move(rows.reserve(), S.STARTING, instance_id=rent(market, f"gpuwatch-{ID}"))
    assert shell("stop", "--all").code == 0
    assert rows.state() is S.ENDED
    assert shell("stop", "--all").out == "no launch is active\n"


def test_stop_of_what_is_over_says_so(shell: Shell, rows: Rows) -> None:
    rows.reserve(dry_run=True)
    ran = shell("stop", ID)
    assert (ran.code, ran.out) == (0, f"launch {ID}: ended\n")


def test_stop_without_a_key_says_what_to_end_by_hand(shell: Shell, rows: Rows) -> None:
    rows.move(rows.reserve(), S.STARTING, instance_id="4711")
    ran = shell("stop", ID)
    assert ran.code == 2
    assert "4711" in ran.err
    assert rows.state() is S.STOPPING


def test_stop_at_a_provider_that_left_the_settings_is_one_line(shell: Shell, rows: Rows) -> None:
    shell.settings(f'database_url = "{rows.url}"\n[providers.vastai]\nenabled = false\n')
    rows.move(rows.reserve(), S.STARTING, instance_id="4711")
    ran = shell("stop", ID)
    assert ran.code == 2
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("argv", [("stop",), ("stop", ID, "--all"), ("stop", "nonsense")])
def test_a_stop_that_names_nothing_is_wrong_usage(shell: Shell, rows: Rows, argv: tuple[str, ...]) -> None:
    assert shell(*argv).code == 2


# --- resolve ----------------------------------------------------------------------------------------------------------


def held(rows: Rows) -> Launch:
    return rows.move(rows.move(rows.reserve(), S.UNKNOWN), S.HELD)


def what_followed(rows: Rows) -> tuple[list[str], list[str]]:
    """The alerts and the hooks of the last change."""
    with rows.store.read() as connection:
        headlines = connection.exec_driver_sql("SELECT headline FROM alert WHERE kind <> 'audit'").scalars().all()
        hooks = connection.exec_driver_sql("SELECT event FROM hook_run").scalars().all()
    return list(headlines), list(hooks)


@pytest.mark.usefixtures("key")
def test_absent_frees_what_was_held(shell: Shell, rows: Rows) -> None:
    held(rows)
    ran = shell("launches", "resolve", ID, "--absent")
    assert (ran.code, rows.state()) == (0, S.FAILED)
    assert what_followed(rows) == (["h100: failed"], ["on_ended"])


@pytest.mark.usefixtures("key")
def test_absent_is_refused_while_the_provider_lists_the_label(shell: Shell, rows: Rows, market: Marketplace) -> None:
    instance_id = rent(market, held(rows).label)
    ran = shell("launches", "resolve", ID, "--absent")
    assert (ran.code, rows.state()) == (2, S.HELD)
    assert f"--adopt {instance_id}" in ran.err


@pytest.mark.usefixtures("key")
def test_absent_is_refused_where_somebody_wrote_behind_the_label(shell: Shell, rows: Rows, market: Marketplace) -> None:
    instance_id = rent(market, f"{held(rows).label} the night run")
    ran = shell("launches", "resolve", ID, "--absent")
    assert (ran.code, rows.state()) == (2, S.HELD)
    assert f"--adopt {instance_id}" in ran.err


def test_absent_is_the_owners_word_where_there_is_no_list(shell: Shell, rows: Rows) -> None:
    held(rows)
    assert shell("launches", "resolve", ID, "--absent").code == 0


@pytest.mark.usefixtures("key")
def test_adopt_takes_the_instance(shell: Shell, rows: Rows, market: Marketplace) -> None:
    instance_id = rent(market, held(rows).label)
    assert shell("launches", "resolve", ID, "--adopt", instance_id).code == 0
    found = rows.repository.get(ID)
    assert found is not None
    assert (found.state, found.instance_id) == (S.STARTING, instance_id)
    assert what_followed(rows) == (["h100: adopted by the owner"], [])


@pytest.mark.parametrize(
    ("state", "answer", "followed"),
    [
        (S.HELD, "--absent", (S.FAILED, ["h100: failed"], ["on_ended"])),
        (S.RUNNING, "--absent", (S.ENDED, ["h100: ended"], ["on_ended", "on_running"])),
        (S.HELD, "--adopt", (S.RUNNING, ["h100: started by its command"], ["on_running"])),
    ],
)
def test_what_a_command_rented_is_resolved_with_all_that_follows(
    shell: Shell, rows: Rows, state: LaunchState, answer: str, followed: tuple[LaunchState, list[str], list[str]]
) -> None:
    launch = rows.move(rows.reserve(action=Action.COMMAND, command=("rent",)), S.UNKNOWN)
    launch = rows.move(launch, S.HELD)
    if state is S.RUNNING:
        rows.move(launch, S.RUNNING, running_at=BEGAN, hook="on_running")
    words = ("box-1",) if answer == "--adopt" else ()
    assert shell("launches", "resolve", ID, answer, *words).code == 0
    headlines, hooks = what_followed(rows)
    assert (rows.state(), headlines, sorted(hooks)) == followed


@pytest.mark.usefixtures("key")
def test_what_was_held_for_long_has_its_time_from_its_adoption_on(
    shell: Shell, rows: Rows, market: Marketplace
) -> None:
    """Otherwise the next poll would end it as late: `ready_within` and the deadline passed while it was held."""
    instance_id = rent(market, held(rows).label)
    assert shell("launches", "resolve", ID, "--adopt", instance_id).code == 0
    found = rows.repository.get(ID)
    assert found is not None
    assert late_start(found, "", real_now()) is None
    assert overdue(found, real_now()) is None


@pytest.mark.usefixtures("key")
def test_adopt_of_what_is_not_listed_is_refused(shell: Shell, rows: Rows) -> None:
    held(rows)
    assert shell("launches", "resolve", ID, "--adopt", "1").code == 2


def test_adopt_without_a_list_cannot_tell(shell: Shell, rows: Rows) -> None:
    held(rows)
    assert shell("launches", "resolve", ID, "--adopt", "1").code == 3


@pytest.mark.usefixtures("key")
def test_adopt_of_another_launchs_instance_is_refused(shell: Shell, rows: Rows, market: Marketplace) -> None:
    held(rows)
    instance_id = rent(market, "gpuwatch-zzzzzzzzzzzz")
    assert shell("launches", "resolve", ID, "--adopt", instance_id).code == 2


def test_what_is_not_held_is_not_resolved(shell: Shell, rows: Rows) -> None:
    rows.reserve()
    assert shell("launches", "resolve", ID, "--absent").code == 2
    assert shell("launches", "resolve", ID).code == 2


def test_the_life_of_a_launch_is_shown_step_by_step(shell: Shell, rows: Rows) -> None:
    launch = rows.reserve()
    launch = rows.move(launch, S.STARTING, instance_id="7", message="[31mloading\x1b[0m <b>")
    ran = shell("launches", "show", launch.launch_id, "--json")
    assert (ran.code, [event["to_state"] for event in ran.json]) == (0, ["requested", "starting"])
    assert ran.json[1]["cause"] == "a test"
    assert (ran.json[1]["listed_usd_hour"], ran.json[1]["price_usd_hour"]) == (3.0, 3.6)
    shown = shell("launches", "show", launch.launch_id)
    assert "loading" in shown.out
    assert "\x1b" not in shown.out


def test_the_life_of_a_launch_that_is_not_there_is_a_line(shell: Shell, rows: Rows) -> None:
    ran = shell("launches", "show", "nosuch")
    assert (ran.code, ran.out) == (2, "")
    assert "there is no launch 'nosuch'" in ran.err


# --- before_stop ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("key")
@pytest.mark.parametrize("ends", ["exit 0", "echo no space; exit 1"])
def test_stop_runs_the_owners_hook_first_and_destroys_whatever_it_says(
    shell: Shell, rows: Rows, market: Marketplace, ends: str
) -> None:
    hook = f"cat > {shell.folder}/saved; {ends}"
    shell.settings(
        f'database_url = "{rows.url}"\n[[watch]]\nname = "h100"\ngpu = ["H100"]\nmax_price = 3.6\naction = "launch"\n'
        f'[watch.launch]\nimage = "x/y"\nmax_runtime = "1h"\nbefore_stop = "{hook}"\n'
    )
    launch = rows.reserve()
    instance_id = rent(market, launch.label)
    rows.move(rows.move(launch, S.STARTING, instance_id=instance_id), S.RUNNING, running_at=BEGAN)
    ran = shell("stop", ID)
    assert (ran.code, market.ledger.alive()) == (0, ())
    saved = (shell.folder / "saved").read_text()
    assert '"event":"before_stop"' in saved
    assert f'"instance_id":"{instance_id}"' in saved


def test_the_stop_of_a_launch_whose_instance_is_not_known_says_what_to_do(
    shell: Shell, rows: Rows, market: Marketplace
) -> None:
    """Three complete lists without it: it is ended if it appears, and the owner can settle it."""
    shell.settings(f'database_url = "{rows.url}"\n[providers.vastai]\napi_key = "demo-key"\n')
    launch = rows.move(rows.move(rows.reserve(), S.UNKNOWN), S.HELD)
    ran = shell("stop", launch.launch_id)
    assert ran.code == 3
    assert f"gpuwatch launches resolve {launch.launch_id} --absent" in ran.out
    assert shell("launches", "resolve", launch.launch_id, "--absent").code == 0
    assert rows.state() is S.FAILED


def test_a_list_that_fails_each_second_is_reported_once(tmp_path: Path) -> None:
    """In a process of its own: pytest's handlers would capture what a command writes to stderr."""
    (tmp_path / "gpuwatch.toml").write_text('[[watch]]\nname = "w"\ngpu = "H100"\nmax_price = 2\n')
    code = (
        "import logging, sys; from gpuwatch.app.launches import stop; from gpuwatch.cli import run;"
        " warn = logging.getLogger('gpuwatch.engine.launches.following.launch_reconciler').warning;"
        " stop.stop = lambda *_, **__: any(warn('could not list instances: 401') for _ in range(3));"
        " sys.argv = ['gpuwatch', 'stop', 'abcdefghijkl']; sys.exit(run())"
    )
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(Path(gpuwatch.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr.count("could not list instances")) == (3, 1), done.stderr
