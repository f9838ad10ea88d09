"""The fork server loads no library that an installation without the test tools would lack."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import packages_distributions

import pytest

from tests.process.daemon_child import ROOT
from tests.process.fork_server import PRELOADED


@pytest.mark.parametrize("module", PRELOADED)
def test_what_is_loaded_before_the_fork_is_ours_or_locked_for_users(module: str) -> None:
    """A library that left the locks may still be in an old venv, and hide its import here."""
    locked = set(re.findall(r"(?m)^([a-z0-9-]+)", (ROOT / "requirements/runtime.txt").read_text()))
    package = module.partition(".")[0]
    owners = {name.lower().replace("_", "-") for name in _owners().get(package, ())}
    assert package == "gpuwatch" or owners & locked


@cache
def _owners() -> Mapping[str, list[str]]:
    """Return the distributions of each package; half a second of reading."""
    return packages_distributions()
