"""`gpuwatch jobs new`: from a question to a job file that can be submitted."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.app.jobs.jobs import new_job
from gpuwatch.bootstrap import real_now
from gpuwatch.cli import Exit
from gpuwatch.domain.jobs.job_watch import max_runtime_s, price_cap
from gpuwatch.emulator import Marketplace
from gpuwatch.settings.validate import read_job_file
from tests.cli.conftest import Shell

ASK = (
    "job",
    "new",
    "--size-of",
    "8B",
    "--method",
    "qlora",
    "--tokens",
    "100M",
    "--command",
    "python train.py",
    "--poll",
)
SETTINGS = 'database_url = "sqlite:///prices.db"\n[providers.vastai]\napi_key = "demo-key"\n'


@pytest.fixture(scope="module")
def market() -> Iterator[Marketplace]:
    """Enough machines that each common GPU is on offer."""
    with Marketplace(seed=1, key="demo-key", size=600, odd_rows=False) as opened:
        yield opened


@pytest.fixture
def asking(shell: Shell, market: Marketplace) -> Shell:
    shell.settings(f'{SETTINGS}base_url = "{market.url}"\nsearch_interval = "0.02s"\n')
    return shell


def test_the_question_of_the_weekend_becomes_a_job(asking: Shell) -> None:
    """A LoRA adapter of an 8B model by the end of tomorrow, under 100 $."""
    ran = asking(*ASK, "--by", "2d", "--under", "100", "--image", "x/y:1", "--json")
    assert ran.code == Exit.DONE, ran.err
    assert (ran.json["file"], ran.json["feasible"]) == ("jobs/qlora-8b.toml", "feasible")
    low, high = ran.json["cost_usd"]
    assert 0 < low <= high <= 100
    path = asking.folder / "jobs" / "qlora-8b.toml"
    written = tomllib.loads(path.read_text())
    assert (written["image"], written["command"], written["limit"]) == ("x/y:1", "python train.py", {"max_usd": 100})
    assert {"gpu", "gpu_count", "disk_gb", "download_gb", "min_vram_gib", "min_reliability"} <= written[
        "resources"
    ].keys()
    assert path.read_text().startswith("#:schema ./gpuwatch-job.schema.json\n# Estimated for")
    assert (path.parent / "gpuwatch-job.schema.json").exists()
    submitted = asking("job", "submit", str(path), "--json")
    assert submitted.code == Exit.DONE, submitted.err
    assert submitted.json[0]["name"] == "qlora-8b"


def test_hours_on_one_gpu_are_not_hours_on_half_of_two(asking: Shell) -> None:
    """A script timed on one GPU may not use a second one; --count states that it does."""
    timed = ("job", "new", "--hours", "3", "--on", "1x RTX 4090", "--under", "9", "--command", "./run.sh", "--poll")
    found = asking(*timed, "--name", "one")
    assert found.out.startswith("feasible: $"), found.err
    assert " 3.0 hours, on 1× RTX 4090" in found.out
    written = (asking.folder / "jobs" / "one.toml").read_text()
    assert tomllib.loads(written)["resources"]["gpu_count"] == {"min": 1, "max": 1}
    assert tomllib.loads(written)["hours"] == "3"
    assert " to 3.0 hours" not in written
    assert "memory 0 GB" not in written
    scaled = asking(*timed, "--name", "two", "--count", "2", "--json").json
    assert {one["gpu_count"] for one in scaled["candidates"]} == {2}
    assert scaled["hours"] == [1.5, 1.5]


def test_the_limit_of_the_job_takes_the_offers_of_the_plan(asking: Shell) -> None:
    """The queue's watch of the file finds the planned offers, and allows the time that they need."""
    found = asking(*ASK, "--by", "2d", "--under", "100", "--json").json
    now = real_now()
    job = new_job(read_job_file(Path(found["file"])), "jobaaaa2", now)
    cap = price_cap(job)
    cheapest = found["candidates"][0]
    assert cheapest["price_usd_hour"] / cheapest["gpu_count"] <= cap
    assert {one["gpu_count"] for one in found["candidates"]} == {cheapest["gpu_count"]}
    runtime_h = max_runtime_s(job, cap, now) / 3600
    assert runtime_h >= cheapest["hours"][1] - 0.2
    assert runtime_h * float(cap) * cheapest["gpu_count"] <= 100.01


def test_what_no_offer_can_do_is_not_feasible_and_nothing_is_written(asking: Shell) -> None:
    ran = asking(*ASK, "--by", "2d", "--under", "0.10")
    assert (ran.code, ran.out) == (Exit.FAILED, "not feasible\n")
    assert "the cheapest costs $" in ran.err
    assert not (asking.folder / "jobs").exists()
    assert asking(*ASK, "--by", "30m", "--under", "100", "--json").json["file"] is None
    assert asking(*ASK, "--by", "30m").code == Exit.FAILED


def test_without_prices_it_cannot_tell(asking: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUWATCH_PROVIDERS__VASTAI__BASE_URL", "http://127.0.0.1:9")  # nothing listens
    ran = asking(*ASK, "--under", "100")
    assert ran.code == Exit.CANNOT_TELL
    assert "no prices are known" in ran.out
    assert "Connection refused" in ran.err


@pytest.mark.parametrize("store", ["none", "empty"])
def test_before_anything_is_recorded_the_providers_are_asked(asking: Shell, store: str) -> None:
    if store == "empty":
        asking.new_store()
    ran = asking(*(one for one in ASK if one != "--poll"), "--under", "100")
    assert ran.code == Exit.DONE, ran.err
    assert "the store has no such prices: polling the providers" in ran.err
    assert len(list(asking.folder.glob("*.db"))) == (store == "empty")


def test_a_file_that_is_there_is_kept(asking: Shell) -> None:
    assert asking(*ASK, "--under", "100").code == Exit.DONE
    again = asking(*ASK, "--under", "90")
    assert again.code == Exit.FAILED
    assert "jobs/qlora-8b.toml already exists; overwrite it with --force" in again.err
    assert asking(*ASK, "--under", "90", "--force").code == Exit.DONE


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (("--by", "someday"), "--by 'someday': expected a day such as \"Sunday\""),
        (("--hours", "5"), "use either --hours or --tokens"),
        (("--spot", "only"), "--spot requires interruptions_per_day"),
    ],
)
def test_what_is_wrong_is_one_line(asking: Shell, more: tuple[str, ...], text: str) -> None:
    ran = asking(*ASK, *more)
    assert (ran.code, ran.out) == (Exit.USAGE, "")
    assert text in ran.err
