"""Runs one hook of a launch: the owner's command, or a signed webhook."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.domain.market.text import clean
from gpuwatch.hooks.owner_command import CommandNotStarted, run_command
from gpuwatch.hooks.signed_post import post_signed

if TYPE_CHECKING:
    from gpuwatch.ports.hooks import HookCall
    from gpuwatch.ports.http import HttpClient


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
    return variables
