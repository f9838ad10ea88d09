"""The keys of `action = "command"`: what they require, and what they exclude."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.settings.conftest import WATCH, Loader

Faults = Callable[..., tuple[str, ...]]
COMMAND = f'{WATCH}action = "command"\ncommand = ["rent", "{{region}}"]\n'


def test_a_command_that_rents_is_a_list_of_words(loaded: Loader, faults: Faults) -> None:
    (watch,) = loaded(f'{COMMAND}command_timeout = "2m"\n').watches
    assert (watch.action.value, watch.command, watch.command_timeout_s) == ("command", ("rent", "{region}"), 120.0)
    ready = COMMAND.replace("{region}", "{task_file}") + 'handover = { to = "dstack", run = "./train" }\n'
    (watch,) = loaded(ready).watches
    assert (watch.handover.to, watch.handover.run) == ("dstack", "./train")
    (fault,) = faults(COMMAND.replace('["rent", "{region}"]', '"rent {region}"'))
    assert "command" in fault
    (fault,) = faults(COMMAND.replace("{region}", "{zone}"))
    assert "unknown placeholder {zone}" in fault


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (f'{WATCH}command = ["rent"]\n', 'command: expected only with action = "command"'),
        (f'{WATCH}action = "command"\n', "command: required key is missing"),
        (COMMAND.replace("{region}", "{task_file}"), "handover: expected with {task_file} in command"),
        (f'{COMMAND}handover = {{ to = "dstack", run = "x" }}\n', "handover: expected with {task_file} in command"),
        (f"{COMMAND}relocate = {{}}\n", 'relocate: expected only with action = "launch" or "ask"'),
        (f'{COMMAND}launch = {{ verify = "ssh" }}\n', "launch.verify: expected only with"),
        (f'{COMMAND}launch = {{ before_stop = "x" }}\n', "launch.before_stop: expected only with"),
        (
            f'{COMMAND}launch = {{ max_runtime = "1h" }}\n'.replace("max_price = 3.60", "max_job_cost = 9"),
            "max_job_cost",
        ),
        (f"dry_run = false\n{COMMAND}", 'action = "command" with dry_run = false needs limits'),
    ],
)
def test_a_command_without_what_it_needs_is_a_fault(faults: Faults, text: str, fault: str) -> None:
    assert any(fault in one for one in faults(text))
