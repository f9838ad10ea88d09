"""How a worker of pytest-xdist died: the controller only says that it did."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest


class WorkerDeaths:
    """Writes, below a run's summary, which signal ended each worker that died, and the memory left at that moment."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object | None) -> None:
        """Note a worker that ended too early."""
        if error:
            code = node.gateway._io.popen.wait(timeout=60)
            self.lines.append(f"worker {node.gateway.id} died: {ending(code)}; {memory_left()}")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the lines."""
        for line in self.lines:
            terminalreporter.write_line(line, red=True)


def tell_of_deaths(config: pytest.Config) -> None:
    """Register it, if this process is the controller of workers."""
    if config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput"):
        config.pluginmanager.register(WorkerDeaths())


def ending(code: int) -> str:
    """ "SIGSEGV", or "exit code 1", from the return code of a process."""
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def memory_left() -> str:
    """ "512 MB of memory are left", empty where no file tells."""
    file = Path("/proc/meminfo")
    lines = file.read_text().splitlines() if file.exists() else []
    return next(
        (f"{int(line.split()[1]) >> 10} MB of memory are left" for line in lines if line.startswith("MemAvailable:")),
        "",
    )
