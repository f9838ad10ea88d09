"""The owner's hooks, joined to what carries them out: the shell and the network."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpuwatch.engine.hooks import Hooks, environment
from gpuwatch.net.webhook import post_signed
from gpuwatch.storage.hooks import HookRuns
from gpuwatch.system.command import run_command
from gpuwatch.wiring import monotonic, new_id, real_now

if TYPE_CHECKING:
    from gpuwatch.net import Http
    from gpuwatch.ports.hooks import HookCall
    from gpuwatch.settings import Settings
    from gpuwatch.storage.database import Database


class HookRunner:
    """Carries a hook out; `stopping` ends a command that runs."""

    def __init__(self, http: Http, stopping: threading.Event) -> None:
        self._http = http
        self._stopping = stopping

    def __call__(self, call: HookCall) -> str | None:
        """Run or send it; None: it went well, else one line that says what did not."""
        if call.spec.url is not None:
            return post_signed(self._http, call)
        try:
            ran = run_command(
                call.spec.command or "", call.body.encode(), environment(call), call.timeout_s, self._stopping
            )
        except OSError as error:
            return f"it could not be started: {error.strerror or error}"
        if ran.code == 0:
            return None
        how = f"it was ended after {call.timeout_s:g} s" if ran.code is None else f"it ended with code {ran.code}"
        return f"{how}: {ran.last_line}" if ran.last_line else how


def hooks_of(
    settings: Settings,
    store: Database,
    http: Http,
    channels_of: Callable[[str], tuple[str, ...]],
    stopping: threading.Event,
) -> Hooks:
    """The hooks of these settings over an opened store. `stopping`: set, no hook goes on."""
    return Hooks(
        HookRuns(store),
        HookRunner(http, stopping),
        watches={watch.name: watch for watch in settings.watches},
        channels_of=channels_of,
        new_id=new_id,
        clock=real_now,
        monotonic=monotonic,
        stopping=stopping,
    )
