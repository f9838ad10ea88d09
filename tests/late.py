"""Large libraries that few tests need: loaded at first use, not by every worker that collects the tests."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class LateModule:
    """Represents a module; the first access to an attribute loads it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest looks through what a file holds
            raise AttributeError(name)
        return getattr(import_module(self._name), name)
