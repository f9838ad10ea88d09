"""The messages of a worker to its controller (pytest-xdist): of six messages per test, the controller uses two.

Each message is serialised in Python, sent, received by a thread and dispatched, for thousands of tests.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

NOTABLE_S = 0.005  # `--durations` lists nothing quicker


def send_less(plugins: Iterable[Any]) -> None:
    """Make xdist's plugin of this worker send only what the controller uses."""
    for plugin in plugins:
        if hasattr(plugin, "sendevent"):
            plugin.sendevent = _selected(plugin.sendevent)


def _selected(send: Any) -> Any:
    def send_if_read(name: str, **message: Any) -> None:
        if is_read(name, message):
            send(name, **message)

    return send_if_read


def is_read(name: str, message: dict[str, Any]) -> bool:
    """Return False for the start and end of a test, and for quick fixtures that passed without output."""
    if name in {"logstart", "logfinish"}:
        return False
    if name != "testreport":
        return True
    report = message["data"]
    is_silent = report["outcome"] == "passed" and not report["sections"] and report["duration"] < NOTABLE_S
    return report["when"] == "call" or not is_silent
