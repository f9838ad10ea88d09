"""Packages that are installed for one test."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.plugins.packages import install

Beside = Callable[..., None]


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Beside]:
    """Install a package beside gpuwatch: its project, modules and entry points."""
    known = set(sys.modules)

    def add(project: str, modules: Mapping[str, str], entries: Mapping[str, Mapping[str, str]]) -> None:
        monkeypatch.syspath_prepend(str(install(tmp_path / project, project, modules, entries)))

    yield add
    for name in set(sys.modules) - known:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]
