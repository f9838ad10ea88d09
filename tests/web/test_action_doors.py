"""What a person can do on a page, a program and a terminal can do, too: by the same use case, with the same rules."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import click
import pytest

from gpuwatch.chat.chat_actions import COMMANDS
from gpuwatch.cli import main
from gpuwatch.web.api.api_actions import ACTIONS
from gpuwatch.web.page import pages


class Door(NamedTuple):
    """Beside a page's action: the module of the use case, the command, the request, and the chat's command."""

    use_case: str
    command: str
    request: str
    chat: str | None


DOORS = {
    "/approvals/{id}/approve": Door("launches.approvals", "approvals approve", "/approvals/{id}/approve", "approve"),
    "/approvals/{id}/deny": Door("launches.approvals", "approvals deny --why", "/approvals/{id}/deny", "deny"),
    "/launches/{id}/stop": Door("launches.stop", "launches stop", "/launches/{id}/stop", "stop"),
    "/launches/{id}/keep-disk": Door(
        "launches.keep_disk", "launches stop --keep-disk --for", "/launches/{id}/stop", "stop"
    ),
    "/launches/{id}/start": Door("launches.keep_disk", "launches start --for", "/launches/{id}/start", "start"),
    "/rent": Door("launches.requests.rent", "launches rent --for --image --disk --spot", "/rent", "rent"),
    "/launches/{id}/extend": Door("launches.extend", "launches extend --by", "/launches/{id}/extend", "extend"),
    "/launches/{id}/absent": Door("launches.launches", "launches resolve --absent", "/launches/{id}/absent", "resolve"),
    "/launches/{id}/exists": Door("launches.launches", "launches resolve --adopt", "/launches/{id}/exists", "resolve"),
    "/jobs/{id}/cancel": Door("jobs.job_actions", "jobs cancel", "/jobs/{id}/cancel", "jobs"),
    "/jobs/series/{name}/end": Door("jobs.job_actions", "jobs cancel", "/series/{id}/end", "jobs"),
    "/jobs/{id}/retry": Door("jobs.job_actions", "jobs retry", "/jobs/{id}/retry", "jobs"),
    "/pause": Door("watches.pauses", "watches pause --for --why --group", "/pause", "pause"),
    "/resume": Door("watches.pauses", "watches resume --group", "/resume", "resume"),
    "/watches/{name}/silence": Door("alerts.alerts", "alerts silence --for", "/silence", "silence"),
    "/groups/{name}/silence": Door("alerts.alerts", "alerts silence --group --for --end", "/silence", "silence"),
    "/alerts/unsilence": Door("alerts.alerts", "alerts silence --end", "/unsilence", "silence"),
    "/watches/{name}/rehearse": Door("watches.rehearse", "watches rehearse", "/watches/{id}/rehearse", None),
    "/share": Door("setup.sharing.share_links", "share --for", "/share", None),
    "/share/revoke": Door("setup.sharing.share_links", "share", "/share/revoke", None),
}
# They write files of this machine, with what the page shows before: a terminal has an editor, and a program the file.
OF_FILES = {"/plan/job", "/watches/preview", "/watches/save"}
each_door = pytest.mark.parametrize("path", DOORS)


def run_on_pages() -> dict[str, Callable[..., Any]]:
    return {action.path: action.run for page in pages() for action in page.actions}


def command(words: str) -> click.Command:
    found: click.Command = main
    for word in words.split():
        if not word.startswith("--"):
            assert isinstance(found, click.Group)
            inner = found.get_command(click.Context(found), word)
            assert inner is not None, words
            found = inner
    return found


def imports(run: Callable[..., Any]) -> set[str]:
    """The modules that the module of a function imports, also where it imports names from them."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(inspect.getsource(sys.modules[inspect.unwrap(run).__module__]))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
    return found


def test_every_action_of_a_page_has_a_door_elsewhere() -> None:
    actions = {path for path in run_on_pages() if not path.startswith("/first/")}  # the steps write the settings file
    assert actions == set(DOORS) | OF_FILES


def test_the_api_can_do_nothing_that_no_page_can() -> None:
    assert {action.path for action in ACTIONS} == {door.request for door in DOORS.values()}


@each_door
def test_page_command_and_request_call_one_use_case(path: str) -> None:
    door, use_case = DOORS[path], f"gpuwatch.app.{DOORS[path].use_case}"
    of_command, request = command(door.command), next(one for one in ACTIONS if one.path == door.request)
    options = {name for param in of_command.params for name in param.opts}
    assert {word for word in door.command.split() if word.startswith("--")} <= options
    assert of_command.callback is not None
    assert use_case in imports(run_on_pages()[path])
    assert use_case in imports(of_command.callback)
    assert use_case in imports(request.run)
    page_action = next(action for page in pages() for action in page.actions if action.path == path)
    assert page_action.scope == request.scope, "who may do it on the page may do it with a token, and nobody else"


def test_the_chat_has_most_of_them() -> None:
    assert {door.chat for door in DOORS.values() if door.chat} <= set(COMMANDS)
