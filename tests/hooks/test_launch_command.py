"""The command of a launch as a real process: its arguments, its task file, its recorded output."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from gpuwatch.domain.launches.launch import Intent, new_launch
from gpuwatch.domain.watches.launch_spec import HandoverSpec, LaunchSpec
from gpuwatch.domain.watches.watch import Action, Watch
from gpuwatch.hooks.owner_hooks import LaunchCommandRunner
from gpuwatch.ports.hooks import CommandOutcome
from gpuwatch.redaction import register_secret
from tests.builders import NOON, a_match, a_watch, an_offer, changed
from tests.checkout import TESTS

RECORDED = TESTS / "recorded" / "orchestrators"
MATCH = a_match(an_offer(provider="lambda", region="us-west-1", gpu="H100 SXM"))


def a_command(*words: str, **changes: Any) -> Watch:
    return a_watch(action=Action.COMMAND, command=words, launch=LaunchSpec(max_runtime_s=3600.0), **changes)


def ran(watch: Watch) -> CommandOutcome:
    launch = new_launch(Intent(watch=watch, match=MATCH, launch_id="abc", dry_run=False), 0, NOON)
    return LaunchCommandRunner(threading.Event())(launch, watch, MATCH, NOON)


def test_no_shell_reads_a_word(tmp_path: Path) -> None:
    write = 'printf "%s\\n" "$@" > "$0"'
    assert ran(a_command("sh", "-c", write, f"{tmp_path}/words", "$HOME; id", "{region}", "a b")).code == 0
    assert (tmp_path / "words").read_text().splitlines() == ["$HOME; id", "us-west-1", "a b"]


def test_it_is_given_the_launch_and_none_of_our_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VAST_API_KEY", "canary-of-the-environment")
    assert ran(a_command("sh", "-c", 'cat > "$0/body"; env > "$0/env"', str(tmp_path))).code == 0
    body = json.loads((tmp_path / "body").read_text())
    assert (body["event"], body["launch_id"], body["provider"]) == ("command", "abc", "command")
    env = (tmp_path / "env").read_text()
    assert "GPUWATCH_LAUNCH_ID=abc\n" in env
    assert "canary" not in env


@pytest.mark.parametrize(("tool", "recorded"), [("skypilot", "skypilot-0.14.1"), ("dstack", "dstack-task-0.22.5")])
def test_its_task_file_is_one_that_the_tool_accepts_and_is_gone_afterwards(
    tmp_path: Path, tool: str, recorded: str
) -> None:
    words = ("sh", "-c", 'pwd >"$0/pwd"; cp "$1" "$0/task"; echo "$1"', str(tmp_path), "{task_file}")
    watch = a_command(*words, handover=HandoverSpec(to=tool, run="./go"))
    outcome = ran(watch)
    assert outcome.code == 0
    assert not Path(outcome.output).exists()
    folder = (tmp_path / "pwd").read_text().strip()  # dstack fails for a file outside of it
    assert folder == (str(Path.cwd()) if tool == "skypilot" else str(Path(outcome.output).parent))
    task = yaml.safe_load((tmp_path / "task").read_text())
    schema = json.loads((RECORDED / f"{recorded}.json").read_bytes())
    jsonschema.validate(task, schema["task"] if tool == "skypilot" else schema)
    assert 3.6 in {task.get("max_price"), task.get("resources", {}).get("max_hourly_cost")}


@pytest.mark.parametrize("program", ["/nowhere/rent", "{folder}"])
def test_what_cannot_be_started_ran_nothing(tmp_path: Path, program: str) -> None:
    outcome = ran(a_command(program.format(folder=tmp_path)))
    assert outcome.code is None
    assert outcome.not_started is not None


def test_its_last_lines_are_kept_without_secrets() -> None:
    register_secret("canary-5f0c9d")
    outcome = ran(a_command("sh", "-c", "seq 9; echo; echo key canary-5f0c9d refused >&2; exit 3"))
    assert outcome == CommandOutcome(code=3, output="7 / 8 / 9 / key *** refused")


def test_it_is_ended_when_its_time_is_over() -> None:
    assert ran(changed(a_command("sh", "-c", "echo begun; sleep 300"), command_timeout_s=1.0)) == CommandOutcome(
        code=None, output="begun"
    )
