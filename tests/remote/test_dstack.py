"""`dstack` through its command line, with recorded answers of a server of 0.22.5."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.domain.launches.instance import InstanceState
from gpuwatch.domain.launches.launch import LaunchState
from gpuwatch.errors import OutcomeUnknown, PayloadChanged, ProviderDown, ProviderUnreachable
from gpuwatch.redaction import register_secret
from gpuwatch.remote.dstack import Dstack
from tests.checkout import TESTS

RECORDED = json.loads((TESTS / "recorded" / "dstack" / "ps-0.22.5.json").read_bytes())
NAME = "gpuwatch-aaaaaaaaaaaa-bbbbbbbb-cccccccc"
NOBODY = {"project": "main", "runs": []}


def run(name: str = NAME, **changed: Any) -> Any:
    """Return the recorded run with changes; `machines`: their prices, None for one that is not rented."""
    found = json.loads(json.dumps(RECORDED["runs"][0]))
    prices, code = changed.pop("machines", (None, None)), changed.pop("exit_status", None)
    reason = changed.pop("reason", None)
    for job, price in zip(found["jobs"], prices, strict=True):
        machine = None if price is None else {"price": price, "backend": "vastai"}
        job["job_submissions"][0] |= {
            "job_provisioning_data": machine,
            "exit_status": code,
            "termination_reason": reason,
        }
    found["run_spec"]["run_name"] = name
    return found | changed


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., Dstack]:
    """A `dstack` whose answers are files, by its first argument, with the exit code first."""

    def make(alive: dict[str, LaunchState] | None = None, **answers: Any) -> Dstack:
        for word, answer in answers.items():
            code, said = answer if isinstance(answer, tuple) else (0, json.dumps(answer))
            (tmp_path / word).write_text(f"{code}\n{said}")
        path = tmp_path / "dstack"
        path.write_text(
            '#!/bin/sh\ncd "${0%/*}"\necho "$*" >>calls; env >env; cat >stdin\n'
            '[ -e "$1" ] || { echo "Run $3 not found"; exit 1; }\ntail -n +2 "$1"; exit "$(head -n 1 "$1")"\n'
        )
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        env = {"PATH": os.environ["PATH"], "DSTACK_X": "kept", "OTHER": "left out"}
        return Dstack(str(path), "", env, timeout_s=20.0, launch_states=lambda: alive or {})

    return make


def test_a_status_that_dstack_gained_is_named(program: Callable[..., Dstack]) -> None:
    later = json.loads(json.dumps(RECORDED).replace('"terminating"', '"hibernating"'))
    [shown] = program(ps=later).list_instances()
    assert (shown.state, shown.unknown_status) == (InstanceState.UNKNOWN, "hibernating")
    [shown] = program(ps=RECORDED).list_instances()
    assert shown.unknown_status is None


def test_the_recorded_answer_is_understood(program: Callable[..., Dstack]) -> None:
    """It was ending when it was recorded, and never had a machine."""
    engine = program(ps=RECORDED)
    [shown] = engine.list_instances()
    assert (shown.instance_id, shown.label, shown.state) == (NAME, NAME, InstanceState.STARTING)
    assert (shown.listed_usd_hour, shown.is_placed) == (None, False)
    assert engine.account_id() == "main"


@pytest.mark.parametrize(
    ("changed", "state", "price"),
    [
        ({"status": "pending"}, InstanceState.STARTING, None),
        ({"status": "submitted"}, InstanceState.STARTING, None),
        ({"status": "provisioning"}, InstanceState.STARTING, None),
        ({"status": "provisioning", "machines": (15.0, None)}, InstanceState.RUNNING, 35.5),  # the cap for the other
        ({"status": "running", "machines": (15.0, 16.0)}, InstanceState.RUNNING, 31.0),
        ({"status": "terminating", "machines": (15.0, 16.0)}, InstanceState.RUNNING, 31.0),
        ({"status": "resizing", "machines": (15.0, 16.0)}, InstanceState.UNKNOWN, 31.0),
        ({"status": "done", "machines": (15.0, 16.0)}, InstanceState.EXITED, None),
        ({"status": "failed", "machines": (15.0, 16.0), "exit_status": 3}, InstanceState.EXITED, None),
        ({"status": "failed", "machines": (15.0, 16.0)}, InstanceState.FAILED, None),
        ({"status": "terminated", "machines": (15.0, 16.0)}, InstanceState.FAILED, None),
    ],
)
def test_what_its_states_mean(
    program: Callable[..., Dstack], changed: dict[str, Any], state: InstanceState, price: float | None
) -> None:
    """An undocumented status is neither an end nor a start."""
    engine = program({NAME: LaunchState.RUNNING}, ps={"project": "main", "runs": [run(**changed)]})
    [shown] = engine.list_instances()
    assert (shown.state, shown.listed_usd_hour) == (state, price)


def test_what_its_user_stopped_says_so(program: Callable[..., Dstack]) -> None:
    """Whatever the states of its machines."""
    stopped = run(status="terminated", termination_reason="stopped_by_user", reason="interrupted_by_no_capacity")
    found = program(ps={"project": "main", "runs": [stopped]}).run(NAME)
    assert found is not None
    assert (found.is_over, found.why) == (True, "stopped_by_user")


def test_what_is_over_is_listed_for_the_launch_that_does_not_know_it(program: Callable[..., Dstack]) -> None:
    """Shown as running first: a run that ended unobserved has run."""
    over = {"project": "main", "runs": [run(status="done", machines=(1.0, 1.0))]}
    assert not program(ps=over).list_instances()
    assert not program({NAME: LaunchState.STOPPING}, ps=over).list_instances()
    [shown] = program({NAME: LaunchState.STARTING}, ps=over).list_instances()
    assert shown.state is InstanceState.RUNNING


def test_an_old_run_is_asked_for_by_its_name(program: Callable[..., Dstack]) -> None:
    """After a hundred newer ones."""
    many = {"project": "main", "runs": [run(f"other-{number}", status="done") for number in range(99)]}
    engine = program({NAME: LaunchState.RUNNING}, ps=many, run=run(status="running", machines=(1.0, 2.0)))
    assert NAME in {instance.instance_id for instance in engine.list_instances()}


@pytest.mark.parametrize(
    "answers",
    [
        {"ps": (1, "Failed to connect to dstack server http://127.0.0.1:3000")},
        {"ps": (0, "{")},
        {"ps": (0, "[]")},
        {"ps": NOBODY, "run": (1, "Failed to connect")},
        {"ps": NOBODY, "run": (2, "")},
        {"ps": NOBODY, "run": run("another")},
        {"ps": NOBODY, "run": run(project_name="another")},
    ],
)
def test_no_answer_is_never_none(program: Callable[..., Dstack], answers: dict[str, Any]) -> None:
    with pytest.raises((ProviderDown, PayloadChanged)):
        program(**answers).run(NAME)


def test_none_is_what_both_answers_say(program: Callable[..., Dstack], tmp_path: Path) -> None:
    assert program(ps=NOBODY).run(NAME) is None
    assert (tmp_path / "calls").read_text().splitlines() == ["ps --all --last 99 --json", f"run get {NAME} --json"]


def test_it_gets_its_words_a_task_and_little_else(program: Callable[..., Dstack], tmp_path: Path) -> None:
    engine = program(apply=(0, "submitted"))
    engine.submit(NAME, {"name": NAME, "commands": ["$(touch x); 'a b'"]}, {"TOKEN": "a-secret-text"})
    assert (tmp_path / "calls").read_text() == "apply -f - -y -d\n"
    assert json.loads((tmp_path / "stdin").read_text()) == {"name": NAME, "commands": ["$(touch x); 'a b'"]}
    env = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines() if "=" in line)
    assert (env["DSTACK_X"], env["TOKEN"]) == ("kept", "a-secret-text")
    assert "OTHER" not in env


def test_a_failed_submission_is_not_known_and_tells_no_secret(program: Callable[..., Dstack]) -> None:
    engine = program(apply=(1, "invalid value for TOKEN: a-secret-text"))
    with pytest.raises(OutcomeUnknown, match=r"TOKEN: \*\*\*$"):
        engine.submit(NAME, {}, {"TOKEN": "a-secret-text"})


@pytest.mark.parametrize(
    ("secret", "said"),
    [
        ("a  secret\twith spaces", "TOKEN: a  secret\twith spaces"),
        ("-----BEGIN KEY-----\nfirstline\nlastline\n", "KEY: -----BEGIN KEY-----\nfirstline\nlastline\n"),
        ("-----BEGIN KEY-----\nfirstline\nlastline\n", "at 'firstline', after: lastline"),
        ("s" * 5000, "TOKEN: " + "s" * 5000),
    ],
)
def test_a_secret_of_several_words_or_lines_is_not_shown_either(
    program: Callable[..., Dstack], secret: str, said: str
) -> None:
    """Its text is joined to one line, and truncated, before it is shown."""
    with pytest.raises(OutcomeUnknown) as caught:
        program(apply=(1, said)).submit(NAME, {}, {"TOKEN": secret})
    assert not any(word in str(caught.value) for word in ("secret", "line", "BEGIN", "sss"))
    assert "***" in str(caught.value)


@pytest.mark.parametrize("behind", range(276, 300, 3))
def test_half_a_key_is_not_shown_wherever_its_output_is_cut(program: Callable[..., Dstack], behind: int) -> None:
    key = "Dq7-zW3.mB9_pX5+tR1vN8sD4"
    register_secret(key)
    with pytest.raises(OutcomeUnknown) as caught:
        program(apply=(1, f"invalid: {key}{'y' * behind}")).submit(NAME, {}, {})
    assert key[-3:] not in str(caught.value)


def test_a_program_that_is_not_there_was_sent_nothing() -> None:
    with pytest.raises(ProviderUnreachable, match="there is no program 'no-such-dstack'"):
        Dstack("no-such-dstack", "", {"PATH": os.defpath}).submit(NAME, {}, {})


def test_a_program_that_ends_long_after_its_answer_has_answered(tmp_path: Path) -> None:
    """A busy machine: the interpreter has closed its output, but takes time to end."""
    path = tmp_path / "dstack"
    path.write_text(f"#!/bin/sh\necho '{json.dumps(NOBODY)}'\nexec >&- 2>&-\nsleep 2.2\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    assert Dstack(str(path), "", os.environ, timeout_s=60.0).list_instances() == []
