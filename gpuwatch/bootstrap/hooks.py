"""The owner's hooks, joined to what carries them out: the shell and the network."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpuwatch.bootstrap import monotonic, new_id, real_now
from gpuwatch.engine.launch_hooks import LaunchHooks, hook_environment
from gpuwatch.hooks.command import run_command
from gpuwatch.hooks.webhook import post_signed
from gpuwatch.storage.hook_runs import SqlHookQueue

if TYPE_CHECKING:
    from gpuwatch.ports.hooks import HookCall
    from gpuwatch.ports.http import HttpClient
    from gpuwatch.settings import Settings
    from gpuwatch.storage.database import Database


class HookRunner:
    """Carries a hook out; `stopping` ends a command that runs."""

    def __init__(self, http: HttpClient, stopping: threading.Event) -> None:
        self._http = http
        self._stopping = stopping

    def __call__(self, call: HookCall) -> str | None:
        """Run or send it; None: it went well, else one line that says what did not."""
        if call.spec.url is not None:
            return post_signed(self._http, call)
        try:
            ran = run_command(
                call.spec.command or "", call.body.encode(), hook_environment(call), call.timeout_s, self._stopping
            )
        except OSError as error:
            return f"it could not be started: {error.strerror or error}"
        if ran.code == 0:
            return None
        how = f"it was ended after {call.timeout_s:g} s" if ran.code is None else f"it ended with code {ran.code}"
        return f"{how}: {ran.last_line}" if ran.last_line else how


def build_hooks(
    settings: Settings,
    store: Database,
    http: HttpClient,
    channels_of: Callable[[str], tuple[str, ...]],
    stopping: threading.Event,
) -> LaunchHooks:
    """The hooks of these settings over an opened store. `stopping`: set, no hook goes on."""
    return LaunchHooks(
        SqlHookQueue(store),
        HookRunner(http, stopping),
        watches={watch.name: watch for watch in settings.watches},
        channels_of=channels_of,
        new_id=new_id,
        clock=real_now,
        monotonic=monotonic,
        stopping=stopping,
    )
