"""Results that are missing, odd or lost: fetched, or reported before the instance goes; a success never runs again."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from gpuwatch.domain.jobs.job import Job, JobState
from gpuwatch.domain.jobs.job_values import JobFiles, JobLimit
from gpuwatch.domain.jobs.run_sample import samples_of
from gpuwatch.domain.launches.launch import EndReason, InstanceCondition, LaunchState
from tests.jobs.job_world import CHECKPOINTS, JobWorld
from tests.process.daemon_child import wait_for

OUT = (JobFiles(source="out/*", target="results"),)
NOT_FETCHED = "job train: its results cannot be fetched"
LEFT_OUT = "job train: not all of its results are files"


def _fetched(world: JobWorld) -> dict[str, str]:
    folder = world.folder / "project/results"
    return {str(one.relative_to(folder)): one.read_text() for one in folder.rglob("*") if one.is_file()}


def _facts(world: JobWorld, headline: str) -> str:
    (alert,) = [one.alert for one in world.launches.alerts.values() if one.alert.headline == headline]
    return "; ".join(value for _, value in alert.facts)


def _ran_once(world: JobWorld, job: Job) -> None:
    assert (job.state, job.run_number, list(world.machines), world.alive()) == (JobState.FAILED, 1, ["la"], [])


# --- a success is never computed again --------------------------------------------------------------------------------
def test_a_pattern_that_matches_nothing_fails_after_the_kept_hour_and_is_not_computed_again(world: JobWorld) -> None:
    """Its instance is kept for that hour although its time is over before: the owner can still log in."""
    world.submit("mkdir out; echo made > out/a.txt", results=(JobFiles(source="otu/*", target="results"),))
    world.until(lambda job: job.state is JobState.RUNNING)
    launch = world.launches.rows["la"]
    world.launches.transition(launch, LaunchState.RUNNING, "", world.now, max_runtime_s=600.0)
    world.until(lambda job: job.state is JobState.FETCHING and NOT_FETCHED in world.texts())
    assert "no file matches otu/*" in _facts(world, NOT_FETCHED)
    ended = world.run.ended_at
    assert ended is not None
    kept = world.launches.rows["la"]
    assert kept.running_at is not None
    assert kept.running_at + timedelta(seconds=kept.max_runtime_s or 0) >= ended + timedelta(hours=1)
    world.now += timedelta(minutes=50)
    world.round()
    assert (world.job.state, world.alive()) == (JobState.FETCHING, ["la"])
    world.now += timedelta(minutes=11)
    job = world.over()
    _ran_once(world, job)
    assert job.reason == "results were not fetched: no file matches otu/*"
    assert "job train: failed, its results were not fetched" in world.texts()


def test_the_kept_hour_costs_no_more_than_the_job_may(world: JobWorld) -> None:
    world.submit("true", results=OUT, limit=JobLimit(max_usd=1))  # type: ignore[arg-type]
    world.until(lambda job: job.state is JobState.RUNNING)
    world.jobs.jobs["abcdefgh"] = msgspec.structs.replace(world.job, spent_microusd=900_000)
    world.launches.transition(world.launches.rows["la"], LaunchState.RUNNING, "", world.now, max_runtime_s=60.0)
    world.until(lambda job: NOT_FETCHED in world.texts())
    assert (world.launches.rows["la"].max_runtime_s or 0) < 600, "six minutes are paid for at a dollar an hour"


@pytest.mark.parametrize("end", [EndReason.MAX_RUNTIME, EndReason.GONE, EndReason.OUTBID])
def test_an_instance_that_ends_before_its_results_are_here_is_a_failure_and_no_second_run(
    world: JobWorld, end: EndReason
) -> None:
    """The time of the launch is over, the provider destroys it, the bid is lost."""
    world.submit("true", results=OUT)
    world.until(lambda job: job.state is JobState.FETCHING)
    world.machines["la"].destroy()
    launch = world.launches.rows["la"]
    world.launches.transition(launch, LaunchState.ENDED, "", world.now, ended_at=world.now, end_reason=end.text())
    job = world.over()
    _ran_once(world, job)
    assert f"its instance ended before: {end.text()}" in (job.reason or "")
    assert "job train: failed, its results were not fetched" in world.texts()


def test_a_connection_that_is_lost_after_the_end_is_waited_for(world: JobWorld) -> None:
    """The disk still has the results, even if the provider shows the instance as offline for a while."""
    world.submit("mkdir out; echo made > out/a.txt; touch ../ended", results=OUT)
    world.until(lambda job: job.state is JobState.RUNNING)
    world.until(lambda job: (world.work().parent / "ended").exists() and job.state is JobState.FETCHING)
    world.machine.disconnect()
    launch = world.launches.rows["la"]
    away = {"condition": InstanceCondition.OFFLINE, "condition_since": world.now}
    world.launches.transition(launch, LaunchState.RUNNING, "", world.now, **away)
    for _ in range(3):
        world.now += timedelta(minutes=10)
        assert world.round().state is JobState.FETCHING
    assert world.alive() == ["la"]
    world.machine.start()
    assert world.over().state is JobState.DONE
    assert _fetched(world) == {"a.txt": "made\n"}


def test_a_success_that_nobody_saw_before_the_instance_must_end_is_not_computed_again(world: JobWorld) -> None:
    """gpuwatch was away; when it is back, the end of the instance has been ordered."""
    world.submit("mkdir out; echo made > out/a.txt; while [ ! -e ../go ]; do sleep 0.1; done", results=OUT)
    world.until(lambda job: job.state is JobState.RUNNING)
    (world.work().parent / "go").touch()
    world.stays.add("la")
    world.restarted()
    world.launches.transition(world.launches.rows["la"], LaunchState.STOPPING, "", world.now, end_reason="max_runtime")
    status = world.machine.home / "gpuwatch/abcdefgh/runs/1/status"
    wait_for(lambda: status.exists() and "phase=ended" in status.read_text())
    world.until(lambda job: job.state is JobState.FETCHING or job.is_over)
    world.stays.clear()
    assert world.over().state is JobState.DONE
    assert (_fetched(world), world.run.run_number) == ({"a.txt": "made\n"}, 1)


def test_a_restart_between_the_end_and_the_results_computes_nothing_again(world: JobWorld) -> None:
    world.submit("mkdir out; echo made > out/a.txt", results=OUT)
    world.until(lambda job: job.state is JobState.FETCHING)
    world.restarted()
    job = world.over()
    assert (job.state, job.run_number) == (JobState.DONE, 1)


# --- links, names, and other kinds ----------------------------------------------------------------------------------
def test_links_to_files_in_the_work_folder_are_fetched_as_files(world: JobWorld) -> None:
    world.submit(
        "mkdir -p out models/real; echo weights > models/real/model.bin; ln -s ../models/real/model.bin out/model.bin;"
        ' ln -s "$PWD/models/real/model.bin" out/absolute.bin; ln -s model.bin out/again.bin',
        results=OUT,
    )
    assert world.over().state is JobState.DONE
    assert _fetched(world) == dict.fromkeys(("model.bin", "absolute.bin", "again.bin"), "weights\n")
    assert world.texts() == ["job train: finished"]


@pytest.mark.parametrize(
    ("made", "fault"),
    [
        ("ln -s /etc/hostname out/host", "links to files outside of the work folder: 1, such as out/host"),
        ("mkdir other; touch other/x; ln -s ../other out/other", "links to folders that no pattern names: 1, such as"),
        (r"echo b > out/$(printf 'n\nl')", "names cannot be used here: 1, such as out/n"),
        (r"echo b > out/$(printf '\377x')", "names cannot be used here: 1"),
        ("echo b > 'out/back\\slash'", "names cannot be used here: 1"),
    ],
)
def test_content_that_is_not_fetched_is_reported_while_the_instance_is_there(
    world: JobWorld, made: str, fault: str
) -> None:
    """At once: waiting changes nothing. Everything else is fetched."""
    world.submit(f"mkdir out; echo a > out/a.txt; {made}", results=OUT)
    world.until(lambda job: NOT_FETCHED in world.texts())
    assert fault in _facts(world, NOT_FETCHED)
    assert world.alive() == ["la"]
    assert _fetched(world) == {"a.txt": "a\n"}
    world.now += timedelta(minutes=61)
    job = world.over()
    _ran_once(world, job)
    assert fault in (job.reason or "")
    assert [one["path"] for one in world.run.results] == ["out/a.txt"]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("ln -s nowhere out/broken", "out/broken (a link that leads nowhere)"),
        ("ln -s loop out/loop", "out/loop (a link that leads nowhere)"),
        ("mkfifo out/pipe", "out/pipe (no regular file)"),
        ("mkdir out/nothing", "out/nothing (an empty folder)"),
        ("echo x > out/.hidden", "out/.hidden (hidden: no pattern names it)"),
    ],
)
def test_what_has_no_content_is_reported_before_the_instance_goes_and_keeps_it_no_longer(
    world: JobWorld, made: str, said: str
) -> None:
    world.submit(f"mkdir out; echo a > out/a.txt; {made}", results=OUT)
    world.stays.add("la")
    world.until(lambda job: LEFT_OUT in world.texts())
    assert said in _facts(world, LEFT_OUT)
    assert world.alive() == ["la"]
    world.stays.clear()
    assert world.over().state is JobState.DONE
    assert _fetched(world) == {"a.txt": "a\n"}


def test_odd_names_that_can_be_used_are_fetched(world: JobWorld) -> None:
    """Of options, with spaces, with characters of patterns, in another script, long in bytes."""
    names = [
        "-b.txt",
        "-rf",
        "sp ace.txt",
        "a[1].txt",
        "q?.txt",
        "späß.txt",
        "結" * 80,
        "it's",
        '"q"',
        "a=b",
        "%s",
        " x",
    ]
    world.submit(
        "sh ./make",
        results=(*OUT, JobFiles(source="-c.txt", target="results")),
        inputs=(JobFiles(source="make", target="make"),),
    )
    quoted = " ".join("'out/" + name.replace("'", "'\\''") + "'" for name in names)
    (world.folder / "project/make").write_text(
        f'mkdir out; for n in {quoted}; do echo a > "$n"; done; echo c > ./-c.txt'
    )
    job = world.over()
    assert (job.state, job.reason) == (JobState.DONE, None)
    assert _fetched(world) == dict.fromkeys(names, "a\n") | {"-c.txt": "c\n"}


@pytest.mark.parametrize(
    ("pattern", "files"),
    [
        ("out", {"a.txt", "deep/er/b.txt", ".hidden"}),
        ("out/", {"a.txt", "deep/er/b.txt", ".hidden"}),
        ("./out/*", {"a.txt", "deep/er/b.txt"}),
        ("ou[t]/*.txt", {"out/a.txt"}),
        ("my out/*.txt", {"c.txt"}),
        ("latest", {"latest/b.txt"}),
        ("latest/", {"b.txt"}),
        ("out/a.txt", {"a.txt"}),
    ],
)
def test_what_a_pattern_means(world: JobWorld, pattern: str, files: set[str]) -> None:
    """A folder means all that is below it; a link that is named means its folder."""
    world.submit(
        "mkdir -p out/deep/er 'my out'; echo a > out/a.txt; echo b > out/deep/er/b.txt; echo h > out/.hidden;"
        " echo c > 'my out/c.txt'; ln -s out/deep/er latest",
        results=(JobFiles(source=pattern, target="results"),),
    )
    assert world.over().state is JobState.DONE
    assert {name.removeprefix("out/") if pattern.startswith("out") else name for name in _fetched(world)} == files


def test_a_folder_link_whose_files_are_fetched_by_their_own_names_costs_nothing(world: JobWorld) -> None:
    """As training tools make them: latest-run → run-1."""
    world.submit("mkdir -p out/run-1; echo a > out/run-1/a.txt; ln -s run-1 out/latest-run", results=OUT)
    assert world.over().state is JobState.DONE
    assert _fetched(world) == {"run-1/a.txt": "a\n"}
    assert world.texts() == ["job train: finished"]


def test_a_pattern_that_matches_nothing_does_not_keep_the_others_from_being_fetched(world: JobWorld) -> None:
    world.submit("mkdir out; echo a > out/a.txt", results=(*OUT, JobFiles(source="modle.bin", target="results")))
    world.until(lambda job: NOT_FETCHED in world.texts())
    assert _fetched(world) == {"a.txt": "a\n"}
    (world.work() / "modle.bin").write_text("late\n")
    assert world.over().state is JobState.DONE
    assert _fetched(world) == {"a.txt": "a\n", "modle.bin": "late\n"}


def test_results_of_one_name_do_not_overwrite_each_other(world: JobWorld) -> None:
    world.submit(
        "mkdir one two; echo 1 > one/out.txt; echo 2 > two/out.txt",
        results=(JobFiles(source="one/out.txt", target="results"), JobFiles(source="two/out.txt", target="results")),
    )
    assert world.over().state is JobState.DONE
    assert _fetched(world) == {"one/out.txt": "1\n", "two/out.txt": "2\n"}


def test_a_noisy_login_shell_changes_nothing(world: JobWorld) -> None:
    world.rents = lambda job: False
    world.submit(
        "mkdir out; printf 'no\\0text' > out/a.bin; cat in/x", results=OUT, inputs=(JobFiles(source="in", target="in"),)
    )
    (world.folder / "project/in").mkdir()
    (world.folder / "project/in/x").write_text("input\n")
    world.rents = lambda job: True
    world.rent()
    settings = world.machine.folder / "etc/environment"  # type: ignore[union-attr]
    settings.write_text(settings.read_text() + "echo 'Welcome to the machine'; printf '\\033[0m\\000'\n")
    assert world.over().state is JobState.DONE
    assert (world.folder / "project/results/a.bin").read_bytes() == b"no\0text"
    assert world.files.log_tail("abcdefgh", 1, 5) == ["input"]


# --- checkpoints ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("code", "state"), [(0, JobState.DONE), (3, JobState.FAILED)])
def test_the_last_checkpoint_is_here_if_it_is_all_that_is_left(world: JobWorld, code: int, state: JobState) -> None:
    """Of a job without results, and of a command that failed: the owner may retry it."""
    world.submit(
        f"mkdir -p ckpt; echo 7 > ckpt/step-7; exit {code}",
        checkpoint=msgspec.structs.replace(CHECKPOINTS, every_s=9e9),
    )
    assert world.over().state is state
    (kept,) = world.files.checkpoints("abcdefgh")
    assert kept.name == "ckpt/step-7"


def test_inputs_behind_links_arrive(world: JobWorld) -> None:
    """A snapshot of a hub: links to blobs beside it."""
    hub = world.folder / "hub"
    (hub / "snapshots/a").mkdir(parents=True)
    (hub / "blobs").mkdir()
    (hub / "blobs/1").write_text("weights\n")
    (hub / "snapshots/a/model.bin").symlink_to("../../blobs/1")
    world.submit("cat model/model.bin", inputs=(JobFiles(source=str(hub / "snapshots/a"), target="model"),))
    assert world.over().state is JobState.DONE
    assert world.files.log_tail("abcdefgh", 1, 5) == ["weights"]


def test_an_input_whose_link_leads_nowhere_ends_it_at_once(world: JobWorld) -> None:
    world.submit("true", inputs=(JobFiles(source="data", target="data"),))
    (world.folder / "project/data").mkdir()
    (world.folder / "project/data/gone").symlink_to("../../nowhere")
    job = world.over()
    assert (job.state, list(world.machines)) == (JobState.FAILED, ["la"])
    assert "the link gone leads nowhere" in (job.reason or "")


# --- what it costs ----------------------------------------------------------------------------------------------------
def test_a_job_that_costs_more_than_a_forecast_said_is_reported_once(world: JobWorld) -> None:
    """Also while its results are waited for, and after a restart."""
    steps = "for n in 1 2 3 4 5 6 7 8 9 10; do while [ ! -e ../step-$n ]; do sleep 0.1; done; echo step $n/10; done"
    world.submit(steps, results=OUT)
    world.until(lambda job: job.state is JobState.RUNNING)
    for number in range(1, 6):  # half of it in five minutes, at a dollar an hour
        (world.work().parent / f"step-{number}").touch()
        world.until(lambda job, n=number: f"step {n}/10" in world.files.log_tail(job.job_id, 1, 1), step_s=0.0)
        world.now += timedelta(minutes=1)
        world.round()
    said = [one.usd[1] for one in samples_of(world.jobs.happened) if one.usd is not None]
    assert said
    assert "job train: costs more than its forecast" not in world.texts()
    world.restarted()
    world.jobs.jobs["abcdefgh"] = msgspec.structs.replace(world.job, spent_microusd=round(min(said) * 1e6) + 10_000)
    for number in range(6, 11):
        (world.work().parent / f"step-{number}").touch()
    world.until(lambda job: job.state is JobState.FETCHING)
    world.round()
    assert world.texts().count("job train: costs more than its forecast") == 1
