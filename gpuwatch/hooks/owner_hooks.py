"""Runs the command of a launch (`action = "command"`), with its task file if it needs one."""

from __future__ import annotations

import threading
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.domain.launches.life.launch_json import launch_json
from gpuwatch.domain.market.text import clean
from gpuwatch.domain.watches.command_words import filled_words
from gpuwatch.domain.watches.orchestrator_task import as_yaml, orchestrator_task_of
from gpuwatch.hooks.owner_command import CommandNotStarted, run_command
from gpuwatch.hooks.runner import hook_environment
from gpuwatch.ports.hooks import CommandOutcome
from gpuwatch.redaction import redact

if TYPE_CHECKING:
    from gpuwatch.domain.launches.launch import Launch
    from gpuwatch.domain.watches.decide import Match
    from gpuwatch.domain.watches.watch import Watch

_OUTPUT_LINES = 4
_MAX_OUTPUT_LENGTH = 500


class LaunchCommandRunner:
    """Runs one command for one launch; setting `stopping` ends it."""

    def __init__(self, stopping: threading.Event) -> None:
        self._stopping = stopping

    def __call__(self, launch: Launch, watch: Watch, match: Match, now: datetime) -> CommandOutcome:
        """Run it within its timeout, with the launch on standard input. It may have run, whatever is raised."""
        with TemporaryDirectory(prefix="gpuwatch-", ignore_cleanup_errors=True) as folder:
            argv = filled_words(watch, match, launch.launch_id, _task_file(Path(folder), watch, match))
            body = msgspec.json.encode({"event": "command", **launch_json(launch, now)}).decode()
            try:
                result = run_command(
                    argv,
                    body.encode(),
                    hook_environment("command", body),
                    watch.command_timeout_s,
                    self._stopping,
                )
            except CommandNotStarted as error:
                return CommandOutcome(not_started=f"{argv[0]}: {error.strerror}")
        return CommandOutcome(
            code=result.code, output=clean(redact(result.last_lines(_OUTPUT_LINES)), _MAX_OUTPUT_LENGTH)
        )


def _task_file(folder: Path, watch: Watch, match: Match) -> str:
    """The path of the task as `gpuwatch handover` prints it; "": not needed."""
    if watch.handover is None:
        return ""
    path = folder / ("task.yaml" if watch.handover.to == "skypilot" else "task.dstack.yml")
    path.write_text(as_yaml(orchestrator_task_of(watch.handover.to, watch, match, watch.handover.run)), "utf-8")
    return str(path)
