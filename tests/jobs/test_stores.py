"""Inputs, checkpoints and results of jobs in an object store: rclone here against a real S3 server."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from gpuwatch.domain.alerts.job_texts import NOT_STORED_REASON
from gpuwatch.domain.jobs.job import JobState
from gpuwatch.domain.jobs.job_values import JobFiles
from gpuwatch.domain.jobs.run_plan import pull_script
from gpuwatch.engine.alerts.launch_alerts import goes_on
from gpuwatch.ports.remote import ObjectMissing, StoreUnreachable
from gpuwatch.remote.rclone import Rclone
from tests.jobs.job_world import CHECKPOINTS, JobWorld
from tests.jobs.store_server import SECRET, needs_rclone, s3_server, webdav_server

pytestmark = needs_rclone
BOUND = 60.0
COUNTS = (
    'n=0; [ -n "${GPUWATCH_CHECKPOINT:-}" ] && n=$(cat "$GPUWATCH_CHECKPOINT") && echo "from $n"; mkdir -p ckpt out;'
    " while [ $n -lt 30 ]; do n=$((n+1)); echo $n > ckpt/.new; mv ckpt/.new ckpt/step-$n; echo step $n/30;"
    " while [ $n -eq 9 ] && [ -e ../hold ]; do sleep 0.1; done; done; echo $n > out/n.txt"
)


@pytest.fixture(scope="module")
def env() -> Iterator[dict[str, str]]:
    with s3_server() as found:
        yield found


@pytest.fixture
def store(env: dict[str, str], request: pytest.FixtureRequest) -> Rclone:
    """With an empty bucket of the test."""
    made = Rclone(env)
    made._call(["mkdir", f"GPUWATCHS3:{bucket(request)}"], BOUND)
    return made


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    return f"s3://{bucket(request)}"


def bucket(request: pytest.FixtureRequest) -> str:
    return request.node.name.replace("_", "-")[:60].rstrip("-")


def test_files_are_verified_there_and_come_back(store: Rclone, url: str, tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/x.bin").write_bytes(os.urandom(300_000))
    (tmp_path / "a/b/y [1].txt").write_text("y")
    (tmp_path / "a/not-named").write_text("stays")
    names = ["x.bin", "b/y [1].txt"]
    store.put(tmp_path / "a", names, f"{url}/out", timeout_s=BOUND)
    store.put(tmp_path / "a", names, f"{url}/out", timeout_s=BOUND)
    store.get(f"{url}/out", tmp_path / "back", timeout_s=BOUND)
    back = {str(one.relative_to(tmp_path / "back")) for one in (tmp_path / "back").rglob("*") if one.is_file()}
    assert back == set(names)
    assert (tmp_path / "back/x.bin").read_bytes() == (tmp_path / "a/x.bin").read_bytes()
    assert store.list_folders(url, timeout_s=BOUND) == ["out"]
    store.delete(f"{url}/out", "x.bin", timeout_s=BOUND)
    assert store.list_folders(url, timeout_s=BOUND) == []
    with pytest.raises(ObjectMissing):
        store.read(f"{url}/out/x.bin", timeout_s=BOUND)
    with pytest.raises(ObjectMissing):
        store.get(f"{url}/out", tmp_path / "again", timeout_s=BOUND)


def test_what_did_not_arrive_is_not_called_whole(store: Rclone, url: str, tmp_path: Path) -> None:
    """A missing name, and a failing copy."""
    (tmp_path / "a").write_text("a")
    with pytest.raises(StoreUnreachable, match=r"b at .* is incomplete"):
        store.put(tmp_path, ["a", "b"], url, timeout_s=BOUND)
    with pytest.raises(StoreUnreachable, match="not a store"):
        store.put(tmp_path, ["a"], f"rclone::s3,secret_access_key={SECRET}:b", timeout_s=BOUND)


@pytest.mark.parametrize(
    "answer", ['[{"Path":"a","Size":1,"Hashes":{"md5":"0"}}]', '[{"Path":"a","Size":2}]', "[]", "?"]
)
def test_another_hash_or_size_is_a_fault(answer: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    with pytest.raises(StoreUnreachable):
        Rclone(fake(tmp_path, answer)).put(tmp_path, ["a"], "s3://bucket/x", timeout_s=BOUND)


def test_a_store_without_md5_is_read_back(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    listed = '[{"Path":"a","Size":1}]'
    with pytest.raises(StoreUnreachable, match="from the original"):
        Rclone(fake(tmp_path, listed)).put(tmp_path, ["a"], "rclone:dav:x", timeout_s=BOUND)
    with webdav_server(tmp_path / "served") as url:
        given = {"RCLONE_CONFIG": "/dev/null", "RCLONE_CONFIG_DAV_TYPE": "webdav", "RCLONE_CONFIG_DAV_URL": url}
        Rclone({"PATH": os.environ["PATH"]} | given).put(tmp_path, ["a"], "rclone:dav:x", timeout_s=BOUND)
    assert (tmp_path / "served/x/a").read_text() == "a"


def test_no_key_is_on_a_command_line(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    given = fake(tmp_path, '[{"Path":"a","Size":1,"Hashes":{"md5":"0cc175b9c0f1b6a831c399e269772661"}}]')
    given |= {"AWS_SECRET_ACCESS_KEY": SECRET, "GPUWATCH_PROVIDERS__VASTAI__API_KEY": "another"}
    Rclone(given).put(tmp_path, ["a"], "s3://bucket/x", timeout_s=BOUND)
    said = (tmp_path / "bin/argv").read_text()
    assert "copy" in said
    assert SECRET not in said
    seen = (tmp_path / "bin/env").read_text()
    assert SECRET in seen
    assert "another" not in seen


def test_an_instance_pulls_an_input_from_its_endpoint(
    store: Rclone, env: dict[str, str], url: str, tmp_path: Path
) -> None:
    """With the keys of the job's own variables; the ecosystem's variable for the endpoint counts."""
    (tmp_path / "there").mkdir()
    (tmp_path / "there/in.txt").write_text("input")
    store.put(tmp_path / "there", ["in.txt"], f"{url}/data", timeout_s=BOUND)
    for source, made in ((f"{url}/data", "one/in.txt"), (f"{url}/data/in.txt", "two")):
        script = pull_script(JobFiles(source=source, target=made.partition("/")[0]))
        subprocess.run(["sh", "-c", script], cwd=tmp_path, env=env, check=True, capture_output=True)
        assert (tmp_path / made).read_text() == "input"


def test_inputs_and_results_pass_through_a_store_without_a_key_on_the_instance(
    store: Rclone, env: dict[str, str], url: str, new_world: Callable[..., JobWorld], tmp_path: Path
) -> None:
    remote = {"RCLONE_CONFIG_BOX_TYPE": "alias", "RCLONE_CONFIG_BOX_REMOTE": str(tmp_path / "box")}
    (tmp_path / "box/data").mkdir(parents=True)
    (tmp_path / "box/data/in.txt").write_text("input\n")
    world = new_world(real=False)
    world.stores = Rclone(env | remote)
    world.restarted()
    world.submit(
        "cat data/in.txt one.txt; env; mkdir -p out/deep; echo r > out/deep/r.txt; echo s > out/s.txt",
        inputs=(
            JobFiles(source="rclone:box:data", target="data"),
            JobFiles(source="rclone:box:data/in.txt", target="one.txt"),
        ),
        results=(JobFiles(source="out/*", target=f"{url}/res"), JobFiles(source="out/s.txt", target="here")),
    )
    job = world.over()
    assert (job.state, world.alive()) == (JobState.DONE, [])
    assert store.read(f"{url}/res/deep/r.txt", timeout_s=BOUND) == b"r\n"
    assert store.read(f"{url}/res/s.txt", timeout_s=BOUND) == b"s\n"
    assert (world.folder / "project/here/s.txt").read_text() == "s\n"
    log = "\n".join(world.files.log_tail(job.job_id, 1, 100))
    assert log.splitlines()[:2] == ["input", "input"]
    assert SECRET not in log
    assert not (world.folder / "data" / job.job_id / "inputs/0").exists()


def test_results_wait_here_for_their_store_while_the_instance_is_gone(
    store: Rclone, url: str, new_world: Callable[..., JobWorld]
) -> None:
    world = new_world(real=False)
    world.stores = Rclone({"PATH": "/nowhere"})
    world.restarted()
    world.submit("mkdir out; echo r > out/r.txt", results=(JobFiles(source="out/*", target=url),))
    world.until(lambda job: world.texts())
    assert world.texts() == [f"job train: {NOT_STORED_REASON}"]
    alert = next(iter(world.launches.alerts.values())).alert
    assert goes_on(alert)
    assert (world.job.state, world.job.reason, world.alive()) == (JobState.FETCHING, NOT_STORED_REASON, [])
    assert [one.detail.get("reason") for one in world.jobs.happened].count(NOT_STORED_REASON) == 1
    world.stores = store
    world.restarted()
    assert world.over().state is JobState.DONE
    assert store.read(f"{url}/r.txt", timeout_s=BOUND) == b"r\n"


def test_a_missing_input_ends_the_job(store: Rclone, url: str, new_world: Callable[..., JobWorld]) -> None:
    world = new_world(real=False)
    world.stores = Rclone({"PATH": os.environ["PATH"], "RCLONE_CONFIG": "/dev/null", "RCLONE_CONFIG_BOX_TYPE": "local"})
    world.restarted()
    world.submit("true", inputs=(JobFiles(source="rclone:box:/nowhere/at/all", target="data"),))
    job = world.over()
    assert job.state is JobState.FAILED
    assert "cannot copy input rclone:box:/nowhere/at/all" in (job.reason or "")
    assert world.alive() == []


def test_a_job_resumes_from_the_newest_whole_checkpoint_of_its_store(
    store: Rclone, url: str, new_world: Callable[..., JobWorld]
) -> None:
    """The local copies are lost, and the newest one in the store is torn: the previous one is used. It keeps N."""
    world = new_world(real=False)
    world.stores = store
    world.restarted()
    spec = msgspec.structs.replace(CHECKPOINTS, store=f"{url}/ckpt")
    job = world.submit(COUNTS, checkpoint=spec, results=(JobFiles(source="out/n.txt", target="results"),))
    folder = f"{url}/ckpt/{job.job_id}"
    world.until(lambda job: job.state is JobState.PREPARING)
    (world.work().parent / "hold").parent.mkdir(parents=True, exist_ok=True)
    (world.work().parent / "hold").touch()
    world.until(
        lambda _: [checkpoint.name for checkpoint in world.files.checkpoints(job.job_id)][-1:] == ["ckpt/step-9"]
    )
    here = world.files.checkpoints(job.job_id)
    world.until(lambda _: len(store.list_folders(folder, timeout_s=BOUND)) >= len(here))
    sequence = here[-1].sequence
    torn = msgspec.structs.replace(here[-1], sequence=sequence + 1)
    lies = world.folder / "lies"
    (lies / "files/ckpt").mkdir(parents=True)
    (lies / "files/ckpt/step-9").write_text("7\n")
    (lies / "manifest.json").write_bytes(msgspec.json.encode(torn))
    store.put(lies, ["files/ckpt/step-9", "manifest.json"], f"{folder}/{sequence + 1:06d}", timeout_s=BOUND)
    world.lose(world.job.launch_id or "")
    shutil.rmtree(world.folder / "data" / job.job_id / "checkpoints")
    world.restarted()
    assert world.over().state is JobState.DONE
    assert world.files.log_tail(job.job_id, 2, 100)[0] == "from 9"
    assert (world.folder / "project/results/n.txt").read_text() == "30\n"
    assert len(store.list_folders(folder, timeout_s=BOUND)) <= spec.keep + 1


def fake(folder: Path, answer: str) -> dict[str, str]:
    """An rclone that gives one answer to every listing, and records its calls."""
    (folder / "bin").mkdir()
    program = folder / "bin/rclone"
    program.write_text(
        f"#!/bin/sh\ncat >/dev/null\necho \"$@\" >>'{folder}/bin/argv'\nenv >>'{folder}/bin/env'\n"
        f'case " $* " in *" lsjson "*) echo \'{answer}\';; esac\n'
    )
    program.chmod(0o755)
    return {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}


def test_checkpoints_that_do_not_reach_their_store_are_reported_and_the_job_goes_on(
    url: str, new_world: Callable[..., JobWorld]
) -> None:
    world = new_world(real=False)
    world.stores = Rclone({"PATH": "/nowhere"})
    world.restarted()
    spec = msgspec.structs.replace(CHECKPOINTS, store=f"{url}/ckpt")
    world.submit(COUNTS, checkpoint=spec, results=(JobFiles(source="out/n.txt", target="results"),))
    world.until(lambda job: job.state is JobState.PREPARING)
    hold = world.machine.home / "gpuwatch" / world.job.job_id / "hold"
    hold.parent.mkdir(parents=True, exist_ok=True)
    hold.touch()
    job = world.until(lambda _: world.texts())
    assert (world.texts(), job.state) == (["job train: its checkpoints do not reach their store"], JobState.RUNNING)
    hold.unlink()
    assert world.over().state is JobState.DONE
