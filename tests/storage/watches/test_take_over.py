"""Two owners of one database: nothing of one is the other's, until it is taken over as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, timedelta

import msgspec
import pytest
from sqlalchemy import BigInteger, insert, literal_column, select

from gpuwatch.app.jobs.jobs import owned_definition
from gpuwatch.domain.alerts.alert import Alert, AlertKind, OutboxAlert
from gpuwatch.domain.jobs.job import JobState, JobTransition, new_job
from gpuwatch.domain.jobs.job_series import due_step, new_series, run_of
from gpuwatch.domain.launches.life.owner_decisions import Pause
from gpuwatch.engine.watches.watch_lists import StandbyWatchList
from gpuwatch.errors import ResourceNotFound, UsageError
from gpuwatch.storage.alerts.outbox import Outbox
from gpuwatch.storage.alerts.pauses import SqlPauseRepository
from gpuwatch.storage.jobs.job_repository import SqlJobRepository
from gpuwatch.storage.jobs.series_repository import SqlSeriesRepository
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.setup.database import Database, open_database
from gpuwatch.storage.setup.side_tables import daemon_host, daemon_lease, delivery, watch_identity
from gpuwatch.storage.watches.running_hosts import is_unserved, leading_host
from gpuwatch.storage.watches.take_over import take_over
from gpuwatch.storage.watches.watch_identities import SqlWatchIdentities
from tests.builders import NOON
from tests.builders_jobs import a_definition
from tests.storage.watches.test_watch_identities import rented, renting

_NOW_MS = literal_column("CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)", BigInteger)
LATER = NOON + timedelta(minutes=1)


@pytest.fixture
def lab(database: Database) -> Iterator[Database]:
    """The same database, opened by the owner `lab`."""
    with closing(open_database(database.url)) as opened:
        opened.owner = "lab"
        yield opened


def in_use(database: Database) -> set[str]:
    with database.read() as connection:
        names = select(watch_identity.c.name).where(watch_identity.c.retired_at_ms.is_(None))
        return set(connection.execute(names).scalars())


def test_each_list_retires_its_own_watches_alone(database: Database, lab: Database) -> None:
    SqlWatchIdentities(database).apply([renting("h100"), renting("a100")], NOON)
    SqlWatchIdentities(lab).apply([renting("lab::h100"), renting("lab::l40")], NOON)
    assert in_use(database) == {"h100", "a100", "lab::h100", "lab::l40"}
    SqlWatchIdentities(database).apply([renting("h100")], LATER)
    SqlWatchIdentities(lab).apply([renting("lab::l40")], LATER)
    assert in_use(database) == {"h100", "lab::l40"}


def test_a_launch_of_the_other_owner_is_neither_followed_nor_abandoned(database: Database, lab: Database) -> None:
    SqlWatchIdentities(database).apply([renting("h100")], NOON)
    SqlWatchIdentities(lab).apply([renting("lab::h100")], NOON)
    own, theirs = rented(database, renting("h100"), 1), rented(lab, renting("lab::h100"), 2)
    for store, launch in ((database, own), (lab, theirs)):
        repository = SqlLaunchRepository(store)
        assert [one.launch_id for one in repository.own_alive()] == [launch.launch_id]
        assert len(repository.alive()) == 2  # an instance of the other is no unknown one
    applied = SqlWatchIdentities(database).apply([renting("new")], LATER)
    assert [one.launch_id for one in applied.abandoned] == [own.launch_id]


def test_a_pause_of_everything_is_its_owner_s(database: Database, lab: Database) -> None:
    pauses = SqlPauseRepository(database), SqlPauseRepository(lab)
    pauses[1].pause(Pause(watch=None, at=NOON, why="lab"))
    assert [[pause.why for pause in each.load().in_force(LATER)] for each in pauses] == [[], ["lab"]]
    pauses[0].resume(None, LATER, "")
    assert [pause.why for pause in pauses[1].load().in_force(LATER)] == ["lab"]


def test_what_is_taken_over_stays_paused_if_its_owner_had_paused_everything(database: Database, lab: Database) -> None:
    """Nobody who paused everything expects that another owner's list rents for them in that night."""
    SqlWatchIdentities(lab).apply([renting("lab::h100"), renting("lab::l40"), renting("lab::a100")], NOON)
    SqlWatchIdentities(database).apply([renting("h200")], NOON)
    pauses = SqlPauseRepository(lab)
    pauses.pause(Pause(watch=None, at=NOON, until=NOON + timedelta(hours=8), why="the night"))
    pauses.pause(Pause(watch="lab::l40", at=NOON, why="its own"))  # longer
    taken = take_over(database, ["h100", "l40"], previous="lab", owner="", now=LATER)
    assert taken.paused == ("h100",)
    in_force = {pause.watch: pause.why for pause in SqlPauseRepository(database).load().in_force(LATER)}
    assert in_force == {"h100": "the night", "l40": "its own"}
    assert [one.watch for one in pauses.load().in_force(LATER) if one.watch is None] == [None]  # still that of lab
    after = NOON + timedelta(hours=9)
    assert take_over(database, ["a100"], previous="lab", owner="", now=after).paused == ()


def an_alert(alert_id: str, watch: str | None) -> OutboxAlert:
    alert = Alert(alert_id=alert_id, kind=AlertKind.HELD, created_at=NOON, headline=alert_id, watch=watch)
    return OutboxAlert(alert=alert, expires_at=NOON + timedelta(days=1))


def unrouted(store: Database) -> set[str]:
    return {one.alert.alert_id for one in Outbox(store).unrouted()}


def test_an_alert_is_for_the_channels_of_its_watch_s_owner_or_of_who_says_it(database: Database, lab: Database) -> None:
    Outbox(database).enqueue(an_alert("host", None))
    Outbox(lab).enqueue(an_alert("lab-host", None))
    Outbox(database).enqueue(an_alert("lab-watch", "lab::h100"))
    Outbox(lab).enqueue(an_alert("watch", "h100"))
    assert (unrouted(database), unrouted(lab)) == ({"host", "watch"}, {"lab-host", "lab-watch"})


def test_nobody_takes_over_what_waits_for_the_channel_of_another_owner(database: Database, lab: Database) -> None:
    for store, name in ((database, "telegram"), (lab, "lab::telegram")):
        Outbox(store).enqueue(an_alert(name, None))
        Outbox(store).route({name: [name]}, NOON)
    assert Outbox(database).hand_over(["email"], NOON) == (1, 0)
    assert Outbox(lab).hand_over(["lab::telegram"], NOON) == (0, 0)
    assert [due.channel for due in Outbox(lab).lease(NOON, 9, 60, ["lab::telegram"])] == ["lab::telegram"]


def test_what_is_taken_over_has_its_launches_limits_pauses_and_unsent_alerts(database: Database, lab: Database) -> None:
    SqlWatchIdentities(lab).apply([renting("lab::h100"), renting("lab::l40")], NOON)
    first, second = rented(lab, renting("lab::h100"), 1), rented(lab, renting("lab::l40"), 2)
    SqlPauseRepository(lab).pause(Pause(watch="lab::h100", at=NOON, why="dear"))
    Outbox(lab).enqueue(an_alert("sent never", "lab::h100"))
    Outbox(lab).route({"sent never": ["lab::telegram"]}, NOON)
    with pytest.raises(ResourceNotFound, match=r"owner 'lab' has no watch 'b200'; watches: h100, l40"):
        take_over(database, ["b200"], previous="lab", owner="", now=LATER)
    taken = take_over(database, ["h100"], previous="lab", owner="", now=LATER)
    assert (taken.watches, taken.jobs, taken.active_launches) == (("h100",), (), 1)
    own = SqlLaunchRepository(database).own_alive()
    assert [(one.launch_id, one.watch, one.version) for one in own] == [(first.launch_id, "h100", first.version + 1)]
    assert [one.launch_id for one in SqlLaunchRepository(lab).own_alive()] == [second.launch_id]
    assert [pause.watch for pause in SqlPauseRepository(database).load().in_force(LATER)] == ["h100"]
    assert unrouted(database) == {"sent never"}
    with database.read() as connection:
        assert not connection.execute(select(delivery)).all()


def runs(database: Database, host: str, *, leads: bool) -> None:
    """A daemon of the owner `lab` runs there."""
    with database.write() as connection:
        seen = {"role": "main/lab", "host": host, "version": "1.0", "started_ms": 0, "seen_ms": _NOW_MS}
        connection.execute(insert(daemon_host).values(holder=f"{host} {leads}", **seen))
        if leads:
            lease = {"role": "main/lab", "epoch": 1, "since_ms": 0, "steps_down": False, "lineage": ""}
            lease |= {"holder": f"{host} {leads}", "expires_at_ms": _NOW_MS + 60_000}
            connection.execute(insert(daemon_lease).values(**lease))


def test_what_the_list_of_another_running_host_has_is_not_retired(database: Database, lab: Database) -> None:
    """Only until that host has read a list without it, or is gone."""
    if database.is_sqlite:
        return  # one daemon alone
    identities, both = SqlWatchIdentities(lab), [renting("lab::h100"), renting("lab::l40")]
    runs(lab, "a", leads=True)
    runs(lab, "b", leads=False)
    assert identities.apply(both, NOON, host="a", role="main/lab").elsewhere == {}
    applied = identities.apply(both[:1], LATER, host="b", role="main/lab")  # it leads now, with another list
    assert (applied.elsewhere, applied.changes.removed) == ({"a": ["lab::l40"]}, [])
    assert in_use(database) == {"lab::h100", "lab::l40"}
    applied = identities.apply(both[:1], LATER, host="a", role="main/lab")
    assert (applied.elsewhere, in_use(database)) == ({}, {"lab::h100"})
    identities.apply(both, LATER, host="gone", role="main/lab")
    identities.apply(both[:1], LATER, host="b", role="main/lab")
    assert in_use(database) == {"lab::h100"}


def test_a_standby_with_another_list_finds_what_differs_and_says_it_if_it_lasts(
    database: Database, lab: Database
) -> None:
    if database.is_sqlite:
        return  # one daemon alone
    identities = SqlWatchIdentities(lab)
    runs(lab, "a", leads=True)
    runs(lab, "b", leads=False)
    identities.apply([renting("lab::h100"), renting("lab::l40")], NOON, host="a", role="main/lab")
    own = [renting("lab::h100"), renting("lab::new")]
    assert identities.differences(own, "b", "main/lab") == {"a": ["lab::l40", "lab::new"]}
    standby = StandbyWatchList(identities, own, "b", "main/lab")
    standby.check(NOON)
    assert not Outbox(lab).unrouted()
    for minutes in (10, 20):
        standby.check(NOON + timedelta(minutes=minutes))
    (one,) = Outbox(lab).unrouted()
    assert one.alert.headline == "a and b have different watch lists"
    assert ("In one of the lists alone", "lab::l40, lab::new") in one.alert.facts


def test_an_owner_without_a_host_is_known_by_its_lease(database: Database, lab: Database) -> None:
    assert is_unserved(database, "main/lab")
    if not database.is_sqlite:
        runs(lab, "a", leads=True)
        assert not is_unserved(database, "main/lab")


def test_a_host_of_the_other_owner_that_leads_is_named(database: Database, lab: Database) -> None:
    if database.is_sqlite:
        return  # one daemon alone
    runs(lab, "b", leads=False)
    assert leading_host(database, "main/lab") is None
    runs(lab, "a", leads=True)
    assert (leading_host(database, "main/lab"), leading_host(database, "main")) == ("a", None)


def test_with_all_of_it_go_the_jobs(database: Database, lab: Database) -> None:
    jobs = SqlJobRepository(lab)
    open_one = new_job(owned_definition(a_definition(name="train"), "lab"), "jobaaaa2", NOON)
    ended = new_job(owned_definition(a_definition(name="done"), "lab"), "jobaaaa3", NOON)
    jobs.submit([open_one, ended])
    jobs.record(ended, JobTransition(to_state=JobState.CANCELLED, at=NOON))
    assert [job.name for job in jobs.open_jobs()] == ["lab::train"]
    assert SqlJobRepository(database).open_jobs() == []
    assert (jobs.find_job("train"), SqlJobRepository(database).find_job("train")) == (open_one, None)
    taken = take_over(database, None, previous="lab", owner="", now=LATER)
    assert taken.jobs == ("done", "train")
    (job,) = SqlJobRepository(database).open_jobs()
    assert (job.name, job.watch_name, job.definition.resources.name) == ("train", "job:train", "job:train")
    assert in_use(database) == {"job:train"}
    assert jobs.open_jobs() == []


def test_recurring_jobs_go_with_their_runs(database: Database, lab: Database) -> None:
    spec = owned_definition(a_definition(name="nightly", schedule="@daily", deadline_s=3600.0), "lab")
    series = new_series(spec, NOON, UTC)
    SqlJobRepository(lab).submit([], [series])
    step = due_step(series, series.next_at, UTC, is_open=False)
    assert step is not None
    SqlSeriesRepository(lab).record(step.after, run_of(series, step, "jobaaaa2", series.next_at, UTC), None)
    take_over(database, None, previous="lab", owner="", now=LATER)
    (moved,) = SqlSeriesRepository(database).every()
    assert (moved.name, moved.definition.name, moved.definition.schedule) == ("nightly", "nightly", "@daily")
    assert moved.definition.resources.name == "job:nightly"
    (run,) = SqlJobRepository(database).open_jobs()
    assert (run.series, run.name.partition("@")[0]) == ("nightly", "nightly")
    assert SqlSeriesRepository(lab).every() == []


def test_a_recurring_job_of_the_same_name_stays_and_nothing_moves(database: Database, lab: Database) -> None:
    spec = a_definition(name="nightly", schedule="@daily", deadline_s=3600.0)
    SqlJobRepository(database).submit([], [new_series(spec, NOON, UTC)])
    SqlJobRepository(lab).submit([], [new_series(owned_definition(spec, "lab"), NOON, UTC)])
    with pytest.raises(UsageError, match="a recurring job 'nightly' exists; end it first"):
        take_over(database, None, previous="lab", owner="", now=LATER)


def test_an_open_job_of_the_same_name_stays_and_nothing_moves(database: Database, lab: Database) -> None:
    SqlJobRepository(database).submit([new_job(a_definition(name="train"), "jobaaaa2", NOON)])
    theirs = new_job(owned_definition(a_definition(name="train"), "lab"), "jobaaaa3", NOON)
    SqlJobRepository(lab).submit([theirs])
    with pytest.raises(UsageError, match="a job 'train' is open; cancel it first"):
        take_over(database, None, previous="lab", owner="", now=LATER)
    assert msgspec.structs.asdict(SqlJobRepository(lab).open_jobs()[0]) == msgspec.structs.asdict(theirs)
