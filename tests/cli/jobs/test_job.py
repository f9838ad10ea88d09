"""`gpuwatch jobs`: submit, list, show, cancel, retry."""

from __future__ import annotations

import os

import pytest

from gpuwatch.bootstrap.provider_access import providers_polled_for
from gpuwatch.cli import Exit
from gpuwatch.domain.watches.watch import Action
from gpuwatch.settings import load
from tests.builders import a_watch
from tests.cli.conftest import Shell
from tests.stored_jobs import a_running_job

JOB = """
command = "python train.py --lr {lr}"
resources = { gpu = "H100" }
limit = { max_usd = 10 }
env = { KEY = "s3cret" }
"""
KEYS = {
    *("job_id", "name", "state", "priority", "deadline", "launch_id", "progress", "predicted_usd", "spent_usd"),
    *("started_at", "ended_at", "exit_code"),
}


@pytest.fixture(autouse=True)
def _settings(shell: Shell) -> None:
    shell.settings(f'database_url = "sqlite:///{shell.folder}/gpuwatch.db"\n')
    (shell.folder / "train.toml").write_text(JOB)
    shell.new_store()


def test_a_submitted_job_is_listed_with_the_keys_of_the_contract(shell: Shell) -> None:
    (shell.folder / "gpuwatch.db").unlink()  # the first job creates it
    ran = shell("job", "submit", "train.toml", "--json")
    assert ran.code == Exit.DONE
    assert "dry_run" not in ran.out
    (one,) = shell("job", "list", "--json").json
    assert one.keys() >= KEYS
    assert (one["name"], one["state"], one["spent_usd"], one["deadline"]) == ("train", "queued", 0.0, None)
    assert ran.json == [one]


def test_a_job_that_no_machine_of_its_providers_could_let_in_is_refused(shell: Shell) -> None:
    """Prime Intellect accepts no start script, so a job's key was not installed: it rented and waited 15 minutes."""
    settings = shell.folder / "gpuwatch.toml"
    settings.write_text(settings.read_text() + '[providers.primeintellect]\napi_key = "k"\n')
    path = shell.folder / "train.toml"
    path.write_text(path.read_text().replace('"H100" }', '"H100", providers = ["primeintellect"] }'))
    ran = shell("job", "submit", "train.toml")
    assert ran.code == Exit.USAGE
    assert "an order at primeintellect cannot install the job's SSH key" in ran.err
    found = load(str(settings))
    job = a_watch(name="job:train", action=Action.LAUNCH)
    assert providers_polled_for(job, found.providers) == ["vastai"]
    assert providers_polled_for(a_watch(action=Action.LAUNCH), found.providers) == ["primeintellect", "vastai"]


@pytest.mark.parametrize(
    ("provider", "why"), [("azure", "gpuwatch only reads prices at azure"), ("aws", "aws is not configured")]
)
def test_a_job_that_could_be_rented_nowhere_is_refused(shell: Shell, provider: str, why: str) -> None:
    """It would wait in the queue forever."""
    settings = shell.folder / "gpuwatch.toml"
    settings.write_text(settings.read_text() + "[providers.azure]\n")
    path = shell.folder / "train.toml"
    path.write_text(path.read_text().replace('"H100" }', f'"H100", providers = ["{provider}"] }}'))
    ran = shell("job", "submit", "train.toml")
    assert ran.code == Exit.USAGE
    assert why in ran.err


def test_a_local_input_that_does_not_exist_is_named_at_submit(shell: Shell) -> None:
    """Its instance was rented without an error, and ended unused."""
    (shell.folder / "here.txt").write_text("data")
    sources = ("here.txt", "absent.txt", "https://example.org/data.tar", "rclone:box:data")
    inputs = ", ".join(f'{{ source = "{source}", target = "in" }}' for source in sources)
    path = shell.folder / "train.toml"
    path.write_text(f"inputs = [{inputs}]\n{path.read_text()}")
    ran = shell("job", "submit", "train.toml", "--json")
    assert ran.code == Exit.DONE
    assert ran.err.count("does not exist") == 1
    assert f"train: input {shell.folder / 'absent.txt'} does not exist" in ran.err
    assert [job["name"] for job in ran.json] == ["train"]


@pytest.mark.parametrize(("link", "leads_to"), [("gone", "../nowhere"), ("up", "../data"), ("self", "self")])
def test_an_input_with_a_link_that_cannot_be_sent_is_refused_at_submit(shell: Shell, link: str, leads_to: str) -> None:
    """It arrived dangling, on a machine that was rented for it."""
    (shell.folder / "data").mkdir()
    (shell.folder / "data" / link).symlink_to(leads_to)
    path = shell.folder / "train.toml"
    path.write_text(f'inputs = ["data"]\n{path.read_text()}')
    ran = shell("job", "submit", "train.toml")
    assert ran.code == Exit.USAGE
    assert f"input data cannot be sent: the link {link} leads" in ran.err
    assert "queued" not in ran.out
    (shell.folder / "data" / link).unlink()
    assert shell("job", "submit", "train.toml").code == Exit.DONE


def test_what_of_an_input_has_no_content_is_named_at_submit(shell: Shell) -> None:
    (shell.folder / "data").mkdir()
    os.mkfifo(shell.folder / "data/pipe")
    path = shell.folder / "train.toml"
    path.write_text(f'inputs = ["data"]\n{path.read_text()}')
    ran = shell("job", "submit", "train.toml")
    assert ran.code == Exit.DONE
    assert "train: input data/pipe has no content to send (a pipe, socket or device)" in ran.err


@pytest.mark.parametrize(
    ("command", "results", "is_doubtful"),
    [
        ("mkdir -p out && python train.py --to out/model.bin", "otu/*", True),
        ("python train.py > out/log.txt", "outt", True),
        ("python train.py --output results", "result/*", True),
        ("mkdir -p out && python train.py", "out/*", False),
        ("mkdir -p out && python train.py", "*.bin", False),
        ("python train.py", "out/*", False),
        ("python train.py --data data/x --model models/y", "logs/*", False),
    ],
)
def test_a_pattern_that_looks_like_a_slip_is_named_at_submit(
    shell: Shell, command: str, results: str, is_doubtful: bool
) -> None:
    path = shell.folder / "train.toml"
    path.write_text(f'results = ["{results}"]\n' + JOB.replace("python train.py --lr {lr}", command))
    ran = shell("job", "submit", "train.toml")
    assert ran.code == Exit.DONE
    assert (f"train: results {results}: its command does not name that, but" in ran.err) is is_doubtful


def test_a_deadline_that_the_work_cannot_meet_is_named_at_submit(shell: Shell) -> None:
    """It was rented at once at its highest price, and ended at the deadline."""
    for name, lines in {
        "late": 'hours = "20-30"\ndeadline = "19h"',
        "tight": 'hours = "20-30"\ndeadline = "21h"',
        "unknown": 'deadline = "1h"',
    }.items():
        (shell.folder / f"{name}.toml").write_text(f"{lines}\n{JOB}")
    ran = shell("job", "submit", "late.toml", "tight.toml", "unknown.toml", "train.toml")
    assert ran.code == Exit.DONE
    assert ran.err.count("do not fit before its deadline") == 1
    assert "late: 20 hours of work do not fit before its deadline, which ends its run unfinished" in ran.err


def test_an_array_is_one_job_for_each_value_in_order(shell: Shell) -> None:
    found = shell("job", "submit", "train.toml", "--sweep", "lr=1e-4,2e-4,3e-4", "--json").json
    assert [one["name"] for one in found] == ["train-1", "train-2", "train-3"]
    assert [one["name"] for one in shell("job", "list", "--json").json] == ["train-1", "train-2", "train-3"]
    shown = shell("job", "show", "train-2", "--json").json
    assert shown["definition"]["command"] == "python train.py --lr 2e-4"
    (shell.folder / "after.toml").write_text(JOB + 'depends_on = ["train"]\n')
    assert shell("job", "submit", "after.toml").code == Exit.DONE


def test_no_value_of_the_environment_is_shown(shell: Shell) -> None:
    shell("job", "submit", "train.toml")
    shown = shell("job", "show", "train", "--json")
    assert shown.json["definition"]["env"] == ["KEY"]
    assert "s3cret" not in shown.out + shell("job", "show", "train").out


def test_where_results_and_checkpoints_go_is_shown(shell: Shell) -> None:
    path = shell.folder / "train.toml"
    kept = 'results = [{ source = "out/*", target = "s3://bucket/run" }, { source = "a.txt", target = "here" }]\n'
    kept += 'checkpoint = { path = "ckpt", store = "s3://bucket/ckpt" }\n'
    name, rest = path.read_text().split("\n", 1)
    path.write_text(f"{name}\n{kept}{rest}")
    assert shell("job", "submit", "train.toml").code == Exit.DONE
    shown = shell("job", "show", "train").out
    assert f"results    out/* to s3://bucket/run, a.txt to {shell.folder / 'here'}\n" in shown
    assert "checkpoint ckpt; gpuwatch keeps the newest 2 here and in s3://bucket/ckpt\n" in shown


def test_a_job_is_cancelled_twice_and_retried(shell: Shell) -> None:
    job_id = shell("job", "submit", "train.toml", "--json").json[0]["job_id"]
    assert shell("job", "cancel", "train").out == f"job {job_id} (train) is cancelled\n"
    assert shell("job", "cancel", job_id).code == Exit.DONE
    assert shell("job", "retry", job_id, "--json").json["state"] == "queued"
    kinds = [one["kind"] for one in shell("job", "show", "train", "--json").json["events"]]
    assert kinds == ["submitted", "cancelled", "queued"]


def test_a_retry_may_take_the_file_as_it_is_now(shell: Shell) -> None:
    shell("job", "submit", "train.toml")
    shell("job", "cancel", "train")
    (shell.folder / "train.toml").write_text(JOB.replace("= 10", "= 25") + 'deadline = "2d"\n')
    assert shell("job", "retry", "train", "--file", "train.toml", "--json").json["deadline"] is not None
    assert shell("job", "show", "train", "--json").json["definition"]["limit"]["max_usd"] == 25
    shell("job", "cancel", "train")
    (shell.folder / "other.toml").write_text(JOB)
    ran = shell("job", "retry", "train", "--file", "other.toml")
    assert (ran.code, "other.toml defines job 'other', not 'train'" in ran.err) == (Exit.USAGE, True)


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["show", "nope"], "there is no job 'nope'; see: gpuwatch jobs list"),
        (["cancel", "nope"], "there is no job 'nope'"),
        (["retry", "train"], "job 'train' is queued; only a failed, cancelled or paused job can be retried"),
        (["submit", "train.toml"], "a job 'train' is already open; cancel it, or choose another name"),
        (["submit", "train.toml", "--sweep", "lr"], "expected KEY=VALUE,VALUE"),
        (["submit", "no.toml"], "no.toml: cannot read"),
        (["submit", "wrong.toml"], "wrong.toml:1: limit: expected a table"),
        (["submit", "late.toml"], "the deadline of job 'late' has passed"),
        (["submit", "after.toml"], "job 'after' depends on 'nobody', which does not exist"),
        (["submit", "a.toml", "b.toml"], "depends on itself through depends_on"),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_code_2(shell: Shell, argv: list[str], text: str) -> None:
    shell("job", "submit", "train.toml")
    (shell.folder / "wrong.toml").write_text('limit = 3\ncommand = "x"\nresources = { gpu = "H100" }\n')
    (shell.folder / "late.toml").write_text(JOB + "deadline = 2020-01-01T00:00:00Z\n")
    (shell.folder / "after.toml").write_text(JOB + 'depends_on = ["nobody"]\n')
    (shell.folder / "a.toml").write_text(JOB + 'depends_on = ["b"]\n')
    (shell.folder / "b.toml").write_text(JOB + 'depends_on = ["a"]\n')
    ran = shell("job", *argv)
    assert (ran.code, ran.out) == (Exit.USAGE, "")
    assert text in ran.err
    assert ran.err.count("\n") == 1
    assert len(shell("job", "list", "--json").json) == 1


def test_the_schema_of_a_job_file_is_printed(shell: Shell) -> None:
    assert shell("config", "schema", "--jobs").json["title"] == "gpuwatch job"


def test_show_says_what_a_run_does_and_what_it_will_cost(shell: Shell) -> None:
    """Speed, cost per token, end and cost as ranges, and the GPU's bottleneck; several samples are one row."""
    settings = load(env={"HOME": str(shell.folder)}, cwd=shell.folder)
    (shell.folder / "train.toml").unlink()
    a_running_job(settings, shell.folder)
    shown = shell("job", "show", "train")
    assert shown.code == Exit.DONE
    for text in (
        *("done       25 %", "12,000 tokens/s, $0.050 per million tokens, loss 1.25", "(assumed ± 10 %)"),
        *("$3.00 to $3.60 at its end", "55 %, 30 % of its memory used", "waits for  small batch"),
    ):
        assert text in shown.out, (text, shown.out)
    assert shown.out.count("changed") == 1
    found = shell("job", "show", "train", "--json").json
    assert (found["sample"]["usd"], found["sample"]["usd_per_million_tokens"]) == ([3.0, 3.6], 0.05)
    assert found["sample"]["ends_at"][0] < found["sample"]["ends_at"][1]
    assert [one["kind"] for one in found["events"]].count("changed") == 5


PREPARE = """
[prepare]
command = "python clean.py"
inputs = ["raw.csv"]
outputs = ["data/*"]
limit = { max_price = 0.10 }
hours = 2
"""


def test_a_job_with_a_step_before_is_one_job_that_says_its_step_and_what_both_can_cost(shell: Shell) -> None:
    path = shell.folder / "train.toml"
    path.write_text(JOB.replace("max_usd = 10 }", "max_usd = 10, max_price = 2 }\nhours = 4") + PREPARE)
    ran = shell("job", "submit", "train.toml")
    assert "is queued: it prepares its data first, then rents its own machine; $10.00 at most for both" in ran.out
    assert "raw.csv does not exist" in ran.err
    (one,) = shell("job", "list", "--json").json
    assert (one["name"], one["state"], one["stage"]) == ("train", "queued", "prepare")
    assert "queued, preparing its data" in shell("job", "list").out
    (start,) = shell("job", "plan", "--json").json["jobs"]
    assert (start["stage"], start["cap_usd_gpu_hour"], start["most_usd"]) == ("prepare", 0.1, 10)
    assert start["predicted_usd"] == pytest.approx(2 * 0.1 + 4 * 2.0)
    plan = shell("job", "plan").out
    assert "$0.10/h" in plan
    (shell.folder / "least.toml").write_text(JOB + '[prepare]\ncommand = "true"\n')
    shell("job", "submit", "least.toml")
    least = next(one for one in shell("job", "plan", "--json").json["jobs"] if one["name"] == "least")
    assert (least["predicted_usd"], least["most_usd"]) == (10, 10), "each step at its limit would be $20"
    assert "train: prepares its data first, then rents its own machine; $10.00 at most for both" in plan
    shown = shell("job", "show", "train")
    assert "state      queued, preparing its data" in shown.out
    assert "prepare    python clean.py; GPU: none; hands on: data/*" in shown.out
    assert "command    python train.py" in shown.out
    assert shell("job", "cancel", "train").code == Exit.DONE
    assert shell("job", "list", "--json").json[0]["state"] == "cancelled"
    retried = shell("job", "retry", "train", "--json").json
    assert (retried["state"], retried["stage"]) == ("queued", "prepare")


def test_where_a_step_before_cannot_run_the_job_is_refused(shell: Shell) -> None:
    (shell.folder / "train.toml").write_text(JOB + PREPARE)
    ran = shell("job", "submit", "train.toml", "--sweep", "lr=1,2")
    assert ran.code == Exit.USAGE
    assert "has [prepare], which would run for each value" in ran.err
    settings = shell.folder / "gpuwatch.toml"
    settings.write_text(settings.read_text() + '[providers.runpod]\napi_key = "k"\n')
    (shell.folder / "train.toml").write_text(JOB + PREPARE + 'resources = { providers = ["runpod"] }\n')
    ran = shell("job", "submit", "train.toml")
    assert ran.code == Exit.USAGE
    assert "gpuwatch rents no machines without GPUs at runpod" in ran.err
