"""The keeper's file on a real disk: torn, replaced, deleted, read during writes."""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gpuwatch.bootstrap import real_now
from gpuwatch.domain.launches.launch import Intent, Launch, LaunchState, new_launch
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.watch import Action
from gpuwatch.errors import StoreError
from gpuwatch.storage.launches.keeper_mark import KeeperMark, is_keeper_alive, mark_path
from gpuwatch.storage.launches.obligation_file import FILE_NAME, ObligationFile, obligation_path
from tests.builders import a_match, a_watch, changed

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def a_launch(launch_id: str = "a" * 12, **changes: object) -> Launch:
    watch = a_watch(action=Action.LAUNCH, launch=LaunchSpec(max_runtime_s=3600.0, ready_within_s=900.0))
    intent = Intent(watch=watch, match=a_match(), launch_id=launch_id, dry_run=False)
    return changed(new_launch(intent, 0, NOON), **changes)  # type: ignore[no-any-return]


def file_in(folder: Path) -> ObligationFile:
    return ObligationFile(folder / FILE_NAME, lambda: NOON)


def opened(folder: Path) -> dict[str, str | None]:
    """Return the file as a new process reads it: the instance by launch."""
    return {obligation.launch_id: obligation.instance_id for obligation in file_in(folder).open_obligations()}


def test_an_order_is_in_the_file_before_it_is_sent(tmp_path: Path) -> None:
    file_in(tmp_path).record_order(a_launch(), 0.0)
    assert opened(tmp_path) == {"a" * 12: None}
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600


def test_a_dry_run_leaves_nothing(tmp_path: Path) -> None:
    file_in(tmp_path).record_order(a_launch(dry_run=True), 0.0)
    assert opened(tmp_path) == {}


def test_it_follows_a_launch_to_its_end(tmp_path: Path) -> None:
    writer, reader = file_in(tmp_path), file_in(tmp_path)
    launch = a_launch()
    writer.record_order(launch, 0.0)
    writer.record_changes([changed(launch, instance_id="4711", state=LaunchState.STARTING, version=1)])
    assert [obligation.instance_id for obligation in reader.open_obligations()] == ["4711"]
    writer.record_changes([changed(launch, instance_id="4711", state=LaunchState.ENDED, version=2)])
    assert reader.open_obligations() == ()


def test_what_did_not_change_is_not_written_again(tmp_path: Path) -> None:
    writer = file_in(tmp_path)
    writer.record_changes([a_launch()])
    before = (tmp_path / FILE_NAME).read_bytes()
    writer.record_changes([changed(a_launch(), version=1)])
    assert (tmp_path / FILE_NAME).read_bytes() == before


def test_a_line_after_a_torn_one_is_whole(tmp_path: Path) -> None:
    file_in(tmp_path).record_order(a_launch(), 0.0)
    with (tmp_path / FILE_NAME).open("ab") as file:
        file.write(b'{"v":1,"launch_id":"bbb')
    file_in(tmp_path).record_order(a_launch("c" * 12), 0.0)
    assert set(opened(tmp_path)) == {"a" * 12, "c" * 12}


def test_a_file_that_is_gone_is_still_known_to_who_read_it(tmp_path: Path) -> None:
    writer, reader = file_in(tmp_path), file_in(tmp_path)
    writer.record_order(a_launch(), 0.0)
    assert len(reader.open_obligations()) == 1
    (tmp_path / FILE_NAME).unlink()
    assert len(reader.open_obligations()) == 1
    writer.record_changes([a_launch()])  # and comes back as soon as the rows are read
    assert set(opened(tmp_path)) == {"a" * 12}


def test_a_compaction_keeps_what_is_open(tmp_path: Path) -> None:
    writer = file_in(tmp_path)
    writer.record_order(a_launch(), 0.0)
    writer.record_order(a_launch("b" * 12), 0.0)
    writer.record_changes([changed(a_launch("b" * 12), state=LaunchState.FAILED, version=1)])
    writer.compact()
    assert (tmp_path / FILE_NAME).read_bytes().count(b"\n") == 1
    assert set(opened(tmp_path)) == {"a" * 12}
    assert os.listdir(tmp_path) == [FILE_NAME]


def test_a_line_that_is_being_written_is_not_lost_to_a_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system may show a line that spans two pages in two parts, and its writer may be done before the rename."""
    for launch_id in ("a" * 12, "b" * 12):
        file_in(tmp_path).record_order(a_launch(launch_id), 0.0)
    cuts = [-20, None]  # the first look finds the last line half written

    def read_from(handle: int, offset: int) -> bytes:
        return os.pread(handle, 1 << 20, offset)[: cuts.pop(0) if cuts else None]

    with monkeypatch.context() as patched:
        patched.setattr("gpuwatch.storage.launches.obligation_file._read_from", read_from)
        file_in(tmp_path).compact()
    assert not cuts
    assert set(opened(tmp_path)) == {"a" * 12, "b" * 12}


def test_no_line_is_lost_to_a_compaction_of_another_process(tmp_path: Path) -> None:
    """Two processes on one file: one appends, the other compacts repeatedly.

    It pauses for a millisecond, or a busy machine lets it replace the file at each try of one append, which is refused.
    """
    done = threading.Event()

    def compact() -> None:
        while not done.wait(0.001):
            file_in(tmp_path).compact()

    other = threading.Thread(target=compact)
    other.start()
    ids = [f"{'a' * 10}{first}{second}" for first in "abcdefghijklmnop" for second in "abcdefghijklmnop"]
    writer = file_in(tmp_path)
    try:
        for launch_id in ids:
            writer.record_order(a_launch(launch_id), 0.0)
    finally:
        done.set()
        other.join()
    assert set(opened(tmp_path)) == set(ids)


def test_an_order_is_refused_where_the_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).mkdir()
    with pytest.raises(StoreError, match=r"cannot (read|write)"):
        file_in(tmp_path).record_order(a_launch(), 0.0)
    file_in(tmp_path).record_changes([a_launch()])  # a copy that cannot be written delays nothing


def test_a_later_end_is_in_the_file_first(tmp_path: Path) -> None:
    writer = file_in(tmp_path)
    writer.record_order(a_launch(), 0.0)
    writer.record_extension(changed(a_launch(), max_runtime_s=7200.0, version=1))
    found = file_in(tmp_path).open_obligations()
    assert [one.ends_at for one in found] == [NOON + timedelta(seconds=7200 + 900)]


def test_a_row_of_a_restored_backup_moves_no_end_later(tmp_path: Path) -> None:
    """The backup was made before the instance ran: its `max_runtime` would start again."""
    writer, running = file_in(tmp_path), {"state": LaunchState.RUNNING, "instance_id": "4711"}
    writer.record_order(a_launch(), 0.0)
    writer.record_changes([a_launch(**running, requested_at=NOON, running_at=NOON, version=2)])
    writer.record_changes([a_launch(**running, running_at=NOON + timedelta(minutes=10), version=3)])
    writer.record_changes([a_launch(instance_id="4711", state=LaunchState.STARTING, version=4)])
    assert [obligation.ends_at for obligation in writer.open_obligations()] == [NOON + timedelta(hours=1)]


def test_an_end_that_was_wanted_outlives_a_restored_backup(tmp_path: Path) -> None:
    writer, running = file_in(tmp_path), a_launch(state=LaunchState.RUNNING, instance_id="4711", running_at=NOON)
    writer.record_changes([running, changed(running, state=LaunchState.STOPPING, version=2)])
    writer.record_changes([changed(running, version=3)])
    assert [obligation.ends_at for obligation in writer.open_obligations()] == [NOON]


def test_a_launch_that_is_adopted_anew_has_an_end_of_its_own(tmp_path: Path) -> None:
    writer, later = file_in(tmp_path), NOON + timedelta(hours=2)
    writer.record_order(a_launch(), 0.0)
    writer.record_changes([a_launch(intended_at=later, requested_at=later, version=1)])
    assert [obligation.ends_at for obligation in writer.open_obligations()] == [later + timedelta(seconds=3600 + 900)]


def test_it_lies_beside_the_database_or_in_the_state_folder(tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert obligation_path(f"sqlite:///{tmp_path}/gpuwatch.db", lambda: state) == (tmp_path / FILE_NAME).resolve()
    assert obligation_path("postgresql+psycopg://x@host/db", lambda: state) == state / FILE_NAME


def test_what_the_keeper_closed_is_watched_until_it_is_back_or_a_week_has_passed(tmp_path: Path) -> None:
    daemon, keeper = file_in(tmp_path), file_in(tmp_path)
    launch = a_launch(instance_id="4711", state=LaunchState.STARTING, version=3)
    daemon.record_changes([launch])
    keeper.close(keeper.open_obligations()[0])
    daemon.record_changes([launch])  # its row has not changed: it opens nothing
    file_in(tmp_path).compact()
    again = file_in(tmp_path)
    assert (opened(tmp_path), again.open_obligations()) == ({}, ())
    (one,) = again.recently_closed(NOON - timedelta(days=7))
    assert (one.instance_id, again.recently_closed(NOON + timedelta(seconds=1))) == ("4711", [])
    again.reopen(one)
    assert opened(tmp_path) == {"a" * 12: "4711"}
    again.open_obligations()
    assert again.recently_closed(NOON) == []
    daemon.record_changes([changed(launch, state=LaunchState.ENDED, version=5)])
    assert opened(tmp_path) == {}


def test_a_later_change_of_its_row_ends_the_watching(tmp_path: Path) -> None:
    """The daemon works again, and follows it by its row."""
    daemon, keeper = file_in(tmp_path), file_in(tmp_path)
    launch = a_launch(instance_id="4711", state=LaunchState.STARTING, version=3)
    daemon.record_changes([launch])
    keeper.close(keeper.open_obligations()[0])
    daemon.record_changes([changed(launch, state=LaunchState.STOPPING, version=4)])
    assert [obligation.is_ending for obligation in keeper.open_obligations()] == [True]
    assert keeper.recently_closed(NOON) == []


def test_what_is_opened_again_keeps_its_end_and_the_key_that_can_end_it(tmp_path: Path) -> None:
    """The row had changed without a new line before the keeper closed it: the file's line was older."""
    daemon = ObligationFile(tmp_path / FILE_NAME, lambda: NOON, lambda launch: "f" * 16)
    launch = a_launch(instance_id="4711", state=LaunchState.RUNNING, requested_at=NOON, running_at=NOON, version=2)
    daemon.record_order(launch, 0.0)
    keeper = file_in(tmp_path)
    keeper.close(keeper.open_obligations()[0])
    daemon.record_changes([changed(launch, running_at=NOON + timedelta(minutes=10), version=4)])
    (one,) = keeper.open_obligations()
    assert (one.key_hash, one.ends_at) == ("f" * 16, NOON + timedelta(hours=1))


def test_after_a_week_a_compaction_leaves_it_out(tmp_path: Path) -> None:
    keeper = file_in(tmp_path)
    keeper.record_changes([a_launch(instance_id="4711")])
    keeper.close(keeper.open_obligations()[0])
    ObligationFile(tmp_path / FILE_NAME, lambda: NOON + timedelta(days=8)).compact()
    assert (tmp_path / FILE_NAME).read_bytes() == b""


def test_an_extension_by_another_host_is_in_the_file_with_the_next_row(tmp_path: Path) -> None:
    writer, running = file_in(tmp_path), {"state": LaunchState.RUNNING, "instance_id": "4711", "running_at": NOON}
    writer.record_changes([a_launch(**running, version=2)])
    writer.record_changes([a_launch(**running, max_runtime_s=5400.0, ready_within_s=7200.0, version=3)])
    assert [one.ends_at for one in writer.open_obligations()] == [NOON + timedelta(minutes=90)]
    writer.record_changes([a_launch(**running, version=4)])  # a backup from before the extension
    assert [one.ends_at for one in writer.open_obligations()] == [NOON + timedelta(hours=1)]


def test_an_extension_after_a_restored_backup_is_in_the_file(tmp_path: Path) -> None:
    """Its row is numbered lower than the file's line."""
    writer, running = file_in(tmp_path), a_launch(state=LaunchState.RUNNING, instance_id="4711", running_at=NOON)
    writer.record_changes([changed(running, version=9)])
    writer.record_extension(changed(running, max_runtime_s=4000.0, version=4))
    assert [one.ends_at for one in writer.open_obligations()] == [NOON + timedelta(seconds=4000)]
    writer.record_changes([changed(running, max_runtime_s=4400.0, version=5)])  # by another host
    assert [one.ends_at for one in file_in(tmp_path).open_obligations()] == [NOON + timedelta(seconds=4400)]


def test_a_line_of_an_older_gpuwatch_is_no_proof_of_an_extension(tmp_path: Path) -> None:
    writer, running = file_in(tmp_path), a_launch(state=LaunchState.RUNNING, instance_id="4711", running_at=NOON)
    writer.record_changes([running])
    path = tmp_path / FILE_NAME
    path.write_bytes(path.read_bytes().replace(b',"runtime_s":3600.0', b""))
    writer = file_in(tmp_path)
    writer.record_changes([changed(running, max_runtime_s=7200.0, version=1)])
    assert [one.ends_at for one in writer.open_obligations()] == [NOON + timedelta(hours=1)]


def test_a_keeper_is_alive_while_its_process_holds_the_mark_and_touches_it(tmp_path: Path) -> None:
    file = tmp_path / FILE_NAME
    assert not is_keeper_alive(file, real_now())
    mark, other = KeeperMark(file), KeeperMark(file)
    mark.touch(0.0)
    other.touch(0.0)  # daemons may share a state folder
    mark.close()
    assert is_keeper_alive(file, real_now())
    os.utime(mark_path(file), (0, 0))  # the process lives, and hangs
    assert not is_keeper_alive(file, real_now())
    other.touch(10.0)
    assert is_keeper_alive(file, real_now())
    mark_path(file).unlink()
    other.touch(20.0)
    assert is_keeper_alive(file, real_now())
    other.close()
    assert not is_keeper_alive(file, real_now())
