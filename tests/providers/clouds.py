"""A cloud of machines without a network, for tests of what it makes of answers."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def cloud(name: str) -> Any:
    """Return the `MachineCloud` of a provider, with the options of its bench."""
    with import_module(f"tests.providers.{name}.bench").BENCH.pointed_at("https://never.example") as adapter:
        return adapter.launcher
