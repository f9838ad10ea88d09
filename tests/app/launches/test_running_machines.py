"""What runs now: cost so far and at most, its end, and a GPU that is idle."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from sqlalchemy import insert

from gpuwatch.app.alerts.needs import IDLE, needs_of_owner
from gpuwatch.app.launches.running_machines import RunningMachine, running_machines
from gpuwatch.bootstrap import open_store
from gpuwatch.domain.launches.instances.instance_checks import UtilisationSample
from gpuwatch.domain.launches.launch import Intent, Launch, LaunchState, PriceSpan, new_launch
from gpuwatch.settings import Settings
from gpuwatch.storage.launches.invoice_rows import SqlUtilisationRepository
from gpuwatch.storage.setup.launch_rows import launch_row_of
from gpuwatch.storage.setup.tables import launch as launches
from tests.builders import NOON, a_match, changed
from tests.web.served import settings_in

MICRO = 10**6
MINUTE = timedelta(minutes=1)
RENTS = """
[[watch]]
name = "cheap"
gpu = ["H100"]
max_price = 7.20
action = "ask"
[watch.launch]
max_runtime = "10h"
"""


def running(settings: Settings) -> Launch:
    intent = Intent(watch=settings.watches[0], match=a_match(), launch_id="a" * 12, dry_run=False)
    span = PriceSpan(NOON, 3 * MICRO, 3_600_000)
    launch: Launch = changed(
        new_launch(intent, 0, NOON), state=LaunchState.RUNNING, running_at=NOON, spans=(span,), instance_id="1"
    )
    with open_store(settings) as store, store.write() as connection:
        connection.execute(insert(launches), launch_row_of(launch))
    return launch


def seen(settings: Settings, launch: Launch, after: timedelta, *samples: UtilisationSample) -> RunningMachine:
    with open_store(settings) as store:
        for sample in samples:
            SqlUtilisationRepository(store).add(launch.launch_id, sample)
        (machine,) = running_machines(settings, store, [launch], NOON + after)
        needs = needs_of_owner(settings, store, [], [launch], NOON + after)
    assert (IDLE in {need.kind for need in needs}) == (machine.idle_since is not None)
    return machine


def at(minute: int, percent: float | None) -> UtilisationSample:
    return UtilisationSample(NOON + minute * MINUTE, percent)


def test_cost_bound_and_end(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, RENTS)
    machine = seen(settings, running(settings), timedelta(hours=2))
    assert (machine.cost_microusd, machine.rate_microusd_hour) == (7_200_000, 3_600_000)
    assert machine.most_microusd == 36 * MICRO + 3_600_000 // 30
    assert machine.ends_at == NOON + timedelta(hours=10)
    assert (machine.used_percent, machine.idle_since) == (None, None)


def test_an_idle_gpu_is_mentioned_after_a_third_of_the_time_until_it_ends(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, RENTS + 'idle_below = 10\nidle_for = "30m"\n')
    launch = running(settings)
    assert seen(settings, launch, 9 * MINUTE, at(0, 4.0), at(9, 4.0)).idle_since is None
    machine = seen(settings, launch, 12 * MINUTE, at(12, 3.0))
    assert (machine.used_percent, machine.idle_since, machine.idle_ends_at) == (3.0, NOON, NOON + 30 * MINUTE)
    assert seen(settings, launch, 13 * MINUTE, at(13, 95.0)).idle_since is None


def test_a_wasteful_gpu_is_mentioned_and_ends_not_for_that(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, RENTS + 'wasteful_below = 10\nwasteful_for = "10m"\n')
    machine = seen(settings, running(settings), 11 * MINUTE, at(0, 4.0), at(5, 4.0), at(11, 4.0))
    assert (machine.idle_since, machine.idle_ends_at) == (NOON, None)


def test_an_old_sample_says_nothing_about_now(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, RENTS)
    assert seen(settings, running(settings), 11 * MINUTE, at(0, 95.0)).used_percent is None
