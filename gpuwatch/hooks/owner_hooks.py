"""Runs the owner's part of a launch: its hooks, each a command or a signed webhook, and the command that rents."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.domain.launches.life.launch_record import launch_view
from gpuwatch.domain.market.offer import clean
from gpuwatch.domain.watches.orchestrator_task import as_yaml, filled_words, orchestrator_task_of
from gpuwatch.hooks.owner_command import CommandNotStarted, run_command
from gpuwatch.ports.hooks import SIGNATURE_HEADER, TIMESTAMP_HEADER, CommandOutcome, signature
from gpuwatch.ports.http import NetError
from gpuwatch.redaction import redact

if TYPE_CHECKING:
    from gpuwatch.domain.launches.launch import Launch
    from gpuwatch.domain.watches.decide import Match
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.ports.hooks import HookCall
    from gpuwatch.ports.http import HttpClient


# --- hooks: a command, or a webhook -----------------------------------------------------------------------------------


class HookRunner:
    """Runs hooks; setting `stopping` ends a running command."""

    def __init__(self, http: HttpClient, stopping: threading.Event) -> None:
        self._http = http
        self._stopping = stopping

    def __call__(self, call: HookCall) -> str | None:
        """Run the command or send the webhook. Returns None on success, or one line about the failure."""
        if call.spec.url is not None:
            return post_signed(self._http, call)
        try:
            argv = ("/bin/sh", "-c", call.spec.command or "")
            variables = hook_environment(call.event, call.body)
            result = run_command(argv, call.body.encode(), variables, call.timeout_s, self._stopping)
        except CommandNotStarted as error:
            return f"could not start: {error.strerror}"
        if result.code == 0:
            return None
        failure = f"timed out after {call.timeout_s:g} s" if result.code is None else f"exited with code {result.code}"
        return f"{failure}: {result.last_line}" if result.last_line else failure


def hook_environment(event: str, body: str) -> dict[str, str]:
    """Environment variables of a command; the launch is on its standard input."""
    launch = msgspec.json.decode(body, type=dict[str, object])
    variables = {"GPUWATCH_EVENT": event}
    for name in ("launch_id", "watch", "provider", "instance_id", "state"):
        if launch.get(name) is not None:
            variables[f"GPUWATCH_{name.upper()}"] = clean(str(launch[name]))
    address = launch.get("ssh")
    if isinstance(address, dict):
        variables |= {f"GPUWATCH_SSH_{name.upper()}": clean(str(value)) for name, value in address.items()}
    return variables


# --- signed webhooks: the receiver can verify sender, content and time ------------------------------------------------


_MAX_RESPONSE_BYTES = 65_536


def post_signed(http: HttpClient, call: HookCall) -> str | None:
    """POST a hook once; redirects are not followed. None: accepted (2xx), else one line with the reason.

    Args:
        call: one with a `url`.
    """
    body, timestamp = call.body.encode(), str(int(call.at.timestamp()))
    headers = {
        "Content-Type": "application/json",
        "X-Gpuwatch-Event": call.event,
        TIMESTAMP_HEADER: timestamp,
    }
    if call.spec.secret is not None:
        headers[SIGNATURE_HEADER] = signature(call.spec.secret.reveal(), timestamp, body)
    try:
        return _post(http, call.spec.url.reveal() if call.spec.url else "", headers, body, call.timeout_s)
    except NetError as error:
        return redact(str(error))


def _post(http: HttpClient, url: str, headers: Mapping[str, str], body: bytes, timeout_s: float) -> str | None:
    with http.stream("POST", url, headers=headers, content=body, deadline_s=timeout_s) as response:
        if 200 <= response.status < 300:
            return None  # the body of a 2xx answer is ignored
        lines = response.read(_MAX_RESPONSE_BYTES).decode("utf-8", "replace").strip().splitlines()
    redirect_note = "; redirects are not followed" if 300 <= response.status < 400 else ""
    last_line = f": {lines[-1].strip()}" if lines else ""
    return redact(f"the receiver answered {response.status}{redirect_note}{last_line}")


# --- the command of a launch (`action = "command"`) -------------------------------------------------------------------


_OUTPUT_LINES = 4
_MAX_OUTPUT_LENGTH = 500


class LaunchCommandRunner:
    """Runs one command for one launch; setting `stopping` ends it."""

    def __init__(self, stopping: threading.Event) -> None:
        self._stopping = stopping

    def __call__(self, launch: Launch, watch: Watch, match: Match, now: datetime) -> CommandOutcome:
        """Run it within its timeout, with the launch on standard input. It may have run, whatever is raised."""
        with TemporaryDirectory(prefix="gpuwatch-", ignore_cleanup_errors=True) as folder:
            argv = list(filled_words(watch, match, launch.launch_id, _task_file(Path(folder), watch, match)))
            if "/" in argv[0]:
                argv[0] = os.path.abspath(argv[0])
            body = msgspec.json.encode({"event": "command", **launch_view(launch, now).json()}).decode()
            try:
                result = run_command(
                    argv,
                    body.encode(),
                    hook_environment("command", body),
                    watch.command_timeout_s,
                    self._stopping,
                    _working_folder(watch, folder),
                )
            except CommandNotStarted as error:
                return CommandOutcome(not_started=f"{argv[0]}: {error.strerror}")
        return CommandOutcome(
            code=result.code, output=clean(redact(result.last_lines(_OUTPUT_LINES)), _MAX_OUTPUT_LENGTH)
        )


def _working_folder(watch: Watch, folder: str) -> str | None:
    """dstack 0.22.5 fails for a file outside its working directory (`load_apply_configuration`)."""
    return folder if watch.handover is not None and watch.handover.to == "dstack" else None


def _task_file(folder: Path, watch: Watch, match: Match) -> str:
    """The path of the task as `gpuwatch watches handover` prints it; "": not needed."""
    if watch.handover is None:
        return ""
    path = folder / ("task.yaml" if watch.handover.to == "skypilot" else "task.dstack.yml")
    path.write_text(as_yaml(orchestrator_task_of(watch.handover.to, watch, match, watch.handover.run)), "utf-8")
    return str(path)
