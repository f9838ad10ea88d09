"""`gpuwatch launches extend`: a later end, in the keeper's file before the row; checked against the budgets again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.app.launches.extend import _extended_end, extend
from gpuwatch.bootstrap import real_now
from gpuwatch.domain.launches.launch import Launch, LaunchConflict, LaunchRefusal, LaunchState
from gpuwatch.domain.market.money import usd
from gpuwatch.domain.watches.launch_spec import Budget
from gpuwatch.emulator import Delays, Marketplace
from gpuwatch.errors import ProviderStateUnknown, StoreError, UsageError
from gpuwatch.ports import OutboxAlert
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.launches.obligation_file import FILE_NAME, ObligationFile
from gpuwatch.storage.setup.database import Database
from tests.domain.launches.guard_values import a_running_launch
from tests.engine.launch_world import World
from tests.process.audit import OVER, launches
from tests.process.daemon_child import Home, bargain, wait_for
from tests.web.served import settings_in

HOUR = timedelta(hours=1)
RAN = {"running", "stopping", *OVER}


class Extending(World):
    """A running launch of an hour, and the keeper's file."""

    def __init__(self, store: Database, folder: Path) -> None:
        super().__init__(store)
        self.path = folder / FILE_NAME
        self.launch = self.rent()
        self.provider.turns(state("running"))
        self.look()
        self.launch = self.row()
        self.repository = SqlLaunchRepository(store, self.file())
        self.repository.update_obligations()

    def file(self) -> ObligationFile:
        return ObligationFile(self.path, lambda: self.now)

    def row(self) -> Launch:
        found = self.repository.get(self.launch.launch_id)
        assert found is not None
        return found

    def ends(self) -> datetime | None:
        """The obligation as the keeper reads it."""
        (one,) = self.file().open_obligations()
        return one.ends_at

    def extend(self, budget: Budget = Budget()) -> Launch | LaunchRefusal:  # noqa: B008 frozen
        return self.repository.extend(self.launch, 7200.0, budget, Budget(), self.now)


def state(name: str) -> Any:
    from gpuwatch.ports import InstanceState

    return InstanceState(name)


@pytest.fixture
def world(database: Database, tmp_path: Path) -> Extending:
    return Extending(database, tmp_path)


def test_a_later_end_is_in_the_row_and_in_the_keepers_file(world: Extending) -> None:
    before = world.ends()
    assert before is not None
    assert isinstance(world.extend(), Launch)
    assert world.row().max_runtime_s == 3 * 3600.0
    assert world.ends() == before + 2 * HOUR


def test_a_budget_that_the_longer_time_would_break_refuses_it(world: Extending) -> None:
    before = world.ends()
    refused = world.extend(Budget(max_usd_day=usd(world.launch.price_microusd_hour * 2)))
    assert isinstance(refused, LaunchRefusal)
    assert (world.row(), world.ends()) == (world.launch, before)


def test_the_number_of_instances_does_not_hinder_what_runs_already(world: Extending) -> None:
    assert isinstance(world.extend(Budget(max_instances=1)), Launch)


def test_an_extension_that_somebody_else_outran_leaves_the_keeper_with_the_old_end(world: Extending) -> None:
    before = world.ends()
    world.repository.transition(world.launch, LaunchState.RUNNING, "something else", world.now)
    with pytest.raises(LaunchConflict):
        world.extend()
    assert world.ends() == before


@pytest.mark.parametrize(("conflicts", "attempts"), [(4, 5), (5, 5)])
def test_a_row_that_changes_meanwhile_is_read_again_up_to_five_times(
    world: Extending, tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch, conflicts: int, attempts: int
) -> None:
    outruns, extend_row, tried = iter(range(conflicts)), SqlLaunchRepository.extend, []

    def outrun(
        repository: SqlLaunchRepository, launch: Launch, *wanted: Any, audit: OutboxAlert
    ) -> Launch | LaunchRefusal:
        tried.append(launch)
        if next(outruns, None) is not None:
            raise LaunchConflict("changed concurrently")
        return extend_row(repository, launch, *wanted, audit=audit)

    monkeypatch.setattr(SqlLaunchRepository, "extend", outrun)
    settings = settings_in(tmp_path, database_url=database_url, has_store=False)
    if conflicts < attempts:
        assert extend(settings, world.launch.launch_id, 7200.0, actor="me").launch.max_runtime_s == 3 * 3600.0
    else:
        with pytest.raises(ProviderStateUnknown, match="keeps changing; try again"):
            extend(settings, world.launch.launch_id, 7200.0, actor="me")
    assert len(tried) == attempts


def test_without_a_line_in_the_keepers_file_it_is_not_extended(world: Extending) -> None:
    world.path.unlink()
    world.path.mkdir()
    with pytest.raises(StoreError):
        world.extend()
    assert world.row().max_runtime_s == 3600.0


@pytest.fixture
def market() -> Iterator[Marketplace]:
    with Marketplace(seed=5, key="demo-key", size=0, delays=Delays(running_s=0.1)) as opened:
        bargain(opened)
        yield opened


def running_launch(home: Home) -> Mapping[str, Any]:
    return next((launch for launch in launches(home.database_url) if launch["state"] == "running"), {})


def test_a_running_launch_lives_on_beyond_its_first_end(market: Marketplace, tmp_path: Path) -> None:
    """A slow machine needs longer for the command than the launch lives: then another one lives four times as long."""
    assert any(lives_on(market, tmp_path / str(life_s), life_s) for life_s in (8, 32, 128))


def lives_on(market: Marketplace, folder: Path, life_s: int) -> bool:
    """Extend a launch and wait beyond its first end. False: it had ended before the command came to it."""
    folder.mkdir()
    home = Home(folder, market.url, max_runtime=f"{life_s}s", ready_within=f"{life_s // 8}s")
    with home.daemon(GPUWATCH_TEST_KEEPER_AFTER="1"):
        (launch,) = wait_for(lambda: [row for row in launches(home.database_url) if row["state"] in RAN])
        ran = home.run("extend", launch["launch_id"], "--by", "1h")
        if "only a running launch can be extended" in ran.stderr:
            wait_for(lambda: not market.instances())
            return False
        assert ran.returncode == 0, ran.stderr
        assert "ends at" in ran.stdout
        assert "at most $" in ran.stdout
        began = datetime.fromtimestamp(launch["running_at_ms"] / 1000, UTC)
        wait_for(lambda: real_now() > began + timedelta(seconds=life_s + 3))
        assert len(market.instances()) == 1
    last = json.loads((folder / FILE_NAME).read_bytes().splitlines()[-1])
    assert datetime.fromisoformat(last["ends_at"]) > began + HOUR
    return True


def test_an_end_after_the_contracts_own_is_refused(market: Marketplace, tmp_path: Path) -> None:
    home = Home(tmp_path, market.url, max_runtime="1h")
    with home.daemon():
        launch = wait_for(lambda: running_launch(home))
        market.ends(int(launch["instance_id"]), after_s=7200.0)
        ran = home.run("extend", launch["launch_id"], "--by", "9h")
    assert ran.returncode == 2
    assert "its contract at" in ran.stderr


def test_a_run_of_dstack_keeps_its_end() -> None:
    """dstack's server has received its `max_duration`; a later end here would never be kept."""
    with pytest.raises(UsageError, match="max_duration"):
        _extended_end(a_running_launch(provider="dstack", max_runtime_s=3600.0), 600.0)


def test_what_is_over_cannot_be_extended(market: Marketplace, tmp_path: Path) -> None:
    home = Home(tmp_path, market.url, max_runtime="1h")
    with home.daemon():
        launch = wait_for(lambda: running_launch(home))
    home.run("stop", launch["launch_id"])
    ran = home.run("extend", launch["launch_id"], "--by", "1h")
    assert ran.returncode == 2
    assert "only a running launch can be extended" in ran.stderr
