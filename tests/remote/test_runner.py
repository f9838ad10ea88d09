"""The runner on a real machine: a command starts once, and never outlives its lease."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

from gpuwatch.domain.jobs.run_status import RunPhase, parse_files
from tests.remote.conftest import RunOnMachine, proc_file

FOR_EVER = "echo up; while :; do sleep 1; done\n"


def test_the_exit_code_and_the_output_of_a_command_are_known(run: RunOnMachine) -> None:
    """Its output, and how it ended."""
    run.prepare("echo $WORD; echo bad >&2; exit 3\n")
    run.start(env=b"export WORD='two words'\n")
    status = run.ended()
    assert (status.reason, status.exit_code, status.log) == ("exit", 3, b"two words\nbad\n")


def test_a_secret_is_in_no_file_and_on_no_command_line(run: RunOnMachine) -> None:
    """Only the command's environment has it."""
    run.prepare('test -n "$TOKEN" && echo ready; while :; do sleep 1; done\n')
    run.start(env=b"export TOKEN=hunter2secret\n")
    run.until(lambda status: status.log)
    lines = [proc_file(process, "cmdline") for process in run.machine.processes()]
    assert any(b"runner.sh" in line for line in lines)
    assert not [line for line in lines if b"hunter2" in line]
    assert not [path for path in run.machine.home.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]
    run.runner(f"stop {run.folder} over")
    run.ended()


def test_a_command_starts_once_whatever_is_repeated(run: RunOnMachine) -> None:
    """Six simultaneous starts are one run."""
    run.prepare("echo once >> count; sleep 1\n")
    with ThreadPoolExecutor(6) as pool:
        said = [answer.stdout for answer in pool.map(lambda _: run.start(), range(6))]
    run.ended()
    assert sorted(said) == [b"already\n"] * 5 + [b"started\n"]
    assert (run.work / "count").read_text() == "once\n"


def test_a_command_ends_with_its_lease(run: RunOnMachine) -> None:
    """Its children end too, including those that left its group."""
    run.prepare("setsid sleep 600 & sleep 600 & wait\n")
    run.start(lease_s=1)
    assert run.ended().reason == "lease"
    assert not run.processes()


def test_a_process_that_left_the_group_has_time_to_save_too(run: RunOnMachine) -> None:
    """SIGTERM reaches it once, and all other processes of the command."""
    saver = "trap 'echo saved >> last; exit 0' TERM; : > ready; while :; do sleep 0.1; done"
    run.prepare(f'setsid sh -c "{saver}" & while [ ! -e ready ]; do sleep 0.1; done; echo up; wait\n')
    run.start()
    run.until(lambda status: status.log)
    run.runner(f"stop {run.folder} over")
    assert run.ended().reason == "over"
    assert (run.work / "last").read_text() == "saved\n"


def test_a_renewed_lease_keeps_it_running(run: RunOnMachine) -> None:
    """The lease is a moment of the machine's own uptime."""
    for number, lease_s in enumerate((2, 10, 60), start=1):  # a slow machine gets more time
        renewed = RunOnMachine(run.machine, run.shell, run.job, number)
        renewed.prepare(FOR_EVER)
        renewed.start(lease_s=lease_s)
        first = renewed.observe()
        assert first.up_s is not None
        assert first.lease_until_s is not None
        second = renewed.observe(until=first.up_s + 500)
        assert second.lease_until_s == first.up_s + 500
        if second.up_s is not None and second.up_s < first.lease_until_s:
            break
    past = (first.lease_until_s or 0) + 1
    status = renewed.until(lambda status: status.phase is RunPhase.ENDED or (status.up_s or 0) > past, within_s=120)
    assert status.phase is RunPhase.RUNNING
    renewed.runner(f"stop {renewed.folder} over")
    assert renewed.ended().reason == "over"


def test_a_late_renewal_does_not_shorten_a_lease(run: RunOnMachine) -> None:
    """A delayed answer contains less than is already known."""
    run.prepare(FOR_EVER)
    run.start(lease_s=300)
    up_s = run.observe().up_s
    assert up_s is not None
    assert run.observe(until=up_s + 500).lease_until_s == up_s + 500
    assert run.observe(until=up_s + 100).lease_until_s == up_s + 500
    run.runner(f"stop {run.folder} over")
    run.ended()


def test_a_wrong_clock_changes_nothing(run: RunOnMachine) -> None:
    """It neither ends at once, nor runs forever."""
    run.machine.override_program("date", "echo 4000000000")
    try:
        run.prepare(FOR_EVER)
        run.start(lease_s=3)
        status = run.ended()
        assert status.reason == "lease"
        assert status.up_s is not None
        assert status.lease_until_s is not None
        assert status.up_s > status.lease_until_s > status.up_s - 600
    finally:
        (run.machine.folder / "bin/date").unlink()


def test_a_killed_runner_does_not_leave_its_command_alone(run: RunOnMachine) -> None:
    """The guard ends it without any request."""
    run.prepare(FOR_EVER)
    run.start()
    run.until(lambda status: status.log)
    os.kill(run.pid("main"), signal.SIGKILL)
    deadline = time.monotonic() + 60
    while run.processes():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert run.ended().reason == "the runner was killed"


def test_a_command_without_any_runner_is_ended_by_the_next_question(run: RunOnMachine) -> None:
    """Main process and guard were killed together."""
    run.prepare(FOR_EVER)
    run.start()
    run.until(lambda status: status.log)
    for who in ("guard", "main", "guard"):
        try:
            os.kill(run.pid(who), signal.SIGKILL)
        except ProcessLookupError:
            continue
    assert run.ended().reason == "the runner was killed"
    assert not run.processes()


def test_a_machine_that_is_slow_to_start_is_not_taken_for_dead(run: RunOnMachine) -> None:
    """Seconds may pass between the start and the first line of the runner."""
    run.machine.override_program("setsid", 'sleep 5; exec /usr/bin/setsid "$@"')
    try:
        run.prepare("echo once\n")
        run.start()
        assert run.observe().phase is not RunPhase.ENDED
        status = run.ended()
    finally:
        (run.machine.folder / "bin/setsid").unlink()
    assert (status.reason, status.exit_code, status.log) == ("exit", 0, b"once\n")


def test_a_run_that_was_taken_for_dead_does_not_start_after_all(run: RunOnMachine) -> None:
    """Its successor may already run, here or elsewhere."""
    run.machine.override_program("setsid", 'sleep 2; exec /usr/bin/setsid "$@"')
    try:
        run.prepare("touch ran\n")
        run.start()
        (run.folder / "status").write_text("phase=ended\nreason=the runner was killed\nexit=\nheartbeat=1\n")
        time.sleep(3)
        run.until(
            lambda _: not [process for process in run.machine.processes() if b"setsid" in proc_file(process, "cmdline")]
        )
    finally:
        (run.machine.folder / "bin/setsid").unlink()
    assert run.observe().reason == "the runner was killed"
    assert not (run.work / "ran").exists()


def test_a_killed_guard_is_replaced(run: RunOnMachine) -> None:
    """There are two guards again."""
    run.prepare(FOR_EVER)
    run.start()
    run.until(lambda status: status.log)
    first = run.pid("guard")
    os.kill(first, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while run.pid("guard") == first:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    run.runner(f"stop {run.folder} over")
    assert run.ended().reason == "over"


def test_a_lost_connection_ends_nothing(run: RunOnMachine) -> None:
    """The server and every session are gone; the command continues, and is found again."""
    run.prepare("echo a; sleep 1; echo b\n")
    run.start()
    run.machine.disconnect()
    run.machine.start()
    assert run.ended().log == b"a\nb\n"


def test_what_was_stopped_before_it_started_never_starts(run: RunOnMachine) -> None:
    """A delayed start is rejected by a fence."""
    run.prepare("touch ran\n")
    run.runner(f"stop {run.folder} 'another machine has it'")
    assert run.start().stdout == b"already\n"
    status = run.observe()
    assert (status.phase, status.reason) == (RunPhase.ENDED, "another machine has it")
    assert not (run.work / "ran").exists()


def test_an_older_run_neither_starts_nor_goes_on_beside_a_newer_one(run: RunOnMachine) -> None:
    """The number of a run invalidates earlier ones."""
    run.prepare(FOR_EVER)
    run.start()
    newer = RunOnMachine(run.machine, run.shell, run.job, 12)
    newer.prepare(FOR_EVER)
    newer.start()
    assert run.ended().reason == "a later run began"
    newer.until(lambda status: status.phase is RunPhase.RUNNING)
    older = RunOnMachine(run.machine, run.shell, run.job, 9)
    older.prepare(FOR_EVER)
    assert older.start().exit_code == 4
    newer.runner(f"stop {newer.folder} over")
    newer.ended()


def test_a_notice_reaches_the_command_with_time_to_save(run: RunOnMachine) -> None:
    """The provider's SIGTERM is forwarded."""
    run.prepare("trap 'echo saved > last; exit 0' TERM; echo up; while :; do sleep 0.1; done\n")
    run.start()
    run.until(lambda status: status.log)
    run.machine.preempt(30)
    assert run.ended().reason == "the machine is being stopped"
    assert (run.work / "last").read_text() == "saved\n"


def test_a_command_ends_at_its_deadline(run: RunOnMachine) -> None:
    """Whether or not gpuwatch observes it."""
    run.grace_s = 1
    run.prepare("trap '' TERM; while :; do sleep 1; done\n")
    run.start(deadline_s=1)
    assert run.ended().reason == "deadline"


def test_a_command_that_does_nothing_ends(run: RunOnMachine) -> None:
    """No output, and no GPU in use."""
    run.prepare(FOR_EVER)
    run.start(idle_s=1)
    assert run.ended().reason == "idle"


def test_a_file_that_is_gone_before_it_is_read_does_not_spoil_the_list(run: RunOnMachine) -> None:
    """A name with a line break reads like two files that are gone."""
    run.prepare("true\n")
    run.work.mkdir(parents=True, exist_ok=True)
    for name in ("a.txt", "b\nb.txt", "c.txt"):
        (run.work / name).write_text(name)
    said = run.runner(f"list {run.work} '*.txt'")
    assert said.exit_code == 0, said.stderr
    assert [file.path for file in parse_files(said.stdout.decode()).files] == ["a.txt", "c.txt"]


def test_the_end_is_known_although_the_disk_is_full(run: RunOnMachine) -> None:
    """A reserve frees space; the lease needs none."""
    run.prepare("while [ ! -e go ]; do sleep 0.1; done; exit 7\n")
    run.start()
    run.until(lambda status: status.phase is RunPhase.RUNNING)
    run.machine.override_program("mv", f'[ -e {run.folder}/reserve ] && exit 1; exec /bin/mv "$@"')
    try:
        (run.work / "go").touch()
        assert run.ended().exit_code == 7
    finally:
        (run.machine.folder / "bin/mv").unlink()
